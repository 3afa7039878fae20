"""The part of the processor that decides bytes, from files as kernels write them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from granularity.machine import processor

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
    for name in processor.VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("expected", PROCESSORS)
def test_vendor_and_the_widest_instructions(tmp_path, expected):
    vendor, flags = PROCESSORS[expected]
    first = f"processor\t: 0\nvendor_id\t: {vendor}\nmodel name\t: X: Y\nflags\t\t: {flags}\n\n"
    file = tmp_path / "cpuinfo"
    file.write_text(first + first.replace(flags, f"{AVX512} avx512_bf16 sve2").replace(vendor, "Other"))
    assert processor.instruction_set(file) == expected


def test_arm_has_the_part(tmp_path):
    file = tmp_path / "cpuinfo"
    for features, part in (("sve sve2 bf16", "0xd4f"), ("sve", "0xd40"), ("", "0xd0c")):
        file.write_text(ARM.format(features, part))
        widest = {"0xd4f": "sve2", "0xd40": "sve", "0xd0c": "asimd"}[part]
        assert processor.instruction_set(file) == f"ARM 0x41 {part} {widest}"


def test_a_machine_that_says_nothing_has_a_name(tmp_path):
    (tmp_path / "odd").write_bytes(b"\xff\xfe\0: :\n\n")
    for name in ("gone", "odd"):
        assert processor.instruction_set(tmp_path / name).startswith(f"{os.uname().machine} ")


def test_caps_are_named_in_one_order(monkeypatch):
    plain = processor.instruction_set()
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    monkeypatch.setenv("MKL_CBWR", "")
    assert processor.instruction_set() == f"{plain} ATEN_CPU_CAPABILITY=avx2 OPENBLAS_CORETYPE=Haswell"


def test_it_takes_milliseconds_and_no_library():
    code = "import sys; from granularity.machine import processor; processor.instruction_set()\n"
    code += "print({*sys.modules} & {'torch', 'numpy'})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
    started = time.perf_counter()
    for _ in range(10):
        processor.instruction_set()
    assert time.perf_counter() - started < 1  # ten of them, on a busy machine


# A matrix product of numpy, a training step of torch, whichever of them a variable caps.
BYTES = """
import hashlib, json, sys
import numpy as np, torch
torch.set_num_threads(1)
torch.manual_seed(0)
rows = np.random.default_rng(0).normal(size=(257, 301)).astype("f4")
net, given = torch.nn.Conv2d(3, 16, 3), torch.from_numpy(rows[:240, :300].copy()).view(20, 3, 40, 30)
net(given).square().sum().backward()
found = {"numpy": rows[:, :190].T @ rows, "torch": net.weight.grad.numpy(), "softmax": given.softmax(-1).numpy()}
print(json.dumps({name: hashlib.sha256(np.ascontiguousarray(value)).hexdigest() for name, value in found.items()}))
"""


def test_what_is_named_does_change_bytes():
    """Where the processor is wide enough to be capped; otherwise there is nothing that could change."""

    def found(**caps):
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"} | caps
        words = [sys.executable, "-c", BYTES]
        return json.loads(subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout)

    plain = found()
    assert found() == plain
    if "avx512" in Path("/proc/cpuinfo").read_text():
        assert found(OPENBLAS_CORETYPE="Haswell")["numpy"] != plain["numpy"]
        assert found(ONEDNN_MAX_CPU_ISA="AVX2")["torch"] != plain["torch"]
        assert found(ATEN_CPU_CAPABILITY="avx2")["softmax"] != plain["softmax"]
