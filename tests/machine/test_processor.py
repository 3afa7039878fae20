"""The part of the processor that decides bytes, from files as kernels write them."""

import pytest

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
    for name in device.VARIABLES.split():
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
