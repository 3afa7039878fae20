"""Stage `finetune`: pretrained networks with a fresh head, trained on the target (all weights, or only the head)."""

import numpy as np
import pandas as pd
import torch

from granularity.base.seeds import seed_of
from granularity.learning.data.dataset import Data
from granularity.learning.networks.backbones import Backbones, without_lineage
from granularity.learning.networks.network import new_head
from granularity.learning.options import Finetune
from granularity.learning.runs import Run
from granularity.learning.training.classification import Classification
from granularity.learning.training.trainings import Training, prepared, train_runs
from granularity.machine.first_process import create
from granularity.store.task import Task


def run(task: Task) -> None:
    """Finetune the runs of one job (docs/artifacts.md). Raises GranularityError: a backbone is missing or cannot take
    the images, or a loss is no longer finite.
    """
    options: Finetune = task.options
    recipe, (place, inputs, resolved, decides) = options.recipe, prepared(task)
    made_from = {role: [one.digest] for role, one in inputs.items()}
    backbones = Backbones(task.paths("pretrain"))
    parents = backbones.inputs
    if options.other_data:
        parents = {role: without_lineage(parent) for role, parent in parents.items()}
    with create(task, inputs | parents, resolved, ("from_epoch", "keep", "recipe"), resumable=True) as out:
        data = Data(inputs["samples"], inputs["pixels"], place)
        names = data.target_names.tolist()

        def training(one: Run) -> Training:
            parent = backbones.find(one.space, one.pretrain_seed)
            seed = seed_of(task.seed, "finetune", one.pretrain_seed, one.finetune_seed)
            seeds = {"pretrain_seed": one.pretrain_seed, "finetune_seed": one.finetune_seed}
            images = backbones.normalised(data, parent)

            def start() -> torch.nn.Module:
                network = backbones.load(parent, data.channels, options.from_epoch)
                new_head(network, len(names), seed, recipe.head_bias)
                return network

            def objective() -> Classification:
                return Classification(images, images.torch_target(), recipe, np.arange(len(names)))

            columns = {"run_id": one.id, "parent": parent["run_id"], "network": parent["network"]}
            columns |= {"transfer": options.transfer, **parent[["space", "family", "granularity"]]}
            about = {"model": backbones.about(parent)["model"]}
            sha256 = backbones.sha256(parent, options.from_epoch)
            origin = task.origin_of_part(decides | seeds, made_from | {"backbone": [sha256]})
            return Training(one, seed, columns | seeds, images, start, objective, about, origin)

        trainings = [training(Run.parse(name)) for name in options.runs]
        weights = ("weights", "networks") if options.keep else ()
        results = train_runs(trainings, recipe, out, "finetuning", *weights)
        sample_id = data.table["sample_id"].to_numpy()[data.val]
        predictions = {run_id: arrays["predictions"] for run_id, arrays in results.items()}
        out.table("predictions.parquet", pd.DataFrame({"sample_id": sample_id, **predictions}))
        out.table("classes.parquet", pd.DataFrame({"label": np.arange(len(names), dtype=np.int32), "name": names}))
