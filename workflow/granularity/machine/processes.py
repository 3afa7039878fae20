"""One network trained by several processes: the launcher starts them, each computes on a share of every batch.

Started by anything else, a stage is one process, and everything here does what the single-process function it is
named after does. With several, a step is that of one process up to rounding: the loss is the mean over the whole batch,
gradients are summed in one fixed order, and batch normalisation takes its moments over the whole batch. (Dropout is
drawn anew in each process.) The first process (rank 0) is the only one that reads and writes checkpoints, verifies
inputs and publishes; the others compute, wait for it and keep silent.

All processes stop together: at each step they tell each other whether one was asked to. A process that dies breaks
the connections of the others, which then end, too.

They meet through a file in a private folder (:mod:`granularity.machine.launch`); on one machine, they listen on its
loopback interface alone. What they send each other is numbers and text, never a pickle.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import safetensors.numpy
import torch
import torch.distributed as dist

from granularity.base import interrupt
from granularity.base.errors import GranularityError
from granularity.machine import launch, leases

T = TypeVar("T")
State = tuple[dict[str, np.ndarray], Any]
TIMEOUT = timedelta(days=7)  # for a GPU, or for the first process to verify terabytes; the dead are noticed at once
BYTES_OF_PROOF = 16
ELSEWHERE = "another process of this job was asked to stop"


class PeerLost(GranularityError):
    """Another process of this job ended."""


@dataclass
class Group:
    """The processes of a training: how many, which one this is, and how many and which on this machine (node)."""

    size: int
    rank: int
    node: int
    local_size: int
    local_rank: int
    store: dist.Store


_group: Group | None = None
_alone = False  # each trains a network of its own
_times = 0  # that this process has joined others: a stage, or several one after another


# ---------------------------------------------------------------- joining and leaving


def together(stage: Callable[..., T]) -> Callable[..., T]:
    """Let a stage be run by several processes, where the launcher started them."""

    @functools.wraps(stage)
    def run(*args, **kwargs) -> T:
        if not started_by_launcher():
            return stage(*args, **kwargs)
        with _joined():
            return stage(*args, **kwargs)

    return run


def started_by_launcher() -> bool:
    """Whether this is one of several processes."""
    return launch.MEETING in os.environ and int(os.environ["WORLD_SIZE"]) > 1


@contextlib.contextmanager
def _joined() -> Iterator[None]:
    global _group, _times
    size, rank, node, local_size, local_rank = (
        int(os.environ[name]) for name in ("WORLD_SIZE", "RANK", "GROUP_RANK", "LOCAL_WORLD_SIZE", "LOCAL_RANK")
    )
    if local_size == size:
        os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    os.environ.setdefault("NCCL_RAS_ENABLE", "0")  # a service to be asked about the state of NCCL; it listens, too
    store = dist.FileStore(os.environ[launch.MEETING])
    store.set_timeout(TIMEOUT)
    _times += 1
    _group = Group(size, rank, node, local_size, local_rank, dist.PrefixStore(f"{_times}", store))
    silent = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.__stderr__ if rank == 0 else silent
    try:
        yield
        barrier()
        dist.destroy_process_group()
        sys.stderr = sys.__stderr__
    except BaseException as error:
        sys.stderr = sys.__stderr__ if _speaks(error) else silent
        raise
    finally:
        _group = None


def _speaks(error: BaseException) -> bool:
    """Whether this process is the one that reports: the first with something to tell."""
    if isinstance(error, interrupt.Stopped) and error.reason == ELSEWHERE:
        return False
    here = _group.local_size == _group.size
    if isinstance(error, PeerLost) and here and launch.LAUNCHER in os.environ:  # which knows how the other one died
        return False
    return _group.store.add("reports", 1) == 1


def check_joined() -> None:
    """Raise a GranularityError in a stage that is not made for several processes."""
    if _group is None and started_by_launcher():
        raise GranularityError(
            "only embed, pretrain and finetune are for several processes; start this stage with `granularity`"
        )


def meet(device: torch.device) -> None:
    """Connect the processes, once each knows its device.

    Raises:
        GranularityError: one process computes on a CPU and another on a GPU; or a stranger was faster.
    """
    if _group is None:
        return
    _group.store.set(f"device/{rank()}", device.type)
    for other in range(size()):
        if (kind := _told(f"device/{other}")) != device.type:
            raise GranularityError(f"process {other} would use {kind}, process {rank()} {device.type}; set the device")
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    with _others_may_be_gone():
        dist.init_process_group(backend, store=_group.store, rank=rank(), world_size=size(), timeout=TIMEOUT)
        _check_peers()


def _check_peers() -> None:
    """Have each process prove to each other one that it can read the file through which they meet.

    Gloo takes whoever connects first for the process it waits for. (NCCL asks for a secret out of that file itself.)
    """
    mine = os.urandom(size() * BYTES_OF_PROOF)  # a part for each
    _group.store.set(f"proofs/{rank()}", mine.hex())
    found = torch.empty(size() * BYTES_OF_PROOF, dtype=torch.uint8)
    dist.all_to_all_single(found, torch.frombuffer(bytearray(mine), dtype=torch.uint8))
    for other, proof in enumerate(found.split(BYTES_OF_PROOF)):
        known = bytes.fromhex(_told(f"proofs/{other}"))
        if proof.numpy().tobytes() != known[rank() * BYTES_OF_PROOF :][:BYTES_OF_PROOF]:
            raise GranularityError(
                f"what connected to process {rank()} as process {other} is not of this job; somebody who can "
                "reach its ports disturbs it"
            )


def lease_gpus() -> None:
    """Lease a GPU for each process of this machine; all see all of them, and use that of their local rank.

    The first process of the machine looks for all at once, so two trainings never wait for each other's last GPU.
    """
    if _group is None:
        leases.take()
        return
    key, local = f"gpus/{_group.node}", _group.local_rank
    leases.enough(_group.local_size)
    if local == 0:
        with leases.queue():
            devices = leases.free(_group.local_size)
            leases.hold(devices[0])
            _group.store.set(key, "\n".join(devices))
            for other in range(1, _group.local_size):
                _told(f"{key}/{other}")
    else:
        devices = _told(key).split("\n")
        leases.hold(devices[local])
        _group.store.set(f"{key}/{local}", "held")
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(devices)


def _told(key: str) -> str:
    """Wait for what another process puts into the store, and for signals, and return it."""
    with _others_may_be_gone():
        while not _group.store.check([key]):
            time.sleep(0.02)
        return _group.store.get(key).decode()


@contextlib.contextmanager
def _others_may_be_gone() -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:  # gloo's, NCCL's and the store's
        with contextlib.suppress(ValueError):  # not the main thread
            for number in interrupt.SIGNALS:  # the launcher sends one now; it is not why this process ends
                signal.signal(number, signal.SIG_IGN)
        why = re.sub(r"^\[[^ ]*\] ", "", str(error)).split(". ")[0][:100]  # without gloo's place in its source
        raise PeerLost(
            f"another process of this job ended ({why}); what is saved is kept, and the next run goes on from it"
        ) from error


# ---------------------------------------------------------------- who is who


def size() -> int:
    """The number of processes that train together. A parameter of a training: sums over them decide its last bits."""
    return 1 if _group is None or _alone else _group.size


def rank() -> int:
    return 0 if _group is None or _alone else _group.rank


@contextlib.contextmanager
def each_alone() -> Iterator[tuple[int, int]]:
    """A time in which each process is the only one to all that trains and saves; gives which it is, of how many.

    What names all processes still reaches them: :func:`share_of_all`, :func:`joined`, :func:`least`, :func:`anywhere`.
    """
    global _alone
    _alone = True
    try:
        yield (0, 1) if _group is None else (_group.rank, _group.size)
    finally:
        _alone = False


def local_rank() -> int:
    return 0 if _group is None else _group.local_rank


def local_size() -> int:
    return 1 if _group is None else _group.local_size


def first() -> bool:
    """Whether this is the process that reads and writes for all."""
    return rank() == 0


def check_size(planned: int) -> None:
    """Raise a GranularityError unless there are as many processes as the options of a stage say."""
    if planned != size():
        raise GranularityError(
            f"processes: {planned} are planned, but this is one of {size()}; let granularity start "
            "them, or, on several machines, as many by granularity.machine.launch"
        )


def share(count: int) -> slice:
    """This process's part of a batch; parts differ by one image at most.

    Raises:
        GranularityError: there are not enough images for all processes.
    """
    if count < size():
        raise GranularityError(f"batch_size = {count}: too small for {size()} processes, which share a batch")
    return _share(count, rank(), size())


def share_of_all(count: int) -> slice:
    """This process's part of a batch, as :func:`share`, even where each is alone."""
    return _share(count, _group.rank, _group.size)


def _share(count: int, part: int, parts: int) -> slice:
    return slice(count * part // parts, count * (part + 1) // parts)


# ---------------------------------------------------------------- what is said


def from_first(make: Callable[[], State | None]) -> State | None:
    """Give all processes what the first one makes: named arrays and a JSON value, or None; never as a pickle."""
    if size() == 1:
        return make()
    data = torch.empty(0, dtype=torch.uint8)
    if first() and (state := make()) is not None:
        arrays = {key: np.asarray(value, order="C") for key, value in state[0].items()}
        packed = safetensors.numpy.save(arrays, {"notes": json.dumps(state[1])})
        data = torch.frombuffer(bytearray(packed), dtype=torch.uint8)
    length = torch.tensor([len(data)])
    with _others_may_be_gone():
        dist.broadcast(length, src=0)
        if not length.item():
            return None
        data = data if first() else torch.empty(int(length), dtype=torch.uint8)
        dist.broadcast(data, src=0)
    packed = data.numpy().tobytes()
    header = json.loads(packed[8 : 8 + int.from_bytes(packed[:8], "little")])
    return safetensors.numpy.load(packed), json.loads(header["__metadata__"]["notes"])


def sent(rows: np.ndarray) -> None:
    """Send an array to the first process, which waits for it (:func:`received`)."""
    with _others_may_be_gone():
        dist.send(torch.from_numpy(rows), dst=0)


def received(shape: tuple[int, ...], dtype: np.dtype, other: int) -> np.ndarray:
    """The array that another process sends to the first one."""
    rows = np.empty(shape, dtype)
    with _others_may_be_gone():
        dist.recv(torch.from_numpy(rows), src=other)
    return rows


def anywhere(*here: bool) -> bool:
    """Whether each condition holds in any process. The last one is that a process is to stop: then all are."""
    found = torch.tensor([float(one) for one in here])
    with _others_may_be_gone():
        dist.all_reduce(found, dist.ReduceOp.MAX)
    if found[-1] and not interrupt.noted():
        interrupt.request(ELSEWHERE)
    return bool(found.any())


def least(value: int) -> int:
    """The least of what the processes say."""
    found = torch.tensor([value])
    with _others_may_be_gone():
        dist.all_reduce(found, dist.ReduceOp.MIN)
    return int(found)


def joined(part: torch.Tensor, count: int) -> torch.Tensor:
    """A whole batch, given what each process has of it (:func:`share_of_all`)."""
    most = -(-count // _group.size)
    own = part.new_zeros(most, *part.shape[1:])  # of one size, as a collective takes it
    own[: len(part)] = part
    found = [torch.empty_like(own) for _ in range(_group.size)]
    with _others_may_be_gone():
        dist.all_gather(found, own)
    parts = (_share(count, other, _group.size) for other in range(_group.size))
    return torch.cat([one[: of.stop - of.start] for one, of in zip(found, parts, strict=True)])


def everywhere(here: bool) -> bool:
    """Whether a condition holds in all processes."""
    return here if size() == 1 else bool(least(int(here)))


def barrier() -> None:
    if size() > 1:
        with _others_may_be_gone():
            dist.all_reduce(torch.zeros(1))


def shared(network: torch.nn.Module) -> torch.nn.Module:
    """A network whose gradients are the mean over all processes: torch's DistributedDataParallel, or the network."""
    if size() == 1:
        return network
    place = next(network.parameters()).device
    # It rearranges its buckets after the first step, by which a run that is resumed would round otherwise than one that
    # is not, unless it looks for unused parameters.
    with _others_may_be_gone():
        return torch.nn.parallel.DistributedDataParallel(
            network,
            device_ids=[place] if place.type == "cuda" else None,
            init_sync=False,  # they are the same, which check_same() sees to
            forward_sync_buffers=False,
            find_unused_parameters=True,
        )


def backward(loss: torch.Tensor) -> None:
    """`loss.backward()` of this process's share of a mean; of :func:`shared` networks, all get the sum of gradients."""
    if size() == 1:
        loss.backward()
        return
    with _others_may_be_gone():
        (loss * size()).backward()  # as DistributedDataParallel takes means


def check_same(model: torch.nn.Module) -> None:
    """Raise a GranularityError if the processes do not all hold the same weights."""
    if size() == 1:
        return
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(np.ascontiguousarray(value.detach().cpu().numpy()).data)
    mine = torch.frombuffer(bytearray(digest.digest()), dtype=torch.uint8)
    found = [torch.empty_like(mine) for _ in range(size())]
    with _others_may_be_gone():
        dist.all_gather(found, mine)
    other = [number for number, one in enumerate(found) if not torch.equal(one, found[0])]
    if other:
        raise GranularityError(
            f"the weights of process {other[0]} are not those of process 0; are all machines of one kind, with the "
            "same packages?"
        )


class Sum(torch.autograd.Function):
    """The sum over all processes; every process's loss depends on it, so its gradient is summed, too."""

    @staticmethod
    def forward(ctx, values: torch.Tensor) -> torch.Tensor:
        return total(values.clone())

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> torch.Tensor:
        return total(gradient.clone())


def total(values: torch.Tensor) -> torch.Tensor:
    """The sum over all processes, in place."""
    if size() == 1:
        return values
    with _others_may_be_gone():
        dist.all_reduce(values)
    return values
