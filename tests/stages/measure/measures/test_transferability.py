"""Transferability scores against the definitions, computed another way."""

import numpy as np
import pytest
from scipy.linalg import subspace_angles
from scipy.optimize import minimize
from scipy.stats import multivariate_normal
from sklearn.metrics import mutual_info_score

from granularity.stages.measure.measures import transferability


@pytest.fixture
def drawn() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    label = rng.integers(3, size=60)
    return np.eye(3)[label] @ rng.normal(size=(3, 5)) + rng.normal(size=(60, 5)), label


def test_logme_is_the_largest_evidence(drawn):
    features, label = drawn
    found = []
    for one in range(3):

        def evidence(logs, indicator):
            noise, weights = np.exp(logs)
            return -multivariate_normal.logpdf(indicator, cov=noise * np.eye(60) + weights * features @ features.T)

        indicator = (label == one).astype(float)
        found.append(-minimize(evidence, [-1.0, -1.0], indicator, method="Nelder-Mead").fun / 60)
    assert transferability.logme(features, label) == pytest.approx(np.mean(found), abs=1e-4)


def test_h_score_is_the_sum_of_squared_canonical_correlations(drawn):
    features, label = drawn
    classes = np.eye(3)[label]
    angles = subspace_angles(features - features.mean(0), (classes - classes.mean(0))[:, :2])
    assert transferability.h_score(features, label) == pytest.approx(np.square(np.cos(angles)).sum())


def test_leep_of_certain_labels_is_minus_the_conditional_entropy(drawn):
    label = drawn[1]
    given = np.where(np.arange(60) % 4, label, 0)
    share = np.bincount(label) / 60
    entropy = -(share * np.log(share)).sum()
    expected = mutual_info_score(label, given) - entropy
    assert transferability.leep(np.eye(3)[given], label) == pytest.approx(expected)
    assert transferability.nce(7 * given, label) == pytest.approx(expected)
    unsure = np.full((60, 3), 1 / 3)  # a head that says nothing leaves the entropy
    assert transferability.leep(unsure, label) == pytest.approx(-entropy)


def test_features_that_say_nothing_score_lower(drawn):
    features, label = drawn
    shuffled = np.random.default_rng(1).permutation(label)
    for score in (transferability.logme, transferability.h_score):
        assert score(features, shuffled) < score(features, label)
