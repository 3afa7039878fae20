"""Train one network in several processes (docs/jobs.md), started by :mod:`granularity.machine.launch`."""

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist

from granularity.base import interrupt
from granularity.base.errors import GranularityError

TIMEOUT = timedelta(days=7)  # the first process may verify terabytes; dead processes are noticed at once
ELSEWHERE = "another process of this job was asked to stop"


class PeerLost(GranularityError):
    """Raised if another process of this job ended; that process or the launcher reports why."""


class Group(NamedTuple):
    """The processes of a training: this one's rank, their number, and the folder through which they connect."""

    rank: int = 0
    size: int = 1
    folder: Path = Path()


_group = Group()


@contextlib.contextmanager
def joined(rank: int, count: int, folder: Path) -> Iterator[None]:
    """Run as one of several processes. Raise PeerLost if another one ends early."""
    global _group
    _group = Group(rank, count, folder)
    try:
        yield
        barrier()
        if dist.is_initialized():
            dist.destroy_process_group()
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error):
            raise PeerLost("another process of this job ended") from error
        raise


def meet(device: torch.device) -> None:
    """Connect the processes, once each knows its device."""
    if size() > 1 and not dist.is_initialized():
        store = dist.FileStore(str(_group.folder / "meeting"), size())
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank(), world_size=size(), timeout=TIMEOUT)


def size() -> int:
    """Return the number of processes that train together. It affects the last bits of sums, so it is a parameter."""
    return _group.size


def rank() -> int:
    return _group.rank


def first() -> bool:
    """Return whether this is the process that writes for all."""
    return rank() == 0


def check_size(planned: int) -> None:
    """Raise GranularityError unless the number of processes is as planned in the stage's options."""
    if planned != size():
        raise GranularityError(
            f"processes: {planned} were planned, but {size()} are running; let granularity start them"
        )


def share(count: int) -> slice:
    """Return this process's part of a batch; parts differ by at most one image."""
    return slice(count * rank() // size(), count * (rank() + 1) // size())


def agreed(here: bool) -> bool:
    """Return whether a condition holds in any process."""
    return here if size() == 1 else bool(total(torch.tensor([float(here)])))


def stopping() -> bool:
    """Return whether any process was asked to stop; then ask this one, too."""
    if agreed(interrupt.requested()) and not interrupt.requested():
        interrupt.request(ELSEWHERE)
    return interrupt.requested()


def from_first(text: str) -> str:
    """Return the first process's text in all processes, sent through a file in their common folder."""
    if size() > 1:
        if first():
            (_group.folder / "told").write_text(text)
        barrier()
        text = (_group.folder / "told").read_text()
        barrier()
    return text


def barrier() -> None:
    """Wait for all processes."""
    agreed(False)


def total(values: torch.Tensor) -> torch.Tensor:
    """Sum a tensor over all processes, in place."""
    if size() > 1:
        dist.all_reduce(values)
    return values


def shared(network: torch.nn.Module) -> torch.nn.Module:
    """Return a network with gradients averaged over all processes (DistributedDataParallel if there are several)."""
    if size() == 1:
        return network
    place = next(network.parameters()).device
    # DistributedDataParallel rearranges its buckets after the first step, which would make a resumed run round
    # differently, unless it looks for unused parameters.
    return torch.nn.parallel.DistributedDataParallel(
        network,
        device_ids=[place] if place.type == "cuda" else None,
        forward_sync_buffers=False,
        find_unused_parameters=True,
    )


def backward(loss: torch.Tensor) -> None:
    """Backpropagate this process's share of a mean loss; :func:`shared` networks then have the sum of all gradients."""
    (loss * size() if size() > 1 else loss).backward()  # because DistributedDataParallel takes means
