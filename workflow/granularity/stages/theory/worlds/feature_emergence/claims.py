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

from granularity.claims.claim import ABOVE_ZERO, Claim
from granularity.stages.theory.runs import at
from granularity.stages.theory.worlds.feature_emergence.arms import (
    BOTH,
    BROKEN,
    CLUSTERS,
    DIGITS,
    GRAINS,
    PAPER_FIXED,
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
    """A1 to A18, P1 to P6, X1 to X4 of the run table (see `Claim`)."""
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
    found += _crossing(table)
    return sorted(found, key=lambda check: ("APX".index(check.id[0]), int(check.id[1:])))


def _model(table: pd.DataFrame, scales: list[str]) -> Iterable[Claim]:
    for scale in scales:
        low, high = (0.23, 0.27) if scale == "small" else (0.24, 0.26)
        claim, source = (
            "Every pattern is a fair coin; only relevant ones correlate with y",
            "Section 4, inputs",
        )

        def fact(column: str, setting: str = scale) -> np.ndarray:
            return at(table, setting, column, phase="data", step=0)

        z = f"{scale}: {{}}, standard errors"
        yield Claim(
            "A1", claim, source, z.format("largest |pattern mean - 1/2|"), fact("marginal_z"), high=4, kind="identity"
        )
        yield Claim("A1", claim, source, z.format("|mean of y|"), fact("label_z"), high=4, kind="identity")
        for end in ("min", "max"):
            name = f"{scale}: gamma of relevant patterns, {end}"
            yield Claim("A1", claim, source, name, fact(f"gamma_{end}"), low, high, kind="identity")
        name = z.format(f"largest |gamma|, {PLAIN}")
        yield Claim("A1", claim, source, name, fact("gamma_z", f"{scale}, {PLAIN}"), high=4, kind="identity")
        yield Claim("A1", claim, source, f"{scale}: mean of |x|^2", fact("norm2"), 0.99, 1.01, kind="identity")
        claim, source = "The mirrored network is zero at the start and knows no direction", "Section 3, init"
        name = f"{scale}: largest |g| on 100 inputs / sum of |a|"
        yield Claim("A2", claim, source, name, _two(table, scale, "initial_output", 0), high=1e-6, kind="identity")
        scaled = _two(table, scale, "cos_max", 0) * math.sqrt(SCALES[scale]["d"])
        yield Claim(
            "A2", claim, source, f"{scale}: largest cosine with u, times sqrt(d)", scaled, high=4.5, kind="identity"
        )
    claim, source, arm = "The first step wipes the initial weights", "Section 3, schedule", "small, in R^d"
    error = at(table, arm, "gradient_error", phase="reference", step=0)
    name = "noise-smoothed gradient against Monte Carlo, relative error"
    yield Claim("A3", claim, source, name, error, high=0.01, kind="identity")
    name = "share of |w| outside the span of the inputs after step 1"
    yield Claim("A3", claim, source, name, _two(table, arm, "outside", 1), high=1e-4, kind="identity")


def _emergence(table: pd.DataFrame, scales: list[str]) -> Iterable[Claim]:
    for scale in scales:
        claim, source = (
            "Two gradient steps move the neurons onto the relevant direction",
            "Lemmas of steps 1, 2",
        )
        first, second = (_two(table, scale, "cos_mean", step) for step in (1, 2))
        name = f"{scale}: mean |cosine| with u after step {{}}"
        yield Claim("A4", claim, source, name.format(1), first, 0.98)
        yield Claim("A4", claim, source, name.format(2), second, 0.99)
        yield Claim("A4", claim, source, f"{scale}: step 2 - step 1", second - first, 0)
        positive = _two(table, scale, "positive_share", 2)
        yield Claim("A4", claim, source, f"{scale}: share of neurons at +u", positive, 0.3, 0.7)
        claim, source = "The network then classifies perfectly", "Theorem 1, Figure 1"
        network = _end(table, scale, "network")
        yield Claim("A5", claim, source, f"{scale}: network, test accuracy", network, 99)
        steps = passage(table, scale, "network")
        yield Claim("A5", claim, source, f"{scale}: network, first recorded step at 99 %", steps, high=400)
        two = _end(table, scale, "two step")
        yield Claim("A5", claim, source, f"{scale}: Two Step, test accuracy", two, 99)
    dead = 1 - _two(table, "small, no noise", "alive", 2)
    claim = "Without neuron noise, half the neurons die in step 2, the others do as well"
    yield Claim("A5", claim, "control", "small, no noise: share of dead neurons", dead)
    accuracy = _end(table, "small, no noise", "network")
    yield Claim("A5", claim, "control", "small, no noise: network, test accuracy", accuracy)


def _fixed(table: pd.DataFrame, scales: list[str]) -> Iterable[Claim]:
    claim, source = "Fixed features of the same size cannot", "Theorem 2, Figure 1"
    for scale in scales:
        low = 68 if scale == "small" else 70
        rf, ntk = (best(table, scale, method) for method in ("random features", "tangent kernel"))
        linear, network = _end(table, scale, "ridge on x"), _end(table, scale, "network")
        yield Claim("A6", claim, source, f"{scale}: RF, test accuracy, best rate", rf, low, 86.5)
        yield Claim("A6", claim, source, f"{scale}: NTK, test accuracy, best rate", ntk, low, 86.5)
        both = np.fmax(rf, ntk) if rf.size == ntk.size else []
        yield Claim("A6", claim, source, f"{scale}: network - best of both, points", _minus(network, both), 12)
        for name, values in (("RF", rf), ("NTK", ntk), ("ridge on x", linear)):
            quantity = f"{scale}: {name}, test accuracy ({CEILING:g} is the best threshold)"
            yield Claim("A6", claim, source, quantity, values, high=84.4 + 2.5)
        yield Claim(
            "A6",
            claim,
            source,
            f"{scale}: NTK, chosen step size",
            best(table, scale, "tangent kernel", "step_size"),
        )
        claim9 = "It is the two steps: plain SGD from the same initial weights does not"
        plain = best(table, scale, "plain SGD")
        yield Claim("A9", claim9, "control", f"{scale}: plain SGD, test accuracy, best rate", plain, high=88)
        cos = best(table, scale, "plain SGD", "cos_max")
        yield Claim("A9", claim9, "control", f"{scale}: plain SGD, largest cosine with u", cos, high=0.6)


def _without(table: pd.DataFrame, id: str, label: str, arm: str, structured: str, slack: float) -> Iterable[Claim]:
    claim, source = "Without structure in the inputs, nobody beats guessing", "Theorem 4, Figure 1"
    methods = {name: _end(table, arm, phase) for name, phase in (("network", "network"), ("Two Step", "two step"))}
    methods |= {"RF": best(table, arm, "random features"), "NTK": best(table, arm, "tangent kernel")}
    for name, values in methods.items():
        quantity = f"{label}: {name}, test accuracy"
        yield Claim(id, claim, source, quantity, values, 50 - slack, 50 + slack)
    drop = _minus(_end(table, structured, "network"), methods["network"])
    yield Claim(id, claim, source, f"{label}: network, fall from structured inputs, points", drop, 45)


def _structure(table: pd.DataFrame, scales: list[str]) -> Iterable[Claim]:
    for scale in scales:
        arm = f"{scale}, {PLAIN}"
        yield from _without(table, "A7", arm, arm, scale, 4 if scale == "small" else 3)
        claim, source = "Without structure in the inputs, nobody beats guessing", "Theorem 4, Figure 1"
        limit = math.nextafter(0.5 if scale == "small" else 0.4, 0)
        quantity = f"{arm}: mean |cosine| with u after step 2"
        yield Claim("A7", claim, source, quantity, _two(table, arm, "cos_mean", 2), high=limit)


def _residual(table: pd.DataFrame, scales: list[str]) -> Iterable[Claim]:
    claim, source = (
        "The second step improves what an unfinished first step left",
        "Section 4, Figure 2, One Step",
    )
    some, full = RESIDUAL[0.65], RESIDUAL[1.0]
    largest = "largest cosine with u after step 1"
    yield Claim("A8", claim, source, f"{full}: {largest}", _two(table, full, "cos_max", 1), 0.65, 0.80)
    one, two = (_end(table, full, f"{name} step, ridge") for name in ("one", "two"))
    yield Claim("A8", claim, source, f"{full}: One Step, converged head, test accuracy", one, high=88)
    yield Claim("A8", claim, source, f"{full}: Two Step, converged head, test accuracy", two, 99)
    mean = math.nextafter(0.99, 1)
    quantity = f"{full}: mean |cosine| after step 2"
    yield Claim("A8", claim, source, quantity, _two(table, full, "cos_mean", 2), mean)
    yield Claim("A8", claim, source, f"{some}: {largest}", _two(table, some, "cos_max", 1), 0.80, 0.90)
    for name in ("one", "two"):
        quantity = f"{some}: {name.title()} Step, converged head, test accuracy"
        yield Claim("A8", claim, source, quantity, _end(table, some, f"{name} step, ridge"))
    for scale in scales:
        as_is = _end(table, scale, "one step, as is")
        majority = at(table, scale, "majority", phase="data", step=0)
        off = np.minimum(np.abs(as_is - majority), np.abs(as_is - 100 + majority)) if as_is.size else []
        quantity = f"{scale}: One Step as it is, distance to a constant predictor, points"
        yield Claim("A8", claim, source, quantity, off, high=2)
        for phase, words in (("one step", "SGD head"), ("one step, ridge", "converged head")):
            quantity = f"{scale}: One Step rescaled, {words}, test accuracy"
            yield Claim("A8", claim, source, quantity, _end(table, scale, phase))


def _robust(table: pd.DataFrame, scales: list[str]) -> Iterable[Claim]:
    claim, source = (
        "The same at other input dimensions, sample sizes and class shares",
        "Section 4, Figures 9-14",
    )
    for name in _known(table, (f"{key}, structured" for key in VARIED)) or [None]:
        label = name or "d in {100, 2000}, n in {25000, 10000}"
        yield Claim("A10", claim, source, f"{label}: network, test accuracy", _end(table, label, "network"), 99)
        steps = passage(table, label, "network")
        yield Claim("A10", claim, source, f"{label}: network, first recorded step at 99 %", steps, high=400)
        yield Claim("A10", claim, source, f"{label}: Two Step, test accuracy", _end(table, label, "two step"), 99)
        if name:
            other = name.replace("structured", PLAIN)
            yield from _without(table, "A10", other, other, name, 3)
            limit = math.nextafter(0.4, 0)
            quantity = f"{other}: mean |cosine| after step 2"
            yield Claim("A10", claim, source, quantity, _two(table, other, "cos_mean", 2), high=limit)
    need = "Under imbalance, steps 1 and 2 need class weights (else: the need is not confirmed)"
    for share in SHARES:
        arm, other = unbalanced(share, True), unbalanced(share, False)
        network = _end(table, arm, "network")
        yield Claim("A10", claim, source, f"{arm}: network, test accuracy", network, 99)
        for name, method in (("RF", "random features"), ("NTK", "tangent kernel")):
            quantity = f"{arm}: {name}, test accuracy"
            yield Claim("A10", claim, source, quantity, best(table, arm, method), high=100 * share + 8)
        bare = _end(table, other, "network")
        spread = [_two(table, name, "bias_sd", 2) for name in (other, arm)]
        ratio = spread[0] / spread[1] if spread[0].size == spread[1].size else np.empty(0)
        either = ((bare < 95) | (ratio > 5)).astype(float) if bare.size == ratio.size else []
        quantity = f"{share:.0%} negative: network below 95 % or step-2 bias s.d. above 5 times weighted (1: yes)"
        yield Claim("A11", need, "Appendix F", quantity, either, 1, 1)
        yield Claim("A11", need, "Appendix F", f"{other}: network, test accuracy", bare)
        yield Claim("A11", need, "Appendix F", f"{share:.0%} negative: bias s.d., unweighted / weighted", ratio)


def _interval(table: pd.DataFrame, scales: list[str]) -> Iterable[Claim]:
    claim, source = "The interval rule is a half-space, and easy", "Section 4, interval"
    for words in BOTH.values():
        arm = f"interval, {words}"
        majority = at(table, arm, "majority", phase="data", step=0)
        share = f" (majority {majority.mean():.1f})" if majority.size else ""
        for name, phase in (("network", "network"), ("Two Step", "two step")):
            quantity = f"{arm}: {name}, test accuracy{share}"
            yield Claim("A12", claim, source, quantity, _end(table, arm, phase), 99)
        high = 85 if words == "structured" else math.inf
        rf, ntk = (best(table, arm, method) for method in ("random features", "tangent kernel"))
        yield Claim("A12", claim, source, f"{arm}: RF, test accuracy{share}", rf, high=high)
        yield Claim("A12", claim, source, f"{arm}: NTK, test accuracy{share}", ntk)
        literal = _end(table, arm, "one step, as is")
        yield Claim("A12", claim, source, f"{arm}: One Step as it is, test accuracy{share}", literal)
    arm = "hidden representation"
    claim = "Neurons move onto the difference of the class means"
    for name, values in (
        ("mean |cosine| after step 2", _two(table, arm, "cos_mean", 2)),
        ("network, test accuracy", _end(table, arm, "network")),
    ):
        yield Claim("A12", claim, "Figure 15", f"{arm}: {name}", values)


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
            yield Claim("A13", claim, source, f"{arm}: {quantity}", values, low, high)
        before = at(table, arm, "covered", phase="clusters", step=0)
        yield Claim("A13", claim, source, f"{arm}: share of covered centres at the start", before, 0, 0)
    for id, claim, quantity in (
        ("A14", "Weights cluster on real images (MNIST, CIFAR10, SVHN)", "rise of within-cluster cosine"),
        ("A15", "Early gradients of a ResNet agree, filters move early", "smallest of six cosines"),
    ):
        yield Claim(id, claim, "Section 5", f"{quantity} (images are not part of this world)", [])
    structure = "Networks learn real inputs better than Gaussians labelled by the same teacher"
    chosen = "The teacher is the minimum of the U-curve, by rule, and spreads classes over Gaussians"
    for arm in _known(table, DIGITS) or list(DIGITS)[:1]:
        mixed, alone = "student, mixture", "student, digits alone"
        on_l, on_u, whole = (_end(table, arm, mixed, f"{part}_acc") for part in ("L", "U", "whole"))
        reference = _end(table, arm, alone, "L_acc")
        rows = {
            "digits part - Gaussian part": (_minus(on_l, on_u), 8),
            "digits part - student of digits alone (same labels)": (_minus(on_l, reference), -3),
            "student of digits alone - whole mixture": (_minus(reference, whole), ABOVE_ZERO),
        }
        for quantity, (values, low) in rows.items():
            yield Claim("A16", structure, "Section 5, Figure 4", f"{arm}: {quantity}, points", values, low)
        own = _end(table, arm, "student, true labels")
        yield Claim("A16", structure, "Section 5, Figure 4", f"{arm}: digits part, mixture, test accuracy", on_l)
        quantity = f"{arm}: student of digits alone, test accuracy"
        yield Claim("A16", structure, "Section 5, Figure 4", quantity, reference)
        quantity = f"{arm}: student of digits alone with true labels, test accuracy"
        yield Claim("A16", structure, "Section 5, Figure 4", quantity, own)
        ratio = at(table, arm, "count_ratio", phase="labels", step=0)
        quantity = f"{arm}: class counts on Gaussians, largest / smallest"
        yield Claim("A17", chosen, "Section 5, procedure", quantity, ratio, high=3)
        used, rule = (at(table, arm, name, phase="labels", step=0) for name in ("teacher_size", "teacher_by_rule"))
        if rule.size and not np.isnan(rule).all():
            yield Claim("A17", chosen, "Section 5, procedure", f"{arm}: size used - size by rule", used - rule, 0, 0)
            yield Claim("A17", chosen, "Section 5, procedure", f"{arm}: size by rule, hidden units", rule)
    twice = [_end(table, name, "network") for name in ("small", "small, again")]
    same = np.abs(twice[0][:1] - twice[1]) if twice[1].size and twice[0].size else []
    name = "network trained again with seed 0: difference in test accuracy, points"
    yield Claim("A18", "Same seed and settings, same result", "reproducibility", name, same, high=0.1, kind="identity")


def _published(table: pd.DataFrame, scales: list[str]) -> Iterable[Claim]:
    for scale in scales:
        bare = _end(table, f"{scale}, {PLAIN}", "network", "train_acc")
        claim = "Paper: without structure, training accuracy still reaches 100 %"
        yield Claim("P1", claim, "Table 1", f"{scale}, {PLAIN}: network, training accuracy", bare, 99)
        claim = "Paper: weights after one step do not suffice for the second layer (52.2 %)"
        one = _end(table, scale, "one step")
        yield Claim("P2", claim, "Table 1", f"{scale}: One Step rescaled, test accuracy", one, high=60)
        claim = "Paper: the literal rate of the later steps reaches 100 % in T = 600 steps"
        literal = _end(table, scale, "literal rate")
        yield Claim(
            "P4",
            claim,
            "Section 3 schedule, Table 1",
            f"{scale}: network at the literal rate, test accuracy",
            literal,
            99,
        )
    claim = "Paper: after step 1 the best neuron is at cosine 0.848 (d = 500)"
    cos = _two(table, "main", "cos_max", 1)
    yield Claim("P3", claim, "Table 1", "main: largest cosine with u after step 1", cos, 0.80, 0.90)
    claim = "Paper: under imbalance, fixed features stay below the majority's share"
    for share, numbers in PAPER_FIXED.items():
        for name in numbers:
            method = "random features" if name == "RF" else "tangent kernel"
            quantity = f"{unbalanced(share, True)}: {name}, test accuracy (paper {numbers[name]})"
            values = best(table, unbalanced(share, True), method)
            yield Claim("P5", claim, "Tables 4, 5", quantity, values, high=math.nextafter(100 * share, 0))
    claim = "Paper: on the interval rule, One Step is below guessing (41.0 %)"
    one = _end(table, "interval, structured", "one step, as is")
    yield Claim("P6", claim, "Table 2", "interval: One Step as it is, test accuracy", one, high=50)


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
        yield Claim("X1", claim, source, quantity, rise, 40, reason=PILOT)
    for name in WHOLE:
        yield Claim("X1", claim, source, f"{space(name)}: parity accuracy", _end(table, space(name), "network"), 99)
    claim = "Fine labels without a staircase to parity do not, whatever they mean"
    quantity = f"{PLAIN}: parity accuracy with {WORDS['random']}"
    yield Claim("X2", claim, source, quantity, ends["random", False], 46, 54, reason=PILOT)
    for name in BROKEN:
        values = _end(table, space(name), "network")
        yield Claim("X2", claim, source, f"{space(name)}: parity accuracy", values, 46, 54, reason=PILOT)
    claim = "What each granularity reaches"
    for (labels, structured), values in ends.items():
        arm = grain(labels, structured)
        yield Claim("X3", claim, source, f"{arm}: parity accuracy", values)
        yield Claim("X3", claim, source, f"{arm}: first recorded step at 99 %", passage(table, arm, "network"))
    claim = "Where the neurons point after step 2"
    for labels, structured in ends:
        arm = grain(labels, structured)
        quantity = f"{arm}: mean |cosine| with u after step 2"
        yield Claim("X4", claim, source, quantity, _two(table, arm, "cos_mean", 2))
        quantity = f"{arm}: mean share of |w|^2 on relevant patterns after step 2"
        yield Claim("X4", claim, source, quantity, _two(table, arm, "in_relevant", 2))
