"""Probes: scikit-learn's logistic regression, brute-force neighbours, and no look at the validation images."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from granularity.stages.measure.measures import probe


@pytest.fixture(scope="module")
def features() -> tuple[torch.Tensor, torch.Tensor]:
    """300 digits, standardised; the border pixels are constant."""
    digits = load_digits()
    values = torch.from_numpy(digits.data[:300])
    std = values.std(0, correction=0)
    return (values - values.mean(0)) / torch.where(std > 0, std, 1.0), torch.from_numpy(digits.target[:300])


# ---------------------------------------------------------------- the linear probe


@pytest.mark.parametrize("l2", [1e-3, 1e-2, 0.1, 1.0])
def test_logistic_regression_is_scikit_learns(features, l2):
    values, labels = features
    weights = probe.logistic_regression(values, labels, 10, l2)
    theirs = LogisticRegression(C=1 / (l2 * len(values)), tol=1e-8, max_iter=5000).fit(values.numpy(), labels.numpy())
    ours = (values @ weights[:-1] + weights[-1]).softmax(1).numpy()
    np.testing.assert_allclose(ours, theirs.predict_proba(values.numpy()), atol=1e-3)
    np.testing.assert_allclose(weights[:-1].T.numpy(), theirs.coef_, atol=1e-3)  # the penalty fixes the gauge
    bias = weights[-1].numpy()
    np.testing.assert_allclose(bias - bias.mean(), theirs.intercept_ - theirs.intercept_.mean(), atol=5e-3)


def test_a_weak_penalty_ends_as_low_as_scikit_learn(features):
    values, labels = features
    l2 = 1e-4

    def objective(weights: torch.Tensor) -> float:
        scores = values @ weights[:-1] + weights[-1]
        return float(torch.nn.functional.cross_entropy(scores, labels) + l2 / 2 * weights[:-1].square().sum())

    theirs = LogisticRegression(C=1 / (l2 * len(values)), tol=1e-8, max_iter=5000).fit(values.numpy(), labels.numpy())
    best = objective(torch.from_numpy(np.vstack([theirs.coef_.T, theirs.intercept_])))
    assert objective(probe.logistic_regression(values, labels, 10, l2)) <= best * 1.001


def test_a_warm_start_ends_in_the_same_place(features):
    values, labels = features
    cold = probe.logistic_regression(values, labels, 10, 0.01)
    warm = probe.logistic_regression(values, labels, 10, 0.01, probe.logistic_regression(values, labels, 10, 1.0))
    np.testing.assert_allclose(*((values @ w[:-1] + w[-1]).softmax(1).numpy() for w in (cold, warm)), atol=1e-3)


def test_the_penalty_chosen_is_the_best_on_a_fifth_of_the_training_images(features):
    values, labels = features
    train, test = values[:200].float(), values[200:].float()
    penalties = [1e-3, 1e-1, 10.0]
    (predicted,), chosen = probe.linear_probe(train, labels[:200], [test], 10, penalties, seed=4)

    double = train.double()
    std = double.std(0, correction=0)
    scaled = (double - double.mean(0)) / torch.where(std > 1e-8, std, 1.0)
    order = np.random.default_rng(4).permutation(200)
    wrong = {}
    for l2 in penalties:
        theirs = LogisticRegression(C=1 / (l2 * 160), tol=1e-8, max_iter=5000)
        theirs.fit(scaled[order[40:]].numpy(), labels[order[40:]].numpy())
        wrong[l2] = np.mean(theirs.predict(scaled[order[:40]].numpy()) != labels[order[:40]].numpy())
    assert len(set(wrong.values())) > 1
    assert wrong[chosen] == min(wrong.values())
    assert chosen == max(l2 for l2 in penalties if wrong[l2] == wrong[chosen])  # ties go to the stronger
    final = LogisticRegression(C=1 / (chosen * 200), tol=1e-8, max_iter=5000).fit(scaled.numpy(), labels[:200].numpy())
    unseen = (test.double() - double.mean(0)) / torch.where(std > 1e-8, std, 1.0)
    assert (final.predict(unseen.numpy()) == predicted.numpy()).mean() > 0.98


def test_nothing_about_the_validation_images_reaches_the_fit(features, monkeypatch):
    values, labels = features
    fits = []
    original = probe.logistic_regression
    monkeypatch.setattr(probe, "logistic_regression", lambda f, *rest: fits.append(len(f)) or original(f, *rest))
    train, test = values[:200], values[200:]
    (predicted,), chosen = probe.linear_probe(train, labels[:200], [test], 10, [0.01, 1.0], seed=0)
    assert fits == [160, 160, 200]
    odd = torch.cat([test, torch.full((500, 64), 1e6, dtype=torch.float64)])
    (again,), same = probe.linear_probe(train, labels[:200], [odd], 10, [0.01, 1.0], seed=0)
    assert same == chosen
    assert torch.equal(again[:100], predicted)


@pytest.mark.parametrize("constant", [0.0, 0.1, -3e4])
def test_constant_features_do_no_harm(features, constant):
    values, labels = features
    train, test = values[:200].float(), values[200:].float()
    (expected,), _ = probe.linear_probe(train, labels[:200], [test], 10, [0.1], 0)
    column = torch.full((200, 3), constant)
    with_constants = torch.cat([train, column], 1), torch.cat([test, column[:100] + 1], 1)
    (found,), _ = probe.linear_probe(with_constants[0], labels[:200], [with_constants[1]], 10, [0.1], 0)
    assert torch.equal(found, expected)
    (all_constant,), _ = probe.linear_probe(column, labels[:200], [column[:100]], 10, [0.1, 1.0], 0)
    counts = labels[:200].bincount()
    assert set(counts[all_constant].tolist()) == {int(counts.max())}  # a largest class, for want of anything else


@pytest.mark.parametrize("images", [1, 2, 4, 6])
def test_a_handful_of_images_is_enough(features, images):
    values, labels = features
    (predicted,), l2 = probe.linear_probe(values[:images], labels[:images], [values[200:]], 10, [0.01, 1.0], 0)
    assert set(predicted.tolist()) <= set(range(10))
    assert l2 in (0.01, 1.0)


# ---------------------------------------------------------------- nearest neighbours


@pytest.mark.parametrize(("neighbours", "temperature"), [(1, 0.07), (5, 0.07), (20, 0.5), (1000, 0.1)])
def test_neighbours_vote_as_by_brute_force(neighbours, temperature):
    rng = np.random.default_rng(0)
    train, test = rng.normal(size=(150, 6)), rng.normal(size=(1100, 6))  # more than one part of 1024
    labels = rng.integers(4, size=150)
    found = probe.knn_probe(*map(torch.from_numpy, (train, labels, test)), 4, neighbours, temperature)
    unit = [part / np.linalg.norm(part, axis=1, keepdims=True) for part in (train, test)]
    expected = []
    for row in unit[1]:
        similarity = unit[0] @ row
        nearest = np.argsort(-similarity)[:neighbours]
        votes = [np.exp(similarity[nearest][labels[nearest] == c] / temperature).sum() for c in range(4)]
        expected.append(int(np.argmax(votes)))
    assert found.tolist() == expected


def test_the_nearest_neighbour_of_an_image_is_itself():
    train = torch.randn(60, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(60)
    assert torch.equal(probe.knn_probe(train, labels, train * 3, 60, 1, 0.07), labels)
