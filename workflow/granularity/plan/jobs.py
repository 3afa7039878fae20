"""What a configuration makes: its label spaces, its trainings, the jobs that hold them and where each result lies.

Pure Python, so that a dry run is quick: rules ask this module, and nobody else spells a path.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from granularity.base.errors import GranularityError
from granularity.base.seeds import seed_of
from granularity.config.options import Condition, Config, Nested
from granularity.learning.runs import Run
from granularity.stages.theory import WORLDS
from granularity.store.artifacts import canonical_json
from granularity.store.contents import FILES

__all__ = ["FILES", "seed_of"]

# kind -> where its folder lies; wildcards in braces
PATHS = {
    "samples": "{root}/{condition}/samples",
    "pixels": "{root}/{condition}/pixels",
    "encoder": "{root}/{condition}/encoder",
    "embedding": "{root}/{condition}/embedding",
    "clusters": "{root}/{condition}/clusters/{clustering}",
    "label_space": "{root}/{condition}/label_spaces/{space}",
    "pretrain": "{root}/{condition}/pretrain/{unit}",
    "finetune": "{root}/{condition}/finetune/{unit}",
    "probe": "{root}/{condition}/probe/{unit}",
    "theory_runs": "results/theory/parts/{world}/{part}",
    "theory": "results/theory/{world}",
    "report": "{root}/report",
}
# The report's figures (.svg) and tables (.csv and .parquet) -> their captions in report/captions/
FIGURES = {
    "granularity_curve": "granularity_curve",
    "differences": "differences",
    "probe": "probe_figure",
    "agreement": "agreement",
    "class_sizes": "class_sizes",
    "montage": "montage",
}
TABLES = {name: name for name in ("results", "probe", "properties", "cost")}
# kind -> the module whose import closure makes it
MODULES = {
    "samples": "granularity.stages.samples.stage",
    "pixels": "granularity.stages.pixels.stage",
    "encoder": "granularity.stages.encoder.stage",
    "embedding": "granularity.stages.embed.stage",
    "clusters": "granularity.stages.cluster.stage",
    "label_space": "granularity.stages.hierarchy.stage",
    "pretrain": "granularity.stages.pretrain",
    "finetune": "granularity.stages.finetune",
    "probe": "granularity.stages.probe",
    "report": "granularity.stages.report.stage",
}
TARGET = "target"  # the retraining baseline: the same two stages, both on the target labels


def root(config: Config) -> str:
    return f"results/{config.name}"


def page(config: Config) -> str:
    """The report: what the default run ends in."""
    return f"{root(config)}/report.html"


def record(kind: str, folder: str) -> str:
    """The pattern of a job's log (`logs`) or of Snakemake's measurements (`benchmarks`): beside the results, named
    like the artifact."""
    start = next(start for start in ("{root}/", "results/theory/") if PATHS[kind].startswith(start))
    suffix = {"logs": "log", "benchmarks": "tsv"}[folder]
    return f"{start}{folder}/{PATHS[kind].removeprefix(start)}.{suffix}"


def encoder_files(config: Config) -> list[str]:
    """The user's files that an encoder is read from; a change to one makes the embedding again."""
    model, weights = config.encoder.model, config.encoder.pretrained
    if model.startswith("local-dir:"):
        files = (str(file) for file in Path(model.removeprefix("local-dir:")).iterdir() if file.is_file())
        return sorted(file for file in files if not {"{", "}"} & set(file))  # Snakemake would take it for a wildcard
    return [name for name in (model, weights) if name is not None and os.path.isfile(name)]


def condition_name(condition: Condition) -> str:
    return f"train-{condition.train_size}"


@dataclass(frozen=True)
class Space:
    """A label space to be made: `name` is unique within a condition, `params` its definition."""

    name: str
    family: str
    params: dict[str, Any]


def spaces(config: Config, condition: Condition) -> list[Space]:
    """The label spaces of a condition, the target first."""
    wanted, samples = config.label_spaces, config.samples
    manual = [rank for rank in samples.ranks if rank != samples.target] if wanted.manual is None else wanted.manual
    grid = [f"superclass-{n}" for n in sorted(wanted.rebalanced.clusters)]
    found = [
        Space(TARGET, "manual", {"rank": samples.target}),
        *(Space(f"manual-{rank}", "manual", {"rank": rank}) for rank in manual),
        *(Space(f"wordnet-{k}", "wordnet", {"level": k}) for k in wanted.wordnet),
        *(Space(f"random-{n}", "random", {"classes": n}) for n in wanted.random),
        *(Space("random-instance", "random", {"classes": None}) for _ in range(wanted.random_instance)),
        *(
            Space(f"random-superclass-{n}", "random_superclass", {"per_superclass": n})
            for n in wanted.random_superclass
        ),
        *(Space(f"kmeans-{n}", "kmeans", {"clusterings": [f"whole-{n}"]}) for n in wanted.kmeans),
        *_clustered("superclass", wanted.kmeans_superclass),
        *_clustered("class", wanted.kmeans_class),
        *(
            Space(f"rebalanced-{threshold}", "rebalanced", {"clusterings": grid, "threshold": threshold})
            for threshold in wanted.rebalanced.thresholds
        ),
        *_nested(wanted.nested),
        *(Space(f"coarse-mod-{n}", "coarse_mod", {"classes": n}) for n in wanted.coarse_mod),
        *(Space(f"random-coarse-{n}", "random_coarse", {"classes": n}) for n in wanted.random_coarse),
        *(Space("random-fine", "random_fine", {}) for _ in range(wanted.random_fine)),
    ]
    if condition.spaces is None:
        return found
    unknown = set(condition.spaces) - {space.name for space in found}
    if unknown:
        raise GranularityError(
            f"conditions: train_size {condition.train_size} names the label spaces {sorted(unknown)}, which "
            f"label_spaces does not make; it makes {[space.name for space in found]}"
        )
    return [space for space in found if space.name == TARGET or space.name in condition.spaces]


def _clustered(within: str, counts: list[int]) -> list[Space]:
    """k-means within each superclass, or within each class of the finest rank."""
    family = f"kmeans_{within}"
    return [Space(f"kmeans-{within}-{n}", family, {"clusterings": [f"{within}-{n}"]}) for n in counts]


def _nested(wanted: Nested) -> list[Space]:
    """The levels of a tree of clusters made from above, and of one made from below."""
    within = "" if wanted.scope == "whole" else f"-{wanted.scope}"
    tree = "-".join(map(str, [wanted.scope, *wanted.topdown]))
    found = []
    for level in range(1, len(wanted.topdown) + 1):
        name = "-".join(map(str, wanted.topdown[:level]))
        params = {"clusterings": [tree], "level": level}
        found.append(Space(f"topdown{within}-{name}", "topdown", params))
    finest = max(wanted.bottomup, default=0)
    for n in wanted.bottomup:
        params = {"clusterings": [f"{wanted.scope}-{finest}"], "classes": n}
        found.append(Space(f"bottomup{within}-{n}", "bottomup", params))
    return found


def clusterings(spaces: Iterable[Space]) -> list[str]:
    """The clusterings that label spaces are read from, such as `whole-30` or `superclass-3`."""
    return list(dict.fromkeys(name for space in spaces for name in space.params.get("clusterings", ())))


def pretrain_runs(config: Config, condition: Condition) -> list[Run]:
    """Every pretraining of a condition.

    The target is pretrained as often as an arm is finetuned: the first stage on target labels *is* the one-pass
    baseline, which so gets as many seeds as the others.
    """
    runs = []
    for space in spaces(config, condition):
        one_pass = config.seeds.pretrain * config.seeds.finetune
        count = one_pass if space.name == TARGET else config.seeds.pretrain
        for seed in range(count):
            made_from = [space.params, config.pretrain, config.model, config.pixels, config.seeds.base, seed]
            runs.append(Run(space.name, seed, None, _run_id(condition, space, made_from)))
    return runs


def finetune_runs(config: Config, condition: Condition) -> list[Run]:
    """Every finetuning of a condition: each seed on each of the first `seeds.pretrain` backbones of a space."""
    runs = []
    for parent in pretrain_runs(config, condition):
        if parent.pretrain_seed >= config.seeds.pretrain:
            continue
        for seed in range(config.seeds.finetune):
            run_id = _run_id(condition, parent, [config.finetune, seed])
            runs.append(Run(parent.space, parent.pretrain_seed, seed, run_id))
    return runs


def _run_id(condition: Condition, *made_from: Any) -> str:
    values = [condition.train_size, made_from]
    text = canonical_json(_plain(values))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, Space | Run):
        return asdict(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def units(config: Config, condition: Condition, stage: str) -> dict[str, list[Run]]:
    """The runs of a stage (pretrain, finetune or probe) grouped into jobs, as `jobs.STAGE` says."""
    level = getattr(config.jobs, stage)
    family = {space.name: space.family for space in spaces(config, condition)}
    runs = finetune_runs(config, condition) if stage == "finetune" else pretrain_runs(config, condition)
    if stage == "probe":  # the extra seeds of the target are there for the one-pass baseline alone
        runs = [run for run in runs if run.pretrain_seed < config.seeds.pretrain]
    grouped: dict[str, list[Run]] = {}
    for run in runs:
        unit = {"condition": "all", "family": family[run.space], "space": run.space, "run": run.name}[level]
        grouped.setdefault(unit, []).append(run)
    return grouped


def targets(config: Config, kind: str) -> list[dict[str, str]]:
    """The wildcards of every artifact of a kind, one dict each."""
    if kind == "report":
        return [{}]
    if kind == "theory":
        return [{"world": world} for world in WORLDS]
    if kind == "theory_runs":
        return [{"world": world, "part": str(part)} for world in WORLDS for part in range(config.theory.parts)]
    found = []
    for condition in config.conditions:
        place = {"condition": condition_name(condition)}
        if kind in ("pretrain", "finetune", "probe"):
            found += [place | {"unit": unit} for unit in units(config, condition, kind)]
        elif kind == "label_space":
            found += [place | {"space": space.name} for space in spaces(config, condition)]
        elif kind == "clusters":
            found += [place | {"clustering": name} for name in clusterings(spaces(config, condition))]
        elif kind != "encoder" or config.encoder.trained_here:
            found.append(place)
    return found
