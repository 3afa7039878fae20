"""Two real writers of one artifact: an orphan of a killed driver and its rerun can never spoil a result."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from granularity.base import interrupt
from granularity.base.errors import GranularityError
from granularity.store import artifacts, claim, provenance
from granularity.store.artifacts import Artifact
from support import writing

# Writes an artifact in steps, and waits for a file before it goes on. `value` is what it computes: two writers
# of one key should agree, and here may be told not to.
WRITER = """
import sys, time
from pathlib import Path
import numpy as np
from granularity import cli
from granularity.store import artifacts, claim
from granularity.store.checkpoints import Clock, read_state, write_state

claim.HEARTBEAT_SECONDS = 0.05
output, key, value, gate = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])


def work():
    with writing.create(output, "thing", ("granularity.base.seeds",), {}, {"key": key}, resumable=True) as out:
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


cli.app = work
cli.main()
"""


class Writer:
    def __init__(self, output: Path, key: str, value: int, gate: Path):
        command = [sys.executable, "-c", WRITER, str(output), key, str(value), str(gate)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.began = self.process.stdout.readline().strip()

    def end(self) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors


@pytest.fixture
def place(tmp_path) -> tuple[Path, Path, Path]:
    return tmp_path / "results" / "thing", tmp_path / "first", tmp_path / "second"


def values_of(output: Path) -> set[int]:
    return set(Artifact.open(output).array("values.npy").tolist())


@pytest.mark.parametrize("key", ["same", "other"])
def test_an_orphan_notices_its_rerun_and_stops(place, key):
    output, first, second = place
    orphan = Writer(output, "same", 1, first)
    rerun = Writer(output, key, 2, second)
    status, errors = orphan.end()  # it is never let through its gate: it stops by itself
    assert status == 1
    assert f"process {rerun.process.pid} on" in errors
    assert "has taken over this artifact; this one stops and publishes nothing" in errors
    assert "Traceback" not in errors
    second.touch()
    assert rerun.end()[0] == 0
    assert values_of(output) == {2}
    assert not list(output.parent.glob(".*"))


def test_an_orphan_that_finishes_late_publishes_nothing(place, monkeypatch):
    """Even one that never looks: its claim is compared once more before it publishes."""
    output, _, second = place
    with pytest.raises(GranularityError, match="has taken over this artifact"):  # noqa: SIM117
        with writing.create(output, "thing", ("granularity.base.seeds",), {}, {"key": "old"}) as out:
            out.json("values.json", 1)
            rerun = Writer(output, "new", 2, second)
            second.touch()
            assert rerun.end()[0] == 0
    assert values_of(output) == {2}


def test_an_orphan_that_ends_leaves_the_folder_that_its_rerun_is_about_to_work_in(place):
    output, *_ = place

    def writing():
        return writing.create(output, "thing", ("granularity.base.seeds",), {}, {}, resumable=True)

    rerun = writing()
    with pytest.raises(GranularityError, match="has taken over this artifact"), writing():  # the orphan
        out = rerun.__enter__()
    (out.work / "checkpoint").touch()
    out.json("values.json", 1)
    rerun.__exit__(None, None, None)
    assert Artifact.open(output).json("values.json") == 1


@pytest.mark.parametrize("left", ["work", "new"])
def test_what_an_orphan_writes_while_its_rerun_tidies_up_is_not_left_behind(place, monkeypatch, left):
    output, *_ = place
    rmdir = os.rmdir
    with writing.create(output, "thing", ("granularity.base.seeds",), {}, {}, resumable=True) as out:
        folder = out.work if left == "work" else output.with_name(f".{output.name}.new-0123456789abcdef")

        def late(*args, **kwargs):
            with contextlib.suppress(FileNotFoundError):
                (folder / "late").touch()
            return rmdir(*args, **kwargs)

        monkeypatch.setattr(os, "rmdir", late)
        if left == "new":
            folder.mkdir()
            artifacts._remove_leftovers(output, keep=out.work)
            out.folder.mkdir()
        out.json("values.json", 1)
    assert not list(output.parent.glob(".*"))


def test_a_claim_made_while_another_is_released_stays(place, monkeypatch):
    output, *_ = place
    output.parent.mkdir()
    first, held = claim.Claim(output, "key"), claim.Claim.held
    others = []

    def claimed_meanwhile(self):
        found = held(self)
        if not others:
            others.append(claim.Claim(output, "key"))
        return found

    monkeypatch.setattr(claim.Claim, "held", claimed_meanwhile)
    first.release()
    assert others[0].held()
    others[0].release()
    assert not list(output.parent.iterdir())


def test_a_claim_that_cannot_be_read_for_a_moment_is_not_lost(place, monkeypatch):
    output, *_ = place
    output.parent.mkdir()
    mine, read = claim.Claim(output, "key"), Path.read_text
    failures = iter([OSError(116, "Stale file handle")])

    def read_text(path, **kwargs):
        for error in failures:
            raise error
        return read(path, **kwargs)

    monkeypatch.setattr(claim, "SECONDS_BETWEEN_READS", 0.0)
    monkeypatch.setattr(Path, "read_text", read_text)
    assert mine.held()


def test_a_signal_when_the_result_is_made_is_no_failure(place, monkeypatch):
    """Snakemake removes what a failed job has made."""
    output, *_ = place
    handlers = {number: signal.getsignal(number) for number in interrupt.SIGNALS}
    interrupt.install()
    monkeypatch.setattr(interrupt, "_reason", None)
    rename = Path.rename

    def warned(path, target):
        if target == output:
            os.kill(os.getpid(), signal.SIGUSR1)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", warned)
    try:
        for value in (1, 2):  # nothing there before, and something
            with writing.create(
                output, "thing", ("granularity.base.seeds",), {}, {"value": value}, resumable=True
            ) as out:
                out.json("values.json", value)
            assert Artifact.open(output).json("values.json") == value
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def test_work_of_other_package_versions_is_not_continued(place, monkeypatch):
    output, *_ = place

    def work() -> Path:
        with writing.create(output, "thing", ("granularity.base.seeds",), {}, {}, resumable=True) as out:
            (out.work / "x.done").touch()
            (out.work / ".torn.0123").touch()
            raise KeyboardInterrupt

    found = []
    for version in "12":
        monkeypatch.setattr(provenance, "package_versions", lambda version=version: {"torch": version})
        with pytest.raises(KeyboardInterrupt):
            work()
        found += output.parent.glob(".thing.work-*")
    assert len(found) == len(set(found)) == 2  # the first is gone when the second is there
    with writing.create(output, "thing", ("granularity.base.seeds",), {}, {}, resumable=True) as out:
        assert [path.name for path in out.work.iterdir()] == ["x.done"]  # and no half a file
        out.json("values.json", 1)


def test_a_different_result_of_the_same_inputs_is_refused(place):
    """One that was published meanwhile by a writer that knew nothing of claims, such as an older version."""
    output, first, _ = place
    first.touch()
    with pytest.raises(GranularityError, match="published a different result of the same inputs"):  # noqa: SIM117
        with writing.create(output, "thing", ("granularity.base.seeds",), {}, {"key": "same"}) as out:
            out.json("values.json", 1)
            mine = claim.claim_file(output).read_text()
            assert Writer(output, "same", 2, first).end()[0] == 0
            claim.claim_file(output).write_text(mine)
    assert values_of(output) == {2}


def test_a_result_may_be_made_again(place):
    output, first, _ = place
    first.touch()
    for value in (1, 2):  # such as after `snakemake --forcerun`, or on a GPU that is not deterministic
        assert Writer(output, "same", value, first).end()[0] == 0
        assert values_of(output) == {value}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_warning_signal_saves_and_the_next_writer_continues(place, number):
    output, first, _ = place
    writer = Writer(output, "same", 1, first)
    assert writer.began == "from step 0"
    time.sleep(0.3)
    writer.process.send_signal(number)
    status, errors = writer.end()
    assert status == 128 + number
    assert f"stopped: {number.name}; finished work is kept" in errors
    assert not output.exists()
    first.touch()
    again = Writer(output, "same", 1, first)
    assert int(again.began.split()[-1]) > 5  # checkpoints are a minute apart: this one was made for the signal
    assert again.end()[0] == 0
    assert values_of(output) == {1}
    assert not list(output.parent.glob(".*"))


def test_a_claim_beats_while_its_writer_lives(place, monkeypatch):
    output, *_ = place
    monkeypatch.setattr(claim, "HEARTBEAT_SECONDS", 0.01)
    with writing.create(output, "thing", ("granularity.base.seeds",), {}, {}) as out:
        os.utime(claim.claim_file(output), (0, 0))
        while claim.read_claim(output)["beat"] == 0:
            pass
        assert claim.read_claim(output)["pid"] == os.getpid()
        out.json("values.json", 1)
    assert claim.read_claim(output) is None


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
