"""What a store can do without, and that nothing else is ever deleted."""

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from granularity.base.errors import GranularityError
from granularity.cli import app
from granularity.store import lock, place
from granularity.store.artifact import Artifact
from support import writing


def make(output: Path, value: int, inputs=None) -> Artifact:
    with writing.create(output, params={"value": value}, inputs=inputs) as out:
        out.text("value.txt", f"{value}" * 1000)
    return Artifact.open(output)


def unfinished(output: Path, value: int) -> None:
    with pytest.raises(KeyboardInterrupt), writing.create(output, params={"value": value}, resumable=True) as out:
        (out.work / "half").write_text("of it" * 100)
        raise KeyboardInterrupt


def found(root: Path, days: float = 0) -> dict[Path, str]:
    return {one.path: one.why for one in place.needless(root, days)}


def test_results_with_a_name_and_what_they_were_made_from_are_kept(tmp_path):
    results = tmp_path / "results"
    first = make(results / "first", 1)
    second = make(results / "second", 2, {"first": first})
    make(results / "first", 3)  # the name leads elsewhere now
    lost = make(results / "second", 4)
    make(results / "second", 2, {"first": first})
    assert list(found(results)) == [results / ".store/thing" / lost.folder.name]
    assert "no name leads to it any more; made 20" in found(results)[results / ".store/thing" / lost.folder.name]
    place.delete(results, place.needless(results, 0))
    assert not lost.folder.exists()
    assert Artifact.open(second.folder).lineage()["first"].digest == first.digest


def test_what_has_got_a_name_or_a_writer_meanwhile_is_kept(tmp_path):
    """As where `gc --delete` waits for whoever reads what it prints."""
    results = tmp_path / "results"
    lost = make(results / "thing", 1)
    make(results / "thing", 2)
    unfinished(results / "thing", 3)
    listed = place.needless(results, 0)
    make(results / "other", 1)
    with writing.create(results / "thing", params={"value": 3}, resumable=True) as out:
        assert len(listed) == 2 and place.delete(results, listed) == []
        assert (out.work / "half").exists() and (results / "other").resolve() == lost.folder
        out.text("value.txt", "3")
    lost = (results / "thing").resolve()
    make(results / "thing", 2)
    place.delete(results, place.needless(results, 0))
    with pytest.raises(GranularityError, match="gc` has just deleted it"):
        place.point(results / "thing", lost, "thing", "0")


def test_results_of_a_moved_folder_are_kept(tmp_path, capsys):
    results = tmp_path / "results"
    made = make(results / "mine/thing", 1, {"first": make(results / "first", 2)})
    make(results / "first", 3)
    (results / "2025").mkdir()
    (results / "mine").rename(results / "2025/mine")  # its names are relative links, which now lead nowhere
    assert found(results) == {}
    assert f"{results}/2025/mine/thing: leads to no result (names like it: 1)" in capsys.readouterr().err
    (results / "2025/mine").rename(results / "mine")
    assert Artifact.open(results / "mine/thing").folder == made.folder


def test_what_a_job_deletes_meanwhile_is_no_error(tmp_path, monkeypatch):
    results = tmp_path / "results"
    lost = make(results / "thing", 1)
    make(results / "thing", 2)
    seen = [*place._without_need(results, results / ".store", set()), (results / ".store/.new/gone", "gone")]
    monkeypatch.setattr(place, "_without_need", lambda *_: seen)
    assert [path.name for path in found(results)] == [lost.folder.name]


def test_links_and_what_is_no_generation_are_never_deleted(tmp_path, capsys):
    results, mine = tmp_path / "results", tmp_path / "mine"
    lost = make(results / "thing", 1)
    make(results / "thing", 2)
    store = results / ".store"
    (mine / lost.folder.name).mkdir(parents=True)
    links = [store / "elsewhere", store / "thing" / ("0" * 32)]
    for link in links:
        link.symlink_to(mine)
    (store / "thing/notes").mkdir()
    (store / "README").write_text("mine")
    run = CliRunner().invoke(app, ["gc", str(results), "--older-than", "0", "--delete"])
    assert "1 deleted" in run.output and not lost.folder.exists()
    assert (mine / lost.folder.name).is_dir() and (store / "thing/notes").is_dir() and (store / "README").is_file()
    for link in links:
        assert link.is_symlink() and f"{link}: is a link, which is not followed" in run.output + run.stderr
    with pytest.raises(GranularityError, match="by a link"), writing.create(results / "x", "elsewhere") as out:
        out.text("value.txt", "1")
    assert [path.name for path in mine.iterdir()] == [lost.folder.name]


def test_work_is_kept_until_gc_and_of_live_writers_beyond(tmp_path):
    results = tmp_path / "results"
    unfinished(results / "thing", 1)
    unfinished(results / "thing", 2)
    make(results / "thing", 3)  # of another key: it deletes none of the others' work
    why = list(found(results).values())
    assert len(why) == 2 and all(f"saved by an unfinished job of {results / 'thing'}" in one for one in why)
    with writing.create(results / "thing", params={"value": 1}, resumable=True) as out:
        others = subprocess.run([sys.executable, "-c", LOOK, str(results)], capture_output=True, text=True, check=True)
        assert (out.work / "half").exists()
        out.text("value.txt", "1")
    assert len(json.loads(others.stdout)) == 1  # the other's work; neither the live one's nor its new folder
    place.delete(results, place.needless(results, 0))
    assert not list((results / ".store/.work").iterdir())


HOLD = """
import sys, time
from support import writing
with writing.create(sys.argv[1], params={"value": 9}, resumable=True) as out:
    (out.work / "half").write_text("of it")
    print("begun", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def writer(tmp_path):
    """A process that works on a result, and has saved some."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / "results/thing")]
    tests = os.pathsep.join([str(Path(writing.__file__).parents[1]), *sys.path])
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": tests})
    assert process.stdout.readline() == "begun\n"
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_a_live_writer_keeps_its_work_whatever_the_clock_says(tmp_path, writer, monkeypatch, step):
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + step)
    (file,) = (tmp_path / "results/.store/.locks").iterdir()
    about = json.loads(file.read_text())
    file.write_text(json.dumps(about | {"started": about["started"] - step}))  # by the clock as it was set then
    assert found(tmp_path / "results", days=-1) == {}
    writer.kill()
    writer.wait()
    assert len(found(tmp_path / "results", days=-1)) == 3  # its work, its folder and its lock
    place.delete(tmp_path / "results", place.needless(tmp_path / "results", -1))
    assert found(tmp_path / "results") == {}


def elsewhere(file: Path) -> None:
    """Let a lock be of another machine, whose locks are not seen here."""
    about = json.loads(file.read_text()) | {"kernel": "another", "host": "node17"}
    file.unlink()
    file.write_text(json.dumps(about))


def test_the_work_of_another_machine_is_kept_while_it_touches_its_lock(tmp_path, monkeypatch, capsys):
    results, seconds, done = tmp_path / "results", itertools.count(), threading.Event()
    monkeypatch.setattr(lock, "SILENT_SECONDS", 0.5)
    monkeypatch.setattr(lock, "LOOK_SECONDS", 0.05)

    def beat() -> None:  # by a clock that is years off
        while not done.wait(0.02):
            os.utime(file, (next(seconds),) * 2)

    with contextlib.ExitStack() as locks:
        for value in (1, 2):
            unfinished(results / "thing", value)
            file = place.lock_file(results / ".store", "thing", writing.key("thing", {"value": value}))
            locks.enter_context(lock.Lock(file, "thing"))
            elsewhere(file)
        thread = threading.Thread(target=beat)
        thread.start()
        (work, mark) = found(results)
        done.set()
        thread.join()
    assert work.name == mark.stem == f"thing-{writing.key('thing', {'value': 1})}"
    assert "whether these still run: process" in capsys.readouterr().err


def test_what_a_live_writer_has_published_and_not_named_yet_is_kept(tmp_path):
    results = tmp_path / "results"
    make(results / "thing", 1)
    make(results / "thing", 2)
    with writing.create(results / "thing", params={"value": 1}) as out:  # the generation is there, and no name
        out.text("value.txt", "1" * 1000)
        assert found(results) == {}
    assert len(found(results)) == 1


def test_single_runs_are_kept_until_no_work_is_unfinished(tmp_path):
    run = tmp_path / "results" / place.STORE / place.PARTS[0] / ("0" * 32)
    run.mkdir(parents=True)
    (run / "manifest.json").write_text("{}")
    unfinished(tmp_path / "results/pretrain", 1)
    (work,) = found(tmp_path / "results")
    assert work.parent.name == place.WORK
    shutil.rmtree(work)
    assert run in found(tmp_path / "results")


@pytest.mark.parametrize("name", ["results/.mine", "results/a/.keep/.b/mine"])
def test_a_name_in_a_hidden_folder_keeps_a_result(tmp_path, name):
    results = tmp_path / "results"
    mine, source = make(results / "thing", 2, {"first": make(results / "first", 1)}), results / "first"
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).symlink_to(os.path.relpath(mine.folder, (tmp_path / name).parent))
    first = source.resolve()
    for one in (results / "thing", source):
        one.unlink()
    assert found(results) == {} and place.find(results) == [tmp_path / name]
    place.delete(results, place.needless(results, 0))
    assert Artifact.open(tmp_path / name).digest == mine.digest and first.exists()
    (tmp_path / name).unlink()
    assert set(found(results)) == {mine.folder, first}


LOOK = """
import json, sys
from pathlib import Path
from granularity.store import place
print(json.dumps([one.why for one in place.needless(Path(sys.argv[1]), 0)]))
"""

KILLED = """
import os, signal, sys
from pathlib import Path
from granularity.store import place
def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)
Path.replace = kill
if sys.argv[1] == "name":
    place.point(Path(sys.argv[2]), Path(sys.argv[3]), "thing", "0")
place.write_atomically(Path(sys.argv[2] + ".stamp"), b"thing 0")
"""


@pytest.mark.parametrize("what", ("name", "stamp"))
def test_what_a_kill_leaves_beside_a_name_goes(tmp_path, what):
    results = tmp_path / "results"
    lost, kept = make(results / "a/thing", 1), make(results / "a/thing", 2)
    command = [sys.executable, "-c", KILLED, what, str(results / "a/thing"), str(lost.folder)]
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run(command, env=os.environ | path, check=False).returncode == -signal.SIGKILL
    (left,) = (results / "a").glob(".*")
    assert left.is_symlink() is (what == "name")
    assert place.find_lost(results) == [] and place.find(results) == [results / "a/thing"]
    assert set(found(results)) == {left, lost.folder}, "a link that was never a name keeps nothing"
    place.delete(results, place.needless(results, 0))
    assert not os.path.lexists(left) and not lost.folder.exists()
    assert Artifact.open(results / "a/thing").digest == kept.digest


def test_the_command_deletes_only_when_told(tmp_path):
    results = tmp_path / "results"
    lost = make(results / "thing", 1)
    make(results / "thing", 2)
    run = CliRunner().invoke
    listed = run(app, ["gc", str(results), "--older-than", "0"])
    assert lost.folder.name in listed.output and "1 can be deleted, " in listed.output
    assert lost.folder.exists()
    young = run(app, ["gc", str(results)]).output
    assert "nothing to delete\n1 younger, " in young and "listed by --older-than 0" in young
    assert "1 deleted" in run(app, ["gc", str(results), "--older-than", "0", "--delete"]).output
    assert not lost.folder.exists()
    assert "nothing to delete" in run(app, ["gc", str(results), "--older-than", "0"]).output
    with pytest.raises(GranularityError, match=r"contains no \.store"):
        place.needless(tmp_path / "elsewhere", 0)
    assert place.store_of(results / "thing") == results / ".store"
