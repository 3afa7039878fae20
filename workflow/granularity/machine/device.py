"""Choose the processor that a stage computes on, and make its results reproducible."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

from granularity.base import kernels
from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.base.section import Device
from granularity.machine import leases

if TYPE_CHECKING:
    import torch


def torch_device(device: Device) -> torch.device:
    """Set torch up for reproducible work on the requested device; if it is a GPU, lease one.

    Each process computes on one thread, because sums over several threads differ in their last bits. Raise
    GranularityError if `cuda` was requested and torch sees no GPU.
    """
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # read when CUDA starts; needed for determinism
    import torch

    from granularity.machine import processes
    from granularity.machine.products import use_openblas

    torch.set_num_threads(1)
    use_openblas()
    torch.set_deterministic_debug_mode("warn")  # use_deterministic_algorithms would import the compiler: two seconds
    torch.utils.deterministic.fill_uninitialized_memory = False  # it would take 10 % of a small network's time
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    place = torch.device("cpu")
    if device != "cpu" and torch.backends.cuda.is_built() and leases.candidates():
        leases.take()  # processes of a group share their launcher's leases
        if torch.cuda.is_available():
            torch.cuda.set_device(processes.rank())
            place = torch.device("cuda", processes.rank())
        else:
            leases.release()
    if device == "cuda" and place.type == "cpu":
        raise GranularityError(
            "device = cuda: torch sees no GPU (check the driver, CUDA_VISIBLE_DEVICES and the build)"
        )
    if device == "auto" and torch.backends.mps.is_available():
        say("device = auto: this Mac's GPU (MPS) is not used; computing on the CPU")
    processes.meet(place)
    return place


def machine(device: Device) -> dict[str, Any]:
    """Return what determines last bits on this machine: the GPU's model, or the CPU's instruction set and the variables
    that select other code paths. With `auto` both, where there is a GPU: the library may be built for CPUs alone.
    """
    found = {"gpu": leases.models()} if device != "cpu" and leases.candidates() else {}
    if found and device == "cuda":
        return found
    return found | {"cpu": instruction_set()} | ({"variables": chosen} if (chosen := variables()) else {})


def faiss_gpus(device: Device) -> int:
    """Return the number of GPUs for FAISS, all leased; 0 means CPU. Raise GranularityError if `cuda` finds none."""
    import faiss

    if device == "cpu":
        return 0
    if hasattr(faiss, "StandardGpuResources") and leases.candidates():  # a build for GPUs
        leases.take(leases.wanted())
    count = faiss.get_num_gpus()
    if device == "cuda" and count == 0:
        raise GranularityError(
            "device = cuda: FAISS sees no GPU; install the 'gpu' extra (faiss-gpu instead of faiss-cpu), or check the "
            "driver and CUDA_VISIBLE_DEVICES"
        )
    return count


# ---------------------------------------------------------------- the processor

# docs/artifacts.md reports the measurements behind this.

# Widest first; each level is what a library requires before it uses other code. OpenBLAS has code for avx512_bf16 that
# it also uses for ordinary numbers.
_AVX2 = frozenset({"avx2", "fma"})
_AVX512 = _AVX2 | {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"}
LEVELS = {
    "avx512_bf16": _AVX512 | {"avx512_bf16"},
    "avx512": _AVX512,
    "avx2": _AVX2,
    "avx": frozenset({"avx"}),
    "sse4_2": frozenset({"sse4_2"}),
    "sve2": frozenset({"sve2"}),
    "sve": frozenset({"sve"}),
    "asimd": frozenset({"asimd"}),
}
# Variables that make a library use other code than the processor suggests.
VARIABLES = {*kernels.PINNED, "DNNL_DEFAULT_FPMATH_MODE", "DNNL_MAX_CPU_ISA", "GLIBC_TUNABLES"}
VARIABLES |= {"MKL_ENABLE_INSTRUCTIONS", "ONEDNN_DEFAULT_FPMATH_MODE"}


def variables() -> dict[str, str]:
    """Return the variables that select other code paths; none if as pinned (:mod:`granularity.base.kernels`)."""
    found = {name: value for name in sorted(VARIABLES) if (value := os.environ.get(name))}
    return {} if found == kernels.PINNED else found


def instruction_set(cpuinfo: Path = kernels.CPUINFO) -> str:
    """Return the part of the processor that affects bytes: `x86-64-v3` if code paths are pinned.

    Otherwise its vendor or, on ARM, its part, and the widest instructions, such as `GenuineIntel avx512_bf16` or
    `ARM 0x41 0xd40 sve`.
    """
    about = kernels.first_processor(cpuinfo)
    flags = kernels.flags(about)
    if flags >= kernels.NEEDED and not variables():
        return "x86-64-v3"
    level = next((name for name, needed in LEVELS.items() if needed <= flags), "none")
    if "vendor_id" in about:
        processor = about["vendor_id"]
    elif "CPU implementer" in about:
        processor = f"ARM {about['CPU implementer']} {about.get('CPU part', '')}".rstrip()
    else:
        processor, level = platform.machine(), platform.processor() or "unknown"
    return f"{processor} {level}"
