"""World 1's claims. They read the run table only; bands were set before any run.

Every claim is judged seed by seed, as the strictest reading of its band: one seed outside and it fails.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd

from granularity.claims.claim import ABOVE_ZERO, Claim
from granularity.stages.theory.runs import at
from granularity.stages.theory.worlds.label_granularity.arms import (
    COARSE,
    EARLY,
    EARLY_FINE,
    FINE,
    GAUSS,
    LONG,
    LONG_FINE,
    RANDOM,
    RATIOS,
    SCALES,
    SLOW,
    SWEEP,
    WITHIN,
)

# ---------------------------------------------------------------- claims


def first(table: pd.DataFrame, setting: str, key: str) -> float:
    found = table.loc[table["setting"] == setting, key]
    return float(found.iloc[0]) if len(found) else math.nan


def _range(table: pd.DataFrame, setting: str) -> tuple[float, float]:
    """Between q/(k + q) and 1/(k + 1), a tenth wider: the hard/normal ratio of coarse networks."""
    k, q = (
        first(table, setting, "k"),
        (1 - first(table, setting, "signal") / first(table, setting, "patches")) ** 2,
    )
    return 0.9 * q / (k + q), 1.1 / (k + 1)


def judge(table: pd.DataFrame) -> list[Claim]:
    """S1 to S16 of the run table (see `Claim`)."""
    scales = [s for s in SCALES if (table["setting"] == COARSE.format(s)).any()]
    found: list[Claim] = []
    for part in (_coarse, _fine, _decisions, _growth, _sets, _labels, _controls):
        found += part(table, scales or ["A"])
    return sorted(found, key=lambda check: int(check.id[1:]))


def _coarse(table: pd.DataFrame, scales: Iterable[str]) -> Iterable[Claim]:
    claim, source = "Coarse pretraining learns the common feature only", "Theorem 5.1 (E.1.1)"
    for scale in scales:
        arm = COARSE.format(scale)
        normal, hard = at(table, arm, "normal_own"), at(table, arm, "hard_own")
        yield Claim("S1", claim, source, f"{scale}: training loss at the end", at(table, arm, "loss"), high=0.01)
        yield Claim("S1", claim, source, f"{scale}: F_y, normal", normal, low=4)
        for kind in ("normal", "hard"):
            yield Claim("S1", claim, source, f"{scale}: F_y', {kind}", at(table, arm, f"{kind}_other"), high=0.05)
        yield Claim("S1", claim, source, f"{scale}: F_y hard / normal", hard / normal, *_range(table, arm))
    arms = [COARSE.format(s) for s in scales if s != "P"]
    ks = [np.full(len(at(table, arm, "hard_own")), first(table, arm, "k")) for arm in arms]
    ys = [np.log(at(table, arm, "hard_own")) for arm in arms]
    slope = [np.polyfit(np.log(np.concatenate(ks)), np.concatenate(ys), 1)[0]] if len(arms) > 1 else []
    count = min(map(len, ks), default=0)
    claim = "The coarse network's response to hard samples vanishes with the number of subclasses"
    yield Claim("S2", claim, source, "slope of ln(hard F_y) on ln k", slope, -1.15, -0.75, seeds=count if slope else 0)


def _fine(table: pd.DataFrame, scales: Iterable[str]) -> Iterable[Claim]:
    claim, source = "Fine pretraining learns common and subclass features", "Theorem 5.2, Proposition 3"
    for scale in scales:
        arm = FINE.format(scale)
        rows = (
            ("training loss at the end", "loss", -math.inf, 0.03),
            ("own output, hard", "hard_label", 3, math.inf),
            ("largest other output, hard", "hard_label_other_max", -math.inf, 0.05),
            ("sum head F_y, normal", "normal_own", 3, math.inf),
            ("sum head F_y, hard", "hard_own", 3, math.inf),
            ("sum head F_y', normal", "normal_other", -math.inf, 0.05),
            ("sum head F_y', hard", "hard_other", -math.inf, 0.05),
        )
        for quantity, column, low, high in rows:
            yield Claim("S3", claim, source, f"{scale}: {quantity}", at(table, arm, column), low, high)
        yield Claim("S3", claim, source, f"{scale}: own output, hard, at T0", at(table, arm, "hard_label", event="T0"))
    claim = "Fine and coarse pretraining are far apart on hard samples"
    for scale in scales:
        fine, coarse = at(table, FINE.format(scale), "hard_own"), at(table, COARSE.format(scale), "hard_own")
        ratio = [fine.min() / coarse.max()] if len(fine) and len(coarse) else []
        quantity = f"{scale}: F_y hard, fine / coarse, smallest pair of seeds"
        yield Claim("S4", claim, source, quantity, ratio, RATIOS[scale], seeds=min(len(fine), len(coarse)))


def _decisions(table: pd.DataFrame, scales: Iterable[str]) -> Iterable[Claim]:
    claim, source = (
        "Disturbed hard samples: coarse decisions fail, fine ones hold",
        "Section 5 (made decisive here)",
    )
    for scale in (s for s in scales if s != "P"):
        coarse = at(table, COARSE.format(scale), "accuracy_sum_2_distractors")
        quantity = f"{scale}: accuracy with 2 distractors, {{}}"
        yield Claim("S5", claim, source, quantity.format("coarse"), coarse, high=0.35 if scale == "A" else 0.05)
        for head, low in (("sum", 0.85), ("pruned", 0.98)):
            values = at(table, FINE.format(scale), f"accuracy_{head}_2_distractors")
            band = low if scale == "A" else -math.inf  # reported elsewhere
            yield Claim("S5", claim, source, quantity.format(f"fine, {head} head"), values, band)
    claim = "Normal samples are classified by every head"
    for scale in scales:
        for arm, tail in ((COARSE, ""), (FINE, ""), (FINE, "_pruned"), (FINE, "_max")):
            name = arm.format(scale)
            quantity = f"{name}: normal accuracy, {tail.strip('_') or 'sum'} head"
            yield Claim(
                "S6",
                claim,
                "Theorems 5.1, 5.2",
                quantity,
                at(table, name, f"normal_accuracy{tail}"),
                1.0,
                1.0,
            )


def _growth(table: pd.DataFrame, scales: Iterable[str]) -> Iterable[Claim]:
    claim, source = "Weights first grow linearly, a common feature k times faster", "Phase I (proofs of E.1)"
    for arm, column in (
        (EARLY, "common"),
        (EARLY, "subclass"),
        (EARLY_FINE, "common"),
        (EARLY_FINE, "subclass"),
    ):
        k, eta, s, P, steps = (first(table, arm, key) for key in ("k", "eta", "signal", "patches", "steps"))
        step = eta * s / (2 * P)
        fine = {"common": step / (2 * k), "subclass": step * (1 - 1 / (2 * k)) / k}
        theory = fine[column] if arm == EARLY_FINE else step / 2 / (1 if column == "common" else k)
        name = f"{column}_weight"
        slope = (at(table, arm, name, step=15) - at(table, arm, name, step=0)) / steps
        quantity = f"{arm.removeprefix('phase I, ')}: slope of <w, v_{column}> / formula"
        yield Claim("S7", claim, source, quantity, slope / theory, 0.95, 1.05)
    claim, source = "Afterwards the common response grows as ln t", "Theorem E.1"
    rows = [at(table, LONG, "normal_own", step=t) for t in (200, 2000)]
    k, eta, s, P, n, beta = (first(table, LONG, key) for key in ("k", "eta", "signal", "patches", "n_act", "beta"))
    rate = eta * s**2 * n / (2 * P) * (1 + 1 / k) * (1 - beta)
    yield Claim("S8", claim, source, "F(2000) - F(200)", rows[1] - rows[0], 2.303 - 0.15, 2.303 + 0.15)
    slope = (np.exp(rows[1]) - np.exp(rows[0])) / 1800
    yield Claim("S8", claim, source, "d(e^F)/dt over steps 200 to 2000 / formula", slope / rate, 0.95, 1.05)
    later = table[(table["setting"] == LONG) & (table["step"] >= 20)]
    ratio = later["hard_own"] / later["normal_own"] * (k + 1)
    claim = "The coarse response to hard samples is 1/(k + 1) of that to normal ones at all times"
    yield Claim(
        "S9",
        claim,
        "Theorem 5.1, finite size",
        "(k + 1) F_y hard / normal, worst step >= 20",
        _worst(later, ratio),
        0.97,
        1.03,
    )
    some = table[(table["setting"] == LONG_FINE) & table["step"].isin([5, 20, 100, 200])]
    a, k = some["hard_label"], first(table, LONG_FINE, "k")
    g = some["normal_label"] - a
    claim = "Fine responses: common g and subclass a obey a = g + (1 - 1/k)(e^g - 1)"
    quantity = "a / formula, worst of steps 5, 20, 100, 200"
    yield Claim(
        "S10",
        claim,
        "Proposition 3, finite size",
        quantity,
        _worst(some, a / (g + (1 - 1 / k) * (np.exp(g) - 1))),
        0.9,
        1.1,
    )


def _worst(rows: pd.DataFrame, ratio: pd.Series) -> list[float]:
    """For each seed the ratio farthest from 1 (NaN wins)."""
    grouped = ratio.groupby(rows["seed"])
    return [float(part.iloc[(part - 1).abs().fillna(math.inf).argmax()]) for _, part in grouped]


def _sets(table: pd.DataFrame, scales: Iterable[str]) -> Iterable[Claim]:
    claim, source = (
        "No neuron starts to fire; own features' neurons survive, wrong ones die",
        "Invariance (E.1), A",
    )
    for arm in ("A coarse", "A fine"):
        n = first(table, arm, "n_act")
        yield Claim(
            "S11",
            claim,
            source,
            f"{arm}: neurons that newly fire, at the end",
            at(table, arm, "new_firing"),
            0,
            0,
        )
        yield Claim(
            "S11",
            claim,
            source,
            f"{arm}: own-common neurons firing at the end, a class",
            at(table, arm, "common_firing"),
            n,
        )
        yield Claim(
            "S11",
            claim,
            source,
            f"{arm}: own-subclass neurons firing at the end",
            at(table, arm, "subclass_firing"),
            n,
        )
        yield Claim(
            "S11",
            claim,
            source,
            f"{arm}: neurons firing on other features, a class",
            at(table, arm, "wrong_firing"),
            0,
            0,
        )


def _labels(table: pd.DataFrame, scales: Iterable[str]) -> Iterable[Claim]:
    claim, source = (
        "Response to hard samples rises with the granularity of meaningful labels",
        "Section 5, crossing",
    )
    curve = [at(table, arm, "hard_own") for arm in SWEEP.values()]
    rises = np.diff(curve, axis=0).min(0) if all(map(len, curve)) else []
    first = curve[1] / curve[0] if len(curve[0]) and len(curve[1]) else []
    yield Claim("S12", claim, source, "hard F_y, smallest rise over g = 1, 2, 4, 8", rises, ABOVE_ZERO)
    yield Claim("S12", claim, source, "hard F_y, g = 2 / g = 1", first, 4)
    for g, values in zip(SWEEP, curve, strict=True):
        yield Claim("S12", claim, source, f"hard F_y, g = {g}", values)
    claim, source = "Fine labels must mean something", "Section 5, control"
    yield Claim(
        "S13",
        claim,
        source,
        "random IDs within superclasses: hard F_y",
        at(table, WITHIN, "hard_own"),
        high=math.nextafter(1, 0),
    )
    yield Claim(
        "S13",
        claim,
        source,
        "random IDs: hard accuracy (0.5 is chance)",
        at(table, RANDOM, "hard_accuracy"),
        0.4,
        0.6,
    )
    yield Claim("S13", claim, source, "random IDs: training loss (ln 16 = 2.77 is F = 0)", at(table, RANDOM, "loss"))


def _controls(table: pd.DataFrame, scales: Iterable[str]) -> Iterable[Claim]:
    claim = "Coarse finetuning of the merged network keeps the subclass features"
    for head in ("sum", "pruned"):
        phase = f"finetune {head}"
        before, after = (at(table, "A fine", "hard_own", phase=phase, **w) for w in ({"step": 0}, {"event": "end"}))
        yield Claim("S14", claim, "Section 5, argued", f"A, {head}: hard F_y after / before", after / before, 0.98)
    claim = "Not an artefact of conditional sampling: a plain Gaussian draw gives the same ratio"
    hard, normal = at(table, GAUSS, "hard_own"), at(table, GAUSS, "normal_own")
    yield Claim("S15", claim, "Theorem 5.1", "training loss at the end", at(table, GAUSS, "loss"), high=0.025)
    yield Claim("S15", claim, "Theorem 5.1", "F_y hard / normal", hard / normal, *_range(table, GAUSS))
    above = at(table, GAUSS, "initial_set", step=0)  # few and random, hence the scatter of the ratio over seeds
    yield Claim("S15", claim, "Proposition 1", "neurons above threshold at step 0, a class and feature", above)
    claim = "Not an artefact of the learning rate: fine labels with the coarse step size"
    yield Claim("S16", claim, "Theorem 5.2", "hard F_y at step 1500", at(table, SLOW, "hard_own", step=1500), 5)
