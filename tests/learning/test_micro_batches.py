"""Batches in parts: their gradients, their batch normalisation, and number formats."""

import pytest
import torch

from granularity.learning.data import dataset
from granularity.learning.data.dataset import Data
from granularity.learning.options import Augment, Model
from granularity.learning.training.batch_norm import RunningMoments
from granularity.learning.training.evaluation import predict
from granularity.store.artifact import Artifact
from support.trainings import CPU, TINY, close, pretraining, recipe, weights_of

NO_BATCH_NORM = Model(args={**TINY, "norm_layer": "groupnorm1"})
RUN = pretraining("manual-digit")


@pytest.mark.parametrize("space", ["manual-digit", "wordnet-1"], ids=["one label", "several labels"])
def test_gradients_of_micro_batches_are_those_of_the_batch(tmp_path, pretrain_on, space):
    """Of 8 steps with momentum, augmentation too, without batch normalisation."""
    values = {"lr": 0.02, "augment": {"flip": True, "pad": 1, "crop": 7}}
    run = pretraining(space)
    whole = pretrain_on(tmp_path / "whole", [run], recipe(**values), NO_BATCH_NORM)
    parts = pretrain_on(tmp_path / "parts", [run], recipe(**values, micro_batch=6), NO_BATCH_NORM)
    assert close(weights_of(whole), weights_of(parts))
    losses = [made.table("history.parquet")["train_loss"] for made in (whole, parts)]
    assert losses[0].tolist() == pytest.approx(losses[1].tolist(), rel=1e-5)


def test_running_moments_move_once_a_step_by_the_mean_of_the_parts():
    layer = torch.nn.BatchNorm1d(3, momentum=0.25)
    start = layer.running_mean.clone(), layer.running_var.clone()
    parts = torch.randn(4, 8, 3, generator=torch.Generator().manual_seed(0)) * 3 + 2
    moments = RunningMoments(torch.nn.Sequential(torch.nn.Linear(3, 3), layer))
    for order in (parts, parts.flip(0)):
        layer.reset_running_stats()
        moments.begin()
        for part in order:
            layer(part)
            moments.add()
        moments.end(len(parts))
        for found, before, of in zip((layer.running_mean, layer.running_var), start, ("mean", "var"), strict=True):
            expected = 0.75 * before + 0.25 * getattr(parts, of)(1).mean(0)
            torch.testing.assert_close(found, expected)


def test_a_compiled_network_learns_the_same_and_resumes_to_the_same_bytes(
    tmp_path, pretrain_on, kill_at, checkpoint_always
):
    model, short = Model(args={**TINY, "layers": [1, 1, 0, 0]}), {"epochs": 1, "lr": 0.01}
    short["micro_batch"] = 15
    parts = pretrain_on(tmp_path / "parts", [RUN], recipe(**short), model)
    compiled = pretrain_on(tmp_path / "compiled", [RUN], recipe(**short, compile=True), model)
    assert close(weights_of(parts), weights_of(compiled), 1e-4)
    kill_at(dataset, "augment", 3)
    with pytest.raises(kill_at.Killed):
        pretrain_on(tmp_path / "resumed", [RUN], recipe(**short, compile=True), model)
    kill_at(dataset, "augment", None)
    assert pretrain_on(tmp_path / "resumed", [RUN], recipe(**short, compile=True), model).digest == compiled.digest


def test_evaluation_is_in_the_precision_of_the_training(tmp_path, pretrain_on, digits, digits_pixels):
    data = Data(Artifact.open(digits), Artifact.open(digits_pixels), CPU)
    layer = torch.nn.Linear(64, 64)
    seen = []

    def forward(images):
        seen.append(layer(images.flatten(1)))
        return seen[-1]

    found = {one: predict(forward, data, data.val, Augment(), one) for one in ("float32", "tf32", "bfloat16")}
    assert [one.dtype for one in seen] == [torch.float32, torch.float32, torch.bfloat16]
    assert all(one.dtype == torch.float32 for one in found.values())
    assert torch.equal(found["float32"], found["tf32"]) and not torch.equal(found["float32"], found["bfloat16"])
    about = pretrain_on(tmp_path / "half", [RUN], recipe(precision="bfloat16"))
    assert about.facts["recipe"]["precision"] == "bfloat16"
