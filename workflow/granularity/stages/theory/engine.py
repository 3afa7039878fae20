"""The engine of every world: settings, trials and their random streams, grouping, and the training loop.

A trial is one run: a setting with a seed. Every stream of random numbers is derived from (world, purpose, seed), so a
run's numbers depend only on its settings and seed. Settings with equal seeds share their streams, which sharpens
comparisons between arms.
"""

import contextlib
import ctypes
import io
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator

from granularity.base import interrupt
from granularity.base.errors import GranularityError
from granularity.base.progress import track
from granularity.base.seeds import seed_of
from granularity.machine import leases
from granularity.stages.theory.runs import RUN_COLUMNS, ordered
from granularity.store.resume import read_state, write_state

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # otherwise cuBLAS is not deterministic

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
State = dict[str, torch.Tensor]
Rows = list[dict[str, Any]]

# Multiply-adds of a step of all runs in one program. On one CPU thread, batching pays if calling an operation costs
# more than its arithmetic: the ratio of CPU time per step of a run alone to a run among five is 1.5 at 4e6 per run, 1.1
# at 1.5e7. On a GPU, batches fill the device.
CPU_WORK = 2.5e7
CUDA_WORK = 2e10


class Settings(BaseModel):
    """Base of every world's settings: immutable; unknown keys are rejected."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)
    WORLD: ClassVar[str] = ""
    FREE: ClassVar[frozenset[str]] = frozenset()  # what may differ between runs that share a tensor program

    name: str = "setting"  # the arm, in words; unique within a size
    seeds: Count = 3  # number of seeds: 0, 1, ...
    base: Natural = 0  # all random streams depend on it

    @model_validator(mode="after")
    def _rules_hold(self):
        for met, message in self.rules():
            if not met:
                raise ValueError(message)
        return self

    def rules(self) -> Iterable[tuple[bool, str]]:
        """Yield constraints on the parameters: whether each is met, and its message, which begins with the key."""
        return ()

    def shape(self) -> tuple:
        """Return a key that is equal for settings whose runs can share one tensor program."""
        return tuple(self.model_dump(exclude={"name", "seeds", "base", *self.FREE}).values())

    def work(self) -> float:
        """Return the approximate multiply-adds of one training step of one run."""
        raise NotImplementedError

    def conditions(self) -> dict[str, bool]:
        """Return the conditions of the paper's theorem, in words, and whether this setting meets each."""
        return {}


@dataclass(frozen=True)
class Trial:
    """One training: a setting and a seed."""

    settings: Any
    seed: int

    def generator(self, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
        """Return the stream for (world, purpose, seed), with a purpose such as "data"; GPUs and CPUs differ."""
        seed = seed_of(self.settings.base, "theory", self.settings.WORLD, purpose, self.seed)
        return torch.Generator(device).manual_seed(seed)


def pick_device(device: str = "auto") -> torch.device:
    """Choose the device. `auto`: a GPU if visible; `cuda`: a GPU or a GranularityError; `cpu`. A GPU is leased."""
    if device != "cpu" and torch.backends.cuda.is_built() and leases.candidates():
        leases.take()
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise GranularityError("device: 'cuda' was requested, but no GPU is visible; use 'auto' or 'cpu'")
    return torch.device(device)


def column(
    runs: Sequence[Trial], key: str, device: torch.device, dims: int = 1, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Return a scalar setting as a tensor (B, 1, ..., 1) with `dims` axes, to broadcast over a batch of runs."""
    values = [float(getattr(run.settings, key)) for run in runs]
    return torch.tensor(values, device=device, dtype=dtype).view(-1, *[1] * (dims - 1))


def joined(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """`torch.stack`, without a copy of a single tensor."""
    return parts[0].unsqueeze(0) if len(parts) == 1 else torch.stack(parts)


def stacked(draw: Callable[..., torch.Tensor], *per_run: Sequence) -> torch.Tensor:
    """Stack `draw(a, b, ...)` of each run along a new leading axis; a run's draw does not depend on its batch."""
    return joined([draw(*items) for items in zip(*per_run, strict=True)])


def collated(drawn: Iterable[State]) -> State:
    """Stack the tensors that each run drew, by name, along a new leading run axis."""
    drawn = list(drawn)
    return {name: joined([state[name] for state in drawn]) for name in drawn[0]}


def picked(table: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """Return rows `chosen` (B, n) of `table` (B, N, ...) as (B, n, ...), much faster than indexing."""
    return joined([rows.index_select(0, index) for rows, index in zip(table, chosen, strict=True)])


def row(run: Trial, measures: dict[str, float], step: int = 0, phase: str = "train", event: str = "end") -> dict:
    """Return a row of the run table, for what a world computes without :func:`train`."""
    columns = {"setting": run.settings.name, "seed": run.seed, "phase": phase, "step": step, "event": event}
    return columns | {"outcome": "ran all steps"} | measures


# ---------------------------------------------------------------- the training loop


def sgd(
    direction: Callable[[State, int], tuple[torch.Tensor, State]], rates: torch.Tensor | Mapping[str, torch.Tensor]
) -> Callable[[State, int], tuple[State, State]]:
    """Return the step of plain SGD for :func:`train`, given ``(state, t) -> (loss (B,), minus the gradients)``."""

    def step(state: State, t: int) -> tuple[State, State]:
        loss, down = direction(state, t)
        moved = {}
        for key, change in down.items():
            rate = rates[key] if isinstance(rates, Mapping) else rates
            moved[key] = state[key] + rate.view(-1, *[1] * (change.dim() - 1)) * change
        return state | moved, {"loss": loss}

    return step


def train(
    runs: Sequence[Trial],
    state: State,
    step: Callable[[State, int], tuple[State, State]],
    measure: Callable[[State, int, bool], State],
    *,
    steps: int,
    record: Iterable[int] = (),
    stop_loss: float | None = None,
    stop_event: str | None = None,
    prepare: Callable[[State, int], State] | None = None,
    phase: str = "train",
    start: int = 0,
) -> tuple[Rows, State]:
    """Train a batch of B runs side by side, and record measures.

    Args:
        state: tensors with a leading run axis B; a tensor that `step` returns as the same object is left alone.
        step: ``(state, t) -> (state at t + 1, info)``. ``info["loss"]`` (B,) is the loss of `state`. Further floats
            (B,) are recorded with it; for bools (B,), called events, the first step at which they are true.
        measure: ``(state, t, end) -> {name: (B,)}``, called only at recorded steps; `end`: some run takes its last row.
        steps: most updates; the state after the last one is recorded too, as event "end".
        stop_loss, stop_event: a run ends, before its update, at the first step whose loss is at most `stop_loss`, or at
            which this event is true.
        prepare: ``(state, t) -> state`` before each step; may change shapes (drop neurons that can never fire).
        start: number of the first step in the rows.

    Returns:
        Rows in the order of runs, then steps, and the last state. A run whose loss or new state is not finite is frozen
        in its last finite state, and its last row has event "diverged"; the others go on. ``outcome``: how a run ended.
    """
    count, marks = len(runs), set(record)
    rows: list[Rows] = [[] for _ in runs]
    outcome = ["ran all steps"] * count
    seen: set[tuple[str, int]] = set()
    active = [True] * count
    for t in range(steps + 1):
        interrupt.stop_if_requested()  # finished groups are kept; this one is lost
        if prepare is not None:
            state = prepare(state, t)
        new, info = step(state, t)
        finite = _total(info["loss"], new, state, count).isfinite().tolist()
        stopped = [stop_loss is not None and value <= stop_loss for value in info["loss"].tolist()]
        if stop_event is not None:
            stopped = [a or b for a, b in zip(stopped, info[stop_event].tolist(), strict=True)]
        last = [on and ok and (done or t == steps) for on, ok, done in zip(active, finite, stopped, strict=True)]
        flags = {name: flag.tolist() for name, flag in info.items() if flag.dtype is torch.bool}
        measured = None
        for i in (i for i in range(count) if active[i]):
            events = [name for name, flag in flags.items() if flag[i] and (name, i) not in seen]
            seen.update((name, i) for name in events)
            if not finite[i]:
                outcome[i] = f"diverged at step {t}"
                rows[i].append({"step": start + t, "event": "diverged"})
            elif last[i] or events or t in marks:
                if measured is None:
                    values = {k: v for k, v in info.items() if k not in flags} | measure(state, t, any(last))
                    measured = {name: value.tolist() for name, value in values.items()}
                event = " ".join(filter(None, (*events[-1:], "end" if last[i] else "")))
                rows[i].append({"step": start + t, "event": event} | {name: v[i] for name, v in measured.items()})
                if last[i] and stopped[i]:
                    outcome[i] = f"stopped at step {t}"
        active = [on and ok and not end for on, ok, end in zip(active, finite, last, strict=True)]
        if not any(active):
            break
        state = new if all(active) else _freeze(new, state, active)
    for run, end, mine in zip(runs, outcome, rows, strict=True):
        for row in mine:
            row |= {"setting": run.settings.name, "seed": run.seed, "phase": phase, "outcome": end}
    return [row for mine in rows for row in mine], state


def _total(loss: torch.Tensor, new: State, old: State, count: int) -> torch.Tensor:
    """Return, (B,), the sum of the loss and all numbers that the step changed: finite only if each of them is."""
    for name, tensor in new.items():
        if tensor.is_floating_point() and tensor is not old.get(name):
            loss = loss + tensor.reshape(count, -1).sum(1)
    return loss


def _freeze(new: State, old: State, active: list[bool]) -> State:
    """Return the new state for active runs, the old one for finished runs."""
    frozen = {}
    for name, tensor in new.items():
        if tensor is not old[name]:
            keep = torch.tensor(active, device=tensor.device).view(-1, *[1] * (tensor.dim() - 1))
            tensor = torch.where(keep, tensor, old[name])
        frozen[name] = tensor
    return frozen


def groups(settings: Sequence[Settings], device: torch.device) -> list[list[Trial]]:
    """Group runs that share a tensor program: equal shapes, and as many at once as pay on this device."""
    by_shape: dict[tuple, list[Trial]] = {}
    for item in settings:
        by_shape.setdefault(item.shape(), []).extend(Trial(item, seed) for seed in range(item.seeds))
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
    """Return the run table (see :func:`.runs.ordered`) of every seed of every setting, or of one part (whole groups).

    Finished groups are kept in the folder `store`, and reused. Raises GranularityError: two settings share a name, or a
    measure has the name of a parameter.
    """
    names = [item.name for item in settings]
    if len(set(names)) != len(names):
        raise GranularityError(f"theory: two settings share a name: {sorted(names)}")
    where = pick_device(device)
    _keep_memory()
    part_groups = groups(settings, where)[part::parts]
    frames = []
    with torch.no_grad(), _exact():
        for index, group in track(enumerate(part_groups), len(part_groups), settings[0].WORLD, "groups of runs"):
            if store is None:
                frames.append(pd.DataFrame(world.simulate(group, where)))
                continue
            kept = store / f"group-{index}.done"
            state = read_state(kept)
            if state is None:
                table = pd.DataFrame(world.simulate(group, where)).to_parquet(index=False)
                state = {"parquet": np.frombuffer(table, np.uint8)}, {}
                write_state(kept, *state)
            # Read back, so that a resumed part gives the same bytes.
            frames.append(pd.read_parquet(io.BytesIO(state[0]["parquet"].tobytes())))
    rows = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(RUN_COLUMNS))
    return ordered(rows, settings)


def _keep_memory() -> None:
    """Make glibc keep freed tensors up to 32 MiB: paging them in again takes up to half of a step."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        trim_threshold, mmap_threshold = -1, -3
        set_option(trim_threshold, 1 << 30)
        set_option(mmap_threshold, 1 << 25)


@contextlib.contextmanager
def _exact() -> Iterator[None]:
    """Use deterministic algorithms (without filling new tensors with NaN) and full float32 products."""
    filled = torch.utils.deterministic.fill_uninitialized_memory
    before = torch.get_deterministic_debug_mode(), torch.get_float32_matmul_precision()
    torch.set_deterministic_debug_mode("error")  # use_deterministic_algorithms imports the compiler: a second
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = filled
        torch.set_deterministic_debug_mode(before[0])
        torch.set_float32_matmul_precision(before[1])
