"""Stage `pretrain`: networks trained on label spaces, or with another objective."""

import functools
from collections.abc import Callable
from types import ModuleType

import pandas as pd
import torch
from safetensors.torch import load_file

from granularity.base.errors import GranularityError
from granularity.base.seeds import seed_of
from granularity.base.strict_json import read_safetensors_header
from granularity.learning.data.dataset import Data
from granularity.learning.networks.backbones import Backbones, copy_backbone, without_lineage
from granularity.learning.networks.network import build
from granularity.learning.options import Pretrain
from granularity.learning.runs import Run
from granularity.learning.training import objectives
from granularity.learning.training.trainings import Training, prepared, train_runs
from granularity.machine.first_process import all_opened, create, opened
from granularity.store.artifact import Artifact, readable
from granularity.store.hashing import digest_of
from granularity.store.task import Task


def run(task: Task) -> None:
    """Train the runs of one job (docs/artifacts.md). Raises GranularityError: an input is missing or does not fit the
    samples, the objective or the network, or a loss is no longer finite.
    """
    options: Pretrain = task.options
    recipe, runs = options.recipe, [Run.parse(name) for name in options.runs]
    place, inputs, resolved, decides = prepared(task)
    objective, chosen = objectives.chosen(options.objective)
    sources = _sources(task, objective.NEEDS, runs)
    facts = {run.id: objective.describe(sources[run.space], recipe, chosen) for run in runs}
    start, identity, bytes_of_start, extra = _start(task, options)
    about = {"model": resolved["model"], "objective": resolved["objective"]}
    decides |= {**about, "init": bytes_of_start}
    made_from = {role: [one.digest] for role, one in inputs.items()}
    resolved |= {"init": identity}
    held = sources if objective.NEEDS == "hierarchy" else {objective.NEEDS: next(iter(sources.values()))}
    with create(task, inputs | held | extra, resolved, ("init", "model", "recipe", "seed"), resumable=True) as out:
        data = Data(inputs["samples"], inputs["pixels"], place)

        @functools.lru_cache(1)  # labels of all spaces would not fit in memory
        def objective_of(space: str):
            return objective.make(sources[space], data, recipe, chosen)

        def training(one: Run) -> Training:
            seed, seeds = seed_of(task.seed, "pretrain", one.pretrain_seed), {"pretrain_seed": one.pretrain_seed}

            def network() -> torch.nn.Module:
                learnt = objective_of(one.space)
                network = build(options.model, data.channels, learnt.outputs, seed, recipe.head_bias)
                start(network)
                if hasattr(learnt, "attach"):
                    learnt.attach(network)
                return network

            columns = {"run_id": one.id, "network": options.network, "space": one.space, **facts[one.id], **seeds}
            space = {"space": [sources[one.space].content("space")]}
            origin = task.origin_of_part(decides | seeds, made_from | space)
            return Training(one, seed, columns, data, network, lambda: objective_of(one.space), about, origin)

        trainings = [training(one) for one in runs]
        train_runs(trainings, recipe, out, "pretraining", "backbone", "backbones", options.keep)
        out.table("classes.parquet", _class_table(objective, sources))


def _sources(task: Task, needs: str, runs: list[Run]) -> dict[str, Artifact]:
    """Return what each space is trained on: its label space, or the embedding."""
    if needs != "hierarchy":
        if not task.paths(needs):
            raise GranularityError(f"pretrain: the objective needs --{needs}; give it")
        return dict.fromkeys((run.space for run in runs), opened(task, needs))
    spaces = {space.facts["space"]: space for space in all_opened(task, needs)}
    if missing := sorted({run.space for run in runs} - set(spaces)):
        raise GranularityError(f"pretrain: runs on the label spaces {missing}, but only {sorted(spaces)} are given")
    return {run.space: spaces[run.space] for run in runs}


def _start(
    task: Task, options: Pretrain
) -> tuple[Callable[[torch.nn.Module], None], object, object, dict[str, Artifact]]:
    """Return a function that initialises a fresh network; its name, what identifies its bytes; and its artifacts."""
    init = options.init
    if init.scratch:
        return lambda network: None, "scratch", "scratch", {}
    if init.timm is not None:
        if not init.timm.is_file():
            raise GranularityError(f"init.timm: {init.timm}: there is no such file")
        read_safetensors_header(init.timm)
        with readable(init.timm, "a safetensors file"):
            weights, identity = load_file(init.timm), {"sha256": digest_of(init.timm)}
        return lambda network: copy_backbone(network, weights, str(init.timm)), identity, identity, {}
    backbones = Backbones(task.paths("init") or [init.folder()])
    name, _, epoch = init.run.partition("@")
    if epoch and not epoch.isdecimal():
        raise GranularityError(f"init.run: {init.run}: must be the name of a run, or NAME@EPOCH")
    row, at = backbones.named(name), int(epoch) if epoch else None
    source, file = backbones.at(row, at)
    weights = source.tensors(file)
    extra = {"init": without_lineage(next(iter(backbones.inputs.values())))}
    identities = {"run": init.run}, {"sha256": backbones.sha256(row, at)}
    return lambda network: copy_backbone(network, weights, init.run), *identities, extra


def _class_table(objective: ModuleType, sources: dict[str, Artifact]) -> pd.DataFrame:
    """Return the classes of every space; empty if outputs are not classes."""
    columns = {"space": "str", "label": "int32", "name": "str", "parent": "str"}
    tables = {space: objective.classes(source) for space, source in sources.items() if hasattr(objective, "classes")}
    parts = [table.assign(space=space)[list(columns)] for space, table in tables.items()]
    return (pd.concat(parts) if parts else pd.DataFrame(columns=list(columns))).astype(columns)
