"""Networks side by side: the numbers of each alone, and no other for its neighbours; what cannot be stacked."""

from __future__ import annotations

import pytest
import torch

from granularity.learning import dataset, stacks
from granularity.learning.dataset import Data
from granularity.learning.network import build
from granularity.learning.options import Model
from granularity.store.artifacts import Artifact
from support.trainings import CPU, TINY, equal, finetuning, pretraining, recipe, weights_of

RUNS = [pretraining(space, seed) for space in ("target", "manual-digit", "wordnet-1") for seed in range(2)]
AUGMENT = {"augment": {"flip": True, "pad": 1, "crop": 7}}
EIGHT = Model(args={"layers": [1, 1, 1, 0], "channels": [8, 16, 32, 32]})
FOUR = Model(args={"layers": [1, 1, 1, 0], "channels": [4, 4, 4, 4]})
VIT = Model(name="vit_tiny_patch16_224", args={"img_size": 8, "patch_size": 4, "embed_dim": 24}, stem="timm")


def weights(made: Artifact) -> dict[str, dict[str, torch.Tensor]]:
    table = made.table("runs.parquet")
    return {run: weights_of(made, row) for row, run in enumerate(table["run_id"])}


def close(first, second, tolerance=1e-5) -> bool:
    return first.keys() == second.keys() and all(
        torch.allclose(first[name].double(), second[name].double(), rtol=tolerance, atol=tolerance) for name in first
    )


@pytest.mark.parametrize(
    "values",
    [{}, AUGMENT, {"optimizer": "adamw", "lr": 1e-3}, {"loss": "sigmoid", "lr": 0.01}],
    ids=["sgd", "crops", "adamw", "sigmoid"],
)
def test_networks_in_a_stack_are_those_trained_alone(tmp_path, pretrain_on, values):
    """After 8 steps, with classes, losses and images of their own."""
    values = {"lr": 0.03, **values}  # rates that do not make much of the last bits
    alone = pretrain_on(tmp_path / "alone", RUNS, recipe(**values), EIGHT)
    together = pretrain_on(tmp_path / "together", RUNS, recipe(**values, stack=6), EIGHT)
    assert together.summary["stack"] == 6 and "not_stacked" not in together.summary
    expected = weights(alone)
    assert all(close(found, expected[run]) for run, found in weights(together).items())
    for table, columns in {"runs.parquet": ["train_loss", "val_error"], "history.parquet": ["train_loss"]}.items():
        first, second = alone.table(table), together.table(table)
        assert first["run_id"].equals(second["run_id"])
        for column in columns:
            assert first[column].to_list() == pytest.approx(second[column].to_list(), rel=1e-4)


@pytest.mark.parametrize("stack", [2, 3, 4])
def test_neighbours_change_no_bit(tmp_path, pretrain_on, stack):
    """Nor does a place in the stack, their number, or being the only run of a job."""
    expected = weights(pretrain_on(tmp_path / "six", RUNS, recipe(**AUGMENT, stack=6), EIGHT))
    found = weights(pretrain_on(tmp_path / "fewer", RUNS[::-1], recipe(**AUGMENT, stack=stack), EIGHT))
    found |= {"one": weights_of(pretrain_on(tmp_path / "one", [RUNS[4]], recipe(**AUGMENT, stack=stack), EIGHT))}
    expected |= {"one": expected[RUNS[4].id]}
    assert found.keys() == expected.keys()
    assert all(equal(found[run], expected[run]) for run in found)


@pytest.mark.parametrize("at", [1, 4, 11, 17])
def test_a_killed_stack_resumes_to_the_same_bytes(tmp_path, pretrain_on, kill_at, checkpoint_always, at):
    undisturbed = pretrain_on(tmp_path / "elsewhere" / "undisturbed", RUNS[:3], recipe(stack=2), EIGHT, keep=[0, 1])
    kill_at(dataset, "augment", at)
    with pytest.raises(kill_at.Killed):
        pretrain_on(tmp_path / "resumed", RUNS[:3], recipe(stack=2), EIGHT, keep=[0, 1])
    kill_at(dataset, "augment", None)
    assert pretrain_on(tmp_path / "resumed", RUNS[:3], recipe(stack=2), EIGHT, keep=[0, 1]).digest == undisturbed.digest


def test_a_stack_of_one_is_a_plain_training(tmp_path, pretrain_on):
    """And as many as pay are one, for all but small networks."""
    plain = pretrain_on(tmp_path / "plain", RUNS[:2], recipe(stack=1))
    assert plain.summary["stack"] == 1
    large = Model(args={"layers": [1, 1, 1, 1], "channels": [64, 128, 128, 128]})
    as_pays = pretrain_on(tmp_path / "large", RUNS[:2], recipe(stack=None), large)
    assert as_pays.summary["stack"] == 1
    assert equal(weights_of(as_pays), weights_of(pretrain_on(tmp_path / "one", RUNS[:2], recipe(stack=1), large)))
    assert pretrain_on(tmp_path / "small", RUNS[:2], recipe(stack=None), EIGHT).summary["stack"] > 1


@pytest.mark.parametrize(
    ("model", "values", "why"),
    [
        (VIT, {"lr": 0.01}, "a layer of the kind"),
        (Model(args={**TINY, "norm_layer": "groupnorm1"}), {"lr": 0.02}, "a layer of the kind"),
        (Model(args={**EIGHT.args, "drop_rate": 0.5}), {}, "its outputs would be others"),
        (FOUR, {}, "its last bits would depend on its neighbours"),
        (EIGHT, {"clip_norm": 1.0}, "clip_norm is for one network"),
        (EIGHT, {"micro_batch": 10}, "micro_batch is for one network"),
        (EIGHT, {"optimizer": "lamb", "lr": 1e-3}, "optimizer is for one network"),
    ],
    ids=["attention", "group norm", "dropout", "four channels", "clip_norm", "micro_batch", "lamb"],
)
def test_what_cannot_be_stacked_is_trained_one_by_one(tmp_path, capsys, pretrain_on, model, values, why):
    alone = pretrain_on(tmp_path / "alone", RUNS[:2], recipe(**values), model)
    asked = pretrain_on(tmp_path / "asked", RUNS[:2], recipe(**values, stack=4), model)
    assert why in asked.summary["not_stacked"] and asked.summary["stack"] == 1
    assert "stack = 4: these networks are trained one after another" in capsys.readouterr().err
    assert all(equal(found, weights(alone)[run]) for run, found in weights(asked).items())


def test_finetuning_in_a_stack(tmp_path, pretrain_on, finetune_on):
    """Backbones of several label spaces, with heads and orders of images of their own."""
    parents = [pretrain_on(tmp_path / "pretrained", RUNS, recipe(), EIGHT).path]
    runs = [finetuning(space, 0, seed) for space in ("target", "manual-digit") for seed in range(2)]
    alone, together = (finetune_on(tmp_path / f"{n}", runs, recipe(stack=n), parents, keep=True) for n in (1, 4))
    assert together.summary["stack"] == 4
    tables = [made.table("runs.parquet") for made in (alone, together)]
    for row, file in enumerate(tables[0]["weights"]):
        assert close(alone.tensors(file), together.tensors(tables[1]["weights"][row]))
    assert tables[0]["val_error"].to_list() == pytest.approx(tables[1]["val_error"].to_list(), abs=1)


def test_images_of_one_seed_are_read_once(tmp_path, pretrain_on, monkeypatch):
    calls = []
    real = dataset.augment
    monkeypatch.setattr(dataset, "augment", lambda *args, **more: calls.append(1) or real(*args, **more))
    one_seed = [run for run in RUNS if run.pretrain_seed == 0]
    pretrain_on(tmp_path / "arms", one_seed, recipe(stack=3), EIGHT)
    assert len(calls) == 8


def test_shapes_of_a_stack(digits, digits_pixels):
    data = Data(Artifact.open(digits), Artifact.open(digits_pixels), CPU)
    networks = [build(EIGHT, data.channels, classes, seed=classes) for classes in (3, 10, 7)]
    stacked = stacks.Stack(networks).eval()
    images = data.images(data.train[:5])
    outputs = stacked(torch.cat([images] * 3, 1))
    assert [tuple(one.shape) for one in outputs] == [(5, 3), (5, 10), (5, 7)]
    for network, found in zip(networks, outputs, strict=True):
        torch.testing.assert_close(found, network.eval()(images), rtol=1e-4, atol=1e-5)
    before = [{name: value.clone() for name, value in network.state_dict().items()} for network in networks]
    stacked.unload(networks)
    assert all(equal(network.state_dict(), old) for network, old in zip(networks, before, strict=True))
