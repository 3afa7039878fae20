"""A network's own answers: the errors that its training recorded, and each option against a count by hand."""

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

from granularity.base.errors import GranularityError
from granularity.learning.data.dataset import Data
from granularity.learning.options import Augment
from granularity.stages.measure.measures import accuracy
from granularity.stages.measure.view import View
from granularity.store.artifact import Artifact

NAMES = np.array(["ant", "bee", "cat"])
TRUTH = np.array([0, 0, 1, 1, 2, -1])  # the last is of a class that training never saw
BEST = np.array([0, 1, 1, 2, 2, 0])  # the largest output
SECOND = np.array([1, 0, 0, 1, 0, 1])


@pytest.fixture(scope="module")
def data(tmp_path_factory, make_samples, make_array) -> Data:
    """An image of each class to train on, and six to validate on, whose channels are a network's outputs."""
    folder = tmp_path_factory.mktemp("accuracy")
    kinds = [*NAMES, *np.append(NAMES, "dog")[TRUTH]]
    samples = make_samples(folder / "samples", ["train"] * 3 + ["val"] * 6, {"kind": kinds}, "kind")
    pixels = np.zeros((9, 1, 1, 3), np.uint8)
    pixels[range(9), 0, 0, [0, 1, 2, *BEST]] = 200  # those of the training split make all channels alike
    pixels[range(3, 9), 0, 0, SECOND] = 100
    pixels = make_array(folder / "pixels", "pixels", samples, pixels)
    return Data(*map(Artifact.open, (samples, pixels)), torch.device("cpu"))


@pytest.fixture
def found(data):
    def measure(answers: list[int] | None = (0, 1, 2), **options) -> dict:
        answers = None if answers is None else np.array(answers)
        network = torch.nn.Flatten()
        view = View({"run": "01234567"}, network, answers, ["val"], ["kind"], None, data, Augment())
        rows = list(accuracy.measure(view, accuracy.Options(**options), 0))
        assert {split for split, _, _ in rows} <= {"val"}
        return {key: value for _, key, value in rows}

    return measure


def test_errors_are_counted(found):
    made = found()
    assert made["error"] == pytest.approx(100 * 3 / 6)
    assert made["images"] == 6
    expected = f1_score(TRUTH, BEST, labels=[0, 1, 2], average="macro")
    assert made["macro_f1"] == pytest.approx(100 * expected)


def test_errors_by_class(found):
    np.testing.assert_allclose(found(by_class=True)["error_by_class"], [50, 50, 0])


def test_a_subset_of_the_classes_is_a_choice_among_them(found):
    made = found(classes=["ant", "bee"])
    assert made["images"] == 4
    # Of the first four: right, wrong, right, and right, as its best answer is no longer there.
    assert made["error"] == pytest.approx(25)


def test_outputs_answer_with_what_they_stand_for(found):
    assert found([1, 0, -2])["error"] == pytest.approx(100 * 5 / 6)
    # An output that stands for nothing is wrong even where the class was never seen.
    assert found([-2, 1, 2])["error"] == pytest.approx(100 * 4 / 6)


def test_what_has_no_head_has_no_accuracy(found):
    assert found(None) == {}


def test_what_cannot_be_counted_is_named(found):
    with pytest.raises(GranularityError, match="classes: 'wasp' is not a target class"):
        found(classes=["ant", "wasp"])
