"""Cross-entropy of one label per image and of several, and labels that cannot be."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from granularity.base.errors import GranularityError
from granularity.learning.classification import cross_entropy
from granularity.learning.dataset import Data, LabelSets
from granularity.learning.evaluation import predict
from granularity.learning.network import build
from granularity.store.artifacts import Artifact
from support import tasks, writing
from support.trainings import CPU, MODEL, equal, finetuning, label_space, pretraining, recipe, weights_of

SETS = [[0, 2], [1], [0, 1, 2, 4], [3], [2, 3]]  # of five images, among five classes

ALL = LabelSets(np.concatenate(SETS).astype(np.int32), np.cumsum([0, *map(len, SETS)]))


def explicit(sets: list[list[int]], classes: int) -> torch.Tensor:
    return torch.tensor([[float(c in labels) for c in range(classes)] for labels in sets])


@pytest.mark.parametrize("picked", [[0, 1, 2, 3, 4], [4, 0, 2], [3], [1, 1], []], ids=str)
def test_the_multi_hot_target_is_that_of_the_sets_picked(picked):
    found = ALL.multi_hot(torch.tensor(picked, dtype=torch.int64), 6, CPU)
    assert found.dtype == torch.float32
    assert torch.equal(found, explicit([SETS[i] for i in picked], 6).reshape(len(picked), 6))


@pytest.mark.parametrize(
    ("labels", "loss"),
    [(ALL, "auto"), (ALL, "sigmoid"), (torch.tensor([2, 0, 4, 1, 1]), "sigmoid")],
    ids=["auto", "sigmoid", "one label each"],
)
def test_sigmoid_cross_entropy_and_its_gradient_are_those_of_an_explicit_target(labels, loss):
    picked = torch.tensor([4, 0, 2])
    sets = SETS if labels is ALL else [[int(label)] for label in labels]
    truth = explicit([sets[i] for i in picked], 5)
    ours, theirs = (torch.randn(3, 5, generator=torch.manual_seed(0)).mul(4).requires_grad_() for _ in range(2))
    value = cross_entropy(ours, labels, picked, loss)
    reference = torch.nn.functional.binary_cross_entropy_with_logits(theirs, truth, reduction="none").sum(1).mean()
    torch.testing.assert_close(value, reference)
    x, t = theirs.detach().double(), truth.double()
    assert value.item() == pytest.approx(((1 + x.exp()).log() - x * t).sum().item() / 3, rel=1e-6)
    value.backward(), reference.backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    torch.testing.assert_close(ours.grad.double(), (torch.sigmoid(x) - t) / 3)


@pytest.mark.parametrize("loss", ["auto", "softmax"])
def test_one_label_an_image_is_softmax_unless_told(loss):
    outputs, labels, picked = torch.randn(3, 5), torch.tensor([2, 0, 4, 1, 1]), torch.tensor([4, 0, 2])
    chosen = outputs.double().log_softmax(1)[torch.arange(3), labels[picked]]
    assert float(cross_entropy(outputs, labels, picked, loss)) == pytest.approx(-float(chosen.mean()), rel=1e-6)


@pytest.fixture
def colours(tmp_path, make_samples, make_array):
    """Images in which some of three colours glow: a label for each, and label 3 for all; the target is the first."""
    rng = np.random.default_rng(0)
    on = rng.random((120, 3)) < 0.5
    on[~on.any(1), 0] = True
    first = [f"{row.argmax()}" for row in on]
    samples = make_samples(tmp_path / "samples", ["train"] * 80 + ["val"] * 40, {"first": first}, "first")
    values = rng.integers(0, 60, (120, 8, 8, 3), dtype=np.uint8) + 120 * on[:, None, None].astype(np.uint8)
    labels = [[*np.flatnonzero(row).tolist(), 3] for row in on[:80]]
    space = label_space(tmp_path / "wordnet-2", samples, labels, ["0", "1", "2", "0"])
    return samples, make_array(tmp_path / "pixels", "pixels", samples, values), space, on


def test_several_labels_are_learnt(tmp_path, colours):
    samples, pixels, space, on = colours
    options = recipe(lr=0.03, batch_size=20, epochs=30, warmup_epochs=2, schedule="linear", head_bias=-4)
    values = {"recipe": options, "model": MODEL, "runs": [pretraining("wordnet-2").name]}
    made = tasks.run("pretrain", tmp_path / "made", values, samples=samples, pixels=pixels, hierarchy=[space])
    losses = made.table("history.parquet")["train_loss"]
    assert losses.iloc[0] > 6  # two or three labels an image are true, each at about sigmoid(-4)
    assert losses.iloc[-1] < 0.15
    data = Data(Artifact.open(samples), Artifact.open(pixels), CPU)
    network = build(MODEL, 3, 4, 99)
    network.load_state_dict(weights_of(made))
    outputs = predict(network.eval(), data, data.val, options.augment)
    assert ((outputs > 0).numpy() == np.column_stack([on[80:], np.full(40, True)])).mean() > 0.98
    first = np.array([0, 1, 2, 0])[outputs.argmax(1)]
    assert made.table("runs.parquet")["val_error"][0] == pytest.approx(100 * np.mean(first != on[80:].argmax(1)))


def test_sigmoid_is_trained_on_ordinary_spaces_and_in_finetuning(tmp_path, pretrain_on, finetune_on):
    options = recipe(loss="sigmoid", epochs=12)
    once, softmax = (
        pretrain_on(tmp_path / name, [pretraining("target")], value)
        for name, value in (("sigmoid", options), ("softmax", recipe(epochs=12)))
    )
    assert not equal(weights_of(once), weights_of(softmax))
    assert once.table("runs.parquet")["val_error"][0] < 35
    tuned = finetune_on(tmp_path / "fine", [finetuning("wordnet-1")], options)
    assert tuned.table("runs.parquet")["val_error"][0] < 35


SIX = [[0], [0, 1], [2], [1, 2], [0, 2], [1]]


@pytest.mark.parametrize(
    ("labels", "multi_label", "words"),
    [
        ([*SIX[:3], [1, 3], *SIX[4:]], True, "label 3 of 'image 3', but classes.parquet ends at 2"),
        ([*SIX[:5], [-1, 1]], True, "label -1 of 'image 5'"),
        ([*SIX[:2], [], *SIX[3:]], True, "'image 2' has no label"),
        ([*SIX[:2], None, *SIX[3:]], True, "'image 2' has no label"),
        ([*SIX[:4], [2, 0], [1]], True, "the labels of 'image 4' do not ascend"),
        ([*SIX[:5], [1, 1]], True, "the labels of 'image 5' do not ascend"),
        ([*SIX[:5], [None, 1]], True, "a label is null"),
        ([["a"]] * 6, True, "a label is (large_)?string; each must be an integer"),
        ([0, 1, 2, 3, 0, 1], False, "label 3 of 'image 3', but classes.parquet ends at 2"),
        ([0, 1, 2, -1, 0, 1], None, "label -1 of 'image 3'"),
        (SIX, False, "not of the type that multi_label"),
        (SIX, None, "not of the type that multi_label"),
        ([0, 1, 2, 0, 1, 2], True, "not of the type that multi_label"),
    ],
)
def test_labels_that_cannot_be_are_named(tmp_path, make_samples, make_array, labels, multi_label, words):
    samples = make_samples(tmp_path / "samples", ["train"] * 6, {"kind": list("aabbcc")}, "kind")
    pixels = make_array(tmp_path / "pixels", "pixels", samples, np.zeros((6, 8, 8, 1), dtype=np.uint8))
    space = label_space(tmp_path / "odd", samples, labels, ["a", "b", "c"], multi_label)
    data = Data(Artifact.open(samples), Artifact.open(pixels), CPU)
    with pytest.raises(GranularityError, match=words) as error:
        data.labels_of(Artifact.open(space), 3)
    assert "\n" not in str(error.value) and "labels.parquet" in str(error.value)


def test_labels_in_another_order_or_without_a_column_are_refused(tmp_path, make_samples, make_array):
    samples = make_samples(tmp_path / "samples", ["train"] * 6, {"kind": list("aabbcc")}, "kind")
    pixels = make_array(tmp_path / "pixels", "pixels", samples, np.zeros((6, 8, 8, 1), dtype=np.uint8))
    data = Data(Artifact.open(samples), Artifact.open(pixels), CPU)
    swapped = [f"image {i}" for i in (1, 0, 2, 3, 4, 5)]
    space = label_space(tmp_path / "swapped", samples, SIX, ["a", "b", "c"], sample_id=swapped)
    with pytest.raises(GranularityError, match=r"swapped: does not cover the training images .* row by row"):
        data.labels_of(Artifact.open(space), 3)
    good = Artifact.open(label_space(tmp_path / "good", samples, SIX, ["a", "b", "c"]))
    assert torch.equal(data.labels_of(good, 3).multi_hot(torch.arange(6), 3, CPU), explicit(SIX, 3))
    with writing.create(tmp_path / "bare", "hierarchy", ("granularity.stages.hierarchy.stage",), {}, {}) as out:
        out.table("labels.parquet", pd.DataFrame({"sample_id": swapped}))
    with pytest.raises(GranularityError, match=r"has no column \['label'\]; it has \['sample_id'\]"):
        data.labels_of(Artifact.open(tmp_path / "bare"), 3)
