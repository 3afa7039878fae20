"""The tests' own tools: a skip that is a failure, and a command that gets its time and no more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support import checkout, skips

SKIPPING = {
    "call": "def test_it(): pytest.skip('no such tool')",
    "mark": "@pytest.mark.skipif(True, reason='no such tool')\ndef test_it(): pass",
    "setup": "@pytest.fixture\ndef tool(): pytest.skip('no such tool')\ndef test_it(tool): pass",
    "module": "pytest.skip('no such tool', allow_module_level=True)",
    "import": "no_such_tool = pytest.importorskip('no_such_tool', reason='no such tool')\ndef test_it(): pass",
}
OTHERS = {
    "file system": "def test_it(): pytest.skip('this file system has UTF-8 names only')",
    "kernel": "@pytest.mark.skipif(True, reason='this kernel lets nobody mount anything')\ndef test_it(): pass",
    "expected": "@pytest.mark.xfail(reason='known')\ndef test_it(): assert False",
    "passing": "def test_it(): pass",
}


def pytest_says(folder: Path, code: str, strict: str) -> tuple[int, str]:
    (folder / "test_it.py").write_text(f"import pytest\n\n{code}\n")
    (folder / "test_other.py").write_text("def test_other(): pass\n")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent), skips.VARIABLE: strict}
    words = [sys.executable, "-m", "pytest", "-q", "-p", "support.skips", "-p", "no:cacheprovider", "test_it.py"]
    ended = subprocess.run([*words, "test_other.py"], cwd=folder, env=environment, capture_output=True, text=True)
    return ended.returncode, ended.stdout


@pytest.mark.parametrize("how", SKIPPING)
def test_a_skip_is_a_failure_where_the_variable_is_set(tmp_path, how):
    assert pytest_says(tmp_path, SKIPPING[how], "")[0] == 0
    status, output = pytest_says(tmp_path, SKIPPING[how], "1")
    assert status != 0
    assert "no such tool" in output and skips.VARIABLE in output


@pytest.mark.parametrize("what", OTHERS)
def test_what_nobody_can_mend_is_no_failure(tmp_path, what):
    status, output = pytest_says(tmp_path, OTHERS[what], "1")
    assert status == 0, output


@pytest.fixture
def place(tmp_path):
    """A checkout with nothing in it: commands run there all the same."""
    made = checkout.Checkout.__new__(checkout.Checkout)
    made.folder, made.environment = tmp_path, dict(os.environ)
    return made


def test_a_command_that_ends_gives_its_output(place):
    assert place.run("bash", "-c", "echo one; echo two >&2") == "one\ntwo\n"
    assert place.run("bash", "-c", "echo three; exit 3", code=3) == "three\n"
    with pytest.raises(AssertionError, match="the last words"):
        place.run("bash", "-c", "echo the last words; exit 1")


def test_a_command_that_hangs_is_ended_with_its_children_and_its_last_words_shown(place, monkeypatch):
    monkeypatch.setattr(checkout, "SECONDS_BETWEEN_LOOKS", 0.2)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    started = time.monotonic()
    with pytest.raises(AssertionError) as error:
        place.run("bash", "-c", "sleep 300 & echo $! > child; echo the last words; wait", seconds=1.0)
    assert time.monotonic() - started < 60
    assert "has not ended in 1 seconds of its own" in str(error.value) and "the last words" in str(error.value)
    assert is_gone(int((place.folder / "child").read_text()))


def test_a_child_that_has_left_the_group_holds_nobody_up(place, monkeypatch):
    monkeypatch.setattr(checkout, "SECONDS_BETWEEN_LOOKS", 0.2)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    script = "setsid sleep 300 & echo $! > child; echo the last words; wait"
    try:
        with pytest.raises(AssertionError, match="the last words"):
            place.run("bash", "-c", script, seconds=1.0)
    finally:
        os.kill(int((place.folder / "child").read_text()), signal.SIGKILL)


def test_a_busy_machine_gives_more_time_and_no_end_of_it(monkeypatch):
    cpus = len(os.sched_getaffinity(0))
    for per_cpu, slowness in {0.1: 1, 1: 1, 2.5: 2.5, 100: checkout.MOST_TIMES}.items():
        monkeypatch.setattr(os, "getloadavg", lambda load=per_cpu * cpus: (load, 0.0, 0.0))
        assert checkout.slowness() == pytest.approx(slowness)
    monkeypatch.setattr(checkout, "SECONDS_BETWEEN_LOOKS", 0.1)
    process = subprocess.Popen(["sleep", "300"], stdout=subprocess.PIPE, text=True, start_new_session=True)
    started = time.monotonic()
    assert checkout.wait(process, 0.5) == ("", False)
    assert 0.5 * checkout.MOST_TIMES <= time.monotonic() - started < 60
    assert process.returncode == -signal.SIGKILL


def is_gone(pid: int) -> bool:
    """Whether a process ends within seconds; one that nobody has waited for yet counts as ended."""
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False
