"""Real writers of one artifact: an orphan of a killed driver and its rerun can never spoil a result.

Who lives is told by locks, which kernels release; by beats, as those who wait count them, where there are none.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from granularity.base import interrupt
from granularity.store import claim, hashing
from granularity.store.artifacts import Artifact
from support import writing

# Makes a result in steps, as a stage does, and waits for a file before it ends. `value` is what it computes: two
# writers of one key should agree, and here may be told not to.
WRITER = """
import errno, fcntl, sys, time
from pathlib import Path
import numpy as np
from granularity import cli
from granularity.base.progress import say
from granularity.store import claim, generations, writer
from granularity.store.checkpoints import Clock, read_state, write_state
from support import writing

def refuse(descriptor, how):
    raise OSError(errno.ENOLCK, "No locks available")

claim.HEARTBEAT_SECONDS = 0.05
output, key, value, gate = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
claim.SILENT_SECONDS = float(sys.argv[5])
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
    store, name = generations.store_of(output), writing.key("thing", {"key": key})
    while True:
        claim.wait(store, "thing", name, output)
        if (found := writer.sound(store, "thing", name)) is not None:
            return generations.point(output, found.folder, "thing", found.digest)
        try:
            work()
        except claim.LostError as lost:
            say(str(lost))


cli.app = make
cli.main()
"""


# Process numbers of its own, as in a container.
CONTAINER = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


class Writer:
    """A process that makes a result."""

    def __init__(
        self, output: Path, key: str, value: int, gate: Path, silent: float = 60.0, locks: str = "", apart: bool = False
    ):
        command = [sys.executable, "-c", WRITER, str(output), key, str(value), str(gate), str(silent), locks]
        command = [*(CONTAINER if apart else ()), *command]
        tests = os.pathsep.join([str(Path(writing.__file__).parents[1]), *sys.path])
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, **pipes, env=os.environ | {"PYTHONPATH": tests})

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
def place(tmp_path) -> tuple[Path, Path, Path]:
    return tmp_path / "results" / "thing", tmp_path / "first", tmp_path / "second"


def values_of(output: Path) -> set[int]:
    return set(Artifact.open(output).array("values.npy").tolist())


def left(output: Path) -> list[Path]:
    """What writers have left in the store beside generations."""
    return [path for name in (".new", ".work", ".claims") for path in (output.parent / ".store" / name).glob("*")]


def test_who_comes_second_waits_and_takes_the_result(place):
    output, first, second = place
    one = Writer(output, "same", 1, first)
    assert one.began() == "from step 0"
    two = Writer(output, "same", 2, second)
    assert f"process {one.process.pid} on" in two.says()
    first.touch()
    assert one.end()[0] == 0 and two.end()[0] == 0  # without its gate: it computed nothing
    assert values_of(output) == {1} and not left(output)


def test_who_waits_goes_on_with_the_work_of_a_writer_that_is_stopped(place):
    output, first, second = place
    one = Writer(output, "same", 1, first)
    assert one.began() == "from step 0"
    two = Writer(output, "same", 1, second)
    assert "waiting for it" in two.says()
    one.process.send_signal(signal.SIGUSR1)  # its work is saved
    assert one.end()[0] == 128 + signal.SIGUSR1
    assert int(two.began().split()[-1]) > 0
    second.touch()
    assert two.end()[0] == 0 and values_of(output) == {1} and not left(output)


@pytest.mark.parametrize("published", [True, False])
def test_a_writer_that_sleeps_loses_its_claim_and_takes_the_result_of_the_other(place, published):
    output, first, second = place
    one = Writer(output, "same", 1, first)
    assert one.began() == "from step 0"
    one.process.send_signal(signal.SIGSTOP)
    two = Writer(output, "same", 2, second, silent=1)
    assert two.began() == "from step 0"
    if published:
        second.touch()
        assert two.end()[0] == 0
    one.process.send_signal(signal.SIGCONT)
    if not published:
        assert f"process {two.process.pid} on" in one.says()
        second.touch()
        assert two.end()[0] == 0
    assert one.end()[0] == 0  # without its gate
    assert values_of(output) == {2} and not left(output)


def test_writers_of_other_keys_do_not_disturb_each_other(place):
    output, first, second = place
    one, two = Writer(output, "one", 1, first), Writer(output, "two", 2, second)
    assert one.began() == two.began() == "from step 0"
    first.touch()
    assert one.end()[0] == 0 and values_of(output) == {1}
    second.touch()
    assert two.end()[0] == 0 and values_of(output) == {2} and not left(output)


def claimed(output: Path) -> claim.Claim:
    return claim.Claim(output.parent / ".store", "thing", "key", output)


def test_a_claim_made_while_another_is_released_stays(place, monkeypatch):
    output, *_ = place
    first, held = claimed(output), claim.Claim.held
    others = []

    def claimed_meanwhile(self):
        found = held(self)
        if not others:  # who found it silent has taken it over
            self.file.unlink()
            others.append(claimed(output))
        return found

    monkeypatch.setattr(claim.Claim, "held", claimed_meanwhile)
    first.release()
    assert others[0].held()
    others[0].release()
    assert not left(output)


def test_a_claim_that_cannot_be_read_for_a_moment_is_not_lost(place, monkeypatch):
    output, *_ = place
    mine, read = claimed(output), os.open
    failures = iter([OSError(116, "Stale file handle")])

    def refuse(path, *args, **kwargs):
        for error in failures:
            raise error
        return read(path, *args, **kwargs)

    monkeypatch.setattr(claim, "SECONDS_BETWEEN_READS", 0.0)
    monkeypatch.setattr(os, "open", refuse)
    assert mine.held()


def claim_of(output: Path) -> Path:
    return claim.claim_file(output.parent / ".store", "thing", writing.key("thing", {"key": "same"}))


def renumber(file: Path, pid: int) -> None:
    """Let a claim name another process, as its writer's number means one in another container, or later."""
    with file.open("r+") as stream:
        about = json.load(stream) | {"pid": pid}
        stream.seek(0)
        stream.truncate()
        json.dump(about, stream)


def until(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


NOBODY = 2**22 + 1  # above all process numbers of Linux


@pytest.mark.parametrize("pid", [1, os.getpid(), NOBODY], ids=["init", "own", "nobody"])
def test_who_was_killed_is_dead_though_its_number_is_that_of_another(place, pid):
    output, first, second = place
    one = Writer(output, "same", 1, first)
    assert one.began() == "from step 0"
    one.process.kill()
    one.process.wait()
    renumber(claim_of(output), pid)
    assert not claim.is_live(claim.read_claim(claim_of(output)))
    second.touch()
    two = Writer(output, "same", 2, second)
    code, errors = two.end()
    assert code == 0 and "waiting" not in errors and values_of(output) == {2} and not claim_of(output).exists()


def test_who_lives_in_a_container_is_seen_to_live_and_to_die(place):
    output, first, second = place
    apart = subprocess.run([*CONTAINER, "true"], check=False, capture_output=True).returncode == 0
    one = Writer(output, "same", 1, first, apart=apart)  # or else numbers alone are other ones
    assert one.began() == "from step 0"
    assert not apart or claim.read_claim(claim_of(output))["pid"] == 1
    for pid in (1, os.getpid(), NOBODY):
        renumber(claim_of(output), pid)
        assert claim.is_live(claim.read_claim(claim_of(output)))
        with pytest.raises(claim.LostError, match=f"process {pid} on"):
            claim.Claim(output.parent / ".store", "thing", writing.key("thing", {"key": "same"}), output)
    one.process.kill()
    until(lambda: not claim.is_live(claim.read_claim(claim_of(output))))
    second.touch()
    assert Writer(output, "same", 2, second, apart=apart).end()[0] == 0
    assert values_of(output) == {2} and not claim_of(output).exists()


def test_looking_at_a_claim_takes_nothing_from_its_writer_and_others_who_look(place):
    mine = claimed(place[0])
    for _ in range(3):
        assert mine.held() and claim.read_claim(mine.file)["live"] is True
    with mine.file.open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
    leave(mine.file, kernel=claim._kernel())
    with mine.file.open() as other:
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        assert claim.read_claim(mine.file)["live"] is False
    mine.release()


def leave(file: Path, **over) -> None:
    """A claim whose writer has ended, or lives where locks are not seen from here."""
    about = {"token": "t", "key": "k", "output": "o", "host": "elsewhere", "pid": 7, "job": None, "started": 0}
    file.unlink(missing_ok=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(about | over))


def test_a_lock_that_reaches_other_machines_tells_there(tmp_path):
    file = tmp_path / "claim.json"
    leave(file, kernel="another")
    assert claim.read_claim(file)["live"] is None
    with file.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert claim.read_claim(file)["live"] is True


def test_without_locks_a_writer_lives_while_it_touches_its_claim(place):
    output, first, second = place
    one = Writer(output, "same", 1, first, locks="no locks")
    assert one.began() == "from step 0"
    assert claim.read_claim(claim_of(output))["live"] is None
    two = Writer(output, "same", 2, second, silent=3)
    assert two.says().endswith(
        f"makes this result; waiting for it; if you know that it is dead, delete {claim_of(output)}"
    )
    time.sleep(4)
    first.touch()
    assert one.end()[0] == two.end()[0] == 0 and values_of(output) == {1} and not left(output)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_without_locks_a_writer_that_falls_silent_is_taken_over(place, number):
    output, first, second = place
    one = Writer(output, "same", 1, first, locks="no locks")
    assert one.began() == "from step 0"
    one.process.send_signal(number)
    two = Writer(output, "same", 2, second, silent=1, locks="no locks")
    assert "waiting for it" in two.says()
    second.touch()
    assert two.end()[0] == 0 and values_of(output) == {2}
    one.process.send_signal(signal.SIGCONT)
    assert one.end()[0] == (-number if number == signal.SIGKILL else 0)
    assert values_of(output) == {2}


ODD = '{"token": "t", "key": "k", "output": "o", "host": "h", "pid": %s, "job": null, "started": 0'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[" * 100_000,
        ODD.replace('"t"', "1") % 7 + "}",
        ODD % 1e99 + "}",
        ODD % 7 + " " * 10**7 + "}",
        os.mkfifo,
        os.mkdir,
        lambda file: file.symlink_to("/dev/zero"),
    ],
)
def test_a_malformed_claim_is_none(place, text):
    output, first, _ = place
    first.touch()
    file = claim.claim_file(output.parent / ".store", "thing", writing.key("thing", {"key": "same"}))
    file.parent.mkdir(parents=True)
    file.write_text(text) if isinstance(text, str) else text(file)
    assert claim.read_claim(file) is None
    if not file.is_dir():
        assert Writer(output, "same", 1, first).end()[0] == 0


def test_a_signal_when_the_result_is_made_is_no_failure(place, monkeypatch):
    """Snakemake removes what a failed job has made."""
    output, *_ = place
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
        for value in (1, 2):  # nothing there before, and something
            with writing.create(output, params={"value": value}, resumable=True) as out:
                out.json("values.json", value)
            assert Artifact.open(output).json("values.json") == value
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def test_half_a_file_is_not_gone_on_with(place):
    output, *_ = place
    with pytest.raises(KeyboardInterrupt), writing.create(output, resumable=True) as out:
        (out.work / "x.done").touch()
        (out.work / ".torn.0123").touch()
        raise KeyboardInterrupt
    with writing.create(output, resumable=True) as out:
        assert [path.name for path in out.work.iterdir()] == ["x.done"]
        out.json("values.json", 1)


def test_the_first_of_two_different_results_of_one_key_stays(place, capsys):
    output, first, _ = place
    first.touch()
    with writing.create(output, params={"key": "same"}) as out:
        out.json("values.json", 1)
        claim.claim_file(output.parent / ".store", "thing", writing.key("thing", {"key": "same"})).unlink()
        assert Writer(output, "same", 2, first).end()[0] == 0
    assert values_of(output) == {2}
    assert "another writer published a different result of the same inputs" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_warning_signal_saves_and_the_next_writer_continues(place, number):
    output, first, _ = place
    writer = Writer(output, "same", 1, first)
    assert writer.began() == "from step 0"
    time.sleep(0.3)
    writer.process.send_signal(number)
    status, errors = writer.end()
    assert status == 128 + number
    assert f"stopped: {number.name}; finished work is kept" in errors
    assert not output.exists()
    first.touch()
    again = Writer(output, "same", 1, first)
    assert int(again.began().split()[-1]) > 5  # checkpoints are a minute apart: this one was made for the signal
    assert again.end()[0] == 0
    assert values_of(output) == {1}
    assert not left(output)


def test_a_claim_beats_while_its_writer_lives(place, monkeypatch):
    output, *_ = place
    monkeypatch.setattr(claim, "HEARTBEAT_SECONDS", 0.01)
    with writing.create(output) as out:
        file = claim.claim_file(output.parent / ".store", "thing", writing.key("thing", {}))
        os.utime(file, (0, 0))
        while claim.read_claim(file)["beat"] == 0:
            pass
        assert claim.read_claim(file)["pid"] == os.getpid()
        out.json("values.json", 1)
    assert claim.read_claim(file) is None


def test_a_claim_beats_while_its_result_is_hashed(place, monkeypatch):
    output, *_ = place
    digests = hashing.digests
    monkeypatch.setattr(claim, "HEARTBEAT_SECONDS", 0.01)

    def slowly(paths):
        file = claim.claim_file(output.parent / ".store", "thing", writing.key("thing", {}))
        os.utime(file, (0, 0))
        until(lambda: claim.read_claim(file)["beat"] != 0)
        return digests(paths)

    monkeypatch.setattr(hashing, "digests", slowly)
    with writing.create(output) as out:
        out.json("values.json", 1)
    assert output.exists()


def test_a_writer_on_another_host_is_waited_for_until_it_is_silent(place, monkeypatch, capsys):
    """Its beats are counted, and no clocks compared: the other one's may be years off."""
    output, *_ = place
    file = claim.claim_file(output.parent / ".store", "thing", "key")
    leave(file, kernel="another")
    monkeypatch.setattr(claim, "SILENT_SECONDS", 0.6)
    monkeypatch.setattr(claim, "SECONDS_BETWEEN_LOOKS", 0.01)
    began, seconds = time.monotonic(), itertools.count(0, 1_000_000)

    def beat() -> None:
        while time.monotonic() < began + 0.5:
            os.utime(file, (next(seconds),) * 2)
            time.sleep(0.02)

    thread = threading.Thread(target=beat)
    thread.start()
    claim.wait(output.parent / ".store", "thing", "key", output)
    thread.join()
    assert time.monotonic() - began > 1.0 and not file.exists()
    assert "on elsewhere makes this result; waiting for it" in capsys.readouterr().err


def test_a_corrupt_checkpoint_is_not_continued_from(tmp_path, capsys):
    import numpy as np

    from granularity.store.checkpoints import read_state, write_state

    file = tmp_path / "state"
    write_state(file, {"weights": np.arange(100.0)}, {"step": 3})
    whole = file.read_bytes()
    assert read_state(file)[1] == {"step": 3}
    for place in (3, 9, 40, len(whole) - 400, len(whole) - 1):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert read_state(file) is None, place
        assert not file.exists()
    file.write_bytes(whole[:100])
    assert read_state(file) is None
    assert "a corrupt checkpoint; this part is done again" in capsys.readouterr().err
