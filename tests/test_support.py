"""The tests' own tools: a skip that is a failure, and a command that gets its time and no more."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from support import checkout, skips

FAILING = {
    "call": "def test_it(): pytest.skip('no such tool')",
    "mark": "@pytest.mark.skipif(True, reason='no such tool')\ndef test_it(): pass",
    "setup": "@pytest.fixture\ndef tool(): pytest.skip('no such tool')\ndef test_it(tool): pass",
    "module": "pytest.skip('no such tool', allow_module_level=True)",
    "import": "no_such_tool = pytest.importorskip('no_such_tool', reason='no such tool')\ndef test_it(): pass",
}
FORGIVEN = {
    "file_system": "def test_it(): pytest.skip('this file system has UTF-8 names only')",
    "kernel": "@pytest.mark.skipif(True, reason='this kernel lets nobody mount anything')\ndef test_it(): pass",
    "expected": "@pytest.mark.xfail(reason='known')\ndef test_it(): assert False",
    "passing": "def test_it(): pass",
}


@pytest.mark.parametrize("strict", ["", "1"])
def test_a_skip_is_a_failure_where_the_variable_is_set_but_where_nobody_can_mend_it(tmp_path, strict):
    for name, code in (FAILING | FORGIVEN).items():
        (tmp_path / f"test_{name}.py").write_text(f"import pytest\n\n{code}\n")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent), skips.VARIABLE: strict}
    words = [sys.executable, "-m", "pytest", "-q", "-rfEs", "-p", "support.skips", "-p", "no:cacheprovider"]
    words += ["--continue-on-collection-errors"]
    output = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True).stdout
    failed = set(re.findall(r"^(?:FAILED|ERROR) test_(\w+)\.py", output, re.MULTILINE))
    assert failed == (set(FAILING) if strict else set()), output
    assert "no such tool" in output and (skips.VARIABLE in output) == bool(strict)


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


def test_a_command_that_hangs_is_ended_with_its_children_and_its_last_words_shown(place):
    with pytest.raises(AssertionError, match=r"has not ended in 1 seconds.*\n.*the last words"):
        place.run("bash", "-c", "sleep 300 & echo $! > child; echo the last words; wait", seconds=1.0)
    with contextlib.suppress(psutil.NoSuchProcess):
        child = psutil.Process(int((place.folder / "child").read_text()))
        for _ in range(100):
            if child.status() == psutil.STATUS_ZOMBIE:  # nobody has waited for it yet
                break
            time.sleep(0.05)
        else:
            raise AssertionError(f"{child} goes on")


def test_a_child_that_has_left_the_group_holds_nobody_up(place):
    script = "setsid sleep 300 & echo $! > child; echo the last words; wait"
    try:
        with pytest.raises(AssertionError, match="the last words"):
            place.run("bash", "-c", script, seconds=1.0)
    finally:
        os.kill(int((place.folder / "child").read_text()), signal.SIGKILL)
