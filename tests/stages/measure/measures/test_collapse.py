"""Collapse of features and clusters within coarse classes, against brute force and closed forms."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from granularity.base.errors import GranularityError
from granularity.stages.measure.measures import cluster_probe, collapse

COARSE = np.array([0, 0, 1, 1])  # of each fine class


def seen(features: np.ndarray, fine: np.ndarray, coarse: np.ndarray):
    """What a measure sees: both splits are the same images."""
    labels = {"coarse": coarse, "fine": fine}
    return SimpleNamespace(
        splits=["val"],
        ranks=list(labels),
        features=lambda split: torch.from_numpy(features.astype(np.float32)),
        labels=lambda split, rank: labels[rank],
        data=SimpleNamespace(device=torch.device("cpu")),
    )


def blobs(means: np.ndarray, each: int, spread: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    fine = np.repeat(np.arange(len(means)), each)
    return means[fine] + spread * np.random.default_rng(seed).normal(size=(len(fine), means.shape[1])), fine


def test_distances_are_the_means_over_all_pairs():
    features, labels = blobs(np.zeros((3, 5)), 7, 1.0)
    means, within = collapse.moments(features, labels)
    squared = np.square(features[:, None] - features[None]).sum(2)
    brute = [[squared[np.ix_(labels == i, labels == j)].mean() for j in range(3)] for i in range(3)]
    np.testing.assert_allclose(collapse.distances(means, within), brute, rtol=1e-10)


def test_a_simplex_without_spread_has_collapsed():
    means = np.eye(6) - 1 / 6
    assert collapse.nc1(means, np.zeros((6, 6))) == 0 and collapse.nc2(means) < 1e-12
    assert collapse.nc2(np.random.default_rng(0).normal(size=(6, 6))) > 0.2
    floor = np.sqrt(2 - 2 * np.sqrt(3 / 5))  # six means in three dimensions
    assert collapse.nc2(np.random.default_rng(2).normal(size=(6, 3))) >= floor


def test_nc1_is_that_of_the_pseudoinverse():
    features, labels = blobs(np.random.default_rng(3).normal(size=(5, 8)), 20, 0.7)
    means, _ = collapse.moments(features, labels)
    within, centred = collapse.pooled(features, labels, means), means - means.mean(0)
    expected = np.trace(within @ np.linalg.pinv(centred.T @ centred / 5, rcond=1e-10)) / 5
    assert collapse.nc1(means, within) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(("gap", "present"), [(6.0, True), (0.0, False)])
def test_structure_within_coarse_classes_is_found_where_there_is_some(gap, present):
    means = np.zeros((4, 10))
    means[2:, 0], means[1::2, 1] = 40, gap  # two coarse classes far apart; the fine ones of each, `gap`
    features, fine = blobs(means, 60, 1.0)
    view = seen(features, fine, COARSE[fine])
    found = {key: value for _, key, value in collapse.measure(view, collapse.Options(), 0)}
    turned = SimpleNamespace(**vars(view) | {"ranks": ["fine", "coarse"]})
    assert {key for _, key, _ in collapse.measure(turned, collapse.Options(), 0)} == found.keys()
    assert found["coarse/fine/r2"] == pytest.approx(found["coarse/fine/r1"] * found["coarse/fine/r3"])
    assert (found["coarse/fine/r1"] > 1.2 * found["coarse/fine/r1_null"]) == present
    assert (found["fine/nearest_mean"] < 1) == present and found["coarse/nearest_mean"] == 0
    assert found["fine/cdnv"] > found["coarse/cdnv"] and found["fine/distances"].shape == (4, 4)
    assert 1 <= found["effective_rank"] <= 10
    probed = {(split, key): value for split, key, value in cluster_probe.measure(view, cluster_probe.Options(), 0)}
    plane = probed["train", "plane"]
    assert plane.shape == (240, 2) and plane.dtype == np.float32 and np.isfinite(plane).all()
    assert (probed["train", "purity"] > 95) == present and probed["train", "purity_null"] < 70
    kept = probed["val", "error_in_coarse"]
    assert probed["val", "error"] <= kept <= 55 and (kept < 5) == present
    assert (probed["val", "error_of_majority"] < 5) == present and (probed["val", "error_of_labels"] < 5) == present


def test_ranks_that_are_not_nested_are_refused_or_have_no_ratios():
    features, fine = blobs(np.eye(4), 10, 1.0)
    view = seen(features, fine, np.tile([0, 1], 20))
    assert not [key for _, key, _ in collapse.measure(view, collapse.Options(), 0) if "r1" in key]
    features, fine = blobs(np.random.default_rng(0).normal(size=(4, 10)), 1, 1.0)  # an image per class: no distance
    single = seen(features, fine, COARSE[fine])
    assert not [key for _, key, _ in collapse.measure(single, collapse.Options(), 0) if "r1" in key]
    with pytest.raises(GranularityError, match="name a coarser and a finer rank"):
        list(cluster_probe.measure(view, cluster_probe.Options(), 0))
