"""The one optimisation loop: mini-batches in a seeded order, a schedule, and checkpoints that lose nothing.

Everything random is a function of the seed and the step, so a run that is killed and restarted from its last
checkpoint takes the very steps it would have taken. Several processes take them together
(:mod:`granularity.machine.processes`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from granularity.base.errors import GranularityError
from granularity.base.seeds import seed_of
from granularity.machine import processes
from granularity.machine.first_process import due, read_state, write_state
from granularity.store.checkpoints import Clock


class Batches:
    """Indices of the images of each step: a new seeded permutation an epoch, its incomplete last batch dropped."""

    def __init__(self, images: int, batch_size: int, seed: int):
        if batch_size > images:
            raise GranularityError(f"batch_size = {batch_size}: there are only {images} training images")
        self.images, self.batch_size, self.seed = images, batch_size, seed
        self.per_epoch = images // batch_size
        self._epoch, self._order = -1, np.empty(0, dtype=np.int64)

    def __call__(self, step: int) -> torch.Tensor:
        epoch, place = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            rng = np.random.default_rng(seed_of(self.seed, "order", epoch))
            self._epoch, self._order = epoch, rng.permutation(self.images)
        return torch.from_numpy(self._order[place * self.batch_size : (place + 1) * self.batch_size])


def share_of_peak(
    step: int,
    steps: int,
    warmup: float,
    hold: float = 0.0,
    shape: str = "cosine",
    final: float = 0.0,
    every: float = 1.0,
    factor: float = 1.0,
) -> float:
    """Share of the peak learning rate at a step: linear over `warmup` steps, the peak for `hold` steps, then down.

    Args:
        shape: `cosine` (half a period) or `linear`, from the peak to the share `final` at step `steps`; or `step`:
            times `factor` every `every` steps, not below `final`.
    """
    if step < warmup:
        return (step + 1) / (warmup + 1)
    done = max(0.0, step - warmup - hold)
    if shape == "step":
        return max(final, factor ** (done // every))
    whole = max(1.0, steps - warmup - hold)
    left = 1 - done / whole if shape == "linear" else 0.5 * (1 + math.cos(math.pi * done / whole))
    return final + (1 - final) * left


def minimise(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_at: Callable[[int], torch.Tensor],
    epochs: int,
    steps_per_epoch: int,
    warmup_epochs: float,
    seed: int,
    checkpoint: Path | None = None,
    after_epoch: Callable[[], dict[str, float]] | None = None,
    schedule: Callable[[int, int, float], float] = share_of_peak,
    clip_norm: float | None = None,
) -> list[dict[str, Any]]:
    """Run an optimisation to its end, from its last checkpoint where there is one.

    Args:
        model: what is trained and saved.
        checkpoint: it stays until the caller has saved what came out.
        optimizer: its groups' `lr` is the peak.
        loss_at: the loss on the batch of a step; of several processes, each one's share of that mean.
        seed: what dropout draws from, at every step anew, so that a resumed run draws the same.
        after_epoch: more columns for the history.
        schedule: share of the peak learning rate at a step, of so many, after so many of warm-up.
        clip_norm: the norm of the whole gradient at most.

    Returns:
        One row an epoch: `epoch` (from 1), `lr` (at its last step), `train_loss` (mean over its steps).

    Raises:
        GranularityError: the loss is no longer finite, or the processes do not agree about the weights.
    """
    peaks = [group["lr"] for group in optimizer.param_groups]
    steps = epochs * steps_per_epoch
    state = _restore(checkpoint, model, optimizer) or {"step": 0, "history": [], "losses": []}
    first, history, losses = state["step"], state["history"], state["losses"]
    clock, place = Clock(), next(model.parameters()).device
    processes.check_same(model)
    model.train()
    for step in range(first, steps):
        share = schedule(step, steps, warmup_epochs * steps_per_epoch)
        for group, peak in zip(optimizer.param_groups, peaks, strict=True):
            group["lr"] = peak * share
        torch.manual_seed(seed_of(seed, "step", step, *([processes.rank()] if processes.rank() else [])))
        loss = loss_at(step)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        loss = processes.sum_gradients(model.parameters(), loss)
        if clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.step()
        losses.append(loss)
        if (step + 1) % steps_per_epoch == 0:
            mean = float(torch.stack([torch.as_tensor(loss, device=place) for loss in losses]).double().mean())
            if not math.isfinite(mean):
                raise GranularityError(
                    f"the training loss is {mean} in epoch {len(history) + 1}: lower lr or lengthen warmup_epochs"
                )
            row = {"epoch": len(history) + 1, "lr": optimizer.param_groups[0]["lr"], "train_loss": mean}
            if after_epoch is not None:
                row |= after_epoch()
                model.train()
            history.append(row)
            losses = []
        if checkpoint is not None and step + 1 < steps and due(clock):
            losses = [float(loss) for loss in losses]
            _save(checkpoint, model, optimizer, {"step": step + 1, "history": history, "losses": losses})
    processes.check_same(model)
    model.eval()
    return history


def arrays_of(tensors: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    return {key: value.detach().cpu().numpy() for key, value in tensors.items()}


def tensors_of(arrays: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {key: torch.from_numpy(value) for key, value in arrays.items()}


def _save(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, notes: dict) -> None:
    tensors = {f"model.{key}": value for key, value in model.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{key}": value for key, value in state.items() if value is not None}
    write_state(path, arrays_of(tensors), notes)


def _restore(path: Path | None, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict | None:
    state = read_state(path) if path is not None else None
    if state is None:
        return None
    arrays, notes = state
    tensors = tensors_of(arrays)
    model.load_state_dict({k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")})
    whole = optimizer.state_dict()
    for key, value in tensors.items():
        if key.startswith("optimizer."):
            _, index, name = key.split(".", 2)
            whole["state"].setdefault(int(index), {})[name] = value
    optimizer.load_state_dict(whole)
    return notes
