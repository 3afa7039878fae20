"""The staircase's arms: random refinements of parity, and their trainings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from granularity.claims import preregistered
from granularity.stages.theory import engine
from granularity.stages.theory.engine import Trial
from granularity.stages.theory.worlds.feature_emergence import model, spaces
from granularity.stages.theory.worlds.feature_emergence.settings import Settings
from granularity.stages.theory.worlds.feature_emergence.spaces import PATTERNS, count, subparity

NAME = "staircase"
REGISTERED = preregistered.read(NAME)["arms"]
Draw = np.random.Generator


def _some(draw: Draw, least: int, most: int) -> list[int]:
    """A random subset of coordinates, of a random size."""
    return list(draw.permutation(spaces.K)[: draw.integers(least, most + 1)])


def _threshold(draw: Draw) -> np.ndarray:
    bits = _some(draw, 2, 5)
    return (count(bits) >= draw.integers(1, len(bits) + 1)).astype(int)


def _boolean(draw: Draw) -> np.ndarray:
    """Any function of some coordinates."""
    bits = _some(draw, 2, 4)
    values = draw.integers(2, size=2 ** len(bits))
    return values[PATTERNS[:, bits] @ 2 ** np.arange(len(bits))]


def _tree(draw: Draw) -> np.ndarray:
    """One coordinate decides which of two parities is shown."""
    root = draw.integers(spaces.K)
    return np.where(PATTERNS[:, root], subparity(_some(draw, 1, 3)), subparity(_some(draw, 1, 3)))


# Each a function of the pattern. What is common to all: labels are those of parity and of one to four of them.
KINDS: dict[str, Callable[[Draw], np.ndarray]] = {
    "bit": lambda draw: subparity(_some(draw, 1, 1)),
    "subparity": lambda draw: subparity(_some(draw, 2, 4)),
    "count": lambda draw: count(_some(draw, 2, 5)),
    "threshold": _threshold,
    "boolean": _boolean,
    "tree": _tree,
    "IDs of patterns": lambda draw: draw.integers(draw.integers(2, 7), size=len(PATTERNS)),
}


def refinements(number: int, seed: int, shuffled: Sequence[float]) -> list[dict[str, Any]]:
    """Random refinements of parity, no two of them alike.

    Args:
        number: how many.
        seed: decides all of them.
        shuffled: shares of labels that are shuffled within a class of parity; each space has one of them.

    Returns:
        Keys `name`, `table` and `shuffled` of settings.
    """
    draw = np.random.default_rng(seed)
    found: dict[tuple, dict[str, Any]] = {}
    while len(found) < number:
        kinds = draw.choice(list(KINDS), draw.integers(1, 5))
        table = spaces.refined(*(KINDS[kind](draw) for kind in kinds))
        share = float(draw.choice(shuffled))
        name = f"{len(found)}: {', '.join(kinds)}; {share:.0%} shuffled"
        found.setdefault((table, share), {"name": name, "table": table, "shuffled": share})
    return list(found.values())


def settings(size: str) -> list[Settings]:
    """The arms of a size, as the preregistration has them."""
    arms = REGISTERED[size]
    common = {"labels": "table", "structured": False, "seeds": arms["seeds"], **arms["setting"]}
    drawn = refinements(arms["refinements"], arms["seed"], arms["shuffled"])
    return [Settings(**common, **one) for one in drawn]


SIZES = {size: settings(size) for size in REGISTERED}


def simulate(runs: Sequence[Trial], device: torch.device) -> list[dict[str, Any]]:
    """Train a group of runs as the world does; a row of phase `law` holds what was known of each space before."""
    rows = []
    for run in runs:
        known = spaces.law(run.settings.table, run.settings.shuffled)
        numbers = ("staircase", "balanced", "weakest", "degree_1", "information", "labels")
        rows.append(engine.row(run, {f"law_{name}": getattr(known, name) for name in numbers}, phase="law"))
    return rows + model.simulate(runs, device)
