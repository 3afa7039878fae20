"""The launcher, with processes that do as told instead of training."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from granularity.machine import launch

# Stands in for the Python that a launcher starts each process with.
WORKER = """#!{python}
import os, signal, sys, time
rank, what = int(os.environ["RANK"]), sys.argv[-1]
def on_signal(number, frame):
    open(f"{folder}/signal-{{rank}}", "w").write(str(number))
    sys.exit(128 + number)
signal.signal(signal.SIGTERM, on_signal), signal.signal(signal.SIGUSR1, on_signal)
assert sys.argv[1:4] == ["-m", "granularity.machine.launch", "2"] and "GRANULARITY_LAUNCHER" in os.environ
open(f"{folder}/ready-{{rank}}", "w").close()
if what != "well":
    while not os.path.exists(f"{folder}/ready-{{1 - rank}}"): time.sleep(0.01)
    if rank == 1 and what == "killed": os.kill(os.getpid(), signal.SIGKILL)
    if rank == 1 and what == "error": sys.exit("error: one line")
    time.sleep(60)
"""


@pytest.fixture
def launcher(tmp_path):
    """Start two processes that do as told; returns the launcher."""
    worker = tmp_path / "python"
    worker.write_text(WORKER.format(python=sys.executable, folder=tmp_path))
    worker.chmod(0o755)
    code = f"import sys; from granularity.machine import launch; sys.executable = {str(worker)!r}; launch.main()"

    def go(what: str) -> subprocess.Popen:
        return subprocess.Popen([sys.executable, "-c", code, "2", what], stderr=subprocess.PIPE, text=True)

    return go


@pytest.mark.parametrize(
    ("what", "status", "said"),
    [
        ("well", 0, ""),
        ("error", 1, "error: one line\n"),
        (
            "killed",
            1,
            "error: process 1 of 2 was killed by SIGKILL; finished work is kept, and the next run goes on from there\n",
        ),
    ],
)
def test_the_launcher_ends_as_its_processes_do(tmp_path, launcher, what, status, said):
    process = launcher(what)
    assert process.communicate(timeout=300)[1] == said
    assert process.returncode == status
    assert (tmp_path / "signal-0").exists() == (what != "well")  # the other one was asked to stop


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_the_launcher_passes_signals_on(tmp_path, launcher, number):
    process = launcher("wait")
    while len(list(tmp_path.glob("ready-*"))) < 2:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    assert process.communicate(timeout=300)[1] == ""  # the processes say it
    assert process.returncode == 128 + number
    assert [(tmp_path / f"signal-{rank}").read_text() for rank in (0, 1)] == [str(int(number))] * 2


@pytest.mark.parametrize("words", [[], ["two", "pretrain"], ["0", "pretrain"], ["2"]])
def test_the_launcher_says_how_it_is_used(monkeypatch, words):
    monkeypatch.setattr(sys, "argv", ["launch", *words])
    with pytest.raises(SystemExit, match=r"usage: python -m granularity.machine.launch .* PROCESSES STAGE"):
        launch.main()


def test_who_kills_the_launcher_kills_the_processes(tmp_path):
    worker = tmp_path / "python"
    worker.write_text(f"""#!{sys.executable}
import os, runpy, time
from granularity.machine import launch
def run(*args, **options):
    open(f"{tmp_path}/ready-{{os.getpid()}}", "w").close()
    time.sleep(60)
runpy.run_module = run
launch.work(["pretrain"])
""")
    worker.chmod(0o755)
    code = f"import sys; from granularity.machine import launch; sys.executable = {str(worker)!r}; launch.main()"
    with subprocess.Popen([sys.executable, "-c", code, "2", "pretrain"]) as process:
        while len(ready := list(tmp_path.glob("ready-*"))) < 2:
            assert process.poll() is None
            time.sleep(0.02)
        process.kill()
    places = [Path("/proc", file.name.removeprefix("ready-"), "stat") for file in ready]
    deadline = time.monotonic() + 20
    while any(alive(place) for place in places):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def alive(stat: Path) -> bool:
    """Whether there is such a process, and it is not only waiting to be reaped."""
    try:
        return stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_signals_are_the_caller_s_again_when_the_processes_have_ended(tmp_path, monkeypatch):
    worker = tmp_path / "python"
    worker.write_text("#!/bin/sh\n")
    worker.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(worker))
    before = [signal.getsignal(number) for number in launch.SIGNALS]
    assert launch.launch(2, ["pretrain"]) == 0
    assert [signal.getsignal(number) for number in launch.SIGNALS] == before
