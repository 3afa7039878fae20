"""Tiny trainings: recipes, runs, label spaces of one's own choosing, and what is asked of weights."""

import zlib
from pathlib import Path

import pandas as pd
import torch

from granularity.learning.options import Model, Recipe
from granularity.learning.runs import Run
from granularity.store.artifact import Artifact
from support import tasks, writing

TINY = {"layers": [1, 1, 1, 1], "channels": [4, 8, 8, 8]}
MODEL = Model(args=TINY)
CPU = torch.device("cpu")
STEPS = 8  # of a run: 120 images in batches of 30, two epochs
LOOPS = ["no closed loop", "one closed loop", "two closed loops"]


def recipe(**over) -> Recipe:
    return Recipe(**{"lr": 0.1, "batch_size": 30, "epochs": 2, "warmup_epochs": 0.5, **over})


def pretraining(space: str, seed: int = 0) -> Run:
    return Run(space, seed, None, f"{zlib.crc32(f'{space} {seed}'.encode()):08x}")


def finetuning(space: str, pretrain_seed: int = 0, seed: int = 0) -> Run:
    return Run(space, pretrain_seed, seed, f"{zlib.crc32(f'{space} {pretrain_seed} {seed}'.encode()):08x}")


def label_space(
    folder: Path, samples: Path, labels: list, parents: list[str | None], multi_label: bool | None = True, **columns
) -> Path:
    """A label space with labels of your own choosing: an integer an image, or a list of them."""
    table = Artifact.open(samples, "samples")
    frame = table.table("samples.parquet", ["sample_id", "split"])
    made = {"sample_id": frame.loc[frame["split"] == "train", "sample_id"].to_list(), "label": labels, **columns}
    properties = {"space": folder.name, "family": "wordnet", "granularity": len(parents)}
    properties |= {} if multi_label is None else {"multi_label": multi_label}
    code, params = ("granularity.stages.hierarchy.stage",), {"space": folder.name}
    with writing.create(folder, "hierarchy", code, {"samples": table}, params, **writing.unlike_any()) as out:
        out.table("labels.parquet", pd.DataFrame(made))
        names = [f"class {i}" for i in range(len(parents))]
        out.table("classes.parquet", pd.DataFrame({"label": range(len(parents)), "name": names, "parent": parents}))
        out.json("properties.json", properties)
    return folder


def made_space(folder: Path, samples: Path, family: str, params: dict) -> Path:
    """A label space of the stage's own making, called as its folder."""
    options = {"space": folder.name, "family": family, "params": params}
    tasks.run("hierarchy", folder, options, samples=samples)
    return folder


def weights_of(artifact: Artifact, row: int = 0) -> dict[str, torch.Tensor]:
    return artifact.tensors(artifact.table("runs.parquet")["backbone"][row])


def without_head(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in weights.items() if not name.startswith("fc.")}


def equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def close(first, second, tolerance=1e-5) -> bool:
    return first.keys() == second.keys() and all(
        torch.allclose(first[name].double(), second[name].double(), rtol=tolerance, atol=tolerance) for name in first
    )
