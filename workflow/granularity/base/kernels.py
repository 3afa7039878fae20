"""Pin numerical libraries to code that every x86-64-v3 processor can run, before they load (docs/artifacts.md)."""

import itertools
import os
import resource
import sys
from pathlib import Path

from granularity.base.errors import GranularityError

PINNED = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "FAISS_SIMD_LEVEL": "AVX2",
    "MKL_CBWR": "COMPATIBLE",  # MKL's other modes give other results on another vendor's processor
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
}
# Each of these overrides the number of threads, or the precision, that a stage sets.
UNWANTED = ("OMP_DYNAMIC", "OMP_MAX_ACTIVE_LEVELS", "OMP_THREAD_LIMIT", "MKL_DOMAIN_NUM_THREADS")
UNWANTED += ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
LEAST = 2**30  # bytes of address space that libraries need to load and do small work
NEEDED = frozenset({"avx2", "fma", "bmi2", "f16c"})
CPUINFO = Path("/proc/cpuinfo")


def pin(cpuinfo: Path = CPUINFO) -> None:
    """Set variables in PINNED that are unset, if the processor allows. Call it before numpy or torch load."""
    for name in UNWANTED:
        os.environ.pop(name, None)
    if flags(first_processor(cpuinfo)) >= NEEDED:
        for name, value in PINNED.items():
            os.environ.setdefault(name, value)


def limit(threads: int) -> None:
    """Give BLAS and OpenMP this number of threads, whatever the environment says.

    If the address space is limited, allocate OpenBLAS's buffers now: if it later found no memory for them, it would
    retry for ever and ignore signals. Raise GranularityError if the limit is too low even for that.
    """
    os.environ |= dict.fromkeys(POOLS, str(threads))
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        if limit < LEAST:
            raise GranularityError(f"ulimit -v: {limit >> 10} KB is too little; allow at least {LEAST >> 10} KB")
        import numpy as np
        from scipy.linalg import blas

        square = np.ones((512, 512))
        blas.dgemm(1.0, square @ square, square)  # numpy and scipy each have their own OpenBLAS
    if "numpy" in sys.modules:  # loaded by an extension; libraries read the environment only once
        from threadpoolctl import threadpool_limits

        threadpool_limits(threads)


def first_processor(cpuinfo: Path) -> dict[str, str]:
    """Return Linux's description of the first processor; with hundreds of them, reading the whole file takes long."""
    try:
        with cpuinfo.open(encoding="utf-8", errors="replace") as stream:
            lines = [line.partition(":") for line in itertools.takewhile(lambda line: ":" in line, stream)]
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in lines}


def flags(about: dict[str, str]) -> frozenset[str]:
    """Return the features of a processor; empty except on Linux."""
    return frozenset((about.get("flags") or about.get("Features", "")).split())
