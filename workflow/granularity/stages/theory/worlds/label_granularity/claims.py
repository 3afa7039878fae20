"""World 1's claims. They read the run table only; bands come from pilot runs of two to five seeds.

Unless a claim compares arms (by the interval of their paired differences), it is judged seed by seed, as the strictest
reading of its band: one seed outside and it fails.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd

from granularity.claims.claim import ABOVE_ZERO, Claim, together
from granularity.stages.theory.runs import at
from granularity.stages.theory.worlds.label_granularity.arms import (
    BASELINE,
    COARSE,
    EARLY,
    EARLY_FINE,
    EQUAL_LOSS,
    EQUAL_STEP,
    FINE,
    FINITE_ARMS,
    GAUSS,
    LONG,
    LONG_FINE,
    MORE_DATA,
    RANDOM,
    RATIOS,
    SCALES,
    SLOW,
    SLOW_RANDOM,
    SLOW_WITHIN,
    SWEEP,
    VARIED,
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
    """S1 to S17 of the run table (see `Claim`)."""
    scales = [s for s in SCALES if (table["setting"] == COARSE.format(s)).any()]
    found: list[Claim] = []
    for part in (_coarse, _fine, _decisions, _growth, _sets, _labels, _chance, _controls, _baseline):
        found += part(table, scales or ["A"])
    return sorted(found, key=lambda check: int(check.id[1:].partition("-")[0]))


def _coarse(table: pd.DataFrame, scales: Iterable[str]) -> Iterable[Claim]:
    claim, source = "Coarse pretraining learns the common feature only", "Theorem 5.1 (E.1.1)"
    for scale in scales:
        arm = COARSE.format(scale)
        normal, hard, own = at(table, arm, "normal_own"), at(table, arm, "hard_own"), {"arms": (arm,)}
        quantity = f"{scale}: training loss at the end"
        yield Claim("S1", claim, source, quantity, at(table, arm, "loss"), high=0.01, **own)
        yield Claim("S1", claim, source, f"{scale}: F_y, normal", normal, low=4, **own)
        for kind in ("normal", "hard"):
            quantity = f"{scale}: F_y', {kind}"
            yield Claim("S1", claim, source, quantity, at(table, arm, f"{kind}_other"), high=0.05, **own)
        yield Claim("S1", claim, source, f"{scale}: F_y hard / normal", hard / normal, *_range(table, arm), **own)
    arms = [COARSE.format(s) for s in scales if s != "P"]
    ks = [np.full(len(at(table, arm, "hard_own")), first(table, arm, "k")) for arm in arms]
    ys = [np.log(at(table, arm, "hard_own")) for arm in arms]
    slope = [np.polyfit(np.log(np.concatenate(ks)), np.concatenate(ys), 1)[0]] if len(arms) > 1 else []
    own = {"seeds": min(map(len, ks), default=0) if slope else 0, "arms": arms}
    claim = "The coarse network's response to hard samples vanishes with the number of subclasses"
    yield Claim("S2", claim, source, "slope of ln(hard F_y) on ln k", slope, -1.15, -0.75, **own)


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
            yield Claim("S3", claim, source, f"{scale}: {quantity}", at(table, arm, column), low, high, arms=(arm,))
        quantity, values = f"{scale}: own output, hard, at T0", at(table, arm, "hard_label", event="T0")
        yield Claim("S3", claim, source, quantity, values, arms=(arm,))
    claim = "Fine and coarse pretraining are far apart on hard samples"
    for scale in scales:
        fine, coarse = at(table, FINE.format(scale), "hard_own"), at(table, COARSE.format(scale), "hard_own")
        ratio = [fine.min() / coarse.max()] if len(fine) and len(coarse) else []
        quantity = f"{scale}: F_y hard, fine / coarse, smallest pair of seeds"
        own = {"seeds": min(len(fine), len(coarse)), "arms": (FINE.format(scale), COARSE.format(scale))}
        yield Claim("S4", claim, source, quantity, ratio, RATIOS[scale], **own)


def _decisions(table: pd.DataFrame, scales: Iterable[str]) -> Iterable[Claim]:
    claim = "Hard samples that nothing disturbs are classified by coarse networks too: the effect needs distractors"
    for scale in scales:
        for arm in (COARSE.format(scale), FINE.format(scale)):
            quantity, values = f"{arm}: hard accuracy without distractors", at(table, arm, "hard_accuracy")
            yield Claim("S5-plain", claim, "not in the paper", quantity, values, 1, 1, arms=(arm,))
    claim, source = (
        "Disturbed hard samples: coarse decisions fail, fine ones hold",
        "Section 5 (made decisive here)",
    )
    for scale in (s for s in scales if s != "P"):
        arm = COARSE.format(scale)
        coarse = at(table, arm, "accuracy_sum_2_distractors")
        quantity, high = f"{scale}: accuracy with 2 distractors, {{}}", 0.35 if scale == "A" else 0.05
        yield Claim("S5", claim, source, quantity.format("coarse"), coarse, high=high, arms=(arm,))
        for head, low in (("sum", 0.85), ("pruned", 0.98)):
            arm = FINE.format(scale)
            values = at(table, arm, f"accuracy_{head}_2_distractors")
            band = low if scale == "A" else -math.inf  # reported elsewhere
            yield Claim("S5", claim, source, quantity.format(f"fine, {head} head"), values, band, arms=(arm,))
    claim = "Normal samples are classified by every head"
    for scale in scales:
        for arm, tail in ((COARSE, ""), (FINE, ""), (FINE, "_pruned"), (FINE, "_max")):
            name = arm.format(scale)
            quantity = f"{name}: normal accuracy, {tail.strip('_') or 'sum'} head"
            values = at(table, name, f"normal_accuracy{tail}")
            yield Claim("S6", claim, "Theorems 5.1, 5.2", quantity, values, 1.0, 1.0, arms=(name,))


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
        yield Claim("S7", claim, source, quantity, slope / theory, 0.95, 1.05, arms=(arm,))
    claim, source = "Afterwards the common response grows as ln t", "Theorem E.1"
    rows = [at(table, LONG, "normal_own", step=t) for t in (200, 2000)]
    k, eta, s, P, n, beta = (first(table, LONG, key) for key in ("k", "eta", "signal", "patches", "n_act", "beta"))
    rate = eta * s**2 * n / (2 * P) * (1 + 1 / k) * (1 - beta)
    own = {"arms": (LONG,)}
    yield Claim("S8", claim, source, "F(2000) - F(200)", rows[1] - rows[0], 2.303 - 0.15, 2.303 + 0.15, **own)
    slope = (np.exp(rows[1]) - np.exp(rows[0])) / 1800
    yield Claim("S8", claim, source, "d(e^F)/dt over steps 200 to 2000 / formula", slope / rate, 0.95, 1.05, **own)
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
        **own,
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
        arms=(LONG_FINE,),
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
        for words, column, low, high in (
            ("neurons that newly fire, at the end", "new_firing", 0, 0),
            ("own-common neurons firing at the end, a class", "common_firing", n, math.inf),
            ("own-subclass neurons firing at the end", "subclass_firing", n, math.inf),
            ("neurons firing on other features, a class", "wrong_firing", 0, 0),
        ):
            yield Claim("S11", claim, source, f"{arm}: {words}", at(table, arm, column), low, high, arms=(arm,))


def _labels(table: pd.DataFrame, scales: Iterable[str]) -> Iterable[Claim]:
    """S12: the response to hard samples against g, with the step, the head and the stopping rule told apart."""
    claim, source = "Response to hard samples rises with the granularity of meaningful labels", "Section 5, crossing"
    equal_step = {1: SWEEP[1], **EQUAL_STEP}
    curves = {
        "step 0.2 g": SWEEP,
        "equal step 0.2": equal_step,
        "equal loss 0.1, step 0.2 g": EQUAL_LOSS,
    }
    for how, arms in curves.items():
        yield from _rises("S12", claim, source, table, how, arms, "hard F_y", lambda a: at(table, a, "hard_own"))
    claim = "Response to hard samples, as a share of that to normal ones: what g does whatever the scale and the step"
    for head, words in (("sum", "the paper's sum head"), ("pruned", "copies of v_y pruned"), ("max", "maximum head")):

        def share(arm: str, tail: str = "" if head == "sum" else f"_{head}") -> np.ndarray:
            return at(table, arm, f"hard_own{tail}") / at(table, arm, f"normal_own{tail}")

        for how, arms in curves.items():
            yield from _rises(f"S12-{head}", claim, source, table, f"{words}, {how}", arms, "hard / normal F_y", share)
    claim = "Hard samples with 2 distractors are answered the better the finer the labels"

    def right(arm: str) -> np.ndarray:
        return at(table, arm, "accuracy_sum_2_distractors")

    for how, arms in curves.items():
        yield from _rises("S12-accuracy", claim, source, table, how, arms, "accuracy", right)


def _rises(id: str, claim: str, source: str, table: pd.DataFrame, how: str, arms: dict, what: str, of) -> list[Claim]:
    """A measure over g = 1, 2, 4, 8, and its step from each g to the next: seed by seed, by their intervals."""
    values = {g: of(arm) for g, arm in arms.items()}
    found = [Claim(id, claim, source, f"{how}: {what}, g = {g}", v, arms=(arms[g],)) for g, v in values.items()]
    steps = []
    for one, two in zip(list(arms)[:-1], list(arms)[1:], strict=True):
        rise = values[two] - values[one] if len(values[one]) and len(values[two]) else []
        quantity, own = (
            f"{how}: {what}, g = {two} minus g = {one}",
            {"judged": "interval", "arms": (arms[one], arms[two])},
        )
        steps.append(Claim(id, claim, source, quantity, rise, ABOVE_ZERO, **own))
    return found + together(steps)


def _chance(table: pd.DataFrame, scales: Iterable[str]) -> Iterable[Claim]:
    """S13: labels that mean nothing, redrawn at every step or fixed on finite data."""
    claim, source = "Fine labels must mean something, where random IDs are redrawn at every step", "Section 5, control"
    below = math.nextafter(1, 0)
    for arm in (WITHIN, SLOW_WITHIN):
        hard, normal = at(table, arm, "hard_own"), at(table, arm, "normal_own")
        yield Claim("S13", claim, source, f"{arm}: hard F_y", hard, high=below, arms=(arm,))
        yield Claim("S13", claim, source, f"{arm}: hard / normal F_y", hard / normal, arms=(arm,))
        quantity = f"{arm}: hard accuracy, 2 distractors"
        yield Claim("S13", claim, source, quantity, at(table, arm, "accuracy_sum_2_distractors"), arms=(arm,))
    claim = "Random IDs over superclasses, redrawn at every step, leave nothing to learn"
    own = {"kind": "identity"}  # of labels that say nothing
    for arm in (RANDOM, SLOW_RANDOM):
        quantity = f"{arm}: hard accuracy (0.5 is chance)"
        yield Claim("S13", claim, source, quantity, at(table, arm, "hard_accuracy"), 0.4, 0.6, arms=(arm,), **own)
        quantity = f"{arm}: training loss (ln 16 = 2.77 is F = 0)"
        yield Claim("S13", claim, source, quantity, at(table, arm, "loss"), arms=(arm,), **own)
    claim = "With the step of fine labels random IDs kill neurons, with the coarse step fewer"
    for arm in (SWEEP[1], SWEEP[8], RANDOM, SLOW_RANDOM, WITHIN, SLOW_WITHIN):
        quantity = f"{arm}: neurons that fire on anything at the end, share"
        yield Claim("S13-alive", claim, source, quantity, at(table, arm, "alive"), arms=(arm,))
    claim = "Fixed random IDs of few samples teach nothing either (64, or 256, seen at every step)"
    for what in ("random IDs within superclasses", MORE_DATA):
        arm = FINITE_ARMS[what]
        yield Claim(
            "S13-fixed", claim, source, f"{what}: hard F_y", at(table, arm, "hard_own"), high=below, arms=(arm,)
        )
    claim = "What fixed labels of few samples teach"
    for what, arm in FINITE_ARMS.items():
        for words, column in (
            ("training loss", "loss"),
            ("neurons that fire, share", "alive"),
            ("held-out normal accuracy", "normal_accuracy"),
            ("hard F_y", "hard_own"),
            ("hard accuracy, 2 distractors", "accuracy_sum_2_distractors"),
        ):
            yield Claim("S13-finite", claim, source, f"{what}: {words}", at(table, arm, column), arms=(arm,))


def _controls(table: pd.DataFrame, scales: Iterable[str]) -> Iterable[Claim]:
    claim = "Coarse finetuning of the merged network keeps the subclass features"
    for head in ("sum", "pruned"):
        phase = f"finetune {head}"
        before, after = (at(table, "A fine", "hard_own", phase=phase, **w) for w in ({"step": 0}, {"event": "end"}))
        quantity, own = f"A, {head}: hard F_y after / before", {"kind": "identity", "arms": ("A fine",)}
        yield Claim("S14", claim, "Section 5, argued", quantity, after / before, 0.98, **own)
    claim = "Not an artefact of conditional sampling: a plain Gaussian draw gives the same ratio"
    hard, normal, own = at(table, GAUSS, "hard_own"), at(table, GAUSS, "normal_own"), {"arms": (GAUSS,)}
    yield Claim("S15", claim, "Theorem 5.1", "training loss at the end", at(table, GAUSS, "loss"), high=0.025, **own)
    yield Claim("S15", claim, "Theorem 5.1", "F_y hard / normal", hard / normal, *_range(table, GAUSS), **own)
    above = at(table, GAUSS, "initial_set", step=0)  # few and random, hence the scatter of the ratio over seeds
    quantity = "neurons above threshold at step 0, a class and feature"
    yield Claim("S15", claim, "Proposition 1", quantity, above, **own)
    claim = "Not an artefact of the learning rate: fine labels with the coarse step size"
    values = at(table, SLOW, "hard_own", step=1500)
    yield Claim("S16", claim, "Theorem 5.2", "hard F_y at step 1500", values, 5, arms=(SLOW,))


def _baseline(table: pd.DataFrame, scales: Iterable[str]) -> Iterable[Claim]:
    claim = "The coarse network answers hard samples about as weakly whatever its initial scale, width, step and batch"
    arms = ["A coarse", *(VARIED.format(key, value) for key, values in BASELINE.items() for value in values)]
    for arm in arms:
        hard, normal, own = at(table, arm, "hard_own"), at(table, arm, "normal_own"), {"arms": (arm,)}
        source = "Theorem 5.1, sizes varied"
        yield Claim("S17", claim, source, f"{arm}: F_y hard / normal", hard / normal, *_range(table, arm), **own)
        quantity = f"{arm}: hard accuracy, 2 distractors"
        yield Claim("S17", claim, source, quantity, at(table, arm, "accuracy_sum_2_distractors"), **own)
        yield Claim("S17", claim, source, f"{arm}: training loss", at(table, arm, "loss"), **own)
