"""An embedding by several processes, through the command: the bytes of one, whatever happens to them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from granularity.data.images import Images
from granularity.store.artifacts import Artifact
from support import tasks
from support.encoders import options, train
from support.several import Ended

IMPORTED = ("granularity.stages.embed.stage",)
IMAGES, BATCH = 60, 8
LATE = (50, 58)  # images of the last batch of each of two processes: decoded when the first turn is over


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with samples, an encoder, and the embedding that one process makes of them."""
    folder = tmp_path_factory.mktemp("several")
    tasks.run("samples", folder / "samples", {"validation": 20, "train_size": 40})
    train(options(), folder / "samples", folder / "encoder")
    tasks.run("embed", folder / "one", options(), samples=folder / "samples", encoder=folder / "encoder")
    return folder


def command(made: Path, output: Path, processes: int, threads: int | None = None, **values) -> list[str]:
    given = options().model_dump(mode="json") | {"processes": processes} | values
    words = [sys.executable, "-m", "granularity", "embed", "--options", json.dumps(given), "--device", "cpu"]
    words += ["--samples", str(made / "samples"), "--encoder", str(made / "encoder"), "--output", str(output)]
    return [*words, "--threads", str(threads or processes)]


def go(words: list[str], **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(words, capture_output=True, text=True, env=os.environ | environment, check=False)


def test_three_processes_make_the_bytes_of_one(tmp_path, made):
    """Eight batches, no multiple of three; the last of four images."""
    ended = go(command(made, tmp_path / "several", 3))
    assert ended.returncode == 0, ended.stderr
    several, one = Artifact.open(tmp_path / "several", "embed"), Artifact.open(made / "one")
    assert several.digest == one.digest
    assert several.params == one.params  # a thread for each


def test_the_result_of_one_process_is_that_of_two(tmp_path, made):
    """It is found in the store: their number is no part of the key, and the threads of each are."""
    (tmp_path / "made").mkdir()
    assert go(command(made, tmp_path / "made" / "one", 1)).returncode == 0
    before = Artifact.open(tmp_path / "made" / "one")
    ended = go(command(made, tmp_path / "made" / "two", 2))
    assert ended.returncode == 0 and "embedding" not in ended.stderr, ended.stderr
    assert Artifact.open(tmp_path / "made" / "two").folder == before.folder


CALL = """
import os, signal
from pathlib import Path
from granularity.base.errors import GranularityError
from granularity.data.images import Images
from granularity.store import checkpoints
from support import tasks
checkpoints.CHECKPOINT_SECONDS = 0.0
load = Images.load
def disturbed(self, index):
    if index == {index}:
        {what}
    return load(self, index)
Images.load = disturbed
tasks.run("embed", Path({output!r}), {values!r}, threads=2, **{inputs!r})
"""


@pytest.fixture
def embed(made, processes):
    """Embed in two processes; `what` is done in the one that decodes the image `index`."""

    def go(output: Path, index: int | None = None, what: str = "pass", **values) -> Ended:
        values = options().model_dump(mode="json") | {"processes": 2} | values
        inputs = {"samples": str(made / "samples"), "encoder": str(made / "encoder")}
        return processes(2, CALL.format(index=index, what=what, output=str(output), values=values, inputs=inputs))

    return go


@pytest.mark.parametrize("index", LATE)
@pytest.mark.parametrize("number", ["SIGKILL", "SIGTERM"])
def test_killed_or_stopped_it_goes_on(tmp_path, made, embed, kill_at, index, number):
    ended = embed(tmp_path / "out", index, f"os.kill(os.getpid(), signal.{number})")
    assert 0 not in ended.status and not (tmp_path / "out").exists()
    assert ended.status[index // BATCH % 2] == {"SIGKILL": -signal.SIGKILL, "SIGTERM": 128 + signal.SIGTERM}[number]
    calls = kill_at(Images, "load", None)
    tasks.run("embed", tmp_path / "out", options(), samples=made / "samples", encoder=made / "encoder")
    assert 0 < len(calls) < IMAGES and min(index for _, index in calls) % BATCH == 0  # the first batches were saved
    assert Artifact.open(tmp_path / "out").digest == Artifact.open(made / "one").digest


KILLED = f"""
import os, signal
from granularity.data.images import Images
load = Images.load
def disturbed(self, index):
    if index == {LATE[1]}:
        os.kill(os.getpid(), signal.SIGKILL)
    return load(self, index)
Images.load = disturbed
"""


def test_the_command_says_which_process_was_killed(tmp_path, made):
    (tmp_path / "disturbed").mkdir()
    (tmp_path / "disturbed" / "sitecustomize.py").write_text(KILLED)
    path = f"{tmp_path / 'disturbed'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    ended = go(command(made, tmp_path / "out", 2), PYTHONPATH=path)
    assert ended.returncode == 1 and not (tmp_path / "out").exists()
    assert ended.stderr.strip().splitlines()[-1].startswith("error: process 1 of 2 was killed")


@pytest.mark.parametrize("index", LATE)
def test_an_error_in_any_process_is_one_line(tmp_path, embed, index):
    ended = embed(tmp_path / "out", index, 'raise GranularityError("no image there")')
    assert ended.status == [1, 1] and not (tmp_path / "out").exists()
    assert [line for line in ended.said if "error" in line] == ["error: no image there"]


def test_more_processes_than_batches(tmp_path, made, embed):
    ended = embed(tmp_path / "out", batch_size=64)
    assert ended.status == [0, 0], ended.said
    whole = options().model_copy(update={"batch_size": 64})
    tasks.run("embed", tmp_path / "one" / "out", whole, samples=made / "samples", encoder=made / "encoder")
    assert Artifact.open(tmp_path / "out").digest == Artifact.open(tmp_path / "one" / "out").digest


def test_another_number_than_planned_is_refused(tmp_path, made):
    words = [sys.executable, "-m", "granularity.machine.launch", "2", *command(made, tmp_path / "out", 1, 2)[3:]]
    ended = go(words)
    assert ended.returncode == 1 and "processes: 1 are planned, but this is one of 2" in ended.stderr
