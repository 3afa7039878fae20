"""Arms in lockstep, on CPUs: the bytes of separate jobs, each image read once, and one end for all."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from granularity.learning.options import Model, Recipe
from granularity.learning.runs import Run, in_lockstep
from granularity.store.artifacts import Artifact
from support import tasks
from support.several import Ended
from support.trainings import made_space

IMPORTED = ("timm", "granularity.stages.pretrain.stage", "granularity.stages.finetune.stage")
SPACES = ("target", "digit", "random")
TINY = Model(args={"layers": [1, 1, 0, 0], "channels": [4, 8, 8, 8]})
BATCH, STEPS = 31, 6  # not a multiple of the processes; two epochs of 120 images
KEEP = [1]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Samples, pixels as JPEG, and three label spaces."""
    folder = tmp_path_factory.mktemp("lockstep")
    samples, pixels = folder / "samples", folder / "pixels"
    tasks.run("samples", samples, {"validation": 60, "train_size": 120})
    tasks.run("pixels", pixels, {"format": "jpeg", "mode": "L", "size": 10}, samples=samples)
    made_space(folder / "target", samples, "manual", {"rank": "loops"})
    made_space(folder / "digit", samples, "manual", {"rank": "digit"})
    made_space(folder / "random", samples, "random", {"classes": 5})
    spaces = [str(folder / name) for name in SPACES]
    return {"samples": str(samples), "pixels": str(pixels), "hierarchy": spaces}


def recipe(**over) -> Recipe:
    augment = {"crop": 8, "flip": True}
    return Recipe(
        **{"lr": 0.05, "batch_size": BATCH, "epochs": 2, "warmup_epochs": 0.5, "stack": 1, "augment": augment, **over}
    )


def runs_of(spaces: tuple[str, ...], seeds: int = 1, finetune_seed: int | None = None) -> list[str]:
    found = [Run(space, seed, finetune_seed, "") for space in spaces for seed in range(seeds)]
    return [replace(one, id=f"{zlib.crc32(repr(one).encode()):08x}").name for one in found]


CALL = """
import os, signal
from pathlib import Path
from granularity.base.errors import GranularityError
from granularity.learning import feed, lockstep, views
from granularity.store import checkpoints
from support import tasks
{before}
stage, output, values = {call!r}
tasks.run(stage, Path(output), values, threads=values["arms"], **{inputs!r})
"""


@pytest.fixture(scope="module")
def train(inputs, processes):
    """Pretrain several arms in so many processes; `before` are lines of Python that each runs first."""

    def go(output: Path, arms: int, before: str = "", options: Recipe | None = None, seeds: int = 1) -> Ended | None:
        values = {"recipe": (options or recipe()).model_dump(mode="json"), "model": TINY.model_dump(mode="json")}
        values |= {"runs": runs_of(SPACES, seeds), "arms": arms, "keep": KEEP}
        if arms == 1:
            tasks.run("pretrain", output, values, **inputs)
            return None
        call = CALL.format(before=before, call=("pretrain", str(output), values), inputs=inputs)
        return processes(arms, call, GRANULARITY_READERS="0")

    return go


@pytest.fixture(scope="module")
def separate(tmp_path_factory, train):
    """The arms, one after another in one process."""
    folder = tmp_path_factory.mktemp("separate") / "out"
    train(folder, 1)
    return Artifact.open(folder)


def at_read(step: int, rank: int, what: str) -> str:
    """Lines that make one process do something when it is to read its part of a step."""
    return f"""
read = feed.Feed.__call__
def disturbed(self, step):
    if rank == {rank} and step == {step}:
        {what}
    return read(self, step)
feed.Feed.__call__ = disturbed
"""


def files_of(artifact: Artifact) -> dict[str, bytes]:
    """Every file of a result but its manifest, which names the command and the time."""
    files = [path for path in artifact.path.rglob("*") if path.is_file() and path.name != "manifest.json"]
    return {str(path.relative_to(artifact.path)): path.read_bytes() for path in files}


# ---------------------------------------------------------------- as separate trainings


@pytest.mark.parametrize("arms", [2, 3])
def test_arms_in_lockstep_are_those_of_separate_trainings(tmp_path, train, separate, arms):
    """Three arms in two processes as well: then one process only reads in the second round."""
    ended = train(tmp_path / "out", arms)
    assert ended.status == [0] * arms, ended.said
    made = Artifact.open(tmp_path / "out")
    assert files_of(made) == files_of(separate)
    assert made.digest == separate.digest
    assert "arms" not in made.params


def test_each_image_is_read_once_for_all(tmp_path, train):
    log = tmp_path / "read"
    logged = f"""
view = views.training_view
def counted(picture, options, side, seed, step, place):
    print(seed, step, place, file=open({str(log)!r}, "a"))
    return view(picture, options, side, seed, step, place)
views.training_view = counted
"""
    ended = train(tmp_path / "out", 3, logged, seeds=2)
    assert ended.status == [0] * 3, ended.said
    read = log.read_text().splitlines()
    assert len(read) == len(set(read)) == 2 * STEPS * BATCH


def test_finetuning_in_lockstep(tmp_path, train, processes, inputs, separate):
    given = {role: inputs[role] for role in ("samples", "pixels")} | {"pretrain": [str(separate.path)]}
    values = {"recipe": recipe().model_dump(mode="json"), "runs": runs_of(SPACES, finetune_seed=0), "keep": True}
    one = tasks.run("finetune", tmp_path / "one", values, **given)
    call = ("finetune", str(tmp_path / "several"), values | {"arms": 3})
    ended = processes(3, CALL.format(before="", call=call, inputs=given))
    assert ended.status == [0] * 3, ended.said
    assert files_of(Artifact.open(tmp_path / "several")) == files_of(one)


def test_images_that_lie_in_memory_are_not_exchanged(tmp_path, processes, inputs, digits, digits_pixels):
    spaces = [made_space(tmp_path / name, digits, "random", {"classes": 4}) for name in ("first", "second")]
    given = {"samples": str(digits), "pixels": str(digits_pixels), "hierarchy": [str(space) for space in spaces]}
    values = {"recipe": recipe(augment={"flip": True}).model_dump(mode="json"), "runs": runs_of(("first", "second"))}
    values |= {"model": TINY.model_dump(mode="json")}
    one = tasks.run("pretrain", tmp_path / "one", values, **given)
    call = ("pretrain", str(tmp_path / "several"), values | {"arms": 2})
    before = "lockstep.processes.joined = None"
    ended = processes(2, CALL.format(before=before, call=call, inputs=given))
    assert ended.status == [0, 0], ended.said
    assert files_of(Artifact.open(tmp_path / "several")) == files_of(one)


def test_runs_of_one_seed_are_trained_at_the_same_time():
    runs = [Run(space, seed, None, "") for space in "abc" for seed in range(2)]
    groups = [[(runs[i].space, runs[i].pretrain_seed) for i in group] for group in in_lockstep(runs, 2)]
    assert groups == [[("a", 0), ("b", 0)], [("c", 0)], [("a", 1), ("b", 1)], [("c", 1)]]
    assert in_lockstep(runs, 1) == [[0], [2], [4], [1], [3], [5]]


# ---------------------------------------------------------------- stopped and resumed


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_signal_at_any_process_stops_all_and_they_resume_to_the_same_bytes(tmp_path, train, separate, rank):
    ended = train(tmp_path / "out", 3, at_read(2, rank, "os.kill(os.getpid(), signal.SIGUSR1)"))
    assert ended.status[rank] == 128 + 10
    assert 0 not in ended.status
    assert ended.said == ["stopped: SIGUSR1; finished work is kept, and the next run goes on from there"]
    log = tmp_path / "steps"
    logged = f"""
read = feed.Feed.__call__
def noted(self, step):
    if self._steps == {STEPS}:  # not in evaluation
        print(step, file=open({str(log)!r}, "a"))
    return read(self, step)
feed.Feed.__call__ = noted
"""
    ended = train(tmp_path / "out", 3, logged)
    assert ended.status == [0] * 3, ended.said
    assert min(map(int, log.read_text().split())) == 4  # all had stopped after the step in which all knew
    assert Artifact.open(tmp_path / "out").digest == separate.digest


@pytest.mark.parametrize("rank", [0, 1])
def test_after_a_kill_each_goes_on_from_its_own_checkpoint(tmp_path, train, separate, rank):
    """The one that is killed saves nothing, the others after each step."""
    before = f"checkpoints.CHECKPOINT_SECONDS = 1e9 if rank == {rank} else 0.0\n"
    ended = train(tmp_path / "out", 3, before + at_read(4, rank, "os.kill(os.getpid(), signal.SIGKILL)"))
    assert ended.status[rank] == -9
    assert 0 not in ended.status
    assert all(line.startswith("error: another process of this job ended (") for line in ended.said)
    assert not (tmp_path / "out").exists()
    assert train(tmp_path / "out", 3).status == [0] * 3
    assert Artifact.open(tmp_path / "out").digest == separate.digest


# ---------------------------------------------------------------- what goes wrong


def test_an_arm_that_fails_lets_the_others_finish(tmp_path, train, separate):
    """They are not trained again."""
    fails = """
from granularity.learning import trainings
minimise = trainings.minimise
def failing(*args, **kwargs):
    if rank == 1:
        args[2](0)
        raise GranularityError("the training loss is [nan] in epoch 1")
    return minimise(*args, **kwargs)
trainings.minimise = failing
"""
    ended = train(tmp_path / "out", 3, fails)
    assert 0 not in ended.status
    assert "error: the training loss is [nan] in epoch 1" in ended.said
    log = tmp_path / "trained"
    logged = f"""
from granularity.learning import trainings
minimise = trainings.minimise
def noted(*args, **kwargs):
    print(rank, file=open({str(log)!r}, "a"))
    return minimise(*args, **kwargs)
trainings.minimise = noted
"""
    assert train(tmp_path / "out", 3, logged).status == [0] * 3
    assert log.read_text().split() == ["1"]
    assert Artifact.open(tmp_path / "out").digest == separate.digest


@pytest.mark.parametrize("rank", [0, 2])
def test_an_image_that_one_cannot_read_is_one_line(tmp_path, train, rank):
    ended = train(tmp_path / "out", 3, at_read(2, rank, "raise GranularityError('image 7 cannot be read')"))
    assert 0 not in ended.status
    assert [line for line in ended.said if "image 7" in line] == ["error: image 7 cannot be read"]


def test_networks_that_would_be_stacked_are_refused(tmp_path, processes, inputs):
    """In lockstep they would have other last bits."""
    values = {"recipe": recipe(stack=None, batch_size=30).model_dump(mode="json"), "runs": runs_of(SPACES)}
    values |= {"model": {"args": {"layers": [1, 1, 1, 0], "channels": [8, 16, 32, 32]}}, "arms": 2}
    call = ("pretrain", str(tmp_path / "out"), values)
    ended = processes(2, CALL.format(before="", call=call, inputs=inputs))
    assert 0 not in ended.status
    assert len(ended.said) == 1
    assert "set jobs.arms: 1, or stack: 1" in ended.said[0]


def test_parts_of_any_batch_make_the_whole(processes):
    code = """
import torch
from granularity.machine import processes
@processes.together
def stage():
    processes.meet(torch.device("cpu"))
    for count in (1, 2, 3, 7):
        whole = torch.arange(count * 2, dtype=torch.uint8).view(count, 2)
        with processes.each_alone():
            assert torch.equal(processes.joined(whole[processes.share_of_all(count)], count), whole)
stage()
"""
    ended = processes(3, code)
    assert ended.status == [0] * 3, ended.said
