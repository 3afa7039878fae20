"""The only optimisation loop: an optimiser, a schedule, and checkpoints from which training resumes exactly.

All randomness is a function of seed and step, so a run resumed from a checkpoint takes the same steps as an
uninterrupted one. Several processes can share each step (:mod:`granularity.machine.processes`).
"""

import io
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.base.progress import teller
from granularity.base.seeds import seed_of
from granularity.learning.options import Recipe, optimiser_file
from granularity.machine import processes
from granularity.machine.first_process import Saver, due, read_state
from granularity.store.resume import Clock


def optimiser(parameters: Iterable[torch.nn.Parameter], recipe: Recipe) -> torch.optim.Optimizer:
    """Return the optimiser of a recipe, with weight decay on all weights (the paper exempts none). Raise
    GranularityError if it is unknown, does not accept the arguments, or needs more than gradients.
    """
    parameters = list(parameters)
    fast = {"fused": True} if all(parameter.is_cuda for parameter in parameters) else {"foreach": True}
    common = {"lr": recipe.lr, "weight_decay": recipe.weight_decay, **recipe.optimizer_args}
    try:
        instance = extensions.find("optimiser", optimiser_file(recipe)).make(parameters, recipe, common, fast)
    except GranularityError:
        raise
    except Exception as error:  # any error of an optimiser for unsuitable arguments
        arguments = f", optimizer_args = {recipe.optimizer_args}" if recipe.optimizer_args else ""
        raise GranularityError(f"optimizer = {recipe.optimizer}{arguments}: {error}") from error
    if getattr(instance, "is_second_order", False):
        raise GranularityError(f"optimizer = {recipe.optimizer}: needs second derivatives, which are not supported")
    return instance


def share_of_peak(recipe: Recipe, steps_per_epoch: int, step: int) -> float:
    """Return the learning rate at a step as a share of its peak: a linear warm-up, the peak while it is held, then a
    decrease, by `cosine` (half a period) or `linear` to final_lr at the last step, or by `step`s but not below it.
    """
    epochs = recipe.epochs, recipe.warmup_epochs, recipe.hold_epochs, recipe.step_epochs
    steps, warmup, hold, interval = (count * steps_per_epoch for count in epochs)
    final = recipe.final_lr / recipe.lr
    if step < warmup:
        return (step + 1) / (warmup + 1)
    done = max(0.0, step - warmup - hold)
    if recipe.schedule == "step":
        return max(final, recipe.step_factor ** (done // interval))
    whole = max(1.0, steps - warmup - hold)
    left = 1 - done / whole if recipe.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done / whole))
    return final + (1 - final) * left


def minimise(
    model: torch.nn.Module,
    recipe: Recipe,
    gradients_at: Callable[[int], torch.Tensor],
    steps_per_epoch: int,
    seed: int,
    checkpoint: Path | None = None,
    after_epoch: Callable[[int], dict[str, float] | None] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> list[dict[str, Any]]:
    """Run an optimisation to its end, from its last checkpoint if there is one.

    Args:
        recipe: epochs, learning rates, clipping and, if none is passed, the optimiser (whose `lr` is the peak).
        gradients_at: adds the gradients on the batch of a step to those of the weights and returns the mean loss, or
            the mean losses of a stack's networks; with several processes, both are for the whole batch.
        seed: the seed for dropout, combined with the step.
        checkpoint: the file of the last checkpoint; the caller deletes it after saving the result.
        after_epoch: returns more columns for the history, given the epoch (from 1); called before a checkpoint.

    Returns a row per epoch: `epoch` (from 1), `lr` (at its last step), `train_loss` (mean over its steps; a list for a
    stack). Raises GranularityError if the loss is no longer finite.
    """
    optimizer = optimizer or optimiser(model.parameters(), recipe)
    peaks = [group["lr"] for group in optimizer.param_groups]
    steps = recipe.epochs * steps_per_epoch
    state = _restore(checkpoint, model, optimizer) or {"step": 0, "history": [], "losses": []}
    first, history, losses = state["step"], state["history"], state["losses"]
    clock, place = Clock(), next(model.parameters()).device
    tell = teller(steps, "training", "steps", first) if processes.rank() == 0 else lambda done: None
    model.train()
    with Saver() as save:
        for step in range(first, steps):
            share = share_of_peak(recipe, steps_per_epoch, step)
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["lr"] = peak * share
            torch.manual_seed(seed_of(seed, "step", step, *([processes.rank()] if processes.rank() else [])))
            optimizer.zero_grad(set_to_none=True)
            losses.append(gradients_at(step))
            if recipe.clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)
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
                    row |= after_epoch(len(history) + 1) or {}
                    model.train()
                history.append(row)
                losses = []
            if checkpoint is not None and step + 1 < steps and due(clock):
                losses = [loss if isinstance(loss, float | list) else loss.tolist() for loss in losses]
                save(checkpoint, *_state(model, optimizer, {"step": step + 1, "history": history, "losses": losses}))
    model.eval()
    return history


def _state(model: torch.nn.Module, optimizer: torch.optim.Optimizer, notes: dict) -> tuple[dict, dict]:
    state, packed = optimizer.state_dict(), io.BytesIO()
    # Functions among an optimiser's options do not change while it runs.
    groups = [{key: value for key, value in group.items() if not callable(value)} for group in state["param_groups"]]
    torch.save({**state, "param_groups": groups}, packed)
    arrays = {f"model.{key}": value.detach().cpu().numpy() for key, value in model.state_dict().items()}
    return {**arrays, "optimizer": np.frombuffer(packed.getvalue(), np.uint8)}, notes


def _restore(path: Path | None, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict | None:
    state = read_state(path) if path is not None else None
    if state is None:
        return None
    arrays, notes = state
    packed = torch.load(io.BytesIO(arrays.pop("optimizer").tobytes()), weights_only=True)
    now = optimizer.state_dict()["param_groups"]
    groups = [{**one, **saved} for one, saved in zip(now, packed["param_groups"], strict=True)]
    optimizer.load_state_dict({**packed, "param_groups": groups})
    model.load_state_dict({key.removeprefix("model."): torch.from_numpy(value) for key, value in arrays.items()})
    return notes
