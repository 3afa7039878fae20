"""Stage `finetune`: pretrained networks with a fresh head, trained on the target (all weights)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from granularity.base.progress import track
from granularity.base.seeds import seed_of
from granularity.config.options import Device, Recipe
from granularity.learning import train
from granularity.learning.backbones import Backbones
from granularity.learning.dataset import Data
from granularity.learning.network import new_head
from granularity.learning.runs import Run
from granularity.machine import processes
from granularity.machine.device import cpu_threads, torch_device
from granularity.machine.first_process import create, forget, read_state, verified, write_state


@processes.together
def run(
    recipe: Recipe,
    runs: list[Run],
    seed: int,
    samples: Path,
    pixels: Path,
    pretrained: list[Path],
    output: Path,
    device: Device = "auto",
    threads: int = 1,
) -> None:
    """Finetune the runs of one job, one after another; what a killed job had finished is not trained again.

    `runs.parquet`: `run_id`, `parent` (the pretraining's run_id), `space`, `family`, `granularity`, `pretrain_seed`,
    `finetune_seed`, `train_loss` (last epoch), `val_error` (percent). `history.parquet`: `run_id`, `epoch`, `lr`,
    `train_loss`. `predictions.parquet`: `sample_id` of the validation images and one int32 column a run_id, the
    predicted target class in alphabetical order.

    Raises:
        GranularityError: a backbone is missing, or a loss is no longer finite.
    """
    place = torch_device(device, threads)
    table, images = verified(samples, "samples"), verified(pixels, "pixels")
    backbones = Backbones(pretrained)
    resolved = {"recipe": recipe.model_dump(), "runs": [run.name for run in runs], "seed": seed}
    resolved["target"] = table.params["target"]
    resolved |= {"threads": cpu_threads(place), "processes": processes.size()}
    inputs = {"samples": table, "pixels": images, **backbones.inputs}
    with create(output, "finetune", "granularity.stages.finetune", inputs, resolved, True) as out:
        data = Data(table, images, place)
        target = data.torch_target()
        rows, history = [], []
        predictions = {"sample_id": data.table["sample_id"].to_numpy()[data.val]}
        for one in track(runs, len(runs), "finetuning", "runs"):
            parent = backbones.find(one.space, one.pretrain_seed)
            finished, running = (out.work / f"{one.name}.{suffix}" for suffix in ("done", "running"))
            state = read_state(finished)
            if state is None:
                run_seed = seed_of(seed, "finetune", one.pretrain_seed, one.finetune_seed)
                network = backbones.load(parent, data.channels)
                new_head(network, len(data.target_names), run_seed, recipe.head_bias)
                network.to(place)
                epochs = train.train(network, data, target, recipe, run_seed, running)
                predicted = train.predict(network, data, data.val, recipe).argmax(1).numpy().astype(np.int32)
                state = {"predictions": predicted}, {"history": epochs}
                write_state(finished, *state)
                forget(running)
            arrays, notes = state
            predictions[one.id] = arrays["predictions"]
            rows.append(
                {
                    "run_id": one.id,
                    "parent": parent["run_id"],
                    "space": one.space,
                    "family": parent["family"],
                    "granularity": parent["granularity"],
                    "pretrain_seed": one.pretrain_seed,
                    "finetune_seed": one.finetune_seed,
                    "train_loss": notes["history"][-1]["train_loss"],
                    "val_error": train.percent_wrong(arrays["predictions"], data.target[data.val]),
                }
            )
            history += [{"run_id": one.id, **epoch} for epoch in notes["history"]]
        out.table("runs.parquet", pd.DataFrame(rows))
        out.table("history.parquet", pd.DataFrame(history))
        out.table("predictions.parquet", pd.DataFrame(predictions))
        out.summary["runs"] = len(runs)
