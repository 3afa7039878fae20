"""The studies parity and sibling_labels: the staircase by hand and by Fourier coefficients, AUC, the law of pulls."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from granularity.base import extensions
from granularity.stages.theory import engine
from granularity.stages.theory.runs import at
from granularity.stages.theory.worlds import feature_contamination
from granularity.stages.theory.worlds.feature_emergence import data, spaces
from granularity.stages.theory.worlds.feature_emergence.settings import Settings
from granularity.stages.theory.worlds.feature_emergence.spaces import PATTERNS, count, law, refined, subparity
from support.worlds import studied

X = [PATTERNS[:, i] for i in range(5)]


@pytest.fixture(scope="module", autouse=True)
def loaded():
    with studied("parity/staircase.py", "sibling_labels/sibling_labels.py"):
        yield


@pytest.fixture
def staircase():
    return extensions.find("world", "staircase")


@pytest.fixture
def sibling_labels():
    return extensions.find("world", "sibling_labels")


@pytest.mark.parametrize(
    ("functions", "whole"),
    [
        ((), False),
        ((X[0],), False),
        ((X[0], X[1]), False),
        ((X[0], X[1], X[2]), False),  # x4 and x5 come as a product only
        ((X[0], X[1], X[2], X[3]), True),
        ((subparity((0, 1)),), False),
        ((subparity((0, 1, 2)),), False),
        ((count(range(4)),), True),
        ((np.where(X[0], X[1], X[2]), X[3]), True),  # x1 is seen once x2 or x3 is known
    ],
)
def test_a_staircase_is_whole_where_each_coordinate_has_a_stair(functions, whole):
    assert (law(refined(*functions)).staircase > 1e-9) == whole


def test_r_is_the_root_of_the_fourier_coefficients_that_a_step_adds():
    table = np.random.default_rng(0).integers(6, size=32)
    table = refined(table)
    onehot, signs = np.eye(max(table) + 1)[list(table)], 2 * PATTERNS - 1
    known, v = (1, 4), 2
    subsets = [(), (1,), (4,), (1, 4)]
    wanted = sum(np.square((onehot * signs[:, [*some, v]].prod(1)[:, None]).mean(0)).sum() for some in subsets)
    assert spaces.signal(spaces.probabilities(table), v, known) == pytest.approx(wanted**0.5)
    assert spaces.signal(spaces.probabilities(table, 0.75), v, known) == pytest.approx(0.25 * wanted**0.5)


def test_what_else_is_known_of_a_label_space():
    four = law(refined(X[0], X[1], X[2], X[3]))
    assert (four.labels, four.information) == (32, pytest.approx(5))
    assert four.degree_1 == pytest.approx(math.sqrt(5 / 32)) and four.weakest == pytest.approx(math.sqrt(1 / 32))
    shuffled = law(refined(X[0]), 1.0)
    assert shuffled.degree_1 == pytest.approx(0, abs=1e-12) and shuffled.information == pytest.approx(1)
    switch = law(refined(np.where(X[0], X[1], X[2]), X[3]))
    assert switch.weakest == pytest.approx(0, abs=1e-12) and switch.order[-1] == 4


def test_labels_of_a_table_refine_parity_and_are_shuffled_within_it():
    table = refined(count(range(4)))
    for share in (0.0, 0.6):
        cfg = Settings(labels="table", table=table, shuffled=share)
        mine = torch.randint(2, (20_000, 5), generator=torch.Generator().manual_seed(0)).float()
        y = mine.sum(1) % 2 * 2 - 1
        signs, parity = data.draw_labels(cfg, mine, y, torch.Generator().manual_seed(1))
        label = signs.argmax(1)
        assert ((signs > 0).sum(1) == 1).all() and (parity[label] == y).all()
        own = torch.tensor(table)[(mine.long() * 2 ** torch.arange(5)).sum(1)]
        chance = spaces.probabilities(table, share)
        agree = chance[np.arange(32), list(table)].mean()
        assert (label == own).float().mean().item() == pytest.approx(agree, abs=0.01)


def test_refinements_are_those_of_their_seed_and_all_different(staircase):
    one, two = staircase.refinements(40, 7, [0.0, 0.5]), staircase.refinements(40, 7, [0.0, 0.5])
    assert one == two and one != staircase.refinements(40, 8, [0.0, 0.5])
    assert len({(space["table"], space["shuffled"]) for space in one}) == 40
    whole = [law(space["table"]).staircase > 1e-9 for space in one]
    assert 5 < sum(whole) < 38


def test_auc_counts_pairs_and_weights_are_repetitions(staircase):
    score, emerged = np.array([3.0, 1.0, 2.0, 2.0]), np.array([[1, 0, 1, 0]], bool).T
    assert staircase.auc(score, emerged)[0, 0] == pytest.approx((1 + 1 + 1 + 0.5) / 4)
    weight = np.array([[2, 1, 0, 1]])
    assert staircase.auc(score, emerged, weight)[0, 0] == 1
    assert np.isnan(staircase.auc(score, np.ones((4, 1), bool))[0, 0])


# ---------------------------------------------------------------- sibling labels

SMALL = {"task": "granularity", "m": 32, "batch": 64, "d_core": 16, "d_bg": 16, "steps": 150, "seeds": 2, "g": 4}


def test_background_weights_follow_from_the_pulls(sibling_labels):
    options = {"hinge": {"g": 1}, "T = 0.2": {"objective": "softmax", "temperature": 0.2}, "shared": {"head": "shared"}}
    settings = [feature_contamination.Settings(**(SMALL | more), name=name) for name, more in options.items()]
    table = engine.run_table(sibling_labels, settings, "cpu")
    for name in options:
        assert sibling_labels.predicted(table, name) == pytest.approx(at(table, name, "bg_sum"), rel=0.12, abs=0.01)
        assert (np.abs(at(table, name, "bg_sum") - at(table, name, "bg_sum", step=0)) > 0.03).all()
    share = at(table, "T = 0.2", "sibling_rivals")
    assert ((share > 0) & (share <= 1)).all()


def test_a_trained_head_moves_and_low_temperature_is_the_loss_of_the_largest_rival():
    from granularity.stages.theory.worlds.feature_contamination import model

    f, label = torch.tensor([[[0.3, 0.5, 0.1, -0.2]]]), torch.tensor([[0]])
    cfg = feature_contamination.Settings(**SMALL | {"g": 2}, objective="softmax", temperature=0.001)
    loss, residual = model.residuals(cfg, f, {"label": label, "temperature": torch.tensor(0.001).view(1, 1, 1)})
    assert loss.item() == pytest.approx(0.2, abs=1e-3) and residual[0, 0].tolist() == pytest.approx([1, -1, 0, 0])
    run = [engine.Trial(feature_contamination.Settings(**SMALL, train_head=True), 0)]
    device = torch.device("cpu")
    state, draw = model.initial(run, device), model.batches(run, device)
    minus = model.descent(run[0].settings, state, draw())[1]
    moved = model.updater(run[0].settings, run, device)(state, minus, 0)["a"] - state["a"]
    assert 0 < moved.abs().max() < 0.1 * state["a"].max()


def test_relief_compares_at_equal_risk_in_distribution(sibling_labels):
    columns = ["setting", "seed", "step", "event", "phase", "id_risk", "ood_risk"]
    rows = [
        ("2 labels", 0, t, "", "train", risk, ood) for t, risk, ood in ((0, 1.0, 1.0), (1, 0.4, 0.8), (2, 0.2, 0.9))
    ]
    rows.append(("8 labels", 0, 2, "end", "train", 0.3, 0.25))
    assert sibling_labels.relief(pd.DataFrame(rows, columns=columns), "8 labels") == pytest.approx([0.85 - 0.25])
