"""The part of the processor that decides bytes, from files as kernels write them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from granularity.base import kernels
from granularity.machine import device

AVX2 = "fpu sse sse2 sse4_2 avx avx2 fma bmi2"
AVX512 = f"{AVX2} avx512f avx512dq avx512cd avx512bw avx512vl"
PROCESSORS = {
    "GenuineIntel avx512_bf16": ("GenuineIntel", f"{AVX512} avx512_bf16 avx512_fp16 amx_tile"),
    "GenuineIntel avx512": ("GenuineIntel", f"{AVX512} avx512_vnni"),
    "GenuineIntel avx2": ("GenuineIntel", f"{AVX2} avx512f avx512cd avx512er"),  # a Xeon Phi
    "AuthenticAMD avx2": ("AuthenticAMD", AVX2),
    "GenuineIntel avx": ("GenuineIntel", "sse sse4_2 avx"),
    "GenuineIntel sse4_2": ("GenuineIntel", "sse sse4_2"),
    "GenuineIntel none": ("GenuineIntel", "fpu"),
}
ARM = "processor\t: 0\nBogoMIPS\t: 2100.00\nFeatures\t: fp asimd {}\nCPU implementer\t: 0x41\nCPU part\t: {}\n\n"


@pytest.fixture(autouse=True)
def no_caps(monkeypatch):
    for name in device.VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("expected", PROCESSORS)
def test_vendor_and_the_widest_instructions(tmp_path, expected):
    vendor, flags = PROCESSORS[expected]
    first = f"processor\t: 0\nvendor_id\t: {vendor}\nmodel name\t: X: Y\nflags\t\t: {flags}\n\n"
    file = tmp_path / "cpuinfo"
    file.write_text(first + first.replace(flags, f"{AVX512} avx512_bf16 sve2").replace(vendor, "Other"))
    assert device.instruction_set(file) == expected


def test_arm_has_the_part(tmp_path):
    file = tmp_path / "cpuinfo"
    for features, part in (("sve sve2 bf16", "0xd4f"), ("sve", "0xd40"), ("", "0xd0c")):
        file.write_text(ARM.format(features, part))
        widest = {"0xd4f": "sve2", "0xd40": "sve", "0xd0c": "asimd"}[part]
        assert device.instruction_set(file) == f"ARM 0x41 {part} {widest}"


def test_pinned_loops_are_one_processor_whoever_made_it(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "environ", dict(os.environ))
    for vendor in ("GenuineIntel", "AuthenticAMD"):
        file = tmp_path / vendor
        file.write_text(f"vendor_id\t: {vendor}\nflags\t\t: {AVX512} f16c\n\n")
        kernels.pin(file)
        assert device.instruction_set(file) == "x86-64-v3"
    monkeypatch.setenv("MKL_CBWR", "AUTO")  # the user's own choice stays, and is another processor's
    kernels.pin(file)
    assert device.instruction_set(file) == "AuthenticAMD avx512"
    assert device.variables()["MKL_CBWR"] == "AUTO"


def test_pinned_loops_give_the_bytes_seen_on_other_processors():
    """Of each kind of operation that trainings, clusterings and probes are made of; see tests/portable.py."""
    script = Path(__file__).parents[1] / "portable.py"
    env = {name: value for name, value in os.environ.items() if name not in device.VARIABLES}
    found = subprocess.run([sys.executable, script], env=env, capture_output=True, text=True, check=True).stdout
    seen = script.with_suffix(".txt").read_text().splitlines()
    assert found.splitlines() == [line for line in seen if not line.startswith("#")]
