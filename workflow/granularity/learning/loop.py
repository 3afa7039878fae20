"""The one optimisation loop: mini-batches in a seeded order, a schedule, and checkpoints that lose nothing.

Everything random is a function of the seed and the step, so a run that is killed and restarted from its last
checkpoint takes the very steps it would have taken. Several processes take them together
(:mod:`granularity.machine.processes`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from granularity.base.errors import GranularityError
from granularity.base.progress import teller
from granularity.base.seeds import seed_of
from granularity.learning.order import order
from granularity.learning.packing import arrays_of, pack, tensors_of, unpack
from granularity.learning.schedules import share_of_peak
from granularity.machine import processes
from granularity.machine.first_process import Saver, due, read_state
from granularity.store.checkpoints import Clock


class Batches:
    """Indices of the images of each step: a new seeded permutation per epoch, its incomplete last batch dropped."""

    def __init__(self, images: int, batch_size: int, seed: int, block: int = 1):
        if batch_size > images:
            raise GranularityError(f"batch_size = {batch_size}: there are only {images} training images")
        self.images, self.batch_size, self.seed, self.block = images, batch_size, seed, block
        self.per_epoch = images // batch_size
        self._epoch, self._order = -1, np.empty(0, dtype=np.int64)

    def __call__(self, step: int) -> torch.Tensor:
        epoch, place = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, order(self.images, self.seed, epoch, self.block)
        return torch.from_numpy(self._order[place * self.batch_size : (place + 1) * self.batch_size])


def minimise(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    gradients_at: Callable[[int], torch.Tensor],
    epochs: int,
    steps_per_epoch: int,
    warmup_epochs: float,
    seed: int,
    checkpoint: Path | None = None,
    after_epoch: Callable[[int], dict[str, float]] | None = None,
    schedule: Callable[[int, int, float], float] = share_of_peak,
    clip_norm: float | None = None,
) -> list[dict[str, Any]]:
    """Run an optimisation to its end, from its last checkpoint where there is one.

    Args:
        model: the network that is trained and saved.
        checkpoint: the file of the last checkpoint, which stays until the caller has saved what came out.
        optimizer: the `lr` of its groups is the peak.
        gradients_at: adds the gradients on the batch of a step to those of the weights, and returns the mean loss, or
            that of each network in a stack; with several processes, both are those of the whole batch.
        seed: what dropout draws from, at every step anew, so that a resumed run draws what an undisturbed one does.
        after_epoch: more columns for the history, given the number of the epoch, from 1. It is called before the
            checkpoint of the epoch's last step, so what it writes is never missing in a run that goes on from there.
        schedule: share of the peak learning rate, given the step, the number of steps, and those of warm-up.
        clip_norm: the largest norm of the whole gradient.

    Returns:
        One row per epoch: `epoch` (from 1), `lr` (at its last step), `train_loss` (mean over its steps; a list for a
        stack).

    Raises:
        GranularityError: the loss is no longer finite, or the processes do not agree about the weights.
    """
    peaks = [group["lr"] for group in optimizer.param_groups]
    steps = epochs * steps_per_epoch
    state = _restore(checkpoint, model, optimizer) or {"step": 0, "history": [], "losses": []}
    first, history, losses = state["step"], state["history"], state["losses"]
    clock, place = Clock(), next(model.parameters()).device
    tell = teller(steps, "training", "steps", first) if processes.rank() == 0 else lambda done: None
    processes.check_same(model)
    model.train()
    with Saver() as save:
        for step in range(first, steps):
            share = schedule(step, steps, warmup_epochs * steps_per_epoch)
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["lr"] = peak * share
            torch.manual_seed(seed_of(seed, "step", step, *([processes.rank()] if processes.rank() else [])))
            optimizer.zero_grad(set_to_none=True)
            losses.append(gradients_at(step))
            if clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
            optimizer.step()
            tell(step + 1)
            if (step + 1) % steps_per_epoch == 0:
                means = torch.stack([torch.as_tensor(loss, device=place) for loss in losses]).double().mean(0)
                mean = means.tolist()
                if not means.isfinite().all():
                    raise GranularityError(
                        f"the training loss is {mean} in epoch {len(history) + 1}: lower lr or lengthen warmup_epochs"
                    )
                row = {"epoch": len(history) + 1, "lr": optimizer.param_groups[0]["lr"], "train_loss": mean}
                if after_epoch is not None:
                    row |= after_epoch(len(history) + 1)
                    model.train()
                history.append(row)
                losses = []
            if checkpoint is not None and step + 1 < steps and due(clock):
                losses = [loss if isinstance(loss, float | list) else loss.tolist() for loss in losses]
                save(checkpoint, *_state(model, optimizer, {"step": step + 1, "history": history, "losses": losses}))
    processes.check_same(model)
    model.eval()
    return history


def _state(model: torch.nn.Module, optimizer: torch.optim.Optimizer, notes: dict) -> tuple[dict, dict]:
    arrays = {f"model.{key}": value for key, value in arrays_of(model.state_dict()).items()}
    packed = pack(optimizer.state_dict(), "optimizer", arrays)
    return arrays, {**notes, "optimizer": packed}


def _restore(path: Path | None, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict | None:
    state = read_state(path) if path is not None else None
    if state is None:
        return None
    arrays, notes = state
    weights = {key.removeprefix("model."): value for key, value in arrays.items() if key.startswith("model.")}
    model.load_state_dict(tensors_of(weights))
    optimizer.load_state_dict(unpack(notes["optimizer"], arrays, optimizer.state_dict()))
    return notes
