"""Real writers of one artifact: an orphan of a killed driver and its rerun can never spoil a result.

A lock, which the kernel releases, shows who lives; where there is none, the touches that a waiting process counts.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from granularity.base import interrupt
from granularity.store import lock, place
from granularity.store.artifact import Artifact
from support import writing

# Makes a result in steps, as a stage does, and waits for a file before it ends. `value` is what it computes: two
# writers of one key should agree, and here may be told not to.
WRITER = """
import errno, fcntl, sys, time
from pathlib import Path
import numpy as np
from granularity import cli
from granularity.base.progress import say
from granularity.store import lock, place, writer
from granularity.store.resume import Clock, read_state, write_state
from support import writing

def refuse(descriptor, how):
    raise OSError(errno.ENOLCK, "No locks available")

lock.BEAT_SECONDS = 0.05
output, key, value, gate = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
lock.SILENT_SECONDS = float(sys.argv[5])
if sys.argv[6] == "no locks":
    fcntl.flock = refuse


def work():
    with writing.create(output, params={"key": key}, resumable=True) as out:
        state = read_state(out.work / "state")
        step = state[1]["step"] if state else 0
        print(f"from step {step}", flush=True)
        clock = Clock()
        while step < 5 or not gate.exists():
            step += 1
            time.sleep(0.01)
            if clock.due():
                write_state(out.work / "state", {}, {"step": step})
        out.array("values.npy", np.full(1000, value))


def make():
    store, name = place.store_of(output), writing.key("thing", {"key": key})
    while True:
        lock.wait(place.lock_file(store, "thing", name), output)
        if (found := writer.sound(store, "thing", name)) is not None:
            return place.point(output, found.folder, "thing", found.digest)
        try:
            work()
        except lock.LostError as lost:
            say(str(lost))


cli.app = make
cli.main()
"""
# Process numbers of its own, as in a container.
CONTAINER = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


class Writer:
    """A process that makes `output`; it ends once the file `gate` is there."""

    def __init__(self, output: Path, value: int, silent: float = 60.0, locks: str = "", apart: bool = False):
        self.gate = output.parents[1] / f"gate-{value}"
        command = [sys.executable, "-c", WRITER, str(output), "same", str(value), str(self.gate), str(silent), locks]
        tests = os.pathsep.join([str(Path(writing.__file__).parents[1]), *sys.path])
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(
            [*(CONTAINER if apart else ()), *command], **pipes, env=os.environ | {"PYTHONPATH": tests}
        )

    def began(self) -> str:
        """Where it began to compute, once it does."""
        return self.process.stdout.readline().strip()

    def says(self) -> str:
        """The next line of its log."""
        return self.process.stderr.readline().strip()

    def end(self) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


@pytest.fixture
def output(tmp_path) -> Path:
    return tmp_path / "results" / "thing"


def values_of(output: Path) -> set[int]:
    return set(Artifact.open(output).array("values.npy").tolist())


def left(output: Path) -> list[Path]:
    """What writers have left in the store beside generations."""
    return [path for name in (".new", ".work", ".locks") for path in (output.parent / ".store" / name).glob("*")]


def lock_of(output: Path) -> Path:
    return place.lock_file(output.parent / ".store", "thing", writing.key("thing", {"key": "same"}))


def test_who_comes_second_waits_and_takes_the_result(output):
    one = Writer(output, 1)
    assert one.began() == "from step 0"
    two = Writer(output, 2)
    assert f"process {one.process.pid} on" in two.says()
    one.gate.touch()
    assert one.end()[0] == 0 and two.end()[0] == 0  # without its gate: it computed nothing
    assert values_of(output) == {1} and not left(output)


def test_who_waits_goes_on_with_the_work_of_a_writer_that_is_told_to_stop(output):
    one = Writer(output, 1)
    assert one.began() == "from step 0"
    two = Writer(output, 2)
    assert "is making it; waiting" in two.says()
    one.process.send_signal(signal.SIGUSR1)
    code, errors = one.end()
    assert code == 128 + signal.SIGUSR1 and "stopped: SIGUSR1; finished work is kept" in errors
    assert int(two.began().split()[-1]) > 0
    two.gate.touch()
    assert two.end()[0] == 0 and values_of(output) == {2} and not left(output)


@pytest.mark.parametrize("locks", ["", "no locks"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_writer_that_dies_or_sleeps_is_taken_over_and_spoils_nothing(output, number, locks):
    one = Writer(output, 1, locks=locks)
    assert one.began() == "from step 0"
    one.process.send_signal(number)
    two = Writer(output, 2, silent=1, locks=locks)
    assert two.began() == "from step 0"
    one.process.send_signal(signal.SIGCONT)
    two.gate.touch()
    assert two.end()[0] == 0
    one.gate.touch()
    assert one.end()[0] == (-number if number == signal.SIGKILL else 0)
    assert values_of(output) == {2}


def test_who_lives_in_a_container_is_seen_to_live_and_to_die(output):
    apart = subprocess.run([*CONTAINER, "true"], check=False, capture_output=True).returncode == 0
    one = Writer(output, 1, apart=apart)  # or else numbers alone are other ones
    assert one.began() == "from step 0"
    assert lock.read(lock_of(output))["live"] is True
    with pytest.raises(lock.LostError, match=r"process \d+ on"):
        lock.Lock(lock_of(output), "thing")
    one.process.kill()
    deadline = time.monotonic() + 30
    while lock.read(lock_of(output))["live"] is not False:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_without_locks_a_writer_lives_while_it_touches_its_file(output):
    one = Writer(output, 1, locks="no locks")
    assert one.began() == "from step 0"
    assert lock.read(lock_of(output))["live"] is None
    two = Writer(output, 2, silent=2)
    assert "is making it; waiting" in two.says()
    time.sleep(3)
    one.gate.touch()
    assert one.end()[0] == two.end()[0] == 0 and values_of(output) == {1} and not left(output)


def test_looking_at_a_lock_takes_nothing_from_its_writer(tmp_path):
    with lock.Lock(tmp_path / "mine.json", "thing") as mine:
        for _ in range(3):
            assert mine.held() and lock.read(mine.file)["live"] is True
        with mine.file.open() as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
    assert not mine.file.exists()


ABOUT = {"token": "t", "output": "o", "host": "elsewhere", "pid": 7, "job": None, "started": 0, "kernel": "another"}


def test_of_another_machine_a_lock_tells_where_it_reaches_here_and_silence_where_not(tmp_path, monkeypatch, capsys):
    file = tmp_path / "lock.json"
    file.write_text(json.dumps(ABOUT))
    with file.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert lock.read(file)["live"] is True
    assert lock.read(file)["live"] is None
    monkeypatch.setattr(lock, "SILENT_SECONDS", 0.3)
    monkeypatch.setattr(lock, "LOOK_SECONDS", 0.01)
    lock.wait(file, tmp_path / "thing")
    assert not file.exists() and "process 7 on elsewhere has given no sign of life for" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "{", "\x00", "[]", "{}", '{"token": "x", "pid": "1"}'])
def test_a_torn_lock_is_none(output, text):
    file = lock_of(output)
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert lock.read(file) is None
    with writing.create(output, params={"key": "same"}) as out:
        out.json("values.json", 1)


def test_a_signal_when_the_result_is_made_is_no_failure(output, monkeypatch):
    """Snakemake removes what a failed job has made."""
    handlers = {number: signal.getsignal(number) for number in interrupt.SIGNALS}
    interrupt.install()
    monkeypatch.setattr(interrupt, "_reason", None)
    rename = Path.rename

    def warned(path, target):
        if Path(target).parent.name == "thing":
            os.kill(os.getpid(), signal.SIGUSR1)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", warned)
    try:
        with writing.create(output, resumable=True) as out:
            out.json("values.json", 1)
        assert Artifact.open(output).json("values.json") == 1
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def test_the_first_of_two_different_results_of_one_key_stays(output, capsys):
    with writing.create(output, params={"key": "same"}) as out:
        out.json("values.json", 1)
        lock_of(output).unlink()
        other = Writer(output, 2)
        other.gate.touch()
        assert other.end()[0] == 0
    assert values_of(output) == {2}
    assert "another writer published a different result of the same inputs" in capsys.readouterr().err


SHARE = """
import sys, time
from pathlib import Path
from granularity.store import lock
other = lock.share(Path(sys.argv[1]), sys.argv[2])
print(other and other["pid"], flush=True)
time.sleep(60)
"""


def test_a_name_is_shared_by_drivers_of_one_configuration_alone(tmp_path):
    drivers = []

    def start(configuration: str) -> str:
        command = [sys.executable, "-c", SHARE, str(tmp_path / "store/.driver-digits"), configuration]
        drivers.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return drivers[-1].stdout.readline().strip()

    try:
        assert start("one") == start("one") == "None"
        drivers[0].kill()
        drivers[0].wait()
        assert start("other") == str(drivers[1].pid), "the one that still holds it is named"
        for driver in drivers:
            driver.kill()
            driver.wait()
        assert start("other") == "None", "a lock ends with its driver"
    finally:
        for driver in drivers:
            driver.kill()
