"""The engine of every world: settings, trials and their random streams, grouping, and the training loop.

A trial is one setting with one seed: one run. Runs whose settings share shapes train in one tensor program with a
leading run axis, on a CPU or a GPU. A run's numbers depend on its settings and its seed alone: every stream
of random numbers is derived from (world, purpose, seed), never from a batch, so adding seeds or settings
changes no other run. Settings with the same seed share their streams (common random numbers), which sharpens
comparisons between arms.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
import torch
from pydantic import BaseModel, ConfigDict, Field

from granularity.base import interrupt
from granularity.base.errors import GranularityError
from granularity.base.progress import track
from granularity.base.seeds import seed_of
from granularity.machine import leases
from granularity.stages.theory.runs import RUN_COLUMNS, ordered
from granularity.store.checkpoints import read_state, write_state

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS is not deterministic

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
State = dict[str, torch.Tensor]

# Multiply-adds of a step of all runs in one program. On one CPU thread batching pays while calling an
# operation costs more than its arithmetic. CPU time of a run's step alone / among five: 1.5 at 4e6 a run, 1.4
# at 1e7, 1.1 at 1.5e7 and 4e7; two at 1e7 gain as much as five. A GPU is filled instead.
CPU_WORK = 2.5e7
CUDA_WORK = 2e10


class Settings(BaseModel):
    """Base of every world's settings: immutable, closed to unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)
    WORLD: ClassVar[str] = ""

    name: str = Field("setting", description="The arm, in words; unique within a size.")
    seeds: Count = Field(3, description="Number of seeds that it is trained with: 0, 1, ...")
    base: Annotated[int, Field(ge=0)] = Field(0, description="All random streams follow it.")

    def shape(self) -> tuple:
        """Equal for settings whose runs can share one tensor program."""
        raise NotImplementedError

    def work(self) -> float:
        """Multiply-adds of one training step of one run, roughly."""
        raise NotImplementedError

    def conditions(self) -> dict[str, bool]:
        """What the paper's theorem supposes of a setting, each condition in words with whether this one meets it."""
        return {}


@dataclass(frozen=True)
class Trial:
    """One training: a setting and a seed."""

    settings: Any
    seed: int

    def generator(self, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
        """A stream of its own for (world, purpose, seed); a GPU draws other numbers than a CPU.

        Args:
            purpose: what the numbers are for, such as "data", "init" or "labels".
            device: where they are drawn.
        """
        world = self.settings.WORLD
        seed = seed_of(self.settings.base, "theory", world, purpose, self.seed)
        return torch.Generator(device).manual_seed(seed)


def pick_device(device: str = "auto") -> torch.device:
    """`auto`: a GPU if one is visible; `cuda`: a GPU or an error; `cpu`. A GPU is leased.

    Raises:
        GranularityError: `cuda` was asked for, and there is no GPU.
    """
    if device != "cpu" and torch.backends.cuda.is_built() and leases.candidates():
        leases.take()
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise GranularityError("device: 'cuda' was asked for, but no GPU is visible; use 'auto' or 'cpu'")
    return torch.device(device)


def column(
    runs: Sequence[Trial], key: str, device: torch.device, dims: int = 1, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """A scalar setting as a tensor (B, 1, ..., 1) with `dims` axes, to broadcast over a batch of runs."""
    values = [float(getattr(run.settings, key)) for run in runs]
    return torch.tensor(values, device=device, dtype=dtype).view(-1, *[1] * (dims - 1))


def stacked(draw: Callable[..., torch.Tensor], *per_run: Sequence) -> torch.Tensor:
    """`draw(a, b, ...)` for each run's own a, b, ..., stacked along a new leading run axis.

    Drawing one run at a time from its own generator is what keeps a run independent of its batch.
    """
    return joined([draw(*items) for items in zip(*per_run, strict=True)])


def joined(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """`torch.stack`, without a copy where there is one."""
    return parts[0].unsqueeze(0) if len(parts) == 1 else torch.stack(parts)


def picked(table: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """Rows `chosen` (B, n) of `table` (B, N, ...), (B, n, ...): a fraction of the time that indexing takes."""
    return joined([one.index_select(0, index) for one, index in zip(table, chosen, strict=True)])


def row(run: Trial, measures: dict[str, float], step: int = 0, phase: str = "train", event: str = "end") -> dict:
    """A row of the run table, for what a world computes without :func:`train`."""
    known = {"setting": run.settings.name, "seed": run.seed, "phase": phase, "step": step, "event": event}
    return known | {"outcome": "ran all steps"} | measures


# ---------------------------------------------------------------- the training loop


def train(
    runs: Sequence[Trial],
    state: State,
    step: Callable[[State, int], tuple[State, dict[str, torch.Tensor]]],
    measure: Callable[[State, int, bool], dict[str, torch.Tensor]],
    *,
    steps: int,
    record: Iterable[int] = (),
    stop_loss: float | None = None,
    stop_event: str | None = None,
    prepare: Callable[[State, int], State] | None = None,
    phase: str = "train",
) -> tuple[list[dict[str, Any]], State]:
    """Train a batch of runs side by side, and record.

    Args:
        runs: B of them.
        state: tensors with a leading run axis B; ones that `step` hands back as the same object are left
            alone.
        step: ``(state, t) -> (state at t + 1, info)``. ``info["loss"]`` (B,) is the loss of `state`; further
            float tensors (B,) are recorded beside it, and bool tensors (B,) are events: the first step at
            which one is true is recorded under its name.
        measure: ``(state, t, end) -> {name: (B,)}``, called at recorded steps only; `end` is true where some
            run takes its last row, for measures that are worth their cost only then.
        steps: updates at most; the state after the last one is recorded too.
        record: steps to record. The last step of a run is always recorded, as event "end".
        stop_loss: a run is over, before its update, at the first step whose loss is not above this.
        stop_event: a run is over, before its update, at the first step at which this event is true.
        prepare: ``(state, t) -> state`` before each step; may change shapes (drop neurons that can never
            fire).
        phase: the value of the column `phase`.

    Returns:
        Rows in the order of runs, then steps, and the last state. A run whose loss or new state is not finite
        is frozen in its last finite state, and gets a last row with event "diverged"; the other runs go on.
        The column ``outcome`` of every row of a run says how it ended: "ran all steps", "stopped at step t"
        or "diverged at step t".
    """
    count = len(runs)
    wanted = set(record)
    rows: list[list[dict[str, Any]]] = [[] for _ in runs]
    outcome = ["ran all steps"] * count
    seen: dict[str, list[bool]] = {}
    active = [True] * count
    for t in range(steps + 1):
        interrupt.stop_if_requested()  # what other groups have finished is kept; this one is not continued
        if prepare is not None:
            state = prepare(state, t)
        new, info = step(state, t)
        loss = info["loss"].tolist()
        finite = [math.isfinite(value) for value in _total(info["loss"], new, state, count).tolist()]
        diverged = [on and not ok for on, ok in zip(active, finite, strict=True)]
        stopped = [stop_loss is not None and value <= stop_loss for value in loss]
        if stop_event is not None:
            stopped = [a or b for a, b in zip(stopped, info[stop_event].tolist(), strict=True)]
        last = [on and ok and (done or t == steps) for on, ok, done in zip(active, finite, stopped, strict=True)]
        events = [""] * count
        for name, flags in info.items():
            if flags.dtype is torch.bool:
                before = seen.setdefault(name, [False] * count)
                for i, flag in enumerate(flags.tolist()):
                    if flag and active[i] and not before[i]:
                        before[i], events[i] = True, name
        measured = None
        for i in range(count):
            if diverged[i]:
                outcome[i] = f"diverged at step {t}"
                rows[i].append({"step": t, "event": "diverged"})
            elif active[i] and (last[i] or events[i] or t in wanted):
                if measured is None:
                    values = {k: v for k, v in info.items() if v.dtype is not torch.bool}
                    values |= measure(state, t, any(last))
                    measured = {name: value.tolist() for name, value in values.items()}
                event = " ".join(filter(None, (events[i], "end" if last[i] else "")))
                rows[i].append({"step": t, "event": event} | {name: v[i] for name, v in measured.items()})
                if last[i] and stopped[i]:
                    outcome[i] = f"stopped at step {t}"
        active = [on and not bad and not end for on, bad, end in zip(active, diverged, last, strict=True)]
        if not any(active):
            break
        state = new if all(active) else _freeze(new, state, active)
    for run, end, mine in zip(runs, outcome, rows, strict=True):
        for row in mine:
            row |= {"setting": run.settings.name, "seed": run.seed, "phase": phase, "outcome": end}
    return [row for mine in rows for row in mine], state


def _total(loss: torch.Tensor, new: State, old: State, count: int) -> torch.Tensor:
    """(B,) the loss and all numbers that the step changed, summed: finite where each of them is."""
    for name, tensor in new.items():
        if tensor.is_floating_point() and tensor is not old.get(name):
            loss = loss + tensor.reshape(count, -1).sum(1)
    return loss


def _freeze(new: State, old: State, active: list[bool]) -> State:
    """The new state for active runs, the old one for runs that are over."""
    frozen = {}
    for name, tensor in new.items():
        before = old[name]
        if tensor is not before:
            keep = torch.tensor(active, device=tensor.device).view(-1, *[1] * (tensor.dim() - 1))
            tensor = torch.where(keep, tensor, before)
        frozen[name] = tensor
    return frozen


# ---------------------------------------------------------------- many settings


def groups(settings: Sequence[Settings], device: torch.device) -> list[list[Trial]]:
    """Runs that share a tensor program: equal shapes, and as many at once as pay on this device."""
    by_shape: dict[tuple, list[Trial]] = {}
    for item in settings:
        for seed in range(item.seeds):
            by_shape.setdefault(item.shape(), []).append(Trial(item, seed))
    budget = CUDA_WORK if device.type == "cuda" else CPU_WORK
    chunks = []
    for runs in by_shape.values():
        size = max(1, math.floor(budget / max(run.settings.work() for run in runs)))
        chunks += [runs[i : i + size] for i in range(0, len(runs), size)]
    return chunks


def run_table(
    world: ModuleType,
    settings: Sequence[Settings],
    device: str = "auto",
    part: int = 0,
    parts: int = 1,
    store: Path | None = None,
) -> pd.DataFrame:
    """Train every seed of every setting of a world, or one of several parts of them.

    Args:
        world: the module of the world.
        settings: those to train, each with a name of its own.
        device: see :func:`pick_device`.
        parts: number of parts that the groups of trials are dealt out to, so that cutting changes none of them.
        part: which of them, from 0.
        store: a folder in which each finished group is kept, and from which it is taken when it is there.

    Returns:
        See :func:`granularity.stages.theory.runs.ordered`.

    Raises:
        GranularityError: two settings share a name, or a measure has the name of a parameter.
    """
    names = [item.name for item in settings]
    if len(set(names)) != len(names):
        raise GranularityError(f"theory: two settings share a name: {sorted(names)}")
    where = pick_device(device)
    _keep_memory()
    own = groups(settings, where)[part::parts]
    frames = []
    with torch.no_grad(), _exact():
        for index, group in track(enumerate(own), len(own), settings[0].WORLD, "groups of runs"):
            kept = None if store is None else store / f"group-{index}.done"
            state = None if kept is None else read_state(kept)
            if state is None:
                table = pd.DataFrame(world.simulate(group, where))
                if kept is None:
                    frames.append(table)
                    continue
                state = {"parquet": np.frombuffer(table.to_parquet(index=False), np.uint8)}, {}
                write_state(kept, *state)
            # Read back, so that a continued part gives the same bytes.
            frames.append(pd.read_parquet(io.BytesIO(state[0]["parquet"].tobytes())))
    rows = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(RUN_COLUMNS))
    return ordered(rows, settings)


def _keep_memory() -> None:
    """Have glibc keep freed tensors of up to 32 MiB for the next ones.

    It gives them back to the system at once, and to get them again, page by page, takes up to half of a step's time.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        trim_threshold, mmap_threshold = -1, -3
        set_option(trim_threshold, 1 << 30)
        set_option(mmap_threshold, 1 << 25)


@contextlib.contextmanager
def _exact() -> Iterator[None]:
    """Deterministic algorithms and full float32 products, as they were before afterwards.

    Without the filling of new tensors with NaN that goes with the former: each is written before it is read.
    """
    filled = torch.utils.deterministic.fill_uninitialized_memory
    before = torch.get_deterministic_debug_mode(), torch.get_float32_matmul_precision()
    torch.set_deterministic_debug_mode("error")  # use_deterministic_algorithms would import the compiler: a second
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = filled
        torch.set_deterministic_debug_mode(before[0])
        torch.set_float32_matmul_precision(before[1])
