"""Leases of GPUs, by real processes on devices that do not exist: nobody here starts CUDA."""

import fcntl
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from granularity.base.errors import GranularityError
from granularity.machine import device, leases

PREAMBLE = """
import os, sys, time
from pathlib import Path
from granularity.machine import leases
leases.SECONDS_BETWEEN_LOOKS, leases.SECONDS_OF_SILENCE = 0.005, 0.0
"""


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    monkeypatch.setenv("GRANULARITY_LEASES", str(tmp_path / "leases"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    for name in ("SLURM_JOB_ID", "GRANULARITY_GPUS"):
        monkeypatch.delenv(name, raising=False)
    yield
    leases.release()


@pytest.fixture
def start():
    """Start a process that runs some lines of Python; killed at the end of the test, if it lives."""
    started = []

    def go(lines: str, **environment) -> subprocess.Popen:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        code = PREAMBLE + textwrap.dedent(lines)
        started.append(subprocess.Popen([sys.executable, "-c", code], env=os.environ | environment, **pipes))
        return started[-1]

    yield go
    for process in started:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()


HOLDER = "print(*leases.take(int(os.environ.get('COUNT', '1'))), flush=True); sys.stdin.read()"


def holder(start, count: int = 1, **environment) -> subprocess.Popen:
    return start(HOLDER, COUNT=str(count), **environment)


def said(process: subprocess.Popen) -> str:
    return process.stdout.readline().strip()


def test_each_takes_another_device_and_the_next_waits_and_says_so(start):
    holders = [holder(start) for _ in range(3)]
    assert sorted(map(said, holders)) == ["0", "1", "2"]
    waiting = holder(start)
    message = waiting.stderr.readline()
    assert message == "waiting for 1 of 3 GPUs, leased by other jobs\n"
    assert waiting.poll() is None
    holders[1].stdin.close()
    assert said(waiting) in ("0", "1", "2")


def test_a_killed_holder_frees_its_device_at_once(start):
    holders = [holder(start) for _ in range(3)]
    devices = [said(process) for process in holders]
    holders[1].send_signal(signal.SIGKILL)
    holders[1].wait()
    assert said(holder(start)) == devices[1]


def test_a_lease_is_kept_by_its_holder_alone_whatever_becomes_of_what_it_started(start):
    """Neither the end of a child frees it, nor does a child's life keep it."""
    lines = """
    import subprocess
    leases.take(3)
    if os.fork() == 0:
        sys.exit()
    os.wait()
    print(subprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid, flush=True)
    sys.stdin.readline()
    """
    process = start(lines)
    child = int(said(process))
    waiting = holder(start, 3)
    assert "waiting for 3 of 3 GPUs" in waiting.stderr.readline()
    process.communicate("\n")
    try:
        assert said(waiting) == "0 1 2"
    finally:
        os.kill(child, signal.SIGKILL)


def test_who_waits_for_several_devices_is_not_overtaken(start):
    first = holder(start)
    assert said(first) == "0"
    large = holder(start, 3)
    assert "waiting for 3 of 3 GPUs" in large.stderr.readline()
    small = holder(start)
    assert "behind other waiting jobs" in small.stderr.readline()
    first.kill()
    assert said(large) == "0 1 2"
    large.kill()
    assert said(small) in {"0", "1", "2"}  # whichever the system took from it first


def test_a_waiting_process_obeys_a_signal(start):
    assert said(holder(start, 3)) == "0 1 2"
    waiting = start("from granularity import cli; cli.app = leases.take; cli.main()")
    waiting.stderr.readline()
    waiting.send_signal(signal.SIGTERM)
    assert waiting.wait(10) == 128 + signal.SIGTERM
    assert "stopped: SIGTERM" in waiting.stderr.read()


def test_more_devices_than_there_are_is_an_error():
    with pytest.raises(GranularityError, match=r"4 GPUs were requested, but there are only 3 \(0,1,2\)"):
        leases.take(4)


@pytest.mark.parametrize(
    ("named", "devices"),
    [
        (None, ["0", "1", "2", "3"]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("2, 0", ["2", "0"]),
        ("0,-1,1", ["0"]),
        ("1,1", ["1"]),
        ("MIG-GPU-8f/1/0,GPU-aa", ["MIG-GPU-8f/1/0", "GPU-aa"]),
    ],
)
def test_candidates_are_those_that_cuda_would_see(monkeypatch, named, devices):
    monkeypatch.setattr(leases, "machine_gpus", lambda: 4)
    if named is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert leases.candidates() == devices
    if devices:
        assert leases.take(len(devices)) == devices


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine whose `nvidia-smi` is a given script."""

    def prepare(script: str) -> None:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        leases.listed.cache_clear()

    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    yield prepare
    leases.listed.cache_clear()


TWO = "echo 0, GPU-8f12, NVIDIA GeForce RTX 3090; echo 1, GPU-aa34, NVIDIA GeForce RTX 4090"


@pytest.mark.parametrize(("script", "count"), [(TWO, 2), ("echo No devices were found", 0), ("exit 9", 0)])
def test_the_machine_is_asked_how_many_gpus_it_has(machine, script, count):
    machine(script)
    assert leases.machine_gpus() == count


@pytest.mark.parametrize(
    ("named", "models"),
    [(None, ["3090", "4090"]), ("1", ["4090"]), ("GPU-8f", ["3090"]), ("MIG-GPU-8f/1/0", ["3090", "4090"])],
)
def test_the_key_names_the_gpus_that_compute(machine, monkeypatch, named, models):
    machine(TWO)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if named is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert device.machine("cuda") == {"gpu": [f"NVIDIA GeForce RTX {model}" for model in models]}


def test_slurm_jobs_own_their_devices_whatever_the_numbers(start):
    """On one node, cgroups number every job's devices from 0."""
    jobs = [holder(start, CUDA_VISIBLE_DEVICES="0", SLURM_JOB_ID=job) for job in ("7", "8")]
    assert [said(job) for job in jobs] == ["0", "0"]
    same = holder(start, CUDA_VISIBLE_DEVICES="0,1", SLURM_JOB_ID="7")  # such as a Snakemake within `salloc`
    assert said(same) == "1"


def test_a_folder_of_somebody_else_is_refused(monkeypatch, tmp_path):
    (tmp_path / "leases").mkdir()
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(GranularityError, match="leases: belongs to another user; set GRANULARITY_LEASES"):
        leases.take()


# ---------------------------------------------------------------- stages


@pytest.fixture
def fake_cuda(monkeypatch):
    """Make torch believe that it has a GPU; returns the devices that were selected."""
    import torch

    chosen = []
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    return chosen


@pytest.mark.parametrize("wanted", ["auto", "cuda"])
def test_a_stage_that_uses_cuda_leases_a_device(start, fake_cuda, wanted):
    other = holder(start)
    assert said(other) == "0"
    place = device.torch_device(wanted)
    assert (place.type, place.index, fake_cuda) == ("cuda", 0, [0])
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
    assert device.torch_device(wanted) == place  # a second stage in the process has it already
    assert said(holder(start, CUDA_VISIBLE_DEVICES="0,1,2")) == "2"


def test_a_disk_that_cannot_lock_is_a_line(monkeypatch):
    def flock(file, kind):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(GranularityError, match="GRANULARITY_LEASES to a folder on a local disk"):
        leases.take()


def test_a_stage_on_the_cpu_leases_nothing(fake_cuda, monkeypatch):
    assert device.torch_device("cpu").type == "cpu"
    assert leases.take(3) == ["0", "1", "2"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(GranularityError, match="device = cuda: torch sees no GPU"):
        device.torch_device("cuda")


def test_faiss_takes_as_many_devices_as_it_is_told(monkeypatch):
    import faiss

    monkeypatch.setattr(faiss, "get_num_gpus", lambda: len(os.environ["CUDA_VISIBLE_DEVICES"].split(",")))
    monkeypatch.setattr(faiss, "StandardGpuResources", object, raising=False)
    assert device.faiss_gpus("cpu") == 0
    assert device.faiss_gpus("auto") == 1
    leases.release()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    monkeypatch.setenv("GRANULARITY_GPUS", "2")
    assert device.faiss_gpus("cuda") == 2
    leases.release()
    monkeypatch.setenv("GRANULARITY_GPUS", "all")
    with pytest.raises(GranularityError, match="GRANULARITY_GPUS = all: must be a number of GPUs"):
        device.faiss_gpus("cuda")
