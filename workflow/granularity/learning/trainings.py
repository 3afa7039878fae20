"""The trainings of one job, one after another: what a killed job had finished is not trained again."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
from granularity.machine.first_process import forget, read_state, write_state

WEIGHTS, FOUND = "weights.", "found."  # in the state of a finished training


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
        about: what the file of its weights says of it, beside what every such file says.
    """

    run: Run
    seed: int
    columns: dict[str, Any]
    data: Data
    start: Callable[[], torch.nn.Module]
    objective: Callable[[], Any]
    about: dict[str, Any]


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
    keep = [epoch for epoch in sorted(keep) if epoch != recipe.epochs]
    rows, history, checkpoints, found, nondeterministic = [], [], [], {}, set()
    with processes.each_alone() if arms > 1 else contextlib.nullcontext():
        size, why_not = _stacked(trainings[0], recipe)
    if arms > 1:
        _train_in_lockstep(trainings, size, recipe, out.work, keep, column is not None, what)
    for one, (arrays, notes), places in track(
        _finished(trainings, size, recipe, out.work, keep, column is not None), len(trainings), what, "runs"
    ):
        nondeterministic.update(notes["nondeterministic"])
        named = {}
        if column is not None:
            about = {**notes["about"], **one.about}
            for epoch, place in places.items():
                file = f"{folder}/{one.run.name}@{epoch}.safetensors"
                _write(out, file, read_state(place)[0], {**about, "epoch": epoch})
                checkpoints.append({"run_id": one.run.id, "epoch": epoch, "file": file})
            file = f"{folder}/{one.run.name}.safetensors"
            _write(out, file, _with(arrays, WEIGHTS), {**about, "epoch": recipe.epochs})
            checkpoints.append({"run_id": one.run.id, "epoch": recipe.epochs, "file": file})
            named = {column: file}
        found[one.run.id] = _with(arrays, FOUND)
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


def _finished(
    trainings: Sequence[Training], size: int, recipe: Recipe, work: Path, keep: Sequence[int], weights: bool
) -> Iterator[tuple]:
    """Of each training its state at its end, from disk if it is there, and epoch -> where the weights kept are.

    Args:
        size: how many are trained side by side, at most.
    """
    for some in np.array_split(np.arange(len(trainings)), -(-len(trainings) // size)):
        group = [trainings[i] for i in some]
        finished = [work / f"{one.run.name}.done" for one in group]
        places = [{epoch: work / f"{one.run.name}@{epoch}.kept" for epoch in keep} for one in group]
        states = [read_state(file) for file in finished]
        if any(state is None for state in states) or any(map(_lost, places)):
            states = _train(group, size > 1, recipe, work, places, weights)
            for file, state in zip(finished, states, strict=True):
                write_state(file, *state)
            forget(_running(group, work))
        yield from zip(group, states, places, strict=True)


def _train_in_lockstep(
    trainings: Sequence[Training], size: int, recipe: Recipe, work: Path, keep: Sequence[int], weights: bool, what: str
) -> None:
    """Train one network per process at a time; when this returns, all are finished and on disk.

    Raises:
        GranularityError: a training of this process cannot go on; it is raised when those of the others are finished.
    """
    if size > 1:
        raise GranularityError(
            "jobs.arms: networks this small are trained side by side by one process (stack): set jobs.arms: 1, or "
            "stack: 1 in pretrain and finetune"
        )
    work = Path(processes.from_first(lambda: ({}, str(work)))[1])
    failed = None
    with processes.each_alone() as (number, arms):
        groups = in_lockstep([one.run for one in trainings], arms)
        for group in track(groups, len(groups), f"{what} in lockstep", "rounds"):
            with lockstep.reading() as images:
                try:
                    if number < len(group):
                        list(_finished([trainings[group[number]]], 1, recipe, work, keep, weights))
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
    group: Sequence[Training],
    together: bool,
    recipe: Recipe,
    work: Path,
    places: list[dict[int, Path]],
    weights: bool,
) -> list[tuple]:
    """Train one network, or several side by side; their states at the end."""
    running, objectives = _running(group, work), [one.objective() for one in group]
    data, seeds = [one.data for one in group], [one.seed for one in group]

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
    states = []
    for one, objective, network, history, (columns, arrays) in zip(
        group, objectives, networks, histories, found, strict=True
    ):
        arrays = {FOUND + name: value for name, value in arrays.items()}
        if weights:
            arrays |= {WEIGHTS + name: value for name, value in arrays_of(network.state_dict()).items()}
        about = {"history": history, "found": columns, "about": _about(one, objective, recipe)}
        states.append((arrays, about | {"nondeterministic": sorted(noted)}))
    return states


def _running(group: Sequence[Training], work: Path) -> Path:
    """The checkpoint of trainings side by side."""
    more = f"+{len(group) - 1}" if len(group) > 1 else ""
    return work / f"{group[0].run.name}{more}.running"


def _lost(places: dict[int, Path]) -> bool:
    return any(read_state(place) is None for place in places.values())


def _about(one: Training, objective: Any, recipe: Recipe) -> dict[str, Any]:
    mean, std = one.data.moments
    return {
        "run": one.run.name,
        "outputs": objective.outputs,
        "channels": one.data.channels,
        "side": one.data.side,
        "crop": recipe.augment.crop,
        "precision": recipe.precision,
        "mean": mean.tolist(),
        "std": std.tolist(),
    }


def _with(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}


def _write(out: Any, file: str, weights: dict[str, np.ndarray], about: dict[str, Any]) -> None:
    # One entry only: safetensors writes several in an order that differs from process to process. Sorted, because the
    # keys of options come in the order of whoever merged the configuration's files.
    out.tensors(file, tensors_of(weights), {"granularity": json.dumps(about, sort_keys=True)})
