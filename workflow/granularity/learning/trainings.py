"""The trainings of one job, one after another: what any job has trained is not trained again.

A training is a result of its own, of the kind `run`, which lies in the store under the key of all that decides its
bytes. A job trains those that are missing, and makes its tables and files of weights from all of them.
"""

from __future__ import annotations

import contextlib
import json
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
from granularity.base.progress import say, track
from granularity.learning import lockstep, stacks
from granularity.learning.augment import centre_crop
from granularity.learning.batch_norm import RunningMoments, synchronised, whole_batch
from granularity.learning.compiling import compiled
from granularity.learning.dataset import Data
from granularity.learning.loop import Batches, minimise
from granularity.learning.network import freeze_backbone, remove_dropout
from granularity.learning.optimisers import optimiser
from granularity.learning.options import Recipe
from granularity.learning.packing import arrays_of, tensors_of
from granularity.learning.precision import computing
from granularity.learning.runs import Run, in_lockstep
from granularity.learning.schedules import schedule
from granularity.machine import processes
from granularity.machine.device import noting_nondeterministic
from granularity.machine.first_process import find_part, forget, keep_part, read_state, write_state
from granularity.store.artifacts import RUN, Artifact
from granularity.store.writer import Writer

WEIGHTS, NOTES = "weights.safetensors", "run.json"  # of a run


@dataclass(frozen=True)
class Training:
    """One training.

    Attributes:
        run: its name and id.
        seed: what the order of images, augmentation and dropout are drawn from.
        columns: the first columns of its row in `runs.parquet`, all known beforehand.
        data: the images, normalised as they shall be.
        start: a function that makes the network, with its initial weights.
        objective: a function that makes what is minimised, see :mod:`granularity.learning.objectives`.
        about: what the file of its weights says of it, beside what every such file says; no name of a configuration.
        origin: what decides its bytes, of the form of :attr:`granularity.store.task.Task.origin`.
    """

    run: Run
    seed: int
    columns: dict[str, Any]
    data: Data
    start: Callable[[], torch.nn.Module]
    objective: Callable[[], Any]
    about: dict[str, Any]
    origin: dict[str, Any]


def train_runs(
    trainings: Sequence[Training],
    recipe: Recipe,
    out: Any,
    what: str,
    column: str | None = None,
    folder: str = "",
    keep: Sequence[int] = (),
    arms: int = 1,
) -> dict[str, dict[str, np.ndarray]]:
    """Train, and write `runs.parquet`, `history.parquet` and, where they are wanted, the weights.

    `runs.parquet`: the known columns, `train_loss` (of the last epoch), what the objective evaluates, and the file of
    the weights. `history.parquet`: `run_id`, `epoch`, `lr`, `train_loss`. With weights, `checkpoints.parquet`:
    `run_id`, `epoch`, `file`, of the epochs kept and of the last one. The manifest's summary names operations that
    torch has no deterministic algorithm for on this device, if the trainings used any.

    Args:
        out: the writer of the result.
        what: the word for progress, such as "pretraining".
        column: the column that names the files of weights (None: weights are not kept).
        folder: the folder of these files, RUN.safetensors and RUN@EPOCH.safetensors.
        keep: epochs whose weights are kept beside those of the last one; 0 is before the first.
        arms: how many processes train a network each, in lockstep.

    Returns:
        run_id -> the arrays that the objective's evaluation gave.

    Raises:
        GranularityError: a network cannot take the images, or a loss is no longer finite.
    """
    epochs = [*(epoch for epoch in sorted(keep) if epoch != recipe.epochs), recipe.epochs]
    weights = column is not None
    rows, history, checkpoints, found, nondeterministic = [], [], [], {}, set()
    with processes.each_alone() if arms > 1 else contextlib.nullcontext():
        size, why_not = _stacked(trainings[0], recipe)
    if arms > 1:
        _train_in_lockstep(trainings, size, recipe, out, epochs, weights, what)
    for one, parts in track(_finished(trainings, size, recipe, out, epochs, weights), len(trainings), what, "runs"):
        last, notes = parts[recipe.epochs], parts[recipe.epochs].json(NOTES)
        nondeterministic.update(notes["nondeterministic"])
        named = {}
        for epoch, part in parts.items():
            end = epoch == recipe.epochs
            out.parts[f"{RUN} {one.run.id}{'' if end else f'@{epoch}'}"] = part
            if weights:
                file = f"{folder}/{one.run.name}{'' if end else f'@{epoch}'}.safetensors"
                out.share(file, part, WEIGHTS)
                checkpoints.append({"run_id": one.run.id, "epoch": epoch, "file": file})
                named = {column: file}
        found[one.run.id] = {name: last.array(f"{name}.npy") for name in notes["arrays"]}
        rows.append(one.columns | {"train_loss": notes["history"][-1]["train_loss"], **notes["found"], **named})
        history += [{"run_id": one.run.id, **epoch} for epoch in notes["history"]]
    frame = pd.DataFrame(rows)
    # Nullable: an objective without classes has neither.
    out.table("runs.parquet", frame.astype({"granularity": "Int64", "val_error": "Float64"}))
    out.table("history.parquet", pd.DataFrame(history))
    if column is not None:
        out.table("checkpoints.parquet", pd.DataFrame(checkpoints))
    out.summary |= {"runs": len(trainings), "stack": size}
    if why_not:
        out.summary["not_stacked"] = why_not
    if nondeterministic:
        out.summary["nondeterministic"] = sorted(nondeterministic)
    return found


def train(
    network: torch.nn.Module,
    data: Data,
    objective: Any,
    recipe: Recipe,
    seed: int,
    checkpoint: Path | None,
    after_epoch: Callable[[int], dict[str, float]] | None = None,
) -> list[dict[str, Any]]:
    """Minimise an objective on the training split; returns the history, a row per epoch."""
    if not recipe.dropout:
        remove_dropout(network)
    if recipe.micro_batch is None:
        network = synchronised(network, data.device)
    trained = freeze_backbone(network) if recipe.freeze_backbone else network
    moments = RunningMoments(network) if recipe.micro_batch else None
    forward = processes.shared(compiled(network) if recipe.compile else network)
    part = processes.share(recipe.batch_size)
    size = recipe.micro_batch or part.stop - part.start
    micro_batches = [slice(start, start + size) for start in range(0, part.stop - part.start, size)]
    together = whole_batch if recipe.micro_batch is None else contextlib.nullcontext
    batches, feed = _batches(data, recipe, seed, part)

    def gradients_at(step: int) -> torch.Tensor:
        picked = batches(step)[part]
        images = feed(step)
        losses = torch.zeros((), device=data.device)
        if moments:
            moments.begin()
        for one in micro_batches:
            last = one is micro_batches[-1]
            with contextlib.nullcontext() if last or forward is network else forward.no_sync():
                with computing(recipe.precision, data.device), together():
                    outputs = forward(images[one])
                loss = objective.loss(outputs.float(), picked[one]) * (len(picked[one]) / recipe.batch_size)
                processes.backward(loss)
            if moments:
                moments.add()
            losses += loss.detach()
        if moments:
            moments.end(len(micro_batches) * processes.size())
        return processes.total(losses)

    return minimise(
        trained,
        optimiser(trained.parameters(), recipe),
        gradients_at,
        epochs=recipe.epochs,
        steps_per_epoch=batches.per_epoch,
        warmup_epochs=recipe.warmup_epochs,
        seed=seed,
        checkpoint=checkpoint,
        after_epoch=after_epoch,
        schedule=schedule(recipe, batches.per_epoch),
        clip_norm=recipe.clip_norm,
    )


def _batches(
    data: Data, recipe: Recipe, seed: int, part: slice = slice(None)
) -> tuple[Batches, Callable[[int], torch.Tensor]]:
    """The images of each step of a training: their indices, and a part of the images themselves."""
    batches = Batches(len(data.train), recipe.batch_size, seed, recipe.shuffle_block)
    return batches, data.feed(batches, recipe.epochs * batches.per_epoch, recipe.augment, seed, part)


def check_takes(network: torch.nn.Module, data: Data, recipe: Recipe) -> None:
    """Raise a GranularityError if a network cannot take the images, as many cannot that are made for larger ones."""
    images = _images(data, recipe, 2)
    try:
        with torch.inference_mode(), computing(recipe.precision, data.device):
            network.eval()(images)
    except (RuntimeError, ValueError, AssertionError, TypeError, AttributeError) as error:
        why = str(error).partition("\n")[0] or type(error).__name__
        raise GranularityError(f"model: this network cannot take images of {data.side} px ({why})") from error


def _images(data: Data, recipe: Recipe, count: int) -> torch.Tensor:
    return centre_crop(data.images(data.train[:count]), recipe.augment)


def _stacked(one: Training, recipe: Recipe) -> tuple[int, str]:
    """How many networks like that of a training are trained side by side, and what forbids more, if that was asked."""
    if recipe.stack == 1:
        return 1, ""
    try:
        stacks.check_recipe(recipe)
        network = one.start().to(one.data.device)
        check_takes(network, one.data, recipe)
        size = stacks.size_of(network, _images(one.data, recipe, 1), recipe)
        if size > 1:
            stacks.check(network, _images(one.data, recipe, recipe.batch_size), size, recipe)
        return size, ""
    except stacks.CannotStack as why:
        if recipe.stack is None:
            return 1, ""
        say(f"stack = {recipe.stack}: these networks are trained one after another ({why})")
        return 1, str(why)


def _origin(one: Training, recipe: Recipe, epoch: int, weights: bool, stacked: bool) -> dict[str, Any]:
    """What decides the bytes of a training at an epoch. Its last bits tell whether it was in a stack."""
    own = {"run": one.run.id, "epoch": epoch, "weights": weights, "stacked": stacked}
    return {**one.origin, "kind": RUN, "options": {**one.origin["options"], **own}}


def _parts(
    one: Training, recipe: Recipe, store: Path, epochs: Sequence[int], weights: bool, stacked: bool
) -> dict[int, Artifact]:
    """Epoch -> what the store has of a training; empty if it lacks one of them."""
    found = {epoch: find_part(store, _origin(one, recipe, epoch, weights, stacked)) for epoch in reversed(epochs)}
    return {} if None in found.values() else dict(reversed(found.items()))


def _finished(
    trainings: Sequence[Training], size: int, recipe: Recipe, out: Any, epochs: Sequence[int], weights: bool
) -> Iterator[tuple[Training, dict[int, Artifact]]]:
    """Each training with its results by epoch: from the store, if they are there.

    Args:
        size: how many are trained side by side, at most.
        epochs: those whose weights are wanted; the last one is the end.
    """
    found = [_parts(one, recipe, out.store, epochs, weights, size > 1) for one in trainings]
    missing = [number for number, parts in enumerate(found) if not parts]
    groups = np.array_split(missing, max(1, -(-len(missing) // size)))
    of = {int(number): group for group in groups for number in group}
    for number, one in enumerate(trainings):
        if not found[number]:
            group = [trainings[i] for i in of[number]]
            for i, parts in zip(of[number], _train(group, size > 1, recipe, out, epochs, weights), strict=True):
                found[i] = parts
        yield one, found[number]


def _train_in_lockstep(
    trainings: Sequence[Training], size: int, recipe: Recipe, out: Any, epochs: Sequence[int], weights: bool, what: str
) -> None:
    """Train one network per process at a time; when this returns, all are finished and in the store.

    Raises:
        GranularityError: a training of this process cannot go on; it is raised when those of the others are finished.
    """
    if size > 1:
        raise GranularityError(
            "jobs.arms: networks this small are trained side by side by one process (stack): set jobs.arms: 1, or "
            "stack: 1 in pretrain and finetune"
        )
    work, store = map(Path, processes.from_first(lambda: ({}, [str(out.work), str(out.store)]))[1])
    own, failed = Writer(work, work, store), None
    with processes.each_alone() as (number, arms):
        groups = in_lockstep([one.run for one in trainings], arms)
        for group in track(groups, len(groups), f"{what} in lockstep", "rounds"):
            with lockstep.reading() as images:
                try:
                    if number < len(group):
                        list(_finished([trainings[group[number]]], 1, recipe, own, epochs, weights))
                except (processes.PeerLost, lockstep.CannotRead):
                    raise
                except GranularityError as error:
                    failed = failed or error
                if not images.begun:
                    other = trainings[group[0]]
                    _batches(other.data, recipe, other.seed)
                images.finish()
    if failed:
        raise failed


def _train(
    group: Sequence[Training], together: bool, recipe: Recipe, out: Any, epochs: Sequence[int], weights: bool
) -> list[dict[int, Artifact]]:
    """Train one network, or several side by side, and put their results into the store; by epoch."""
    began = time.time(), time.monotonic(), time.process_time()
    running, objectives = _running(group, out.work), [one.objective() for one in group]
    data, seeds = [one.data for one in group], [one.seed for one in group]
    places = [{epoch: out.work / f"{one.run.name}@{epoch}.kept" for epoch in epochs[:-1]} for one in group]

    def trained() -> tuple[list[torch.nn.Module], list[list[dict[str, Any]]]]:
        networks = [one.start().to(one.data.device) for one in group]
        for network, one in zip(networks, group, strict=True):
            check_takes(network, one.data, recipe)

        def keep(epoch: int) -> dict[str, float]:
            for network, own in zip(networks, places, strict=True):
                if epoch in own:
                    write_state(own[epoch], arrays_of(network.state_dict()), {})
            return {}

        keep(0)
        if together:
            return networks, stacks.train_together(networks, data, objectives, recipe, seeds, running, keep)
        return networks, [train(networks[0], data[0], objectives[0], recipe, seeds[0], running, keep)]

    with noting_nondeterministic() as noted:
        networks, histories = trained()
        if any(map(_lost, places)):  # with a disk's sector, since the checkpoint that it went on from
            forget(running)
            networks, histories = trained()
        found = [objective.evaluate(network) for objective, network in zip(objectives, networks, strict=True)]
    made = []
    for one, objective, network, history, (columns, arrays), own in zip(
        group, objectives, networks, histories, found, places, strict=True
    ):
        notes = {"history": history, "found": columns, "nondeterministic": sorted(noted), "arrays": sorted(arrays)}
        about = {**_about(one, objective, recipe), **one.about}
        states = {epoch: read_state(place)[0] for epoch, place in own.items()}
        states[recipe.epochs] = arrays_of(network.state_dict())
        parts = {}
        for epoch, state in states.items():
            origin = _origin(one, recipe, epoch, weights, together)
            found_then = (notes, arrays) if epoch == recipe.epochs else (None, {})
            fill = partial(_fill, (state, {**about, "epoch": epoch}) if weights else None, *found_then)
            parts[epoch] = keep_part(out.store, origin, one.run.name, began, fill)
        for place in own.values():
            forget(place)
        made.append(parts)
    forget(running)
    return made


def _fill(
    weights: tuple[dict[str, np.ndarray], dict[str, Any]] | None,
    notes: dict[str, Any] | None,
    arrays: dict[str, np.ndarray],
    part: Writer,
) -> None:
    """Write the files of a run: its weights, where they are wanted, and at its end what it found."""
    if weights is not None:
        _write(part, WEIGHTS, *weights)
    if notes is not None:
        part.json(NOTES, notes)
    for name, values in arrays.items():
        part.array(f"{name}.npy", values)


def _running(group: Sequence[Training], work: Path) -> Path:
    """The checkpoint of trainings side by side."""
    more = f"+{len(group) - 1}" if len(group) > 1 else ""
    return work / f"{group[0].run.name}{more}.running"


def _lost(places: dict[int, Path]) -> bool:
    return any(read_state(place) is None for place in places.values())


def _about(one: Training, objective: Any, recipe: Recipe) -> dict[str, Any]:
    mean, std = one.data.moments
    return {
        "run": one.run.id,
        "outputs": objective.outputs,
        "channels": one.data.channels,
        "side": one.data.side,
        "crop": recipe.augment.crop,
        "precision": recipe.precision,
        "mean": mean.tolist(),
        "std": std.tolist(),
    }


def _write(out: Any, file: str, weights: dict[str, np.ndarray], about: dict[str, Any]) -> None:
    # One entry only: safetensors writes several in an order that differs from process to process. Sorted, because the
    # keys of options come in the order of whoever merged the configuration's files.
    out.tensors(file, tensors_of(weights), {"granularity": json.dumps(about, sort_keys=True)})
