"""Optimisers: torch's SGD, Adam and AdamW, and everything in timm's factory, on all weights alike."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import torch

from granularity.base.errors import GranularityError
from granularity.learning.options import Recipe


def optimiser(parameters: Iterable[torch.nn.Parameter], recipe: Recipe) -> torch.optim.Optimizer:
    """The optimiser of a recipe; weight decay is on all weights (the paper excludes none from it).

    Raises:
        GranularityError: there is no such optimiser, it does not take the arguments, or it needs more than gradients.
    """
    parameters = list(parameters)
    fast = {"fused": True} if all(one.is_cuda for one in parameters) else {"foreach": True}
    common = {"lr": recipe.lr, "weight_decay": recipe.weight_decay, **recipe.optimizer_args}
    try:
        if recipe.optimizer == "sgd":
            found = torch.optim.SGD(
                parameters, momentum=recipe.momentum, nesterov=recipe.nesterov, **{**fast, **common}
            )
        elif recipe.optimizer in ("adam", "adamw"):
            kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[recipe.optimizer]
            found = kind(parameters, **{**fast, **common})
        else:
            found = _of_timm(parameters, recipe, common)
    except GranularityError:
        raise
    except Exception as error:  # whatever an optimiser does with arguments that it does not take
        given = f", optimizer_args = {recipe.optimizer_args}" if recipe.optimizer_args else ""
        raise GranularityError(f"optimizer = {recipe.optimizer}{given}: {error}") from error
    if getattr(found, "is_second_order", False):
        raise GranularityError(f"optimizer = {recipe.optimizer}: needs second derivatives, which are not computed here")
    return found


def _of_timm(parameters: list[torch.nn.Parameter], recipe: Recipe, common: dict) -> torch.optim.Optimizer:
    from timm.optim import create_optimizer_v2, list_optimizers

    known = list_optimizers()
    if recipe.optimizer.removeprefix("lookahead_") not in known:
        close = difflib.get_close_matches(recipe.optimizer, known, n=5, cutoff=0.5)
        meant = f"did you mean {', '.join(close)}?" if close else "timm.optim.list_optimizers() has them all"
        raise GranularityError(f"optimizer = {recipe.optimizer}: there is no such optimiser; {meant}")
    # A list of weights, not the network: of that, timm would exempt biases and normalisations from weight decay.
    return create_optimizer_v2(parameters, recipe.optimizer, momentum=recipe.momentum, **common)
