"""Stage `pretrain`: networks trained on label spaces, or on what another objective takes."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pandas as pd
import torch

from granularity.base.errors import GranularityError
from granularity.base.seeds import seed_of
from granularity.learning import initial, objectives
from granularity.learning.backbones import Backbones
from granularity.learning.dataset import Data
from granularity.learning.network import build
from granularity.learning.options import Pretrain
from granularity.learning.runs import Run
from granularity.learning.trainings import Training, train_runs
from granularity.machine import processes
from granularity.machine.device import cpu_threads, torch_device
from granularity.machine.first_process import create, open, open_all
from granularity.store.artifacts import Artifact
from granularity.store.task import Task


@processes.together
def run(task: Task) -> None:
    """Train the runs of one job.

    `runs.parquet`: `run_id`, `network`, `space`, `family`, `granularity` (null where the objective has no classes),
    `pretrain_seed`, `train_loss` (last epoch), `val_error` (percent: the parent of the predicted class against the
    target; null without classes), `backbone` (the file). `backbones/RUN.safetensors`: weights with the head, and a
    record of all that using them takes; `backbones/RUN@EPOCH.safetensors`: those of the epochs to be kept.
    `checkpoints.parquet`, `history.parquet`: see :func:`granularity.learning.trainings.train_runs`. `classes.parquet`:
    `space`, `label`, `name`, `parent` (the target class that predicting it means, or null).

    Raises:
        GranularityError: an input is missing or does not fit the samples, the objective or the network, or a loss is
            no longer finite.
    """
    options: Pretrain = task.options
    place = torch_device(task.device, task.threads)
    processes.check_size(options.processes * options.arms)
    runs = [Run.parse(name) for name in options.runs]
    table, images = open(task, "samples"), open(task, "pixels")
    objective, chosen = objectives.chosen(options.objective)
    sources = _sources(task, objective.NEEDS, runs)
    known = {run.id: objective.describe(sources[run.space], options.recipe, chosen) for run in runs}
    start, identity, bytes_of_start, extra = _start(task, options)
    inputs = {"samples": table, "pixels": images, **_by_role(sources, objective.NEEDS), **extra}
    resolved = options.model_dump(mode="json", exclude={"arms"}) | {
        "init": identity,
        "target": table.facts["target"],
        "seed": task.seed,
        "threads": cpu_threads(place),
    }
    with create(task, inputs, resolved, facts=("init", "model", "recipe", "seed"), resumable=True) as out:
        data = Data(table, images, place)
        made: dict[str, object] = {}  # the objective of one space at a time: labels of all would fill the memory

        def objective_of(space: str):
            if space not in made:
                made.clear()
                made[space] = objective.make(sources[space], data, options.recipe, chosen)
            return made[space]

        def network_of(run: Run, seed: int) -> torch.nn.Module:
            outputs = objective_of(run.space).outputs
            network = build(options.model, data.channels, outputs, seed, options.recipe.head_bias)
            start(network)
            return network

        about = {"model": resolved["model"], "objective": resolved["objective"]}
        decides = {**about, "stage": "pretrain", "recipe": options.recipe.model_dump(mode="json", exclude={"stack"})}
        decides |= {"init": bytes_of_start, "processes": options.processes}
        trainings = []
        for one in runs:
            made_from = {"samples": [table.digest], "pixels": [images.digest]}
            made_from["space"] = [sources[one.space].content("space")]
            seed = seed_of(task.seed, "pretrain", one.pretrain_seed)
            columns = {"run_id": one.id, "network": options.network, "space": one.space}
            trainings.append(
                Training(
                    one,
                    seed,
                    columns | known[one.id] | {"pretrain_seed": one.pretrain_seed},
                    data,
                    start=lambda one=one, seed=seed: network_of(one, seed),
                    objective=lambda one=one: objective_of(one.space),
                    about=about,
                    origin=task.origin_of_part(decides | {"pretrain_seed": one.pretrain_seed}, made_from),
                )
            )
        train_runs(trainings, options.recipe, out, "pretraining", "backbone", "backbones", options.keep, options.arms)
        out.table("classes.parquet", _class_table(objective, sources))


def _sources(task: Task, needs: str, runs: list[Run]) -> dict[str, Artifact]:
    """What each space is trained on: its label space, or the embedding."""
    if needs != "hierarchy":
        if not task.paths(needs):
            raise GranularityError(f"pretrain: the objective needs --{needs}, which is not given")
        return dict.fromkeys((run.space for run in runs), open(task, needs))
    spaces = {space.facts["space"]: space for space in open_all(task, needs)}
    missing = sorted({run.space for run in runs} - set(spaces))
    if missing:
        raise GranularityError(f"pretrain: runs on the label spaces {missing}, but only {sorted(spaces)} are given")
    return {run.space: spaces[run.space] for run in runs}


def _by_role(sources: dict[str, Artifact], needs: str) -> dict[str, Artifact]:
    return sources if needs == "hierarchy" else {needs: next(iter(sources.values()))} if sources else {}


def _start(
    task: Task, options: Pretrain
) -> tuple[Callable[[torch.nn.Module], None], object, object, dict[str, Artifact]]:
    """What gives a fresh network its initial weights; its name, and what tells their bytes; the artifact it is from."""
    init = options.init
    if init.timm is not None:
        weights, digest = initial.weights_of_file(init.timm)
        identity = {"sha256": digest}
        return lambda network: initial.copy_backbone(network, weights, str(init.timm)), identity, identity, {}
    if init.run is None:
        return lambda network: None, "scratch", "scratch", {}
    backbones = Backbones(task.paths("init") or [init.folder()])
    name, _, epoch = init.run.partition("@")
    if epoch and not epoch.isdecimal():
        raise GranularityError(f"init.run: {init.run}: must be the name of a run, or NAME@EPOCH")
    row, at = backbones.named(name), int(epoch) if epoch else None
    weights = backbones.weights(row, at)
    extra = {"init": initial.without_lineage(next(iter(backbones.inputs.values())))}
    known = {"run": init.run}, {"sha256": backbones.sha256(row, at)}
    return lambda network: initial.copy_backbone(network, weights, init.run), *known, extra


def _class_table(objective: ModuleType, sources: dict[str, Artifact]) -> pd.DataFrame:
    """The classes of every space; none where outputs are no classes."""
    columns = {"space": "str", "label": "int32", "name": "str", "parent": "str"}
    made = {space: objective.classes(source) for space, source in sources.items() if hasattr(objective, "classes")}
    parts = [table.assign(space=space)[list(columns)] for space, table in made.items()]
    return (pd.concat(parts) if parts else pd.DataFrame(columns=list(columns))).astype(columns)
