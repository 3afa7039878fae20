"""One network trained by several processes, on CPUs: what one process learns, and one end for all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

from granularity.learning.augment import augment
from granularity.learning.options import Augment, Model, Recipe
from granularity.learning.runs import Run
from granularity.machine import leases
from granularity.store.artifacts import Artifact
from support import tasks
from support.several import Ended
from support.sockets import listeners
from support.trainings import made_space

IMPORTED = ("timm", "granularity.stages.pretrain.stage", "granularity.stages.finetune.stage")
TINY = Model(args={"layers": [1, 1, 0, 0], "channels": [4, 8, 8, 8]})


@pytest.fixture(scope="module")
def target(digits) -> Path:
    return made_space(digits.parent / "together" / "target", digits, "manual", {"rank": "loops"})


def recipe(**over) -> Recipe:
    return Recipe(**{"lr": 0.05, "batch_size": 30, "epochs": 2, "warmup_epochs": 0.5, **over})


def a_run(space: str, finetune_seed: int | None = None) -> Run:
    return Run(space, 0, finetune_seed, f"{zlib.crc32(f'{space} {finetune_seed}'.encode()):08x}")


# What each of several processes runs: a stage, after some lines that disturb it.
CALL = """
import os, signal
from pathlib import Path
from granularity.learning import dataset
from granularity.machine import processes
from granularity.store import checkpoints
from support import tasks
{before}
stage, output, values = {call!r}
tasks.run(stage, Path(output), values, threads=values["processes"], **{inputs!r})
"""


@pytest.fixture(scope="module")
def train(digits, digits_pixels, target, processes):
    """Pretrain in so many processes; `before` are lines of Python that each runs first."""

    def go(
        output: Path, size: int, options: Recipe, before: str = "", model: Model = TINY, keep: list[int] | None = None
    ) -> Ended | None:
        values = {"recipe": options.model_dump(mode="json"), "model": model.model_dump(mode="json")}
        values |= {"runs": [a_run("target").name], "processes": size, "keep": keep or []}
        inputs = {"samples": str(digits), "pixels": str(digits_pixels), "hierarchy": [str(target)]}
        if size == 1:
            tasks.run("pretrain", output, values, **inputs)
            return None
        return processes(size, CALL.format(before=before, call=("pretrain", str(output), values), inputs=inputs))

    return go


def at_step(step: int | None, rank: int, what: str) -> str:
    """Lines that make one process do something when it has the images of a step, or of every step."""
    return f"""
augment = dataset.augment
def disturbed(images, options, seed, step, **rest):
    if rank == {rank} and {step} in (step, None):
        {what}
    return augment(images, options, seed, step, **rest)
dataset.augment = disturbed
"""


def weights_of(output: Path) -> dict[str, torch.Tensor]:
    artifact = Artifact.open(output, "pretrain")
    return artifact.tensors(artifact.table("runs.parquet")["backbone"][0])


def apart(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> float:
    """The largest relative difference of two networks' tensors."""
    assert first.keys() == second.keys()
    differences = {
        name: ((value.double() - second[name].double()).norm() / value.double().norm().clamp(min=1e-12)).item()
        for name, value in first.items()
    }
    return max(differences.values())


# ---------------------------------------------------------------- as one process

SAME = {
    "batch norm": (2, recipe()),
    "unequal parts": (3, recipe(batch_size=31, augment={"flip": True, "pad": 1, "crop": 7})),
    "micro-batches": (2, recipe(micro_batch=5)),
    "adamw": (2, recipe(optimizer="adamw", lr=1e-3, clip_norm=0.5, loss="sigmoid", head_bias=-2)),
}


@pytest.mark.parametrize("name", SAME)
def test_several_processes_learn_what_one_learns(tmp_path, train, name):
    size, options = SAME[name]
    train(tmp_path / "one", 1, options)
    ended = train(tmp_path / "several", size, options)
    assert ended.status == [0] * size, ended.said
    assert len(ended.said) == 1  # the progress of the first
    one, several = (Artifact.open(tmp_path / folder) for folder in ("one", "several"))
    assert apart(weights_of(one.path), weights_of(several.path)) < 1e-4
    histories = [artifact.table("history.parquet")["train_loss"] for artifact in (one, several)]
    np.testing.assert_allclose(*histories, rtol=1e-5)
    assert one.table("runs.parquet")["val_error"][0] == several.table("runs.parquet")["val_error"][0]
    assert (one.params["processes"], several.params["processes"]) == (1, size)
    assert several.params["threads"] == 1  # of each, where the job has as many as processes
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".store",
        "one",
        "one.stamp",
        "several",
        "several.stamp",
    ]


def test_finetuning_in_several_processes(tmp_path, train, processes, digits, digits_pixels):
    """A frozen backbone as well: its batch normalisation is that of evaluation."""
    train(tmp_path / "pre", 1, recipe())
    for name, options in (("whole", recipe()), ("head", recipe(freeze_backbone=True))):
        inputs = {"samples": str(digits), "pixels": str(digits_pixels), "pretrain": [str(tmp_path / "pre")]}
        values = {"recipe": options.model_dump(mode="json"), "runs": [a_run("target", 0).name]}
        tasks.run("finetune", tmp_path / name / "one", values, **inputs)
        call = ("finetune", str(tmp_path / name / "several"), {**values, "processes": 2})
        ended = processes(2, CALL.format(before="", call=call, inputs=inputs))
        assert ended.status == [0, 0], ended.said
        one, several = (Artifact.open(tmp_path / name / folder, "finetune") for folder in ("one", "several"))
        assert one.table("predictions.parquet").equals(several.table("predictions.parquet"))
        histories = [artifact.table("history.parquet")["train_loss"] for artifact in (one, several)]
        np.testing.assert_allclose(*histories, rtol=1e-5)
        assert several.params["processes"] == 2


def test_dropout_differs_from_process_to_process(tmp_path, processes):
    """Otherwise images of one place in every part would lose the same units."""
    code = f"""
import torch
from pathlib import Path
from granularity.learning.loop import minimise
from granularity.machine import processes

@processes.together
def stage():
    processes.meet(torch.device("cpu"))
    network = torch.nn.Linear(1, 1)
    torch.nn.init.zeros_(network.weight), torch.nn.init.zeros_(network.bias)
    drawn = []
    def gradients_at(step):
        drawn.append(torch.rand(1).item())
        processes.backward(network(torch.ones(1, 1)).sum())
        for parameter in network.parameters():
            processes.total(parameter.grad)
        return torch.zeros(())
    minimise(network, torch.optim.SGD(network.parameters(), 0.1), gradients_at, 1, 3, 0, seed=5)
    Path({str(tmp_path)!r}, str(rank)).write_text(repr(drawn))

stage()
"""
    ended = processes(2, code)
    assert ended.status == [0, 0], ended.said
    first, second = ((tmp_path / name).read_text() for name in "01")
    assert first != second


@pytest.mark.parametrize("part", [slice(0, 3), slice(3, 7)])
def test_a_part_of_a_batch_is_augmented_as_in_the_whole(part):
    images = torch.rand(7, 1, 6, 6)
    options = Augment(flip=True, pad=1, crop=5)
    whole = augment(images, options, 3, 4)
    assert torch.equal(augment(images[part], options, 3, 4, among=7, part=part), whole[part])


BATCH_NORM = """
import torch
from granularity.learning.batch_norm import whole_batch
from granularity.machine import processes

def check(shape, **options):
    layer, reference = (getattr(torch.nn, f"BatchNorm{max(1, len(shape) - 2)}d")(3, **options) for _ in range(2))
    torch.manual_seed(0)
    images, factor = torch.randn(shape) * 2 + 5, torch.randn(shape)
    for parameter in layer.parameters():
        torch.nn.init.uniform_(parameter)
    reference.load_state_dict(layer.state_dict())
    part = slice(0, 1) if rank == 0 else slice(1, 5)
    mine, whole = images[part].clone().requires_grad_(), images.clone().requires_grad_()
    with whole_batch():
        found = layer(mine)
    expected = reference(whole)
    (found * factor[part]).sum().backward()
    (expected * factor).sum().backward()
    for parameter in layer.parameters():
        processes.total(parameter.grad)
    pairs = [(found, expected[part]), (mine.grad, whole.grad[part])]
    pairs += [(one.grad, other.grad) for one, other in zip(layer.parameters(), reference.parameters(), strict=True)]
    pairs += list(zip(layer.buffers(), reference.buffers(), strict=True))
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    with whole_batch():
        assert layer(images.bfloat16()).dtype == torch.bfloat16
        if layer.track_running_stats:
            values = layer.eval()(images)  # every process its own images, now
            assert torch.equal(values, layer(images))

@processes.together
def stage():
    processes.meet(torch.device("cpu"))
    for shape in [(5, 3), (5, 3, 1, 1), (5, 3, 4, 2)]:
        check(shape)
        check(shape, affine=False, track_running_stats=False)
        check(shape, momentum=None)

stage()
"""


def test_batch_norm_over_processes_is_that_of_the_whole_batch(processes):
    """Values, moments and gradients of parts of 1 and 4 images, against torch's own layer on all 5.

    Some have one pixel, so that a process has a single number a channel, of which torch knows no variance.
    """
    ended = processes(2, BATCH_NORM)
    assert ended.status == [0, 0], ended.said


# ---------------------------------------------------------------- stopped and resumed

LONG = recipe(epochs=3, augment={"flip": True, "pad": 1})  # 12 steps
KEEP = [0, 1]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, train):
    """The digest of a training that nothing disturbs, in so many processes."""
    digests = {}

    def go(size: int) -> str:
        if size not in digests:
            folder = tmp_path_factory.mktemp("undisturbed") / "out"
            assert train(folder, size, LONG, keep=KEEP).status == [0] * size
            digests[size] = Artifact.open(folder).digest
        return digests[size]

    return go


@pytest.mark.parametrize(("size", "rank"), [(2, 0), (2, 1), (3, 1)])
def test_a_signal_at_any_process_stops_all_and_they_resume_to_the_same_bytes(tmp_path, train, size, rank, undisturbed):
    ended = train(tmp_path / "out", size, LONG, at_step(6, rank, "os.kill(os.getpid(), signal.SIGUSR1)"), keep=KEEP)
    assert ended.status[rank] == 128 + 10
    assert 0 not in ended.status
    assert ended.said == ["stopped: SIGUSR1; finished work is kept, and the next run goes on from there"]
    assert not (tmp_path / "out").exists()
    log = tmp_path / "steps"
    logged = at_step(None, size - 1, f"print(step, file=open({str(log)!r}, 'a'))")
    ended = train(tmp_path / "out", size, LONG, logged, keep=KEEP)
    assert ended.status == [0] * size, ended.said
    assert log.read_text().split() == [str(step) for step in range(7, 12)]  # it went on
    assert Artifact.open(tmp_path / "out").digest == undisturbed(size)
    assert [path.name for path in tmp_path.glob(".*")] == [".store"]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_that_is_killed_takes_the_others_down(tmp_path, train, rank, undisturbed):
    before = "checkpoints.CHECKPOINT_SECONDS = 0.0\n" + at_step(6, rank, "os.kill(os.getpid(), signal.SIGKILL)")
    ended = train(tmp_path / "out", 2, LONG, before, keep=KEEP)
    assert ended.status == [-9, 1] if rank == 0 else [1, -9]
    assert len(ended.said) == 1
    assert ended.said[0].startswith("error: another process of this job ended (")
    assert not (tmp_path / "out").exists()
    assert train(tmp_path / "out", 2, LONG, keep=KEEP).status == [0, 0]
    assert Artifact.open(tmp_path / "out").digest == undisturbed(2)


# ---------------------------------------------------------------- what goes wrong


def one_error(ended: Ended, message: str) -> None:
    assert 0 not in ended.status
    assert len(ended.said) == 1, ended.said
    assert ended.said[0].startswith("error: ") and message in ended.said[0]


def test_an_error_of_all_is_one_line(tmp_path, train):
    one_error(train(tmp_path / "out", 2, recipe(lr=1e30)), "the training loss is")


@pytest.mark.parametrize("rank", [0, 1])
def test_an_error_of_one_is_one_line(tmp_path, train, rank):
    what = "raise processes.GranularityError('image 7 cannot be read')"
    one_error(train(tmp_path / "out", 2, recipe(), at_step(3, rank, what)), "image 7 cannot be read")


def test_a_corrupt_input_is_one_line(tmp_path, train, digits_pixels):
    file = digits_pixels / "pixels.npy"
    whole = file.read_bytes()
    try:
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        one_error(train(tmp_path / "out", 2, recipe()), "pixels.npy: corrupt")
    finally:
        file.write_bytes(whole)


def test_weights_that_differ_are_noticed(tmp_path, train):
    before = """
import torch
from granularity.stages.pretrain import stage as pretrain
build = pretrain.build
def differing(*args):
    network = build(*args)
    if rank == 1:
        network.conv1.weight.data[0] += 1e-6
    return network
pretrain.build = differing
"""
    one_error(train(tmp_path / "out", 2, recipe(), before), "the weights of process 1 are not those of process 0")


def test_processes_on_different_devices_are_noticed(processes):
    code = """
import torch
from granularity.machine import processes
stage = processes.together(lambda: processes.meet(torch.device("cuda" if rank else "cpu")))
stage()
"""
    one_error(processes(2, code), "; set the device")


@pytest.mark.parametrize("stranger", [0, 1])
def test_a_stranger_is_noticed(processes, stranger):
    """One that has taken the place of a process at its connections, but cannot read the file."""
    code = f"""
import torch
from granularity.machine import processes
exchange = processes.dist.all_to_all_single
def guess(found, mine):
    exchange(found, torch.zeros_like(mine))
    own = slice(rank * processes.BYTES_OF_PROOF, (rank + 1) * processes.BYTES_OF_PROOF)
    found[own] = mine[own]
if rank == {stranger}:
    processes.dist.all_to_all_single = guess
processes.together(lambda: (processes.meet(torch.device("cpu")), processes.barrier()))()
"""
    ended = processes(2, code)
    assert 0 not in ended.status, ended
    assert f"as process {stranger} is not of this job" in ended.errors[1 - stranger], ended


def test_other_stages_refuse_several_processes(processes):
    code = "from granularity.machine.device import torch_device\ntorch_device('cpu', 1)"
    ended = processes(2, code)
    assert ended.status == [1, 1]
    assert "only embed, pretrain and finetune are for several processes" in ended.errors[0]


# ---------------------------------------------------------------- leases

LEASE = """
import os, sys, time
from granularity.machine import leases, processes
leases.SECONDS_BETWEEN_LOOKS = 0.005
def stage():
    processes.lease_gpus()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert list(leases._held) == [str(rank)]
    processes.meet(processes.torch.device("cpu"))
    processes.barrier()
    {then}
processes.together(stage)()
"""


@pytest.fixture
def three_gpus(tmp_path, monkeypatch) -> dict[str, str]:
    environment = {"CUDA_VISIBLE_DEVICES": "0,1,2", "GRANULARITY_LEASES": str(tmp_path)}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return environment


def test_each_process_holds_the_lease_of_its_own_gpu_until_it_dies(processes, three_gpus):
    then = """
    if rank == 1:
        os.kill(os.getpid(), 9)
    while leases._is_leased("1"):
        time.sleep(0.005)
    sys.exit(7 if leases.free(2) == ["0", "1"] and "0" in leases._held else 8)
"""
    assert processes(2, LEASE.format(then=then.strip()), **three_gpus).status == [7, -9]
    assert leases.free(3) == ["0", "1", "2"]


def test_more_processes_than_gpus_is_an_error(tmp_path, processes):
    ended = processes(2, LEASE.format(then=""), CUDA_VISIBLE_DEVICES="0", GRANULARITY_LEASES=str(tmp_path))
    one_error(ended, "2 GPUs are asked for, but there are only 1")


# ---------------------------------------------------------------- with the launcher


@pytest.fixture
def command(digits, digits_pixels, target):
    """The words of a pretraining in two processes, without those of the launcher and the output."""

    def words(options: Recipe) -> list[str]:
        values = {"recipe": options.model_dump(mode="json"), "model": TINY.model_dump(mode="json"), "processes": 2}
        values |= {"runs": [a_run("target").name], "keep": KEEP}
        inputs = ["--samples", digits, "--pixels", digits_pixels, "--hierarchy", target, "--device", "cpu"]
        return [str(word) for word in ["pretrain", *inputs, "--options", json.dumps(values)]]

    return words


LAUNCH = [sys.executable, "-m", "granularity.machine.launch"]


@pytest.mark.workflow
def test_the_command_trains_as_the_workflow_starts_it(tmp_path, command, undisturbed):
    done = subprocess.run(
        [*LAUNCH, "2", *command(LONG), "--threads", "2", "--output", str(tmp_path / "out")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert Artifact.open(tmp_path / "out").digest == undisturbed(2)
    # One line from a command line that is wrong, too.
    done = subprocess.run([*LAUNCH, "2", "inspect", str(tmp_path / "nowhere")], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1


def machines(meet: Path, words: list[str], output: Path) -> list[subprocess.Popen]:
    """Start a training on two machines that are one."""
    meet.mkdir(mode=0o700)
    options = ["--machines", "2", "--meet", str(meet)]
    return [
        subprocess.Popen(
            [*LAUNCH, *options, "--machine", str(machine), "1", *words, "--threads", "1", "--output", str(output)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for machine in (0, 1)
    ]


@pytest.mark.workflow
def test_two_machines_learn_what_one_learns(tmp_path, command, undisturbed):
    both = machines(tmp_path / "meet", command(LONG), tmp_path / "out")
    said = [one.communicate(timeout=300)[1] for one in both]
    assert [one.returncode for one in both] == [0, 0], said
    assert Artifact.open(tmp_path / "out").digest == undisturbed(2)


@pytest.mark.workflow
def test_a_process_that_is_killed_on_one_machine_ends_those_of_the_other(tmp_path, command):
    both = machines(tmp_path / "meet", command(recipe(epochs=100_000)), tmp_path / "out")
    (worker,) = wait_for(lambda: connected(both[1].pid))
    os.kill(worker, signal.SIGKILL)
    said = [one.communicate(timeout=300)[1] for one in both]
    assert [one.returncode for one in both] == [1, 1], said
    assert said[0].startswith("error: another process of this job ended (") and said[0].count("\n") == 1
    assert said[1].startswith("error: process 1 of 2 was killed by SIGKILL;") and said[1].count("\n") == 1


def connected(launcher: int) -> list[int]:
    """The processes of a launcher that listen, as they do once they have met."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    return [pid for pid in map(int, children) if listeners([pid])]


def wait_for(condition):
    deadline = time.monotonic() + 120
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found
