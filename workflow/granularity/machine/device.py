"""Which processor a stage computes on, and that it does so the same way every time."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from granularity.base.errors import GranularityError
from granularity.base.section import Device
from granularity.machine import leases
from granularity.machine.processor import instruction_set

if TYPE_CHECKING:
    import torch

NONDETERMINISTIC = "does not have a deterministic implementation"  # so torch says


def torch_device(device: Device, threads: int) -> torch.device:
    """Set torch up for reproducible work on the device asked for, and lease a GPU if it is one.

    Args:
        threads: the job's CPU threads; processes that train together share them.

    Raises:
        GranularityError: `cuda` was asked for and torch sees no GPU; or this stage is for one process, and there are
            several.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts; needed for determinism
    import torch

    from granularity.machine import processes

    processes.check_joined()
    torch.set_num_threads(max(1, threads // processes.local_size()))
    torch.set_deterministic_debug_mode("warn")  # use_deterministic_algorithms would import the compiler: two seconds
    torch.utils.deterministic.fill_uninitialized_memory = False  # costs a tenth of a small network's time
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    place = torch.device("cpu")
    if device != "cpu" and torch.backends.cuda.is_built() and leases.candidates():
        processes.lease_gpus()
        if torch.cuda.is_available():
            torch.cuda.set_device(processes.local_rank())
            place = torch.device("cuda", processes.local_rank())
        else:
            leases.release()
    if device == "cuda" and place.type == "cpu":
        raise GranularityError(
            "device = cuda: torch sees no GPU (check the driver, CUDA_VISIBLE_DEVICES and the build)"
        )
    processes.meet(place)
    return place


@contextlib.contextmanager
def noting_nondeterministic() -> Iterator[set[str]]:
    """Collect the names of operations that torch has no deterministic algorithm for here, and warns of."""
    found: set[str] = set()
    with warnings.catch_warnings():
        show = warnings.showwarning
        warnings.filterwarnings("always", message=f".*{NONDETERMINISTIC}")

        def note(message: Warning | str, *rest: Any, **more: Any) -> None:
            name, mark, _ = str(message).partition(NONDETERMINISTIC)
            if mark:
                found.add(name.strip())
            else:
                show(message, *rest, **more)

        warnings.showwarning = note
        yield found


def cpu_threads(device: torch.device) -> int | None:
    """The thread count as a parameter of a training: on a CPU, sums over threads decide its last bits."""
    import torch

    return torch.get_num_threads() if device.type == "cpu" else None


def machine(device: Device, threads: int) -> dict[str, Any]:
    """What of this machine decides last bits: a part of the key of a result that is made here.

    On a CPU its instruction set and the number of threads, over which sums are split; on a GPU its model. Imports no
    torch where there is no GPU.
    """
    if device != "cpu" and leases.candidates():
        return {"gpu": leases.models()}
    return {"cpu": instruction_set(), "threads": threads}


def faiss_gpus(device: Device) -> int:
    """The number of GPUs that FAISS is to use, all of them leased: GRANULARITY_GPUS, by default 1; 0 is the CPU.

    Raises:
        GranularityError: `cuda` was asked for and FAISS sees no GPU; FAISS itself would silently use the CPU.
    """
    import faiss

    if device == "cpu":
        return 0
    if hasattr(faiss, "StandardGpuResources") and leases.candidates():  # a build for GPUs
        leases.take(leases.wanted())
    count = faiss.get_num_gpus()
    if device == "cuda" and count == 0:
        raise GranularityError(
            "device = cuda: FAISS sees no GPU; take cluster.engine: torch, or install the 'gpu' extra (faiss-gpu "
            "instead of faiss-cpu), or check the driver and CUDA_VISIBLE_DEVICES"
        )
    return count
