"""Stage `measure`: one measure of every network of a job, including untrained ones and the embedding."""

import functools
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from granularity.base import interrupt
from granularity.base.errors import GranularityError
from granularity.base.progress import say, track
from granularity.learning.data.dataset import Data, vectors_of
from granularity.learning.networks.backbones import Backbones
from granularity.machine.device import torch_device
from granularity.stages.measure.networks import ABOUT, chosen
from granularity.stages.measure.view import View
from granularity.store.artifact import MEASURED, key_of
from granularity.store.hashing import digest_of
from granularity.store.task import Task
from granularity.store.writer import Writer, keep, sound

NOTES = "values.json"


def run(task: Task) -> None:
    """Measure the networks of one job; reuse what any job has already measured.

    The measurements of one network are a result of their own, of kind `measured` (see
    :mod:`granularity.learning.training.trainings`).

    `values.parquet`: `run`, `epoch` (0: untrained; null: the embedding), `split`, `measure` (the entry's name), `key`,
    `value` (float64). `runs.parquet`, a row per run: `run`, `network`, `space`, `family`, `granularity`,
    `pretrain_seed` and, for finetuned runs, `transfer` and `finetune_seed`; the embedding is the run "embedding" of
    family "encoder". `arrays/NETWORK/SPLIT/KEY.npy`, if the measure makes arrays: NETWORK is the run's name with
    `@EPOCH`. Raises GranularityError: a network, a split or a rank is missing, or the measure yields something that is
    not a value.
    """
    options = task.options
    measure, settings = options.module(), options.resolved()
    place = torch_device(task.device)
    networks = Backbones(task.paths("pretrain")), Backbones(task.paths("finetune"), "finetune")
    inputs = {role: task.open(role) for role in ("samples", "pixels", "embed") if task.path(role) is not None}
    samples, pixels, embedding = inputs["samples"], inputs["pixels"], inputs.get("embed")
    nets = chosen(*networks, options.runs, options.of, embedding is not None)
    ranks = options.ranks or samples.facts["ranks"]
    resolved = options.model_dump(mode="json") | {"measure": options.file, "options": settings.model_dump(mode="json")}
    resolved |= {"seed": task.seed, "ranks": ranks, "device": place.type}
    resolved["files"] = {str(file): digest_of(Path(file)) for file in options.files()}
    with task.create(
        inputs | networks[0].inputs | networks[1].inputs, resolved, facts=("measure",), resumable=True
    ) as out:
        data = Data(samples, pixels, place)
        labels = functools.cache(lambda rank: samples.table("samples.parquet", [rank])[rank])
        vectors = None if embedding is None else vectors_of(embedding, len(data.table))
        rows = []
        decides = {key: resolved[key] for key in ("measure", "options", "splits", "ranks")}
        same = {role: [inputs[role].digest] for role in ("samples", "pixels")}
        for net in track(nets, len(nets), f"measuring {options.name}", "networks"):
            # Networks are measured without the embedding, because which job holds it depends on the division into jobs.
            embeds = net.source is None
            made_from = same | {"embed": [embedding.digest] if embeds else []}
            origin = {**task.origin_of_part({**decides, **net.identity}, made_from), "kind": MEASURED}
            interrupt.stop_if_requested()
            if (part := sound(out.store, MEASURED, key_of(origin))) is None:
                began = time.time(), time.monotonic(), time.process_time()
                network, answers, *seen = net.seen(data)
                asked = options.splits, ranks, labels
                view = View(net.about, network, answers, *asked, *seen, vectors if embeds else None)
                fill = functools.partial(_fill, *sorted_out(measure.measure(view, settings, task.seed), options.file))
                part = keep(out.store, origin, net.name, began, fill)
            out.parts[f"{MEASURED} {net.name}"] = part
            notes = part.json(NOTES)
            for name in notes["arrays"]:
                out.share(f"arrays/{net.name}/{name}.npy", part, f"{name}.npy")
            odd = [f"{split} {key}" for split, key, value in notes["rows"] if not np.isfinite(value)]
            if odd:
                say(
                    f"{net.name}: undefined: {', '.join(odd[:5])}{', ...' * (len(odd) > 5)}; are its features constant?"
                )
            run_epoch = (net.about["run"], net.about["epoch"])
            rows += [(*run_epoch, split, options.name, key, value) for split, key, value in notes["rows"]]
        kinds = dict.fromkeys(["run", "split", "measure", "key"], "str") | {"epoch": "Int64", "value": "float64"}
        values = pd.DataFrame(rows, columns=["run", "epoch", "split", "measure", "key", "value"])
        out.table("values.parquet", values.astype(kinds))
        kinds = dict.fromkeys(ABOUT, "str") | dict.fromkeys(["granularity", "pretrain_seed", "finetune_seed"], "Int64")
        runs = pd.DataFrame([net.about for net in nets], columns=ABOUT).drop_duplicates("run")
        out.table("runs.parquet", runs.astype(kinds))
        out.summary |= {"networks": len(nets), "runs": len(runs)}


def _fill(arrays: dict[str, np.ndarray], rows: list[list], part: Writer) -> None:
    part.json(NOTES, {"rows": rows, "arrays": sorted(arrays)})
    for name, values in arrays.items():
        part.array(f"{name}.npy", values)


def sorted_out(found: Iterable | pd.DataFrame, measure: str) -> tuple[dict[str, np.ndarray], list[list]]:
    """Sort what a measure found for one network into arrays by SPLIT/KEY and rows [split, key, number]. Raises
    GranularityError: a value is neither a number nor an array, occurs twice, or its key is not a name.
    """
    if isinstance(found, pd.DataFrame):
        if missing := {"split", "key", "value"} - set(found.columns):
            raise GranularityError(f"measure '{measure}': its table has no column {sorted(missing)}")
        found = found[["split", "key", "value"]].itertuples(index=False)
    arrays, rows, seen = {}, [], set()
    for split, key, value in found:
        name = f"{split}/{key}"
        if not all(part.strip(".") and part.isprintable() and "\\" not in part for part in name.split("/")):
            raise GranularityError(f"measure '{measure}': {name!r} must be a split and a key that can name a file")
        if name in seen:
            raise GranularityError(f"measure '{measure}': gives '{key}' of the split '{split}' twice")
        seen.add(name)
        if isinstance(value, np.ndarray) and value.ndim and value.dtype.kind in "biuf":
            arrays[name] = value
        elif np.ndim(value) == 0 and isinstance(value, int | float | np.number | np.ndarray):
            rows.append([split, key, float(value)])
        else:
            raise GranularityError(
                f"measure '{measure}': '{key}' is {type(value).__name__}, neither a number nor an array"
            )
    return arrays, rows
