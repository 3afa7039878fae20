"""Loops of numerical libraries that every x86-64-v3 processor has, chosen before these load (docs/artifacts.md)."""

import itertools
import os
import resource
import sys
from pathlib import Path

from granularity.base.errors import GranularityError

PINNED = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "FAISS_SIMD_LEVEL": "AVX2",
    "MKL_CBWR": "COMPATIBLE",  # of MKL's other ways none is the same on another maker's processor
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
}
# Each overrides the number of threads, or the precision, that a stage sets.
UNWANTED = ("OMP_DYNAMIC", "OMP_MAX_ACTIVE_LEVELS", "OMP_THREAD_LIMIT", "MKL_DOMAIN_NUM_THREADS")
UNWANTED += ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
LEAST = 2**30  # bytes of address space in which libraries load and do small work
NEEDED = frozenset({"avx2", "fma", "bmi2", "f16c"})
CPUINFO = Path("/proc/cpuinfo")


def pin(cpuinfo: Path = CPUINFO) -> None:
    """Set what the user has not set, on a processor that has these loops. To be called before numpy or torch load."""
    for name in UNWANTED:
        os.environ.pop(name, None)
    if flags(first_processor(cpuinfo)) >= NEEDED:
        for name, value in PINNED.items():
            os.environ.setdefault(name, value)


def limit(threads: int) -> None:
    """Give BLAS and OpenMP so many threads, whatever the environment says.

    Under a limit of the address space, OpenBLAS gets its buffers now: where it finds no memory for them later, it tries
    for ever, and no signal is heard. Raises a GranularityError where even this would not do.
    """
    os.environ |= dict.fromkeys(POOLS, str(threads))
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        if limit < LEAST:
            raise GranularityError(f"ulimit -v: {limit >> 10} KB are too few; allow {LEAST >> 10} KB at least")
        import numpy as np
        from scipy.linalg import blas

        square = np.ones((512, 512))
        blas.dgemm(1.0, square @ square, square)  # numpy and scipy have an OpenBLAS each
    if "numpy" in sys.modules:  # an extension has loaded it, and libraries read the environment once
        from threadpoolctl import threadpool_limits

        threadpool_limits(threads)


def first_processor(cpuinfo: Path) -> dict[str, str]:
    """The lines of the first processor, as Linux has them: of hundreds, the file takes long to read to its end."""
    try:
        with cpuinfo.open(encoding="utf-8", errors="replace") as stream:
            lines = [line.partition(":") for line in itertools.takewhile(lambda line: ":" in line, stream)]
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in lines}


def flags(about: dict[str, str]) -> frozenset[str]:
    """What that processor can do; nothing elsewhere than on Linux."""
    return frozenset((about.get("flags") or about.get("Features", "")).split())
