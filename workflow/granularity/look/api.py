"""Results as Python objects: the functions of `import granularity`."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.look import inspection
from granularity.stages import STAGES
from granularity.stages.gather import tables
from granularity.store import place
from granularity.store.artifact import Artifact

if TYPE_CHECKING:
    import torch

    from granularity.learning.networks.backbones import Backbones


def open_artifact(path: str | Path, kind: str | None = None) -> Artifact:
    """Open and verify an artifact, given its folder, manifest or stamp. Its methods `table(file)`, `array(file)`,
    `tensors(file)` and `json(file)` read its files (docs/artifacts.md). Raises GranularityError: it is missing,
    corrupt, made by another version of this package, or not of stage `kind`.
    """
    return Artifact.open(path, kind)


def label_spaces(results: str | Path) -> pd.DataFrame:
    """Return the label spaces of a folder of results, one row each.

    Columns: `condition` (its folder, below `results`), `space`, `family` (str), `granularity` (int64, classes),
    `images` (int64), `path` (str, for :func:`labels`). Raises GranularityError: there is none, or one is corrupt.
    """
    keys, rows = ("space", "family", "granularity"), []
    for condition, space in of_kinds(results, "hierarchy"):
        about, images = space.json("properties.json", *keys), space.manifest["files"]["labels.parquet"]["rows"]
        rows.append([condition, *(about[key] for key in keys), images, str(space.path)])
    return pd.DataFrame(rows, columns=["condition", *keys, "images", "path"])


def labels(path: str | Path) -> pd.DataFrame:
    """Return the labels of a label space: one row per training image, or per label if images have several.

    Columns: `sample_id` (str), `label` (int32, 0..G-1), `name` (str, its class name). Raises GranularityError: `path`
    is no label space, or is corrupt.
    """
    space = Artifact.open(path, "hierarchy")
    table = space.table("labels.parquet", ["sample_id", "label"]).explode("label", ignore_index=True)
    names = space.table("classes.parquet", ["label", "name"]).set_index("label")["name"]
    return table.astype({"label": "int32"}).assign(name=table["label"].map(names))


def runs(results: str | Path) -> pd.DataFrame:
    """Return all numbers of the trainings and measures in a folder of results, one row each.

    Columns: `condition`, `stage` (pretrain, finetune, measure), `network`, `transfer`, `run` (its id), `parent` (id of
    the pretraining), `space`, `family` (str); `granularity`, `pretrain_seed`, `finetune_seed`, `epoch` (Int64);
    `split`, `measure`, `key` (str); `value` (float64). For trainings, `measure` is a column of their runs.parquet, such
    as `val_error` (percent). What does not apply is null. Raises GranularityError: there is none, or one is corrupt.
    """
    return tables.runs(of_kinds(results, "pretrain", "finetune", "measure"))


def backbone(run: str, results: str | Path = "results") -> torch.nn.Module:
    """Return a trained network with its head, in evaluation mode on the CPU: pretrained, or finetuned and kept.

    `run` is its name or id, or RUN@EPOCH. The network maps normalised float32 [N, channels, side, side] to float32 [N,
    outputs]. Raises GranularityError: there is no such network, several differ, or one is corrupt or of your own file.
    """
    networks, row, epoch = find_network(run, results)
    return networks.load(row, epoch=epoch)


def of_kinds(results: str | Path, *kinds: str) -> list[tuple[str, Artifact]]:
    """Return the verified artifacts of some stages below a folder, each with its condition's folder; error if none.
    Those left from earlier settings are left out, and named.
    """
    names = [path for path in place.find(results) if Artifact.peek(path).kind in kinds]
    left = inspection.left_over(names, Path(results))
    if left:
        some = ", ".join(map(str, left[:3])) + (", ..." if len(left) > 3 else "")
        _say_once(
            f"{results}: {len(left)} results left from earlier settings are left out, because the newest report or "
            f"page of the study does not use them: {some} (to remove one, delete it and its stamp)"
        )
    found = [Artifact.open(path) for path in names if path not in left]
    if not found:
        raise GranularityError(
            f"{results}: contains no results of {', '.join(kinds)}; make them with: snakemake {kinds[0]}"
        )
    depth = {kind: STAGES[kind].place.partition("{condition}/")[2].count("/") for kind in kinds}
    folders = [os.path.relpath(one.place.parents[depth[one.kind]], os.path.abspath(results)) for one in found]
    # `results` may itself lie within a condition's folder
    return [("." if folder.startswith("..") else folder, one) for folder, one in zip(folders, found, strict=True)]


@functools.cache
def _say_once(line: str) -> None:
    say(line)


def find_network(run: str, results: str | Path) -> tuple[Backbones, pd.Series, int | None]:
    """Return the networks of the result that contains a run, the run's row, and the epoch asked for (None: the end)."""
    from granularity.learning.networks.backbones import Backbones

    name, at, number = run.partition("@")
    if at and not number.isdecimal():
        raise GranularityError(f"{run}: must be the name or the id of a run, or RUN@EPOCH")
    epoch, folders = int(number) if at else None, {}
    for path in place.find(results):
        for kind, files in (("pretrain", "backbones"), ("finetune", "networks")):
            if any(f"-{file.stem}".endswith(f"-{name}") for file in (path / files).glob("*.safetensors")):
                networks = Backbones([path], kind)
                source, weights = networks.at(networks.named(name), epoch)
                source.file(weights)  # the table's file names are not trusted
                folders[source.manifest["files"][weights]["sha256"]] = path
    if len(folders) != 1:
        places = ", ".join(map(str, folders.values()))
        problem = f"differ between {places}" if folders else f"are not in {results}; finetuned ones need keep: true"
        raise GranularityError(f"{run}: the weights of this run {problem}")
    return networks, networks.named(name), epoch
