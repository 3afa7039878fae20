"""Evaluation: predictions on any split, and scores against scikit-learn and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

from granularity.learning.dataset import Data, LabelSets
from granularity.learning.evaluation import (
    error_by_class,
    features,
    macro_f1,
    percent_wrong,
    predict,
    predicted_classes,
)
from granularity.learning.network import build
from granularity.learning.options import Augment
from granularity.store.artifacts import Artifact
from support.trainings import CPU, MODEL

TRUTH = np.array([0, 0, 1, 1, 1, 2, 4, -1])
GUESS = np.array([0, 1, 1, 1, 2, 2, 0, 3])


def test_top_1_error_is_the_share_of_wrong_guesses():
    assert percent_wrong(GUESS, TRUTH) == 50.0
    assert math.isnan(percent_wrong(GUESS[:0], TRUTH[:0]))


def test_macro_f1_is_that_of_the_classes_there_are():
    classes = [0, 1, 2, 4]
    expected = 100 * f1_score(TRUTH, GUESS, labels=classes, average="macro")
    assert macro_f1(GUESS, TRUTH) == pytest.approx(expected)
    rng = np.random.default_rng(0)
    for _ in range(20):
        truth, guess = rng.integers(0, 9, 50), rng.integers(0, 12, 50)
        labels = np.unique(truth)
        assert macro_f1(guess, truth) == pytest.approx(100 * f1_score(truth, guess, labels=labels, average="macro"))
    assert math.isnan(macro_f1(GUESS[:1], np.array([-1])))


def test_errors_of_classes_add_up_to_the_whole():
    found = error_by_class(GUESS, TRUTH, 6)
    np.testing.assert_allclose(found, [50, 100 / 3, 0, math.nan, 100, math.nan])
    seen = TRUTH >= 0
    weights = np.bincount(TRUTH[seen], minlength=6)
    assert np.nansum(found * weights) / seen.sum() == pytest.approx(percent_wrong(GUESS[seen], TRUTH[seen]))


def test_any_of_several_right_labels_will_do():
    sets = [[0, 2], [1], [3], [0, 1, 2]]
    truth = LabelSets(np.concatenate(sets).astype(np.int32), np.cumsum([0, *map(len, sets)]))
    for guess in ([2, 1, 3, 0], [1, 1, 1, 1], [0, 0, 0, 3]):
        expected = 100 * np.mean([g not in right for g, right in zip(guess, sets, strict=True)])
        assert percent_wrong(np.array(guess), truth) == expected
    single = LabelSets(np.array([1, 2, 0]), np.arange(4))
    assert percent_wrong(np.array([1, 2, 2]), single) == pytest.approx(percent_wrong(np.array([1, 2, 2]), [1, 2, 0]))


@pytest.fixture
def shifted(tmp_path, make_samples, make_array) -> Data:
    """Images of three splits, one of which training never sees."""
    split = ["train"] * 8 + ["val"] * 5 + ["shifted"] * 7
    samples = make_samples(tmp_path / "samples", split, {"kind": [*"abababab", *"abcab", *"bababca"]}, "kind")
    values = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 1), dtype=np.uint8)
    pixels = make_array(tmp_path / "pixels", "pixels", samples, values)
    return Data(Artifact.open(samples), Artifact.open(pixels), CPU)


def test_any_split_is_evaluated(shifted):
    assert [shifted.rows(name).tolist() for name in ("train", "shifted", "nowhere")] == [
        list(range(8)),
        list(range(13, 20)),
        [],
    ]
    assert shifted.target[shifted.rows("shifted")].tolist() == [1, 0, 1, 0, 1, -1, 0]
    network = build(MODEL, 1, 5, 0).eval()
    for name in ("train", "val", "shifted"):
        rows = shifted.rows(name)
        with torch.no_grad():
            outputs = network(shifted.images(rows))
        assert torch.equal(predict(network, shifted, rows, Augment()), outputs)
        assert predicted_classes(network, shifted, rows, Augment()).tolist() == outputs.argmax(1).tolist()
        pooled = features(network, shifted, rows, Augment())
        assert pooled.shape == (len(rows), 8)
        torch.testing.assert_close(network.fc(pooled), outputs)


def test_some_classes_alone_can_be_chosen_from(shifted):
    network = build(MODEL, 1, 5, 0).eval()
    outputs = predict(network, shifted, shifted.val, Augment()).numpy()
    found = predicted_classes(network, shifted, shifted.val, Augment(), among=[4, 1])
    assert found.tolist() == [4 if row[4] >= row[1] else 1 for row in outputs]


def test_other_moments_normalise_the_same_images(shifted):
    mean, std = shifted.moments
    rows = shifted.val
    assert torch.equal(shifted.normalised_with(mean, std).images(rows), shifted.images(rows))
    other = shifted.normalised_with(np.array([0.5]), np.array([0.25])).images(rows).double()
    pixels = shifted.images(rows).double() * std[0] + mean[0]
    torch.testing.assert_close(other, (pixels - 0.5) / 0.25, rtol=1e-4, atol=1e-5)
