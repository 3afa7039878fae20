"""Stage `pretrain`: networks trained from scratch on label spaces."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd

from granularity.base.errors import GranularityError
from granularity.base.progress import track
from granularity.base.seeds import seed_of
from granularity.config.options import Device, Model, Recipe
from granularity.learning import train
from granularity.learning.dataset import Data
from granularity.learning.loop import arrays_of, tensors_of
from granularity.learning.network import build
from granularity.learning.runs import Run
from granularity.machine import processes
from granularity.machine.device import cpu_threads, torch_device
from granularity.machine.first_process import create, forget, read_state, verified, write_state
from granularity.store.artifacts import Artifact

KEYS = ("family", "granularity")  # of properties.json


@processes.together
def run(
    recipe: Recipe,
    model: Model,
    runs: list[Run],
    seed: int,
    samples: Path,
    pixels: Path,
    label_spaces: list[Path],
    output: Path,
    device: Device = "auto",
    threads: int = 1,
) -> None:
    """Train the runs of one job, one after another; what a killed job had finished is not trained again.

    `backbones/RUN.safetensors`: weights with the head. `runs.parquet`: `run_id`, `space`, `family`, `granularity`,
    `pretrain_seed`, `train_loss` (last epoch), `val_error` (percent: the parent of the predicted class against the
    target), `backbone` (the file). `history.parquet`: `run_id`, `epoch`, `lr`, `train_loss`.

    Raises:
        GranularityError: a label space is missing or does not fit the samples or the loss, or a loss is no longer
            finite.
    """
    if recipe.freeze_backbone:
        raise GranularityError("pretrain.freeze_backbone: there is no backbone yet; it is for finetune")
    place = torch_device(device, threads)
    table, images = verified(samples, "samples"), verified(pixels, "pixels")
    spaces = {space.params["space"]: space for space in (verified(path, "label_space") for path in label_spaces)}
    missing = sorted({run.space for run in runs} - set(spaces))
    if missing:
        raise GranularityError(f"pretrain: runs on the label spaces {missing}, but only {sorted(spaces)} are given")
    several = sorted(name for name, space in spaces.items() if space.json("properties.json", *KEYS).get("multi_label"))
    if recipe.loss == "softmax" and several:
        raise GranularityError(
            f"pretrain.loss = softmax: images have several labels in {several}; set it to auto or sigmoid"
        )
    resolved = {
        "recipe": recipe.model_dump(),
        "model": model.model_dump(),
        "runs": [run.name for run in runs],
        "target": table.params["target"],
        "seed": seed,
        "threads": cpu_threads(place),
        "processes": processes.size(),
    }
    inputs = {"samples": table, "pixels": images, **spaces}
    with create(output, "pretrain", "granularity.stages.pretrain", inputs, resolved, True) as out:
        data = Data(table, images, place)
        rows, history = [], []
        for one in track(runs, len(runs), "pretraining", "runs"):
            space = spaces[one.space]
            finished, running = (out.work / f"{one.name}.{suffix}" for suffix in ("done", "running"))
            state = read_state(finished)
            if state is None:
                state = _train(one, space, data, recipe, model, seed, running)
                write_state(finished, *state)
                forget(running)
            weights, notes = state
            backbone = f"backbones/{one.name}.safetensors"
            about = {"model": resolved["model"], "space": one.space, "channels": data.channels}
            # One entry only: safetensors writes several in an order that differs from process to process.
            out.tensors(backbone, tensors_of(weights), {"granularity": json.dumps(about)})
            properties = space.json("properties.json", *KEYS)
            rows.append(
                {
                    "run_id": one.id,
                    "space": one.space,
                    "family": properties["family"],
                    "granularity": properties["granularity"],
                    "pretrain_seed": one.pretrain_seed,
                    "train_loss": notes["history"][-1]["train_loss"],
                    "val_error": notes["val_error"],
                    "backbone": backbone,
                }
            )
            history += [{"run_id": one.id, **epoch} for epoch in notes["history"]]
        out.table("runs.parquet", pd.DataFrame(rows))
        out.table("history.parquet", pd.DataFrame(history))
        out.summary["runs"] = len(runs)


def _train(one: Run, space: Artifact, data: Data, recipe: Recipe, model: Model, seed: int, running: Path) -> tuple:
    classes = space.table("classes.parquet", {"label": "whole", "parent": "text?"})
    run_seed = seed_of(seed, "pretrain", one.pretrain_seed)
    labels = data.labels_of(space, len(classes))
    network = build(model, data.channels, len(classes), run_seed, recipe.head_bias).to(data.device)
    train.check_takes(network, data, recipe)
    history = train.train(network, data, labels, recipe, run_seed, running)
    # Classes, not outputs: those of half a million classes would fill the memory.
    predicted = train.predict(lambda images: network(images).argmax(1), data, data.val, recipe).numpy()
    # An empty class has no parent; predicting it is always wrong, but never by matching an unseen target class (-1).
    parent = pd.Index(data.target_names).get_indexer(classes["parent"])
    wrong = train.percent_wrong(np.where(parent >= 0, parent, -2)[predicted], data.target[data.val])
    return arrays_of(network.state_dict()), {"history": history, "val_error": wrong}
