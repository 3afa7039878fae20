"""The trainings of one job. Each is a result of its own, of kind `run`, so none is trained twice."""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from granularity.base.errors import GranularityError
from granularity.base.progress import together, track
from granularity.learning.data.augment import centre_crop
from granularity.learning.data.dataset import Data
from granularity.learning.data.order import Batches
from granularity.learning.networks.network import freeze_backbone, remove_dropout
from granularity.learning.options import Recipe
from granularity.learning.runs import Run
from granularity.learning.training import stacks
from granularity.learning.training.batch_norm import RunningMoments, synchronised
from granularity.learning.training.loop import minimise
from granularity.learning.training.precision import computing
from granularity.machine import processes
from granularity.machine.device import torch_device
from granularity.machine.first_process import find_part, forget, keep_part, opened
from granularity.store.artifact import RUN, Artifact
from granularity.store.hashing import user_cache
from granularity.store.task import Task
from granularity.store.writer import Writer

WEIGHTS, NOTES = "weights.safetensors", "run.json"  # of a run


@dataclass(frozen=True)
class Training:
    """A training."""

    run: Run
    seed: int  # for the order of images, augmentation and dropout
    columns: dict[str, Any]  # first columns of its row in `runs.parquet`, known before the training
    data: Data  # normalised as the training needs it
    start: Callable[[], torch.nn.Module]  # builds the network with its initial weights
    objective: Callable[[], Any]  # builds the objective, see granularity.learning.training.objectives
    about: dict[str, Any]  # further metadata for the file of its weights; no name of a configuration
    origin: dict[str, Any]  # what determines its bytes, in the form of granularity.store.task.Task.origin


def prepared(task: Task) -> tuple[torch.device, dict[str, Artifact], dict[str, Any], dict[str, Any]]:
    """Return, for both training stages: device, inputs, resolved options, and those that determine a run's bytes."""
    place, resolved = torch_device(task.device), task.options.model_dump(mode="json")
    processes.check_size(task.options.processes)
    inputs = {role: opened(task, role) for role in ("samples", "pixels")}
    decides = {"stage": task.stage.name, "recipe": resolved["recipe"], "processes": resolved["processes"]}
    known = {"target": inputs["samples"].facts["target"], "seed": task.seed}
    return place, inputs, resolved | known, decides


def train_runs(
    trainings: Sequence[Training],
    recipe: Recipe,
    out: Any,
    what: str,
    column: str | None = None,
    folder: str = "",
    keep: Sequence[int] = (),
) -> dict[str, dict[str, np.ndarray]]:
    """Train, and write `runs.parquet`, `history.parquet` and, if wanted, the weights (docs/artifacts.md).

    `what` is the word for progress. `column` names the column with the files of weights (None: they are not kept),
    which lie in `folder`, for the epochs in `keep` (0: before the first) and the last epoch. Returns the arrays of the
    objective's evaluation, by run_id. Raises GranularityError if a network cannot take the images, or a loss is no
    longer finite.
    """
    rows, history, checkpoints, arrays = [], [], [], {}
    epochs = (*sorted({*keep} - {recipe.epochs}), recipe.epochs)
    job = _Job(recipe, out, epochs, column is not None, _stacked(trainings[0], recipe))
    for training, parts in track(job.finished(trainings), len(trainings), what, "runs"):
        last, notes = parts[recipe.epochs], parts[recipe.epochs].json(NOTES)
        named = {}
        for epoch, part in parts.items():
            at = "" if epoch == recipe.epochs else f"@{epoch}"
            out.parts[f"{RUN} {training.run.id}{at}"] = part
            if column is not None:
                file = f"{folder}/{training.run.name}{at}.safetensors"
                out.share(file, part, WEIGHTS)
                checkpoints.append({"run_id": training.run.id, "epoch": epoch, "file": file})
                named = {column: file}
        arrays[training.run.id] = {name: last.array(f"{name}.npy") for name in notes["arrays"]}
        rows.append(training.columns | {"train_loss": notes["history"][-1]["train_loss"], **notes["found"], **named})
        history += [{"run_id": training.run.id, **epoch} for epoch in notes["history"]]
    # Nullable: an objective without classes has neither.
    out.table("runs.parquet", pd.DataFrame(rows).astype({"granularity": "Int64", "val_error": "Float64"}))
    out.table("history.parquet", pd.DataFrame(history))
    if column is not None:
        out.table("checkpoints.parquet", pd.DataFrame(checkpoints))
    out.summary |= {"runs": len(trainings), "stack": job.size}
    return arrays


@dataclass(frozen=True)
class _Job:
    """Common settings of a job's trainings: `epochs` whose weights are wanted, `size` of a stack of networks."""

    recipe: Recipe
    out: Any
    epochs: tuple[int, ...]
    weights: bool
    size: int

    def finished(self, trainings: Sequence[Training]) -> Iterator[tuple[Training, dict[int, Artifact]]]:
        """Yield each training with its results by epoch, from the store if they are there."""
        found = [self.parts(one) for one in trainings]
        missing = [number for number, parts in enumerate(found) if not parts]
        groups = np.array_split(missing, max(1, -(-len(missing) // self.size)))
        of = {int(number): group for group in groups for number in group}
        for number, one in enumerate(trainings):
            if not found[number]:
                for i, parts in zip(of[number], self.trained([trainings[i] for i in of[number]]), strict=True):
                    found[i] = parts
            yield one, found[number]

    def parts(self, one: Training) -> dict[int, Artifact]:
        """Return a training's results in the store by epoch; empty if one of them is missing."""
        found = {epoch: find_part(self.out.store, self.origin(one, epoch)) for epoch in self.epochs}
        return {} if None in found.values() else found

    def origin(self, one: Training, epoch: int) -> dict[str, Any]:
        """Return what determines the bytes of a training at an epoch; a stack does, because it changes last bits."""
        own = {"run": one.run.id, "epoch": epoch, "weights": self.weights, "stacked": self.size > 1}
        return {**one.origin, "kind": RUN, "options": {**one.origin["options"], **own}}

    def trained(self, group: Sequence[Training]) -> list[dict[int, Artifact]]:
        """Train a network, or several as a stack, and put their results into the store; return them by epoch."""
        began = time.time(), time.monotonic(), time.process_time()
        together(len(group))
        running = self.out.work / f"{_name_of(group)}.running"
        objectives, networks = (
            [training.objective() for training in group],
            [training.start().to(training.data.device) for training in group],
        )
        for network, training in zip(networks, group, strict=True):
            check_takes(network, training.data, self.recipe)

        def keep(epoch: int, results: Sequence[tuple[dict, dict] | None]) -> None:
            for training, objective, network, result in zip(group, objectives, networks, results, strict=True):
                about = {
                    "run": training.run.id,
                    "outputs": objective.outputs,
                    "channels": training.data.channels,
                    "epoch": epoch,
                }
                about |= {
                    "side": training.data.side,
                    "crop": self.recipe.augment.crop,
                    "precision": self.recipe.precision,
                }
                about |= {
                    key: values.tolist() for key, values in zip(("mean", "std"), training.data.moments, strict=True)
                }
                fill = partial(_fill, network, about | training.about if self.weights else None, result)
                keep_part(self.out.store, self.origin(training, epoch), training.run.name, began, fill)

        def after_epoch(epoch: int) -> None:
            if epoch in self.epochs[:-1]:
                keep(epoch, [None] * len(group))

        after_epoch(0)
        data, seeds = [training.data for training in group], [training.seed for training in group]
        if self.size > 1:
            histories = stacks.train_together(networks, data, objectives, self.recipe, seeds, running, after_epoch)
        else:
            histories = [train(networks[0], data[0], objectives[0], self.recipe, seeds[0], running, after_epoch)]
        results = []
        for objective, network, history in zip(objectives, networks, histories, strict=True):
            columns, arrays = objective.evaluate(network)
            results.append(({"history": history, "found": columns}, arrays))
        keep(self.epochs[-1], results)
        forget(running)
        parts = [self.parts(training) for training in group]
        return parts if all(parts) else self.trained(group)  # an epoch was lost since the last checkpoint


def _name_of(group: Sequence[Training]) -> str:
    """Return the name of a group's checkpoint, with a digest of all its runs: only the same networks continue it."""
    digest = hashlib.sha256(" ".join(one.run.id for one in group).encode()).hexdigest()[:8]
    return f"{group[0].run.name}+{digest}" if len(group) > 1 else group[0].run.name


def _fill(network: torch.nn.Module, about: dict | None, found: tuple[dict, dict] | None, part: Writer) -> None:
    """Write the files of a run: its weights if wanted and, at its end, its history and evaluation."""
    if about is not None:
        # Only one entry: safetensors writes several in an order that differs between processes. Keys are sorted,
        # because the order of options depends on how the configuration's files were merged.
        weights = {key: value.detach().cpu() for key, value in network.state_dict().items()}
        part.tensors(WEIGHTS, weights, {"granularity": json.dumps(about, sort_keys=True)})
    if found is not None:
        notes, arrays = found
        part.json(NOTES, {**notes, "arrays": sorted(arrays)})
        for name, values in arrays.items():
            part.array(f"{name}.npy", values)


def _stacked(one: Training, recipe: Recipe) -> int:
    """Return the most networks like a training's that are trained as a stack."""
    if processes.size() > 1 or recipe.for_one:
        return 1
    network = one.start().to(one.data.device)
    check_takes(network, one.data, recipe)
    size = stacks.size_of(network, _images(one.data, recipe, 1), recipe)
    return size if size > 1 and stacks.fits(network, _images(one.data, recipe, recipe.batch_size), size, recipe) else 1


def check_takes(network: torch.nn.Module, data: Data, recipe: Recipe) -> None:
    """Raise GranularityError if a network cannot take the images, for example because it was made for larger ones."""
    images = _images(data, recipe, 2)
    try:
        with torch.inference_mode(), computing(recipe.precision, data.device):
            network.eval()(images)
    except (RuntimeError, ValueError, AssertionError, TypeError, AttributeError) as error:
        why = str(error).partition("\n")[0] or type(error).__name__
        raise GranularityError(f"model: this network cannot take images of {data.side} px ({why})") from error


def _images(data: Data, recipe: Recipe, count: int) -> torch.Tensor:
    return centre_crop(data.images(data.train[:count]), recipe.augment)


def train(
    network: torch.nn.Module,
    data: Data,
    objective: Any,
    recipe: Recipe,
    seed: int,
    checkpoint: Path | None,
    after_epoch: Callable[[int], None] | None = None,
) -> list[dict[str, Any]]:
    """Minimise an objective on the training split; return the history, a row per epoch."""
    if not recipe.dropout:
        remove_dropout(network)
    if recipe.micro_batch is None and not recipe.freeze_backbone:
        network = synchronised(network, data.device)
    trained = freeze_backbone(network) if recipe.freeze_backbone else network
    moments = RunningMoments(network) if recipe.micro_batch and not recipe.freeze_backbone else None
    forward = processes.shared(_compiled(network) if recipe.compile else network)
    part = processes.share(recipe.batch_size)
    size = recipe.micro_batch or part.stop - part.start
    micro_batches = [slice(start, start + size) for start in range(0, part.stop - part.start, size)]
    batches = Batches(len(data.train), recipe.batch_size, seed)
    feed = data.feed(batches, recipe.epochs * batches.per_epoch, recipe.augment, seed, part)

    def gradients_at(step: int) -> torch.Tensor:
        picked, images = batches(step)[part], feed(step)
        losses = torch.zeros((), device=data.device)
        if moments:
            moments.begin()
        for rows in micro_batches:
            last = rows is micro_batches[-1]
            with contextlib.nullcontext() if last or processes.size() == 1 else forward.no_sync():
                with computing(recipe.precision, data.device):
                    outputs = forward(images[rows])
                loss = objective.loss(outputs.float(), picked[rows]) * (len(picked[rows]) / recipe.batch_size)
                processes.backward(loss)
            if moments:
                moments.add()
            losses += loss.detach()
        if moments:
            moments.end(len(micro_batches) * processes.size())
        return processes.total(losses)

    return minimise(trained, recipe, gradients_at, batches.per_epoch, seed, checkpoint, after_epoch)


def _compiled(network: torch.nn.Module) -> torch.nn.Module:
    """Return the network with compiled passes, in a way that does not depend on measured times."""
    # The default lies below /tmp, under a name that another user could have taken.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(user_cache() / "compiled"))
    torch.use_deterministic_algorithms(True, warn_only=True)  # also affects the compiler
    if next(network.parameters()).device.type == "cpu":
        from torch._inductor.cpp_builder import get_cpp_compiler

        try:
            get_cpp_compiler()
        except Exception as error:
            raise GranularityError("compile: needs a C++ compiler (g++ or clang); install one") from error
    return torch.compile(network)
