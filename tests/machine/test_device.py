"""What must hold on whatever this machine computes on: a GPU where there is one, and else the CPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from granularity.learning.data import dataset
from granularity.stages.measure.logistic import Axes, Problem, fit
from granularity.stages.measure.measures import probe
from granularity.store.artifact import Artifact
from support import tasks
from support.encoders import options, train
from support.trainings import MODEL, equal, made_space, pretraining, recipe, weights_of

GPUS = torch.cuda.device_count()
DEVICE = "cuda" if GPUS else "cpu"
RUN = pretraining("target")
AUGMENT = {"flip": True, "pad": 1, "crop": 7}
HALF = {"precision": "bfloat16", "micro_batch": 10}
RECIPES = {"tf32": {"precision": "tf32"}, "bfloat16": HALF | {"augment": AUGMENT}}
if GPUS:  # on a CPU, tests/learning/test_trainings.py and test_micro_batches.py have these
    RECIPES |= {"float32": {"augment": AUGMENT}, "compiled": HALF | {"compile": True}}
    RECIPES |= {"adamw": {"optimizer": "adamw", "lr": 1e-3, "clip_norm": 1}}


@pytest.fixture(scope="module")
def target(digits) -> Path:
    return made_space(digits.parent / "device" / "target", digits, "manual", {"rank": "loops"})


@pytest.fixture
def pretrain(digits, digits_pixels, target):
    def go(output: Path, device: str = DEVICE, **over) -> Artifact:
        values = {"recipe": recipe(**over), "model": MODEL, "runs": [RUN.name]}
        inputs = {"samples": digits, "pixels": digits_pixels, "hierarchy": [target]}
        return tasks.run("pretrain", output, values, device=device, **inputs)

    return go


@pytest.mark.parametrize("name", RECIPES)
def test_a_killed_training_resumes_to_the_same_bytes(tmp_path, pretrain, kill_at, checkpoint_always, name):
    undisturbed = pretrain(tmp_path / "elsewhere" / "undisturbed", **RECIPES[name])
    kill_at(dataset, "augment", 6)
    with pytest.raises(kill_at.Killed):
        pretrain(tmp_path / "resumed", **RECIPES[name])
    kill_at(dataset, "augment", None)
    assert pretrain(tmp_path / "resumed", **RECIPES[name]).digest == undisturbed.digest


def test_images_that_are_read_ahead_are_those_that_lie_in_memory(tmp_path, pretrain, monkeypatch):
    near = pretrain(tmp_path / "near", augment=AUGMENT)
    monkeypatch.setattr(dataset, "RESIDENT_SHARE", 0.0)
    monkeypatch.setattr(dataset.Data, "_is_near", False)
    monkeypatch.setenv("GRANULARITY_READERS", "2")
    assert equal(weights_of(pretrain(tmp_path / "far", augment=AUGMENT)), weights_of(near))


def test_an_embedding_is_made_again_alike_and_is_that_of_a_cpu(tmp_path, digits):
    train(options(), digits, tmp_path / "encoder")
    inputs = {"samples": digits, "encoder": tmp_path / "encoder"}
    made = [tasks.run("embed", tmp_path / f"{i}", options(), device=DEVICE, **inputs) for i in range(2)]
    assert made[0].digest == made[1].digest
    here, cpu = (
        one.array("embedding.npy") for one in (made[0], tasks.run("embed", tmp_path / "cpu", options(), **inputs))
    )
    np.testing.assert_allclose(here, cpu, atol=1e-5)


def test_probes_are_made_again_alike_and_are_those_of_a_cpu():
    generator = torch.Generator().manual_seed(0)
    labels = [torch.arange(400) % 7, torch.arange(400) % 3]
    centres = torch.randn(7, 24, generator=generator)
    values = centres[labels[0]] + torch.randn(400, 24, generator=generator)
    problems = [Problem(i, classes, l2) for i, classes in enumerate((7, 3)) for l2 in (1e-3, 1.0)]

    def scores(device: torch.device) -> torch.Tensor:
        axes = Axes.of(values, device)
        rows, own = axes.all(values, torch.arange(400)), [one.to(device) for one in labels]
        return (axes(values.to(device, torch.float64)) @ fit(rows, own, problems, axes.variance).T).cpu()

    def near(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        return probe.neighbours(values[:300], values[300:], 5, device)

    here, cpu = torch.device(DEVICE), torch.device("cpu")
    assert torch.equal(scores(here), scores(here))
    torch.testing.assert_close(scores(here), scores(cpu), atol=2e-2, rtol=1e-2)
    assert all(torch.equal(one, again) for one, again in zip(near(here), near(here), strict=True))
    torch.testing.assert_close(near(here)[0], near(cpu)[0], atol=1e-5, rtol=0)
    assert (near(here)[1] == near(cpu)[1]).double().mean() > 0.99


def test_two_processes_learn_what_one_learns(tmp_path, pretrain, digits, digits_pixels, target):
    """Through the command, which starts them; each wants a GPU of its own, so with a single one they use the CPU."""
    device = "cpu" if GPUS == 1 else DEVICE
    one = pretrain(tmp_path / "one", device, micro_batch=15)
    values = {"recipe": recipe(micro_batch=15).model_dump(), "model": MODEL.model_dump(), "runs": [RUN.name]}
    words = [sys.executable, "-m", "granularity", "pretrain", "--options", json.dumps(values | {"processes": 2})]
    for role, path in {"samples": digits, "pixels": digits_pixels, "hierarchy": target}.items():
        words += [f"--{role}", str(path)]
    words += ["--device", device, "--threads", "2", "--output", str(tmp_path / "two")]
    ended = subprocess.run(words, capture_output=True, text=True, env=os.environ, check=False)
    assert ended.returncode == 0, ended.stderr
    first, second = weights_of(one), weights_of(Artifact.open(tmp_path / "two"))
    assert all(torch.allclose(first[name].double(), second[name].double(), atol=1e-4) for name in first)
