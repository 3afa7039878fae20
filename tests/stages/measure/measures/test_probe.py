"""Probes: scikit-learn's logistic regression, brute-force neighbours, and no look at the validation images."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from granularity.stages.measure import logistic
from granularity.stages.measure.logistic import Axes, Problem, fit
from granularity.stages.measure.measures import probe

CPU = torch.device("cpu")
PENALTIES = [1.0, 1e-1, 1e-2, 1e-3, 1e-4]


@pytest.fixture(scope="module")
def features() -> tuple[torch.Tensor, torch.Tensor]:
    """300 digits, standardised; the border pixels are constant."""
    digits = load_digits()
    values = torch.from_numpy(digits.data[:300])
    std = values.std(0, correction=0)
    values = (values - values.mean(0)) / torch.where(std > 0, std, 1.0)
    return values.float(), torch.from_numpy(digits.target[:300])


@pytest.fixture(scope="module")
def ranks(features) -> list[torch.Tensor]:
    """Labels of three ranks, with 2, 3 and 10 classes."""
    digit = features[1]
    return [digit % 2, torch.tensor([1, 0, 0, 0, 1, 0, 1, 0, 2, 1])[digit], digit]


def regressions(
    values: torch.Tensor, labels: list[torch.Tensor], problems: list[Problem]
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Weights [D, C] and biases [C] of each problem, for features that are standardised."""
    axes = Axes.of(values, CPU)
    found = fit(axes.all(values, torch.arange(len(values))), labels, problems, axes.variance)
    assert found.dtype == torch.float64
    split = found.split([problem.classes for problem in problems])
    # Biases are those of features whose mean is zero, as here.
    return [(axes.turn @ one[:, :-1].T, one[:, -1]) for one in split]


def objective(
    values: torch.Tensor, labels: torch.Tensor, l2: float, weights: torch.Tensor, bias: torch.Tensor
) -> float:
    scores = values.double() @ weights + bias
    return float(torch.nn.functional.cross_entropy(scores, labels) + l2 / 2 * weights.square().sum())


def scikit_learns(values: torch.Tensor, labels: torch.Tensor, l2: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Its weights [D, C] and biases [C]; where there are two classes it has one vector, the difference of ours."""
    two = int(labels.max()) == 1
    model = LogisticRegression(C=(1 + two) / (l2 * len(values)), tol=1e-9, max_iter=10_000)
    model.fit(values.double().numpy(), labels.numpy())
    weights, bias = (torch.from_numpy(one) for one in (model.coef_.T, model.intercept_))
    if two:
        weights, bias = torch.cat([-weights, weights], 1) / 2, torch.cat([-bias, bias]) / 2
    return weights, bias


def probed(train, labels, tests, classes, penalties, seed=0):
    """Predictions of each test, and the penalty chosen, of a probe of one rank."""
    ((found, l2),) = probe.linear_probes(train, [labels], tests, [classes], penalties, seed, CPU)
    return found, l2


# ---------------------------------------------------------------- the linear probe


def test_all_ranks_and_penalties_at_once_end_as_low_as_scikit_learn(features, ranks):
    values, _ = features
    problems = [Problem(i, int(one.max()) + 1, l2) for i, one in enumerate(ranks) for l2 in PENALTIES]
    for problem, ours in zip(problems, regressions(values, ranks, problems), strict=True):
        truth = ranks[problem.labels]
        theirs = scikit_learns(values, truth, problem.l2)
        best = objective(values, truth, problem.l2, *theirs)
        assert objective(values, truth, problem.l2, *ours) == pytest.approx(best, rel=1e-6), problem


def test_classes_without_images_are_left_out_and_rare_ones_fitted(features):
    """As when all images of a class are in the fifth that is held out."""
    values, labels = features
    sparse = 2 * labels + (torch.arange(300) == 7)  # ten even classes and one odd, of one image
    named, dense = sparse.unique(return_inverse=True)
    for l2 in (1.0, 1e-2):
        ((weights, bias),) = regressions(values, [sparse], [Problem(0, 22, l2)])
        best = objective(values, dense, l2, *scikit_learns(values, dense, l2))
        assert objective(values, sparse, l2, weights, bias) == pytest.approx(best, rel=1e-6)
        absent = torch.ones(22, dtype=torch.bool).index_fill(0, named, False)
        assert (values.double() @ weights + bias).softmax(1)[:, absent].max() < 1e-200


def test_chunks_and_groups_change_nothing(features, ranks, monkeypatch):
    values, _ = features
    train, test, seed = values[:200], values[200:], 3
    labels, classes = [one[:200] for one in ranks], [2, 3, 10]

    def go():
        return probe.linear_probes(train, labels, [test, train], classes, PENALTIES, seed, CPU)

    whole = go()
    monkeypatch.setattr(logistic, "SCORES", {"cpu": 1})
    monkeypatch.setattr(logistic, "LEAST_ROWS", 7)
    monkeypatch.setattr(logistic, "ROWS", 11)
    monkeypatch.setattr(probe, "WEIGHTS", 300)  # two penalties of a small rank, or one of the large one
    for (some, l2), (others, other_l2) in zip(whole, go(), strict=True):
        assert l2 == other_l2
        for one, other in zip(some, others, strict=True):
            assert (one == other).double().mean() > 0.98


def test_the_penalty_chosen_is_the_best_on_a_fifth_of_the_training_images(features):
    values, labels = features
    train, test = values[:200], values[200:]
    penalties = [1e-3, 1e-1, 10.0]
    (predicted,), chosen = probed(train, labels[:200], [test], 10, penalties, seed=4)

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
    original = logistic.fit

    def counted(rows, labels, problems, *rest):
        fits.append((len(rows), len(problems)))
        return original(rows, labels, problems, *rest)

    monkeypatch.setattr(logistic, "fit", counted)
    train, test = values[:200], values[200:]
    (predicted,), chosen = probed(train, labels[:200], [test], 10, [0.01, 1.0])
    assert fits == [(160, 2), (200, 1)]
    odd = torch.cat([test, torch.full((500, 64), 1e6)])
    (again,), same = probed(train, labels[:200], [odd], 10, [0.01, 1.0])
    assert same == chosen
    assert torch.equal(again[:100], predicted)


@pytest.mark.parametrize("constant", [0.0, 0.1, -3e4])
def test_constant_features_do_no_harm(features, constant):
    values, labels = features
    train, test = values[:200], values[200:]
    (expected,), _ = probed(train, labels[:200], [test], 10, [0.1])
    column = torch.full((200, 3), constant)
    with_constants = torch.cat([train, column], 1), torch.cat([test, column[:100] + 1], 1)
    (found,), _ = probed(with_constants[0], labels[:200], [with_constants[1]], 10, [0.1])
    assert torch.equal(found, expected)
    (all_constant,), _ = probed(column, labels[:200], [column[:100]], 10, [0.1, 1.0])
    counts = labels[:200].bincount()
    assert set(counts[all_constant].tolist()) == {int(counts.max())}  # a largest class, for want of anything else


def test_a_rank_of_one_class_is_that_class(features):
    values, labels = features
    nothing = torch.zeros_like(labels)
    tests = [values[200:]]
    both = probe.linear_probes(values, [nothing, labels], tests, [1, 10], PENALTIES, 0, CPU)
    (((one,), l2), ((several,), _)) = both
    assert l2 == 1.0
    assert not one.any()
    assert several.unique().tolist() == list(range(10))


# ---------------------------------------------------------------- nearest neighbours


def voted(train, labels, test, classes, neighbours) -> torch.Tensor:
    similarity, index = probe.neighbours(train, test, neighbours, CPU, same=train is test)
    return probe.vote(similarity, labels[index], classes)


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("neighbours", [1, 5, 20, 2000])
def test_neighbours_vote_as_by_brute_force(neighbours, same, monkeypatch):
    """On the training images none is its own neighbour."""
    monkeypatch.setitem(probe.PAIRS, "cpu", probe.TESTS * 100)  # several chunks of both
    rng = np.random.default_rng(0)
    test = rng.normal(size=(1100, 6))
    train = test if same else rng.normal(size=(150, 6))
    labels = rng.integers(4, size=len(train))
    given = torch.from_numpy(train)
    found = voted(given, torch.from_numpy(labels), given if same else torch.from_numpy(test), 4, neighbours)
    unit = [part / np.linalg.norm(part, axis=1, keepdims=True) for part in (train, test)]
    expected = []
    for number, row in enumerate(unit[1]):
        similarity = unit[0] @ row
        nearest = np.argsort(-similarity)
        nearest = nearest[nearest != number][:neighbours] if same else nearest[:neighbours]
        votes = [np.exp(similarity[nearest][labels[nearest] == c] / 0.07).sum() for c in range(4)]
        expected.append(int(np.argmax(votes)))
    assert found.tolist() == expected
