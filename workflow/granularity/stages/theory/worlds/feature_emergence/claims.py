"""World 3's claims. They read the run table only; bands come from pilot runs, and from exact ceilings where there are.

Every claim is judged seed by seed. Accuracies are in per cent, differences in percentage points. A-numbers
are claims that an independent re-implementation of the paper confirmed, P-numbers published results that it did
not find, in the paper's own terms, X-numbers the crossing with label granularity. Of fixed features, the best
rate on validation data is reported and judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from granularity.claims import published
from granularity.claims.claim import ABOVE_ZERO, Claim
from granularity.stages.theory.runs import at
from granularity.stages.theory.worlds.feature_emergence import swept
from granularity.stages.theory.worlds.feature_emergence.arms import (
    BOTH,
    BROKEN,
    CLUSTERS,
    DIGITS,
    GRAINS,
    PLAIN,
    RESIDUAL,
    SCALES,
    SHARES,
    VARIED,
    WHOLE,
    WORDS,
    grain,
    space,
    unbalanced,
)
from granularity.stages.theory.worlds.feature_emergence.data import CEILING

PILOT = "from pilot runs of one to three seeds"
PAPER, MAIN = "feature_emergence", "parity; main setting (d = 500, m = 300, n = 50000)"
# Fixed features that the paper has below the majority's share, by the share of class -1.
BELOW = {0.8: ("random features",), 0.9: ("random features", "tangent kernel")}

# ---------------------------------------------------------------- reading the table


def best(table: pd.DataFrame, setting: str, method: str, column: str = "test_acc") -> np.ndarray:
    """A measure at the end of the rate that is best on validation data, one value per seed.

    Args:
        method: the beginning of the phase, such as "random features".
    """
    rows = table[(table["setting"] == setting) & table["phase"].str.startswith(method + " ")]
    rows = rows[rows["event"].str.contains("end|diverged")]
    if rows.empty:
        return np.empty(0)
    return np.array(
        [part[column].iloc[int(part["val_acc"].fillna(-1).to_numpy().argmax())] for _, part in rows.groupby("seed")]
    )


def passage(table: pd.DataFrame, setting: str, phase: str, level: float = 99.0) -> list[float]:
    """First recorded step at which test accuracy reaches `level`, one value per seed; NaN if never."""
    rows = table[(table["setting"] == setting) & (table["phase"] == phase)]
    steps = rows["step"].where(rows["test_acc"] >= level)
    return list(steps.groupby(rows["seed"]).min())


def _end(table: pd.DataFrame, setting: str, phase: str, column: str = "test_acc") -> np.ndarray:
    return at(table, setting, column, phase=phase)


def _two(table: pd.DataFrame, setting: str, column: str, step: int) -> np.ndarray:
    return at(table, setting, column, phase="two steps", step=step)


def _known(table: pd.DataFrame, names: Iterable[str]) -> list[str]:
    there = set(table["setting"])
    return [name for name in names if name in there]


def _minus(a: Sequence[float], b: Sequence[float]) -> np.ndarray:
    """Difference seed by seed; empty where either is."""
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    return a - b if a.size == b.size else np.empty(0)


# ---------------------------------------------------------------- claims


def judge(table: pd.DataFrame) -> list[Claim]:
    """A1 to A20, P1 to P6, X1 to X4 of the run table (see `Claim`)."""
    found: list[Claim] = []
    scales = _known(table, SCALES) or ["small"]
    for part in (
        _model,
        _emergence,
        _fixed,
        _structure,
        _residual,
        _robust,
        _interval,
        _elsewhere,
        _published,
    ):
        found += part(table, scales)
    found += [*_crossing(table), *swept.judge(table)]
    return sorted(found, key=lambda check: ("APX".index(check.id[0]), int(check.id[1:])))


def _model(table: pd.DataFrame, scales: list[str]) -> Iterable[Claim]:
    for scale in scales:
        low, high = (0.23, 0.27) if scale == "small" else (0.24, 0.26)
        head = ("A1", "Every pattern is a fair coin; only relevant ones correlate with y", "Section 4, inputs")
        own = {"kind": "identity", "arms": (scale,)}

        def fact(column: str, setting: str = scale) -> np.ndarray:
            return at(table, setting, column, phase="data", step=0)

        z = f"{scale}: {{}}, standard errors"
        yield Claim(*head, z.format("largest |pattern mean - 1/2|"), fact("marginal_z"), high=4, **own)
        yield Claim(*head, z.format("|mean of y|"), fact("label_z"), high=4, **own)
        for end in ("min", "max"):
            yield Claim(*head, f"{scale}: gamma of relevant patterns, {end}", fact(f"gamma_{end}"), low, high, **own)
        plain = f"{scale}, {PLAIN}"
        values = fact("gamma_z", plain)
        yield Claim(*head, z.format(f"largest |gamma|, {PLAIN}"), values, high=4, **own | {"arms": (plain,)})
        yield Claim(*head, f"{scale}: mean of |x|^2", fact("norm2"), 0.99, 1.01, **own)
        head = ("A2", "The mirrored network is zero at the start and knows no direction", "Section 3, init")
        name = f"{scale}: largest |g| on 100 inputs / sum of |a|"
        yield Claim(*head, name, _two(table, scale, "initial_output", 0), high=1e-6, **own)
        scaled = _two(table, scale, "cos_max", 0) * math.sqrt(SCALES[scale]["d"])
        yield Claim(*head, f"{scale}: largest cosine with u, times sqrt(d)", scaled, high=4.5, **own)
    arm = "small, in R^d"
    own = {"kind": "identity", "arms": (arm,)}
    head = ("A3", "The first step wipes the initial weights", "Section 3, schedule")
    error = at(table, arm, "gradient_error", phase="reference", step=0)
    yield Claim(*head, "noise-smoothed gradient against Monte Carlo, relative error", error, high=0.01, **own)
    name = "share of |w| outside the span of the inputs after step 1"
    yield Claim(*head, name, _two(table, arm, "outside", 1), high=1e-4, **own)


def _emergence(table: pd.DataFrame, scales: list[str]) -> Iterable[Claim]:
    for scale in scales:
        claim, own = "Two gradient steps move the neurons onto the relevant direction", {"arms": (scale,)}
        head = ("A4", claim, "Lemmas of steps 1, 2")
        first, second = (_two(table, scale, "cos_mean", step) for step in (1, 2))
        name = f"{scale}: mean |cosine| with u after step {{}}"
        yield Claim(*head, name.format(1), first, 0.98, **own)
        yield Claim(*head, name.format(2), second, 0.99, **own)
        yield Claim(*head, f"{scale}: step 2 - step 1", second - first, 0, **own)
        positive = _two(table, scale, "positive_share", 2)
        yield Claim(*head, f"{scale}: share of neurons at +u", positive, 0.3, 0.7, **own)
        head = ("A5", "The network then classifies perfectly", "Theorem 1, Figure 1")
        yield Claim(*head, f"{scale}: network, test accuracy", _end(table, scale, "network"), 99, **own)
        steps = passage(table, scale, "network")
        yield Claim(*head, f"{scale}: network, first recorded step at 99 %", steps, high=400, **own)
        yield Claim(*head, f"{scale}: Two Step, test accuracy", _end(table, scale, "two step"), 99, **own)
    claim, arm = "Without neuron noise, half the neurons die in step 2, the others do as well", "small, no noise"
    head, own = ("A5", claim, "control"), {"arms": (arm,)}
    yield Claim(*head, f"{arm}: share of dead neurons", 1 - _two(table, arm, "alive", 2), **own)
    yield Claim(*head, f"{arm}: network, test accuracy", _end(table, arm, "network"), **own)


def _fixed(table: pd.DataFrame, scales: list[str]) -> Iterable[Claim]:
    head = ("A6", "Fixed features of the same size cannot", "Theorem 2, Figure 1")
    for scale in scales:
        own = {"arms": (scale,)}
        low = 68 if scale == "small" else 70
        rf, ntk = (best(table, scale, method) for method in ("random features", "tangent kernel"))
        linear, network = _end(table, scale, "ridge on x"), _end(table, scale, "network")
        yield Claim(*head, f"{scale}: RF, test accuracy, best rate", rf, low, 86.5, **own)
        yield Claim(*head, f"{scale}: NTK, test accuracy, best rate", ntk, low, 86.5, **own)
        both = np.fmax(rf, ntk) if rf.size == ntk.size else []
        yield Claim(*head, f"{scale}: network - best of both, points", _minus(network, both), 12, **own)
        for name, values in (("RF", rf), ("NTK", ntk), ("ridge on x", linear)):
            quantity = f"{scale}: {name}, test accuracy ({CEILING:g} is the best threshold)"
            yield Claim(*head, quantity, values, high=84.4 + 2.5, **own)
        size = best(table, scale, "tangent kernel", "step_size")
        yield Claim(*head, f"{scale}: NTK, chosen step size", size, **own)
        claim9 = "It is the two steps: plain SGD from the same initial weights does not"
        plain = best(table, scale, "plain SGD")
        yield Claim("A9", claim9, "control", f"{scale}: plain SGD, test accuracy, best rate", plain, high=88, **own)
        cos = best(table, scale, "plain SGD", "cos_max")
        yield Claim("A9", claim9, "control", f"{scale}: plain SGD, largest cosine with u", cos, high=0.6, **own)


def _without(table: pd.DataFrame, id: str, label: str, arm: str, structured: str, slack: float) -> Iterable[Claim]:
    claim, source = "Without structure in the inputs, nobody beats guessing", "Theorem 4, Figure 1"
    methods = {name: _end(table, arm, phase) for name, phase in (("network", "network"), ("Two Step", "two step"))}
    methods |= {"RF": best(table, arm, "random features"), "NTK": best(table, arm, "tangent kernel")}
    for name, values in methods.items():
        quantity = f"{label}: {name}, test accuracy"
        yield Claim(id, claim, source, quantity, values, 50 - slack, 50 + slack, arms=(arm,))
    drop = _minus(_end(table, structured, "network"), methods["network"])
    quantity = f"{label}: network, fall from structured inputs, points"
    yield Claim(id, claim, source, quantity, drop, 45, arms=(structured, arm))


def _structure(table: pd.DataFrame, scales: list[str]) -> Iterable[Claim]:
    for scale in scales:
        arm = f"{scale}, {PLAIN}"
        yield from _without(table, "A7", arm, arm, scale, 4 if scale == "small" else 3)
        claim, source = "Without structure in the inputs, nobody beats guessing", "Theorem 4, Figure 1"
        limit = math.nextafter(0.5 if scale == "small" else 0.4, 0)
        quantity = f"{arm}: mean |cosine| with u after step 2"
        yield Claim("A7", claim, source, quantity, _two(table, arm, "cos_mean", 2), high=limit, arms=(arm,))


def _residual(table: pd.DataFrame, scales: list[str]) -> Iterable[Claim]:
    claim = "The second step improves what an unfinished first step left"
    head, largest = ("A8", claim, "Section 4, Figure 2, One Step"), "largest cosine with u after step 1"
    some, full = RESIDUAL[0.65], RESIDUAL[1.0]
    own = {"arms": (full,)}
    yield Claim(*head, f"{full}: {largest}", _two(table, full, "cos_max", 1), 0.65, 0.80, **own)
    one, two = (_end(table, full, f"{name} step, ridge") for name in ("one", "two"))
    yield Claim(*head, f"{full}: One Step, converged head, test accuracy", one, high=88, **own)
    yield Claim(*head, f"{full}: Two Step, converged head, test accuracy", two, 99, **own)
    quantity = f"{full}: mean |cosine| after step 2"
    yield Claim(*head, quantity, _two(table, full, "cos_mean", 2), math.nextafter(0.99, 1), **own)
    yield Claim(*head, f"{some}: {largest}", _two(table, some, "cos_max", 1), 0.80, 0.90, arms=(some,))
    for name in ("one", "two"):
        quantity = f"{some}: {name.title()} Step, converged head, test accuracy"
        yield Claim(*head, quantity, _end(table, some, f"{name} step, ridge"), arms=(some,))
    for scale in scales:
        as_is = _end(table, scale, "one step, as is")
        majority = at(table, scale, "majority", phase="data", step=0)
        off = np.minimum(np.abs(as_is - majority), np.abs(as_is - 100 + majority)) if as_is.size else []
        quantity = f"{scale}: One Step as it is, distance to a constant predictor, points"
        yield Claim(*head, quantity, off, high=2, arms=(scale,))
        for phase, words in (("one step", "SGD head"), ("one step, ridge", "converged head")):
            quantity = f"{scale}: One Step rescaled, {words}, test accuracy"
            yield Claim(*head, quantity, _end(table, scale, phase), arms=(scale,))


def _robust(table: pd.DataFrame, scales: list[str]) -> Iterable[Claim]:
    claim = "The same at other input dimensions, sample sizes and class shares"
    head = ("A10", claim, "Section 4, Figures 9-14")
    for name in _known(table, (f"{key}, structured" for key in VARIED)) or [None]:
        label, own = name or "d in {100, 2000}, n in {25000, 10000}", {"arms": (name,) if name else ()}
        yield Claim(*head, f"{label}: network, test accuracy", _end(table, label, "network"), 99, **own)
        steps = passage(table, label, "network")
        yield Claim(*head, f"{label}: network, first recorded step at 99 %", steps, high=400, **own)
        yield Claim(*head, f"{label}: Two Step, test accuracy", _end(table, label, "two step"), 99, **own)
        if name:
            other = name.replace("structured", PLAIN)
            yield from _without(table, "A10", other, other, name, 3)
            quantity, limit = f"{other}: mean |cosine| after step 2", math.nextafter(0.4, 0)
            yield Claim(*head, quantity, _two(table, other, "cos_mean", 2), high=limit, arms=(other,))
    need = "Under imbalance, steps 1 and 2 need class weights (else: the need is not confirmed)"
    for share in SHARES:
        arm, other = unbalanced(share, True), unbalanced(share, False)
        network = _end(table, arm, "network")
        yield Claim(*head, f"{arm}: network, test accuracy", network, 99, arms=(arm,))
        for name, method in (("RF", "random features"), ("NTK", "tangent kernel")):
            quantity = f"{arm}: {name}, test accuracy"
            yield Claim(*head, quantity, best(table, arm, method), high=100 * share + 8, arms=(arm,))
        bare = _end(table, other, "network")
        spread = [_two(table, name, "bias_sd", 2) for name in (other, arm)]
        ratio = spread[0] / spread[1] if spread[0].size == spread[1].size else np.empty(0)
        either = ((bare < 95) | (ratio > 5)).astype(float) if bare.size == ratio.size else []
        both, needs = (other, arm), ("A11", need, "Appendix F")
        quantity = f"{share:.0%} negative: network below 95 % or step-2 bias s.d. above 5 times weighted (1: yes)"
        yield Claim(*needs, quantity, either, 1, 1, arms=both)
        yield Claim(*needs, f"{other}: network, test accuracy", bare, arms=(other,))
        yield Claim(*needs, f"{share:.0%} negative: bias s.d., unweighted / weighted", ratio, arms=both)


def _interval(table: pd.DataFrame, scales: list[str]) -> Iterable[Claim]:
    claim, source = "The interval rule is a half-space, and easy", "Section 4, interval"
    for words in BOTH.values():
        arm = f"interval, {words}"
        majority = at(table, arm, "majority", phase="data", step=0)
        share = f" (majority {majority.mean():.1f})" if majority.size else ""
        for name, phase in (("network", "network"), ("Two Step", "two step")):
            quantity = f"{arm}: {name}, test accuracy{share}"
            yield Claim("A12", claim, source, quantity, _end(table, arm, phase), 99, arms=(arm,))
        high = 85 if words == "structured" else math.inf
        rf, ntk = (best(table, arm, method) for method in ("random features", "tangent kernel"))
        yield Claim("A12", claim, source, f"{arm}: RF, test accuracy{share}", rf, high=high, arms=(arm,))
        yield Claim("A12", claim, source, f"{arm}: NTK, test accuracy{share}", ntk, arms=(arm,))
        literal = _end(table, arm, "one step, as is")
        quantity = f"{arm}: One Step as it is, test accuracy{share}"
        yield Claim("A12", claim, source, quantity, literal, arms=(arm,))
    arm = "hidden representation"
    claim = "Neurons move onto the difference of the class means"
    for name, values in (
        ("mean |cosine| after step 2", _two(table, arm, "cos_mean", 2)),
        ("network, test accuracy", _end(table, arm, "network")),
    ):
        yield Claim("A12", claim, "Figure 15", f"{arm}: {name}", values, arms=(arm,))


def _elsewhere(table: pd.DataFrame, scales: list[str]) -> Iterable[Claim]:
    claim, source = "Neurons cover every centre of a mixture of Gaussians", "Appendix, Figure 16"
    beyond = math.nextafter(0.9, 0)
    for arm in _known(table, CLUSTERS) or list(CLUSTERS)[:1]:
        rows = {
            "share of centres with a neuron at cosine > 0.9": ("covered", 1.0, 1.0),
            "test accuracy": ("test_acc", 97, math.inf),
            "share of neurons at cosine > 0.9": ("near_share", 0.1, math.inf),
            "lowest best cosine of a centre": ("lowest_best", beyond, math.inf),
        }
        for quantity, (column, low, high) in rows.items():
            values = at(table, arm, column, phase="clusters")
            yield Claim("A13", claim, source, f"{arm}: {quantity}", values, low, high, arms=(arm,))
        before = at(table, arm, "covered", phase="clusters", step=0)
        quantity = f"{arm}: share of covered centres at the start"
        yield Claim("A13", claim, source, quantity, before, 0, 0, arms=(arm,))
    for id, claim, quantity in (
        ("A14", "Weights cluster on real images (MNIST, CIFAR10, SVHN)", "rise of within-cluster cosine"),
        ("A15", "Early gradients of a ResNet agree, filters move early", "smallest of six cosines"),
    ):
        yield Claim(id, claim, "Section 5", f"{quantity} (images are not part of this world)", [])
    source = "Section 5, Figure 4"
    structure = "Networks learn real inputs better than Gaussians labelled by the same teacher"
    chosen = "The teacher is the minimum of the U-curve, by rule, and spreads classes over Gaussians"
    for arm in _known(table, DIGITS) or list(DIGITS)[:1]:
        head, chose, own = ("A16", structure, source), ("A17", chosen, "Section 5, procedure"), {"arms": (arm,)}
        mixed, alone = "student, mixture", "student, digits alone"
        on_l, on_u, whole = (_end(table, arm, mixed, f"{part}_acc") for part in ("L", "U", "whole"))
        reference = _end(table, arm, alone, "L_acc")
        rows = {
            "digits part - Gaussian part": (_minus(on_l, on_u), 8),
            "digits part - student of digits alone (same labels)": (_minus(on_l, reference), -3),
            "student of digits alone - whole mixture": (_minus(reference, whole), ABOVE_ZERO),
        }
        for quantity, (values, low) in rows.items():
            yield Claim(*head, f"{arm}: {quantity}, points", values, low, **own)
        yield Claim(*head, f"{arm}: digits part, mixture, test accuracy", on_l, **own)
        yield Claim(*head, f"{arm}: student of digits alone, test accuracy", reference, **own)
        quantity = f"{arm}: student of digits alone with true labels, test accuracy"
        yield Claim(*head, quantity, _end(table, arm, "student, true labels"), **own)
        ratio = at(table, arm, "count_ratio", phase="labels", step=0)
        quantity = f"{arm}: class counts on Gaussians, largest / smallest"
        yield Claim(*chose, quantity, ratio, high=3, **own)
        used, rule = (at(table, arm, name, phase="labels", step=0) for name in ("teacher_size", "teacher_by_rule"))
        if rule.size and not np.isnan(rule).all():
            yield Claim(*chose, f"{arm}: size used - size by rule", used - rule, 0, 0, **own)
            yield Claim(*chose, f"{arm}: size by rule, hidden units", rule, **own)
    pair = ("small", "small, again")
    twice = [_end(table, name, "network") for name in pair]
    same = np.abs(twice[0][:1] - twice[1]) if twice[1].size and twice[0].size else []
    name = "network trained again with seed 0: difference in test accuracy, points"
    head = ("A18", "Same seed and settings, same result", "reproducibility")
    yield Claim(*head, name, same, high=0.1, kind="identity", arms=pair)


def _published(table: pd.DataFrame, scales: list[str]) -> Iterable[Claim]:
    for scale in scales:
        plain, own = f"{scale}, {PLAIN}", {"arms": (scale,)}
        bare = _end(table, plain, "network", "train_acc")
        claim = "Paper: without structure, training accuracy still reaches 100 %"
        own_plain = {"arms": (plain,), "published": [_main("network, without structure", "train_accuracy_percent")]}
        yield Claim("P1", claim, "Table 1", f"{plain}: network, training accuracy", bare, 99, **own_plain)
        claim = "Paper: weights after one step do not suffice for the second layer"
        one, paper = _end(table, scale, "one step"), [_main("one step", "test_accuracy_percent")]
        quantity = f"{scale}: One Step rescaled, test accuracy"
        yield Claim("P2", claim, "Table 1", quantity, one, high=60, published=paper, **own)
        claim = "Paper: the literal rate of the later steps reaches 100 % in T = 600 steps"
        head = ("P4", claim, "Section 3 schedule, Table 1")
        literal, paper = _end(table, scale, "literal rate"), [_main("network", "test_accuracy_percent")]
        yield Claim(*head, f"{scale}: network at the literal rate, test accuracy", literal, 99, published=paper, **own)
    head = ("P3", "Paper: after step 1 even the best neuron is some way off u (d = 500)", "Table 1")
    own = {"arms": ("main",), "published": [_main("one step", "cosine_max")]}
    cos = _two(table, "main", "cos_max", 1)
    yield Claim(*head, "main: largest cosine with u after step 1", cos, 0.80, 0.90, **own)
    head = ("P5", "Paper: under imbalance, fixed features stay below the majority's share", "Table 4")
    for share, methods in BELOW.items():
        for method in methods:
            arm, where = unbalanced(share, True), {"arm": method, "metric": "test_accuracy_percent"}
            paper = [published.number(PAPER, setting=f"parity; share of class -1: {share}", **where)]
            values, most = best(table, arm, method), math.nextafter(100 * share, 0)
            quantity = f"{arm}: {method}, test accuracy"
            yield Claim(*head, quantity, values, high=most, arms=(arm,), published=paper)
    head, arm = ("P6", "Paper: on the interval rule, One Step is below guessing", "Table 2"), "interval, structured"
    paper = [published.number(PAPER, table="T2", arm="one step", metric="test_accuracy_percent")]
    one = _end(table, arm, "one step, as is")
    quantity = "interval: One Step as it is, test accuracy"
    yield Claim(*head, quantity, one, high=50, arms=(arm,), published=paper)


def _main(arm: str, metric: str) -> float:
    """The paper's number of its main setting."""
    return published.number(PAPER, setting=MAIN, arm=arm, metric=metric)


def _crossing(table: pd.DataFrame) -> Iterable[Claim]:
    ends = {
        (labels, structured): _end(table, grain(labels, structured), "network")
        for labels in GRAINS
        for structured in BOTH
    }
    source = "crossing with label granularity"
    claim = "Fine labels make up for the missing structure of the inputs where their staircase is whole"
    for labels in ("halves", "count", "pattern"):
        rise = _minus(ends[labels, False], ends["rule", False])
        quantity = f"{PLAIN}: parity accuracy with {WORDS[labels]} - with parity labels, points"
        arms = (grain(labels, False), grain("rule", False))
        yield Claim("X1", claim, source, quantity, rise, 40, reason=PILOT, arms=arms)
    for name in WHOLE:
        arm = space(name)
        values = _end(table, arm, "network")
        yield Claim("X1", claim, source, f"{arm}: parity accuracy", values, 99, reason=PILOT, arms=(arm,))
    claim = "Fine labels without a staircase to parity do not, whatever they mean"
    quantity = f"{PLAIN}: parity accuracy with {WORDS['random']}"
    values, arms = ends["random", False], (grain("random", False),)
    yield Claim("X2", claim, source, quantity, values, 46, 54, reason=PILOT, arms=arms)
    for name in BROKEN:
        arm = space(name)
        values = _end(table, arm, "network")
        yield Claim("X2", claim, source, f"{arm}: parity accuracy", values, 46, 54, reason=PILOT, arms=(arm,))
    claim = "What each granularity reaches"
    for (labels, structured), values in ends.items():
        arm = grain(labels, structured)
        yield Claim("X3", claim, source, f"{arm}: parity accuracy", values, arms=(arm,))
        steps = passage(table, arm, "network")
        yield Claim("X3", claim, source, f"{arm}: first recorded step at 99 %", steps, arms=(arm,))
    claim = "Where the neurons point after step 2"
    for labels, structured in ends:
        arm = grain(labels, structured)
        quantity = f"{arm}: mean |cosine| with u after step 2"
        yield Claim("X4", claim, source, quantity, _two(table, arm, "cos_mean", 2), arms=(arm,))
        quantity = f"{arm}: mean share of |w|^2 on relevant patterns after step 2"
        yield Claim("X4", claim, source, quantity, _two(table, arm, "in_relevant", 2), arms=(arm,))
