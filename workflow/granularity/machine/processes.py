"""One network trained by several processes (docs/recipes.md), started by :mod:`granularity.machine.launch`."""

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist

from granularity.base import interrupt
from granularity.base.errors import GranularityError

TIMEOUT = timedelta(days=7)  # for the first process to verify terabytes; the dead are noticed at once
ELSEWHERE = "another process of this job was asked to stop"


class PeerLost(GranularityError):
    """Another process of this job ended; it has said why, or the launcher does."""


class Group(NamedTuple):
    """The processes of a training: which one this is, of how many, and the folder where they meet."""

    rank: int = 0
    size: int = 1
    folder: Path = Path()


_group = Group()


@contextlib.contextmanager
def joined(rank: int, count: int, folder: Path) -> Iterator[None]:
    """Be one of several processes; raises a PeerLost where another one ends before."""
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
    """The number of processes that train together. A parameter of a training: sums over them decide its last bits."""
    return _group.size


def rank() -> int:
    return _group.rank


def first() -> bool:
    """Whether this is the process that writes for all."""
    return rank() == 0


def check_size(planned: int) -> None:
    """Raise a GranularityError unless there are as many processes as a stage's options say."""
    if planned != size():
        raise GranularityError(
            f"processes: {planned} are planned, but this is one of {size()}; let granularity start them"
        )


def share(count: int) -> slice:
    """This process's part of a batch; parts differ by one image at most."""
    return slice(count * rank() // size(), count * (rank() + 1) // size())


def agreed(here: bool) -> bool:
    """Whether a condition holds in any process."""
    return here if size() == 1 else bool(total(torch.tensor([float(here)])))


def stopping() -> bool:
    """Whether any process was asked to stop; then all are."""
    if agreed(interrupt.requested()) and not interrupt.requested():
        interrupt.request(ELSEWHERE)
    return interrupt.requested()


def from_first(text: str) -> str:
    """What the first process says, through a file in the folder where they meet."""
    if size() > 1:
        if first():
            (_group.folder / "told").write_text(text)
        barrier()
        text = (_group.folder / "told").read_text()
        barrier()
    return text


def barrier() -> None:
    """Wait for all."""
    agreed(False)


def total(values: torch.Tensor) -> torch.Tensor:
    """The sum over all processes, in place."""
    if size() > 1:
        dist.all_reduce(values)
    return values


def shared(network: torch.nn.Module) -> torch.nn.Module:
    """A network whose gradients are the mean over all processes: torch's DistributedDataParallel, or the network."""
    if size() == 1:
        return network
    place = next(network.parameters()).device
    # It rearranges its buckets after the first step, by which a run that is resumed would round otherwise than one that
    # is not, unless it looks for unused parameters.
    return torch.nn.parallel.DistributedDataParallel(
        network,
        device_ids=[place] if place.type == "cuda" else None,
        forward_sync_buffers=False,
        find_unused_parameters=True,
    )


def backward(loss: torch.Tensor) -> None:
    """`loss.backward()` of this process's share of a mean; of :func:`shared` networks, all get the sum of gradients."""
    (loss * size() if size() > 1 else loss).backward()  # as DistributedDataParallel takes means
