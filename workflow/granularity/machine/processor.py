"""What of the processor decides the last bits of results.

Libraries choose their loops by what the processor can, and other loops add in another order. docs/artifacts.md has what
was measured of it.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
# The widest first; each is what a library asks for before it uses other loops. OpenBLAS has loops for avx512_bf16 that
# it uses for ordinary numbers too.
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
# Variables that make a library use other loops than the processor's.
VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "DNNL_DEFAULT_FPMATH_MODE",
    "DNNL_MAX_CPU_ISA",
    "FAISS_SIMD_LEVEL",
    "GLIBC_TUNABLES",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "NPY_DISABLE_CPU_FEATURES",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_CORETYPE",
)


def instruction_set(cpuinfo: Path = CPUINFO) -> str:
    """The processor as far as it decides bytes: its vendor, the widest instructions, and the variables that cap them.

    On ARM the part too, as OpenBLAS has loops for each. Such as `GenuineIntel avx512_bf16`, `ARM 0x41 0xd40 sve` or
    `AuthenticAMD avx2 MKL_CBWR=AVX2`. Takes less than a millisecond.
    """
    about = _first_processor(cpuinfo)
    flags = frozenset((about.get("flags") or about.get("Features") or "").split())
    level = next((name for name, needed in LEVELS.items() if needed <= flags), "none")
    if "vendor_id" in about:
        processor = about["vendor_id"]
    elif "CPU implementer" in about:
        processor = f"ARM {about['CPU implementer']} {about.get('CPU part', '')}".rstrip()
    else:
        processor, level = platform.machine(), platform.processor() or "unknown"
    caps = [f"{name}={value}" for name in VARIABLES if (value := os.environ.get(name))]
    return " ".join([processor, level, *caps])


def _first_processor(cpuinfo: Path) -> dict[str, str]:
    """The lines of the first processor: with hundreds of them, the file takes long to read to its end."""
    found = {}
    try:
        with cpuinfo.open(encoding="utf-8", errors="replace") as stream:
            for line in stream:
                name, colon, value = line.partition(":")
                if not colon:
                    break
                found[name.strip()] = value.strip()
    except OSError:
        pass
    return found
