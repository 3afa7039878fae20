"""Loops of numerical libraries that every x86-64-v3 processor has, and adds up in the same order.

Libraries choose their loops by the processor, and other loops give other last bits. With these variables, read when the
libraries load, results of a CPU have the same bytes on processors of different makers: see docs/artifacts.md.
"""

import os
from pathlib import Path

PINNED = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "FAISS_SIMD_LEVEL": "AVX2",
    "MKL_CBWR": "COMPATIBLE",  # of MKL's other ways none is the same on another maker's processor
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
}
NEEDED = frozenset({"avx2", "fma", "bmi2", "f16c"})
CPUINFO = Path("/proc/cpuinfo")


def pin(cpuinfo: Path = CPUINFO) -> None:
    """Set what the user has not set, on a processor that has these loops. To be called before numpy or torch load."""
    if flags(cpuinfo) >= NEEDED:
        for name, value in PINNED.items():
            os.environ.setdefault(name, value)


def flags(cpuinfo: Path) -> frozenset[str]:
    """What the first processor can do, as Linux names it; nothing elsewhere."""
    try:
        with cpuinfo.open(encoding="utf-8", errors="replace") as stream:
            for line in stream:
                name, _, value = line.partition(":")
                if name.strip() in ("flags", "Features"):
                    return frozenset(value.split())
    except OSError:
        pass
    return frozenset()
