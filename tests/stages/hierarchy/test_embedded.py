"""What an embedding shows of labels before training: nothing of labels by chance, all of what it is made of."""

import numpy as np
import pytest

from granularity.stages.hierarchy.embedded import directions, embedded

N = 3000


@pytest.fixture(scope="module")
def world():
    """Two target classes, far apart; in each, four groups in two binary directions of an embedding of 16."""
    rng = np.random.default_rng(0)
    target, first, second = rng.integers(2, size=(3, N))
    vectors = rng.normal(size=(N, 16)).astype(np.float32)
    vectors[:, 0] += 20 * target
    vectors[:, 1] += 10 * first
    vectors[:, 2] += 9 * second
    return target, first, second, vectors, directions(vectors, target)


def test_directions_are_white_within_target_classes(world):
    target, _, _, vectors, leading = world
    assert leading.shape == (N, 16)
    for one in (0, 1):
        assert abs(leading[target == one].mean(axis=0)).max() < 1e-9
    assert leading.T @ leading / N == pytest.approx(np.eye(16), abs=1e-5)
    assert directions(vectors[:50], target[:50]).shape == (50, 5)  # a tenth of the images
    assert directions(np.ones((30, 4)), target[:30]).shape == (30, 0)  # equal vectors have none


def test_labels_that_follow_a_direction_have_a_signal_and_those_by_chance_none(world):
    target, first, second, vectors, leading = world
    rng = np.random.default_rng(1)
    seen = {
        "first": first,
        "one": target * 2 + first,
        "both": (target * 2 + first) * 2 + second,
        "chance": target * 2 + rng.integers(2, size=N),
        "many": rng.integers(300, size=N),
        "images": np.arange(N),
        "target": target,
    }
    found = {name: embedded(labels, target, vectors, leading) for name, labels in seen.items()}
    assert found["first"]["signal"] > 0.9
    assert found["one"]["signal"] == pytest.approx(found["first"]["signal"] / 2, rel=0.01)  # one read-out for all
    assert found["both"]["compactness"] > found["one"]["compactness"] > found["target"]["compactness"] > 0.6
    for name in ("many", "images"):
        assert max(map(abs, found[name].values())) < 0.03
    assert abs(found["chance"]["signal"]) < 0.01 and found["target"]["signal"] == 0


def test_the_weakest_direction_is_what_labels_leave_out(world):
    target, first, second, vectors, _ = world
    few = np.ascontiguousarray(vectors[:, :3])
    leading = directions(few, target)[:, :2]
    both, one = ((target * 2 + first) * 2 + second, target * 2 + first)
    assert embedded(both, target, few, leading)["weakest"] > 0.9
    assert abs(embedded(one, target, few, leading)["weakest"]) < 0.05


def test_numbers_are_those_of_their_definitions(world):
    """By matrices of one-hot labels, for labels that straddle target classes."""
    target, first, _, vectors, leading = world
    labels = np.where(np.arange(N) % 3 == 0, 2, first)
    found = embedded(labels, target, vectors, leading)
    hot, human = np.eye(3)[labels], np.eye(2)[target]
    hot = hot - human @ np.linalg.lstsq(human, hot, rcond=None)[0]
    told = leading @ np.linalg.lstsq(leading, hot, rcond=None)[0]
    share, chance = (told**2).sum() / (hot**2).sum(), 16 / (N - 2)
    assert found["signal"] == pytest.approx((share - chance) / (1 - chance))
    centred = vectors.astype(float) - vectors.mean(axis=0, dtype=float)
    means = np.stack([centred[labels == one].mean(axis=0) for one in range(3)])[labels]
    share, chance = (means**2).sum() / (centred**2).sum(), 2 / (N - 1)
    assert found["compactness"] == pytest.approx((share - chance) / (1 - chance))
