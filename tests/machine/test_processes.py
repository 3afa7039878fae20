"""One network trained by several processes, on CPUs: what one process learns, and one end for all."""

import contextlib
import ipaddress
import json
import os
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from granularity.learning.options import Model, Recipe
from granularity.machine import leases
from granularity.store.artifact import Artifact
from support import tasks, trainings
from support.trainings import finetuning, made_space, pretraining, weights_of

TINY = Model(args={"layers": [1, 1, 0, 0], "channels": [4, 8, 8, 8]})


@pytest.fixture(scope="module")
def target(digits) -> Path:
    return made_space(digits.parent / "together" / "target", digits, "manual", {"rank": "loops"})


def recipe(**over) -> Recipe:
    return trainings.recipe(**{"lr": 0.05, "micro_batch": 5, **over})


# A stage in several processes, after some lines that disturb it.
CALL = """
import os, signal
from pathlib import Path
from granularity.base.errors import GranularityError
from granularity.learning.data import dataset
from granularity.machine.processes import rank
from granularity.store import resume
from support import tasks
{before}
stage, output, values = {call!r}
tasks.run(stage, Path(output), values, threads=values["processes"], **{inputs!r})
"""


@pytest.fixture(scope="module")
def train(digits, digits_pixels, target, processes):
    """Pretrain in so many processes; `before` are lines of Python that run first."""

    def go(
        output: Path, size: int, options: Recipe, before: str = "", keep: list[int] | None = None, model: Model = TINY
    ) -> types.SimpleNamespace | None:
        values = {"recipe": options.model_dump(mode="json"), "model": model.model_dump(mode="json")}
        values |= {"runs": [pretraining("target").name], "processes": size, "keep": keep or []}
        inputs = {"samples": str(digits), "pixels": str(digits_pixels), "hierarchy": [str(target)]}
        if size == 1:
            tasks.run("pretrain", output, values, **inputs)
            return None
        return processes(CALL.format(before=before, call=("pretrain", str(output), values), inputs=inputs))

    return go


def at_step(step: int | None, rank: int, what: str) -> str:
    """Lines that make one process do something when it has the images of a step, or of every step."""
    return f"""
augment = dataset.augment
def disturbed(images, options, seed, step, **rest):
    if rank() == {rank} and {step} in (step, None):
        {what}
    return augment(images, options, seed, step, **rest)
dataset.augment = disturbed
"""


def apart(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> float:
    """The largest relative difference of two networks' tensors."""
    assert first.keys() == second.keys()
    return max(
        ((value.double() - second[name].double()).norm() / value.double().norm().clamp(min=1e-12)).item()
        for name, value in first.items()
    )


# ---------------------------------------------------------------- as one process

NO_MOMENTS = Model(args={**TINY.args, "norm_layer": "groupnorm1"})
SAME = {
    "micro-batches": (2, TINY, recipe()),
    "unequal parts": (
        3,
        NO_MOMENTS,
        recipe(batch_size=31, micro_batch=None, augment={"flip": True, "pad": 1, "crop": 7}),
    ),
    "adamw": (2, TINY, recipe(optimizer="adamw", lr=1e-3, clip_norm=0.5, loss="sigmoid", head_bias=-2)),
}


@pytest.mark.parametrize("name", SAME)
def test_several_processes_learn_what_one_learns(tmp_path, train, name):
    size, model, options = SAME[name]
    train(tmp_path / "one", 1, options, model=model)
    ended = train(tmp_path / "several", size, options, model=model)
    assert ended.status == 0 and len(ended.said) == 1, ended.said  # the progress of the first
    one, several = (Artifact.open(tmp_path / folder) for folder in ("one", "several"))
    assert apart(weights_of(one), weights_of(several)) < 1e-4
    histories = [artifact.table("history.parquet")["train_loss"] for artifact in (one, several)]
    np.testing.assert_allclose(*histories, rtol=1e-5)
    assert one.table("runs.parquet")["val_error"][0] == several.table("runs.parquet")["val_error"][0]
    assert (one.params["processes"], several.params["processes"]) == (1, size)
    assert sorted(path.name for path in tmp_path.glob("[!.]*")) == ["one", "one.stamp", "several", "several.stamp"]


def test_finetuning_in_several_processes(tmp_path, train, processes, digits, digits_pixels):
    """A frozen backbone as well: its batch normalisation is that of evaluation."""
    train(tmp_path / "pre", 1, recipe())
    for name, options in (("whole", recipe()), ("head", recipe(freeze_backbone=True, micro_batch=None))):
        inputs = {"samples": str(digits), "pixels": str(digits_pixels), "pretrain": [str(tmp_path / "pre")]}
        values = {"recipe": options.model_dump(mode="json"), "runs": [finetuning("target").name]}
        tasks.run("finetune", tmp_path / name / "one", values, **inputs)
        call = ("finetune", str(tmp_path / name / "several"), {**values, "processes": 2})
        ended = processes(CALL.format(before="", call=call, inputs=inputs))
        assert ended.status == 0, ended.said
        one, several = (Artifact.open(tmp_path / name / folder, "finetune") for folder in ("one", "several"))
        assert one.table("predictions.parquet").equals(several.table("predictions.parquet"))
        histories = [artifact.table("history.parquet")["train_loss"] for artifact in (one, several)]
        np.testing.assert_allclose(*histories, rtol=1e-5)


# What two processes do that are launched for a stage; `run` is what it does.
LAUNCHED = """
import os, types, torch
from pathlib import Path
from granularity import cli
from granularity.learning.training.loop import minimise
from granularity.learning.options import Recipe
from granularity.machine import launch, leases, processes
folder = Path({folder!r})
{run}
torch.backends.cuda.is_built = lambda: {cuda}
launch.importlib = types.SimpleNamespace(import_module=lambda name: types.SimpleNamespace(run=run))
task = types.SimpleNamespace(stage=types.SimpleNamespace(module="stage"), device="auto")
raise SystemExit(launch.launch(task, 2, cli.told))
"""
DRAW = """
def run(task):
    processes.meet(torch.device("cpu"))
    network, drawn = torch.nn.Linear(1, 1), []
    def gradients_at(step):
        drawn.append(torch.rand(1).item())
        network(torch.ones(1, 1)).sum().backward()
        return torch.zeros(())
    sgd = torch.optim.SGD(network.parameters(), 0.1)
    minimise(network, Recipe(epochs=1, warmup_epochs=0), gradients_at, 3, 5, optimizer=sgd)
    (folder / str(processes.rank())).write_text(repr(drawn))
"""


def test_dropout_differs_from_process_to_process(processes, tmp_path):
    """Otherwise images of one place in every part would lose the same units."""
    ended = processes(LAUNCHED.format(run=DRAW, folder=str(tmp_path), cuda=False))
    assert ended.status == 0, ended.said
    first, second = ((tmp_path / name).read_text() for name in "01")
    assert first != second


# ---------------------------------------------------------------- stopped and resumed

LONG = recipe(epochs=3, augment={"flip": True, "pad": 1})  # 12 steps
KEEP = [0, 1]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, train) -> str:
    """The digest of a training in two processes that nothing disturbs."""
    folder = tmp_path_factory.mktemp("undisturbed") / "out"
    assert train(folder, 2, LONG, keep=KEEP).status == 0
    return Artifact.open(folder).digest


@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_at_any_process_stops_all_and_they_resume_to_the_same_bytes(tmp_path, train, rank, undisturbed):
    ended = train(tmp_path / "out", 2, LONG, at_step(6, rank, "os.kill(os.getpid(), signal.SIGUSR1)"), keep=KEEP)
    assert ended.status != 0
    assert ended.said == ["stopped: SIGUSR1; finished work is kept, and the next run continues from there"]
    assert not (tmp_path / "out").exists()
    log = tmp_path / "steps"
    logged = at_step(None, 1, f"print(step, file=open({str(log)!r}, 'a'))")
    ended = train(tmp_path / "out", 2, LONG, logged, keep=KEEP)
    assert ended.status == 0, ended.said
    assert log.read_text().split() == [str(step) for step in range(7, 12)]  # it went on
    assert Artifact.open(tmp_path / "out").digest == undisturbed


def test_a_signal_to_the_command_stops_all(tmp_path, train, undisturbed):
    what = "os.kill(os.getppid(), signal.SIGTERM)"
    ended = train(tmp_path / "out", 2, LONG, at_step(6, 0, what), keep=KEEP)
    assert ended.status == 128 + 15
    assert ended.said == ["stopped: SIGTERM; finished work is kept, and the next run continues from there"]
    assert train(tmp_path / "out", 2, LONG, keep=KEEP).status == 0
    assert Artifact.open(tmp_path / "out").digest == undisturbed


@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_that_is_killed_takes_the_others_down(tmp_path, train, rank, undisturbed):
    before = "resume.CHECKPOINT_SECONDS = 0.0\n" + at_step(6, rank, "os.kill(os.getpid(), signal.SIGKILL)")
    ended = train(tmp_path / "out", 2, LONG, before, keep=KEEP)
    assert ended.status == 1
    assert len(ended.said) == 1 and ended.said[0].startswith(f"error: process {rank} of 2 was killed by SIGKILL;")
    assert not (tmp_path / "out").exists()
    assert train(tmp_path / "out", 2, LONG, keep=KEEP).status == 0
    assert Artifact.open(tmp_path / "out").digest == undisturbed


# ---------------------------------------------------------------- what goes wrong

IMAGE_7 = "raise GranularityError('image 7 cannot be read')"
WRONG = {
    "all": (recipe(lr=1e30), "", "the training loss is"),
    "moments": (
        recipe(micro_batch=None),
        "",
        "processes: on CPUs, batches cannot be normalised over several processes",
    ),
    "the first": (recipe(), at_step(3, 0, IMAGE_7), "image 7 cannot be read"),
    "the second": (recipe(), at_step(3, 1, IMAGE_7), "image 7 cannot be read"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_error_is_one_line(tmp_path, train, name):
    options, before, message = WRONG[name]
    ended = train(tmp_path / "out", 2, options, before)
    assert ended.status == 1 and len(ended.said) == 1, ended.said
    assert ended.said[0].startswith("error: ") and message in ended.said[0]


LEASE = """
def run(task):
    processes.meet(torch.device("cpu"))
    leases.take()
    processes.barrier()
    (folder / f"held by {processes.rank()}").write_text(os.environ["CUDA_VISIBLE_DEVICES"])
"""


def test_a_gpu_for_each_process_is_leased_while_they_run(tmp_path, processes, monkeypatch):
    environment = {"GRANULARITY_LEASES": str(tmp_path)}
    code = LAUNCHED.format(run=LEASE, folder=str(tmp_path), cuda=True)
    ended = processes(code, CUDA_VISIBLE_DEVICES="0,1,2", **environment)
    assert ended.status == 0, ended.said
    assert {(tmp_path / f"held by {rank}").read_text() for rank in (0, 1)} == {"0,1"}
    ended = processes(code, CUDA_VISIBLE_DEVICES="0", **environment)
    assert ended.said == ["error: 2 GPUs were requested, but there are only 1 (0)"]
    monkeypatch.setenv("GRANULARITY_LEASES", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    assert leases.take(3) == ["0", "1", "2"]
    leases.release()  # another test of this process must find none


# ---------------------------------------------------------------- the command


@pytest.mark.workflow
def test_the_command_trains_as_the_workflow_starts_it_and_listens_on_loopback_alone(
    tmp_path, digits, digits_pixels, target, undisturbed
):
    values = {"recipe": LONG.model_dump(mode="json"), "model": TINY.model_dump(mode="json"), "processes": 2}
    values |= {"runs": [pretraining("target").name], "keep": KEEP}
    words = ["--samples", digits, "--pixels", digits_pixels, "--hierarchy", target, "--device", "cpu", "--threads", "2"]
    words = [sys.executable, "-m", "granularity", "pretrain", *words, "--options", json.dumps(values)]
    wide = os.environ | {"GLOO_SOCKET_IFNAME": "eth0"}  # asked for another interface
    found = set()
    command = [*map(str, words), "--output", str(tmp_path / "out")]
    with subprocess.Popen(command, env=wide, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            with contextlib.suppress(psutil.Error):  # one has ended
                started = psutil.Process(process.pid)
                for one in (started, *started.children(recursive=True)):
                    places = one.net_connections("inet")  # a UDP socket that is bound has no peer
                    heard = [place for place in places if place.status == psutil.CONN_LISTEN or not place.raddr]
                    found.update((one.pid, place.laddr.ip.removeprefix("::ffff:")) for place in heard)
            time.sleep(0.02)
        assert process.returncode == 0, process.stderr.read()
    assert Artifact.open(tmp_path / "out").digest == undisturbed
    assert len({pid for pid, _ in found}) >= 2  # a child that is just being started holds its parent's sockets
    assert all(ipaddress.ip_address(address).is_loopback for _, address in found), found
