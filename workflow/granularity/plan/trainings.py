"""Networks, transfers and their runs: what is trained, with which recipe, and what each run's id covers."""

import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from granularity.base.section import Section, dotted, explained
from granularity.learning.options import OF_OTHERS, Init, Model, Objective, Recipe, check_keep
from granularity.learning.runs import Run
from granularity.stages.hierarchy.space import TARGET, Space
from granularity.stages.report.options import MERGED
from granularity.store.artifact import canonical_json

ARGUMENTS = ("optimizer_args", "policy_args")  # keys whose values are inherited whole
DEFAULT_TRANSFER = "target"  # finetuning on the target of the same data


@dataclass(frozen=True)
class NetworkPlan:
    """A kind of network, with defaults filled in."""

    name: str  # including its combination of grid values
    entry: str  # its name in the configuration
    where: str  # configuration key of its recipe
    model: Model
    recipe: Recipe
    objective: Objective
    init: Init
    spaces: list[str] | None
    keep: list[int]
    merged: bool = False  # trained for the epochs of both stages, not finetuned


@dataclass(frozen=True)
class DataPlan:
    """A data set to transfer to: its folder below the results, its key in the configuration, and its content."""

    name: str
    where: str
    samples: Any
    train_size: int | str


@dataclass(frozen=True)
class TransferPlan:
    """A way to finetune, with defaults filled in; `data` is None for the images of the pretraining."""

    name: str
    where: str
    of: list[str] | None
    recipe: Recipe
    keep: bool
    data: DataPlan | None = None
    from_epoch: int | None = None

    def finetunes(self, network: NetworkPlan) -> bool:
        return not network.merged and (self.of is None or network.entry in self.of)


def networks(config: Any) -> list[NetworkPlan]:
    """Return the networks of a configuration: those of its list, or the one that `model` and `pretrain` describe. If a
    condition merges label spaces, add a merged-head network for each that is finetuned on the same images.
    """
    plans = list(_entries(config))
    if not any(condition.merged for condition in config.conditions):
        return plans
    finetunings = [plan for plan in transfers(config) if plan.data is None]
    twins = []
    for plan in (plan for plan in plans if plan.objective == Objective()):
        after = next((way.recipe.epochs for way in finetunings if way.finetunes(plan)), None)
        if after is not None:
            recipe = plan.recipe.model_copy(update={"epochs": plan.recipe.epochs + after})
            twins.append(replace(plan, name=plan.name + MERGED, recipe=recipe, keep=[], merged=True))
    return plans + twins


def _entries(config: Any) -> Iterator[NetworkPlan]:
    if not config.networks:
        name = _word(config.model.name)
        yield NetworkPlan(name, name, "pretrain", config.model, config.pretrain, Objective(), Init(), None, [])
    for i, entry in enumerate(config.networks):
        base = config.model
        if entry.model.get("name", base.name) != base.name:
            base = base.model_copy(update=OF_OTHERS)
        model = merged(base, entry.model, f"networks.{i}.model")
        for suffix, where, recipe in _recipes(config, entry, f"networks.{i}", "pretrain"):
            try:
                check_keep(entry.keep, recipe)
            except ValueError as error:
                raise ValueError(f"networks.{i}.{error}") from None
            more = entry.objective, entry.init, entry.spaces, sorted(entry.keep)
            yield NetworkPlan(entry.name + suffix, entry.name, where, model, recipe, *more)


def transfers(config: Any) -> list[TransferPlan]:
    """Return the transfers of a configuration: those of its list, or the one that `finetune` describes."""
    if not config.transfers:
        return [TransferPlan(DEFAULT_TRANSFER, "finetune", None, config.finetune, False)]
    plans = []
    for i, entry in enumerate(config.transfers):
        data, where = None, f"transfers.{i}.data"
        if entry.data is not None:
            samples = parsed(type(config.samples), entry.data.samples, f"{where}.samples")
            data = DataPlan(f"data-{entry.name}", where, samples, entry.data.train_size)
        for suffix, key, recipe in _recipes(config, entry, f"transfers.{i}", "finetune"):
            plans.append(TransferPlan(entry.name + suffix, key, entry.of, recipe, entry.keep, data, entry.from_epoch))
    return plans


def _recipes(config: Any, entry: Any, where: str, section: str) -> Iterator[tuple[str, str, Recipe]]:
    """Yield each combination of an entry's grid values: its suffix of the name, its key, and the recipe."""
    base = merged(getattr(config, section), entry.recipe, f"{where}.recipe")
    if not all(entry.grid.values()):
        raise ValueError(f"{where}.grid: a key has no values")
    key = f"{where}.recipe" if entry.recipe or entry.grid else section
    for values in itertools.product(*entry.grid.values()):
        chosen = dict(zip(entry.grid, values, strict=True))
        suffix = "".join(f"_{name}-{_word(str(value))}" for name, value in chosen.items())
        yield suffix, key, merged(base, chosen, f"{where}.grid")


def merged(section: Section, over: dict[str, Any], where: str) -> Any:
    """Return a section with some keys changed; raises as :func:`parsed`."""
    return parsed(type(section), deep(section.model_dump(mode="json"), over), where) if over else section


def parsed(model: type[Section], values: dict[str, Any], where: str) -> Any:
    """Build a section. Raise ValueError for a wrong key, with its place in the configuration in front."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        path, _, what = explained(error, model, values)[0]
        raise ValueError(f"{dotted([where, *path])}: {what}") from None


def deep(base: dict, over: dict) -> dict:
    """Return a mapping merged with another, whose values win, at every level; but the arguments of an optimiser or a
    policy replace all others, because another one may not take them.
    """
    found = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(found.get(key), dict) and key not in ARGUMENTS
        found[key] = deep(found[key], value) if both else value
    return found


def _word(text: str) -> str:
    return re.sub("[^A-Za-z0-9_.-]", "-", text)


def pretrainings(config: Any, network: NetworkPlan, condition: Any, spaces: Iterable[Space]) -> list[Run]:
    """Return all pretrainings of a network on the label spaces of a condition; on the target as many as another label
    space has finetunings.
    """
    runs = []
    for space in spaces:
        alike = _plain(
            {
                "data": condition.identity,
                "space": [space.family, space.params, *condition.made_by(space, network)],
                "pixels": config.pixels,
                "model": network.model,
                "recipe": network.recipe,
                "objective": network.objective,
                "init": initial(network),
                "processes": config.jobs.processes,
            }
        )
        one_pass = condition.backbones * (1 if network.merged else config.seeds.finetune)
        for seed in range(one_pass if space.name == TARGET else condition.backbones):
            runs.append(Run(space.name, seed, None, _digest({**alike, "seeds": [config.seeds.base, seed]})))
    return runs


def initial(network: NetworkPlan) -> dict[str, str]:
    """Return the identity of a network's initial weights, wherever they lie."""
    if network.init.run is not None:
        return {"run": network.init.run.rpartition("-")[2]}
    return {} if network.init.timm is None else {"timm": str(network.init.timm)}


def finetunings(config: Any, transfer: TransferPlan, parents: Iterable[Run], data: Any) -> list[Run]:
    """Return all finetunings: each seed on each of some backbones."""
    runs, alike = [], _plain({"recipe": transfer.recipe, "data": data.identity})
    if transfer.from_epoch is not None:
        alike["epoch"] = transfer.from_epoch
    for parent in parents:
        for seed in range(config.seeds.finetune):
            run_id = _digest({**alike, "parent": parent.id, "seed": seed})
            runs.append(Run(parent.space, parent.pretrain_seed, seed, run_id))
    return runs


def _digest(made_from: dict[str, Any]) -> str:
    return hashlib.sha256(canonical_json(made_from).encode()).hexdigest()[:8]


def _plain(value: Any) -> Any:
    if isinstance(value, Section):
        return value.identity
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
