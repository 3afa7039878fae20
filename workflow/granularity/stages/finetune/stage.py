"""Stage `finetune`: pretrained networks with a fresh head, trained on the target (all weights, or the head alone)."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from granularity.base.seeds import seed_of
from granularity.learning.backbones import Backbones
from granularity.learning.classification import on_target
from granularity.learning.dataset import Data
from granularity.learning.initial import without_lineage
from granularity.learning.network import new_head
from granularity.learning.options import Finetune
from granularity.learning.runs import Run
from granularity.learning.trainings import Training, train_runs
from granularity.machine import processes
from granularity.machine.device import cpu_threads, torch_device
from granularity.machine.first_process import create, open
from granularity.store.task import Task


@processes.together
def run(task: Task) -> None:
    """Finetune the runs of one job.

    Images are normalised as those of the pretraining were, whose data set may be another.

    `runs.parquet`: `run_id`, `parent` (the pretraining's run_id), `network`, `transfer`, `space`, `family`,
    `granularity`, `pretrain_seed`, `finetune_seed`, `train_loss` (last epoch), `val_error` (percent) and, if the
    networks are kept, `weights` (the file). `history.parquet` and, if they are, `checkpoints.parquet`: see
    :func:`granularity.learning.trainings.train_runs`. `predictions.parquet`: `sample_id` of the validation images and
    one int32 column per run_id, the predicted target class. `classes.parquet`: `label` and `name` of these classes, in
    alphabetical order.

    Raises:
        GranularityError: a backbone is missing or cannot take the images, or a loss is no longer finite.
    """
    options: Finetune = task.options
    place = torch_device(task.device, task.threads)
    processes.check_size(options.processes * options.arms)
    table, images = open(task, "samples"), open(task, "pixels")
    backbones = Backbones(task.paths("pretrain"))
    resolved = options.model_dump(mode="json", exclude={"arms"}) | {
        "target": table.facts["target"],
        "seed": task.seed,
        "threads": cpu_threads(place),
    }
    parents = backbones.inputs
    if options.other_data:
        parents = {role: without_lineage(parent) for role, parent in parents.items()}
    with create(
        task,
        {"samples": table, "pixels": images, **parents},
        resolved,
        facts=("from_epoch", "keep", "recipe"),
        resumable=True,
    ) as out:
        data = Data(table, images, place)
        trainings = []
        for name in options.runs:
            one = Run.parse(name)
            trainings.append(
                _training(one, task, backbones, data, {"samples": [table.digest], "pixels": [images.digest]})
            )
        weights = ("weights", "networks") if options.keep else ()
        found = train_runs(trainings, options.recipe, out, "finetuning", *weights, arms=options.arms)
        predictions = {run_id: arrays["predictions"] for run_id, arrays in found.items()}
        sample_id = data.table["sample_id"].to_numpy()[data.val]
        out.table("predictions.parquet", pd.DataFrame({"sample_id": sample_id, **predictions}))
        names = data.target_names.tolist()
        out.table("classes.parquet", pd.DataFrame({"label": np.arange(len(names), dtype=np.int32), "name": names}))


def _training(one: Run, task: Task, backbones: Backbones, data: Data, made_from: dict[str, list[str]]) -> Training:
    options: Finetune = task.options
    parent = backbones.find(one.space, one.pretrain_seed)
    model = backbones.about(parent)["model"]
    seed = seed_of(task.seed, "finetune", one.pretrain_seed, one.finetune_seed)
    recipe, data = options.recipe, backbones.normalised(data, parent)

    def start() -> torch.nn.Module:
        network = backbones.load(parent, data.channels, options.from_epoch)
        new_head(network, len(data.target_names), seed, recipe.head_bias)
        return network

    columns = {"run_id": one.id, "parent": parent["run_id"], "network": parent["network"], "transfer": options.transfer}
    columns |= {key: parent[key] for key in ("space", "family", "granularity")}
    columns |= {"pretrain_seed": one.pretrain_seed, "finetune_seed": one.finetune_seed}
    decides = {"stage": "finetune", "recipe": recipe.model_dump(mode="json", exclude={"stack"})}
    decides |= {"pretrain_seed": one.pretrain_seed, "finetune_seed": one.finetune_seed, "processes": options.processes}
    origin = task.origin_of_part(decides, made_from | {"backbone": [backbones.sha256(parent, options.from_epoch)]})
    return Training(one, seed, columns, data, start, lambda: on_target(data, recipe), {"model": model}, origin)
