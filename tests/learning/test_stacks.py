"""Networks side by side: the numbers of each alone, and no other for its neighbours; what cannot be stacked."""

import shutil

import pytest
import torch

from granularity.learning.data import dataset
from granularity.learning.options import Model
from granularity.learning.training import stacks
from granularity.store.artifact import Artifact
from support.trainings import TINY, close, equal, finetuning, pretraining, recipe, weights_of

RUNS = [pretraining(space, seed) for space in ("target", "manual-digit", "wordnet-1") for seed in range(2)]
AUGMENT = {"augment": {"flip": True, "pad": 1, "crop": 7}}
EIGHT = Model(args={"layers": [1, 1, 1, 0], "channels": [8, 16, 32, 32]})
TWELVE = Model(args={"layers": [1, 1, 1, 1], "channels": [12, 12, 12, 12]})
VIT = Model(name="vit_tiny_patch16_224", args={"img_size": 8, "patch_size": 4, "embed_dim": 24}, stem="timm")


def weights(made: Artifact) -> dict[str, dict[str, torch.Tensor]]:
    table = made.table("runs.parquet")
    return {run: weights_of(made, row) for row, run in enumerate(table["run_id"])}


@pytest.fixture
def stacked(monkeypatch):
    """Let so many networks pay, whatever their size."""
    return lambda count: monkeypatch.setattr(stacks, "size_of", lambda *given: count)


@pytest.mark.parametrize(
    "values",
    [{}, AUGMENT, {"optimizer": "adamw", "lr": 1e-3}, {"loss": "sigmoid", "lr": 0.01}],
    ids=["sgd", "crops", "adamw", "sigmoid"],
)
def test_networks_in_a_stack_are_those_trained_alone(tmp_path, pretrain_on, stacked, values):
    """After 8 steps, with classes, losses and images of their own."""
    values = {"lr": 0.03, **values}  # rates that do not make much of the last bits
    stacked(1)
    alone = pretrain_on(tmp_path / "elsewhere" / "alone", RUNS, recipe(**values), EIGHT)
    stacked(6)
    together = pretrain_on(tmp_path / "together", RUNS, recipe(**values), EIGHT)
    assert (alone.summary["stack"], together.summary["stack"]) == (1, 6)
    expected = weights(alone)
    assert all(close(found, expected[run]) for run, found in weights(together).items())
    for table, columns in {"runs.parquet": ["train_loss", "val_error"], "history.parquet": ["train_loss"]}.items():
        first, second = alone.table(table), together.table(table)
        assert first["run_id"].equals(second["run_id"])
        for column in columns:
            assert first[column].to_list() == pytest.approx(second[column].to_list(), rel=1e-4)


@pytest.mark.parametrize("count", [2, 3])
def test_neighbours_change_no_bit(tmp_path, pretrain_on, stacked, count):
    """Nor does a place in the stack, their number, or being the only run of a job."""
    stacked(6)
    expected = weights(pretrain_on(tmp_path / "six", RUNS, recipe(**AUGMENT), EIGHT))
    stacked(count)
    found = weights(pretrain_on(tmp_path / "fewer", RUNS[::-1], recipe(**AUGMENT), EIGHT))
    found |= {"one": weights_of(pretrain_on(tmp_path / "one", [RUNS[4]], recipe(**AUGMENT), EIGHT))}
    expected |= {"one": expected[RUNS[4].id]}
    assert found.keys() == expected.keys()
    assert all(equal(found[run], expected[run]) for run in found)


@pytest.mark.parametrize(("at", "published"), [(4, []), (4, [1]), (28, [])])
def test_a_killed_stack_resumes_to_the_same_bytes(
    tmp_path, pretrain_on, kill_at, checkpoint_always, stacked, at, published
):
    """Also if another job has published some of its networks meanwhile, so that others are trained together."""
    stacked(2)
    runs = [*RUNS[:2], pretraining("target", 2), RUNS[2]]
    undisturbed = pretrain_on(tmp_path / "elsewhere" / "undisturbed", runs, recipe(), EIGHT, keep=[0, 1])
    kill_at(dataset, "augment", at)
    with pytest.raises(kill_at.Killed):
        pretrain_on(tmp_path / "resumed", runs, recipe(), EIGHT, keep=[0, 1])
    kill_at(dataset, "augment", None)
    for number in published:
        other = pretrain_on(tmp_path / "other", [runs[number]], recipe(), EIGHT, keep=[0, 1])
        shutil.rmtree(other.folder)  # its runs stay in the store; `pretrain_on` would hide those of a result
    assert pretrain_on(tmp_path / "resumed", runs, recipe(), EIGHT, keep=[0, 1]).digest == undisturbed.digest


def test_as_many_as_pay_are_one_for_all_but_small_networks(tmp_path, pretrain_on):
    large = Model(args={"layers": [1, 1, 1, 1], "channels": [64, 128, 128, 128]})
    assert pretrain_on(tmp_path / "large", RUNS[:2], recipe(), large).summary["stack"] == 1
    assert pretrain_on(tmp_path / "small", RUNS[:2], recipe(), EIGHT).summary["stack"] > 1


@pytest.mark.parametrize(
    ("model", "values"),
    [
        (VIT, {"lr": 0.01}),
        (Model(args={**TINY, "norm_layer": "groupnorm1"}), {"lr": 0.02}),
        (Model(args={**EIGHT.args, "drop_rate": 0.5}), {}),
        (TWELVE, {}),
        (EIGHT, {"clip_norm": 1.0}),
        (EIGHT, {"micro_batch": 10}),
        (EIGHT, {"optimizer": "lamb", "lr": 1e-3}),
    ],
    ids=["attention", "group norm", "dropout", "twelve channels", "clip_norm", "micro_batch", "lamb"],
)
def test_what_cannot_be_stacked_is_trained_one_by_one(tmp_path, pretrain_on, stacked, model, values):
    stacked(4)
    assert pretrain_on(tmp_path / "made", RUNS[:2], recipe(**values), model).summary["stack"] == 1


def test_finetuning_in_a_stack(tmp_path, pretrain_on, finetune_on, stacked):
    """Backbones of several label spaces, with heads and orders of images of their own."""
    parents = [pretrain_on(tmp_path / "before" / "made", RUNS, recipe(), EIGHT).path]
    runs = [finetuning(space, 0, seed) for space in ("target", "manual-digit") for seed in range(2)]
    made = []
    for count in (1, 4):
        stacked(count)
        made.append(finetune_on(tmp_path / f"{count}" / "made", runs, recipe(), parents, keep=True))
    alone, together = made
    assert together.summary["stack"] == 4
    tables = [one.table("runs.parquet") for one in made]
    for row, file in enumerate(tables[0]["weights"]):
        assert close(alone.tensors(file), together.tensors(tables[1]["weights"][row]))
    assert tables[0]["val_error"].to_list() == pytest.approx(tables[1]["val_error"].to_list(), abs=1)
