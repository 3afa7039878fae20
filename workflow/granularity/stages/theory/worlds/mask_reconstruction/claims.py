"""Claims of mask reconstruction. They read the run table only; bands were set before any run.

A: exact identities. B: the simulations' claims. P: the paper's own statements, literally, where a finite size
is known to miss them; their text begins with "Paper:". C: the crossing with label granularity. R: other
settings. Every seed is judged unless the quantity says mean or interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from granularity.claims.claim import ABOVE_ZERO, Claim
from granularity.stages.theory.runs import at
from granularity.stages.theory.worlds.mask_reconstruction.arms import (
    AVERAGE,
    BLOCK,
    CLASSES,
    CROSSED,
    ENDLESS,
    EXACT,
    JOINT,
    LITERAL,
    LONGER,
    MORE,
    MUS,
    PAPER,
    RANDOM,
    STABLE,
    VIEWS,
    WIDE,
)
from granularity.stages.theory.worlds.mask_reconstruction.settings import Settings

# ---------------------------------------------------------------- claims


def final(table: pd.DataFrame, arm: str, column: str, phase: str = "finetune") -> np.ndarray:
    return at(table, arm, column, phase=phase)


def kernel(table: pd.DataFrame, arm: str, column: str, **where: Any) -> np.ndarray:
    return at(table, arm, column, phase="pretrain", **where)


def both(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a - b for every seed, empty where one arm is absent."""
    return a - b if len(a) and len(b) else np.empty(0)


def interval(values: np.ndarray) -> tuple[float, float]:
    """Student's 95 % interval of the mean over seeds."""
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
    return values.mean() - half, values.mean() + half


def judge(table: pd.DataFrame) -> list[Claim]:
    """A1 to A8, B1 to B13, P1 to P8, C1 to C6 and R1 to R4 (see the module)."""
    parts = (_identities, _reconstruction, _supervised, _settings, _kernels, _paper, _crossing, _more)
    return [check for part in parts for check in part(table)]


def _identities(table: pd.DataFrame) -> Iterable[Claim]:
    claims = {
        "A1": ("The drawn data are those of the data model", "Definition 3.1"),
        "A2": ("The activation is once differentiable", "Section 3"),
        "A3": ("The closed form is the exact average over masks, without a teacher gradient", "Section 3"),
        "A4": ("Without masks there is nothing to learn", "Section 3"),
        "A5": ("With u = 0 the first step moves the head alone", "Section 3, fine-tuning"),
        "A6": ("Below the threshold a semantic grows as Lambda^(2q-1)", "Claims D.5, D.6"),
        "A7": ("tau does not stop growth: it settles only where kappa n < 1", "one-sample model"),
        "A8": ("The same seed gives the same numbers", "reproducibility"),
    }
    q = table.loc[table["setting"] == EXACT, "q"]
    slope = 2 * int(q.iloc[0]) - 1 if len(q) else 15
    rows = (
        ("A1", "rates: worst deviation, standard errors", "data_worst_rate", 0, 4),
        ("A1", "values outside their ranges, wrong counts", "data_violations", 0, 0),
        ("A1", "noise: worst relative error of its sd", "data_noise_error", 0, 0.01),
        ("A2", "jump of value or slope at 0 and at the threshold", "activation_jump", 0, 1e-6),
        ("A2", "error at twice the threshold", "activation_error", 0, 1e-15),
        ("A3", "loss: relative error", "loss_error", 0, 1e-5),
        ("A3", "gradient against autograd: relative error", "gradient_error", 0, 1e-6),
        ("A3", "the same, were the teacher's gradient on", "error_if_teacher_moved", 1e-2, math.inf),
        ("A3", "loss, were theta the drop rate", "error_if_theta_dropped", 1e-2, math.inf),
        ("A4", "largest entry of the gradient at theta = 1", "step_without_masks", 0, 0),
        ("A5", "first kernel step", "first_kernel_step", 0, 0),
        ("A5", "first head step: relative error", "first_head_step_error", 0, 1e-12),
        ("A6", "growth in a step: worst relative error", "growth_error", 0, 1e-4),
        (
            "A6",
            f"exponent of the growth law (2q - 1 = {slope})",
            "growth_exponent",
            slope - 0.05,
            slope + 0.05,
        ),
        ("A7", "kappa 0.3, one semantic: error of the fixed point", "fixed_point_error_1", 0, 0.01),
        ("A7", "kappa 0.3, two semantics: error of the fixed point", "fixed_point_error_2", 0, 0.01),
        ("A7", "kappa 1, one: growth in a step / eta (1 - 1/q) threshold", "linear_growth", 0.99, 1.01),
        ("A7", "kappa 1, two: R^2 of log w on the step", "exponential_r2", 0.99, 1),
        ("A7", "kappa 1, two: rise of log w in a step at eta 0.02", "exponential_rate", -math.inf, math.inf),
        ("A8", "runs that differ", "repeats_differ", 0, 0),
    )
    for id, quantity, column, low, high in rows:
        values = at(table, EXACT, column, phase="identities")
        yield Claim(id, *claims[id], quantity, values, low, high)


def _reconstruction(table: pd.DataFrame) -> Iterable[Claim]:
    claim, source = "Mask reconstruction captures every semantic", "Theorem 1a"
    for arm in (STABLE, PAPER):
        captured = kernel(table, arm, "captured") == 20
        share = [captured.mean()] if captured.size else []
        quantity = f"{arm}: seeds with 20 of 20 captured within 1500 steps, share"
        yield Claim("B1", claim, source, quantity, share, 0.8, seeds=captured.size)
        yield Claim("B1", claim, source, f"{arm}: steps taken", kernel_steps(table, arm))
    start = kernel(table, STABLE, "lambda_median", step=0)
    yield Claim("B1", claim, source, "median Lambda(0) / threshold", start, 0.6, 0.95)
    claim, source = "After mask reconstruction, fine-tuning classifies both kinds of samples", "Theorem 2"
    single = final(table, STABLE, "single_accuracy")
    multi = final(table, STABLE, "multi_accuracy")
    yield Claim("B2", claim, source, f"{STABLE}: multi-view accuracy", multi, 0.995)
    yield Claim("B2", claim, source, f"{STABLE}: single-view accuracy", single, 0.98)
    yield Claim("B2", claim, source, f"{STABLE}: single-view accuracy, mean", single, 0.99, judged="mean")
    yield Claim("B2", claim, source, f"{STABLE}: training accuracy", final(table, STABLE, "train_accuracy"))


def kernel_steps(table: pd.DataFrame, arm: str) -> np.ndarray:
    """Updates of mask reconstruction, one value per seed."""
    rows = table[(table["setting"] == arm) & (table["phase"] == "pretrain")]
    return rows.groupby("seed")["step"].max().to_numpy(dtype=float)


def _supervised(table: pd.DataFrame) -> Iterable[Claim]:
    claim, source = "Supervised training loses views (direction only: not one half)", "Lemma 1"
    for arm in (JOINT, BLOCK):
        for kind in ("train", "multi"):
            values = final(table, arm, f"{kind}_accuracy")
            yield Claim("B3", claim, source, f"{arm}: {kind.replace('multi', 'multi-view')} accuracy", values, 0.99)
        single = final(table, arm, "single_accuracy")
        yield Claim("B3", claim, source, f"{arm}: single-view accuracy", single, 0.45, 0.85)
        yield Claim("B3", claim, source, f"{arm}: single-view accuracy, mean", single, 0.55, 0.80, judged="mean")
        yield Claim("B3", claim, source, f"{arm}: distance of single-view accuracy from one half", single - 0.5)
    claim, source = "Mask reconstruction is worth more than training from scratch", "Theorem 2 and Lemma 1"
    joint = final(table, JOINT, "single_accuracy")
    gap = both(final(table, STABLE, "single_accuracy"), joint)
    quantity = "single-view accuracy, stable teacher minus from scratch"
    yield Claim("B4", claim, source, quantity, gap, 0.12)
    yield Claim("B4", claim, source, f"{quantity}, mean", gap, 0.18, judged="mean")
    gap = both(final(table, PAPER, "single_accuracy"), joint)
    quantity = "single-view accuracy, the paper's teacher minus from scratch"
    yield Claim("B4", claim, source, quantity, gap, 0.05)
    claim, source = "What is lost is whole views, and mask reconstruction keeps both", "Theorem 2, Lemma 1"
    views = final(table, STABLE, "views_per_class")
    yield Claim("B5", claim, source, f"{STABLE}: views per class", views, 1.9)
    for arm in (JOINT, BLOCK):
        views = final(table, arm, "views_per_class")
        yield Claim("B5", claim, source, f"{arm}: views per class", views, high=1.6)
        quantity = f"{arm}: semantics below 0.5 or above 0.9, share"
        yield Claim("B5", claim, source, quantity, final(table, arm, "two_valued"), 0.8)
    claim, source = "The pretrained encoder carries both views", "Theorem 2"
    quantity = "linear head on the frozen {}: {} accuracy"
    for arm, words, low in ((STABLE, "pretrained encoder", 0.95), (JOINT, "random encoder", -math.inf)):
        for kind in ("single", "train"):
            values = final(table, arm, f"{kind}_accuracy", "probe")
            band = low if kind == "single" else -math.inf
            yield Claim("B6", claim, source, quantity.format(words, kind), values, band)
    claim, source = "With 100 labels the gap stays", "Theorem 2, few labels"
    quantity = "single-view accuracy, {}, 100 labels"
    few = {arm: final(table, arm, "single_accuracy", "few labels") for arm in (STABLE, JOINT)}
    yield Claim("B7", claim, source, quantity.format(STABLE), few[STABLE], 0.95)
    yield Claim("B7", claim, source, quantity.format(JOINT), few[JOINT], high=0.85)


def _settings(table: pd.DataFrame) -> Iterable[Claim]:
    claim = "With the literal rho = k^-0.01 = 0.977 a weak view is none: nothing to lose"
    values = final(table, LITERAL, "single_accuracy")
    yield Claim("B8", claim, "Definition 3.1", f"{LITERAL}: single-view accuracy", values, 0.98)
    claim = "With the literal teacher and no stop growth explodes: Lemma E.1 not reproduced at finite size"
    for column, low in (("lambda_max", math.nextafter(50, 51)), ("lambda_min", -math.inf)):
        values = kernel(table, ENDLESS, column, step=600)
        words = f"{'largest' if low > 0 else 'smallest'} Lambda / threshold at step 600"
        yield Claim("B9", claim, "Lemma E.1", words, values, low)
    claim, source = "Single-view training samples teach the lost view", "Lemma 1, role of mu"
    curve = [final(table, arm, "single_accuracy") for arm in MUS.values()]
    there = all(map(len, curve))
    rises = np.diff(curve, axis=0).min(0) if there else []
    yield Claim("B11", claim, source, "single-view accuracy, smallest rise over mu = 0, 0.01, 0.1", rises, -0.05)
    yield Claim(
        "B11",
        claim,
        source,
        "single-view accuracy, mu = 0.1 minus mu = 0",
        curve[2] - curve[0] if there else [],
        0.1,
    )
    for mu, arm in MUS.items():
        multi, single = (final(table, arm, f"{kind}_accuracy") for kind in ("multi", "single"))
        yield Claim("B11", claim, source, f"mu = {mu:g}: multi-view accuracy", multi, 0.99)
        yield Claim("B11", claim, source, f"mu = {mu:g}: single-view accuracy", single)
    claim = "Real images: fine-tuning after mask reconstruction is at least as accurate"
    yield Claim("B12", claim, "Table 1", "accuracy difference, paired (no images in a simulation)", [])
    claim = "A moving-average teacher with a fixed decoder 1/theta does not grow semantics"
    start, end = (kernel(table, AVERAGE, "lambda_median", **w) for w in ({"step": 0}, {"event": "end"}))
    ratio = end / start if len(start) else []
    yield Claim("B13", claim, "Section 1, data2vec variant", "median Lambda, end / start", ratio, high=1)
    captured = kernel(table, AVERAGE, "captured")
    yield Claim("B13", claim, "Section 1, data2vec variant", "semantics captured of 20", captured)


KERNELS = {
    "winner_in_lottery": "winners in their lottery set, share",
    "pure_winners": "winners with no second semantic above threshold, of 20",
    "second_over_first": "winners' second / largest correlation, median",
    "kernels_above": "kernels above threshold on something",
    "fused": "kernels above threshold on two or more",
    "fused_within_class": "... on both views of a class",
    "outside_crossings": "semantics on which a kernel outside the lottery crosses, of 20",
    "lottery_size": "kernels in a lottery set, mean",
    "psi_balance": "smaller / larger Psi of a class, mean",
}


def _kernels(table: pd.DataFrame) -> Iterable[Claim]:
    claim, source = (
        "Who captures what: reported, Theorems 1b and 1c are not confirmed",
        "Theorem 1, Lemma B.1",
    )
    for arm in (STABLE, PAPER):
        for column, words in KERNELS.items():
            yield Claim("B10", claim, source, f"{arm}: {words}", kernel(table, arm, column))
    start = kernel(table, STABLE, "in_two_lotteries", step=0)
    yield Claim("B10", claim, source, "kernels in two or more lottery sets at the start", start)
    signs = {
        "u_positive_in_own": "head weights > 0 among the own class's lotteries, share",
        "u_negative_in_other": "head weights < 0 among other classes' lotteries, share",
        "u_outside_over_own": "mean |u| outside all lotteries / within own",
    }
    for column, words in signs.items():
        yield Claim("B10", claim, "F.3.1", f"{STABLE}: {words}", final(table, STABLE, column))


def _paper(table: pd.DataFrame) -> Iterable[Claim]:
    claim = "Paper: supervised training fails on half of single-view samples"
    for arm in (JOINT, BLOCK):
        values = final(table, arm, "single_accuracy")
        quantity = f"{arm}: single-view accuracy, mean"
        yield Claim("P1", claim, "Lemma 1", quantity, values, 0.49, 0.51, judged="mean")
    claim = "Paper: with its teacher's tau, fine-tuning classifies single-view samples"
    values = final(table, PAPER, "single_accuracy")
    yield Claim("P2", claim, "Theorem 2", f"{PAPER}: single-view accuracy", values, 0.98)
    for arm in (STABLE, PAPER):
        claim = "Paper: every semantic's winner comes from its lottery set"
        values = kernel(table, arm, "winner_in_lottery")
        yield Claim("P3", claim, "Theorem 1a", f"{arm}: winners in their lottery, share", values, 1, 1)
        claim = "Paper: a kernel holds at most one semantic"
        values = kernel(table, arm, "fused")
        yield Claim("P4", claim, "Theorem 1b", f"{arm}: kernels above threshold on two", values, 0, 0)
        claim = "Paper: kernels outside a semantic's lottery set do not learn it"
        values = kernel(table, arm, "outside_crossings")
        yield Claim("P5", claim, "Theorem 1c", f"{arm}: semantics crossed from outside", values, 0, 0)
    claim = "Paper: after capture growth nearly stops, Lambda stays below a power of log k"
    largest = kernel(table, ENDLESS, "lambda_max", step=600)
    width = table.loc[table["setting"] == ENDLESS, "width"]
    values = largest * float(width.iloc[0]) if len(largest) else []
    high = math.log(10) ** 2
    yield Claim("P6", claim, "Lemma E.1", "largest Lambda at step 600 (band: log^2 k)", values, high=high)
    claim = "Paper: with rho = k^-0.01 supervised training fails on half of single-view samples"
    values = final(table, LITERAL, "single_accuracy")
    quantity = f"{LITERAL}: single-view accuracy, mean"
    yield Claim("P7", claim, "Lemma 1, Definition 3.1", quantity, values, 0.49, 0.51, judged="mean")
    claim = "Paper: its assumptions on the sizes (constants and logarithms as 1)"
    trained = table[table["task"] == "train"].drop_duplicates("setting")
    rows = trained.drop(columns=["setting", "seed"]).to_dict("records")
    met = [np.mean(list(Settings.model_construct(**row).conditions().values())) for row in rows]
    quantity = "conditions met by the best arm, share"
    yield Claim("P8", claim, "Assumption B.2", quantity, [max(met)] if met else [], 1, 1)


def _crossing(table: pd.DataFrame) -> Iterable[Claim]:
    source, after = "crossing with label granularity", "single-view accuracy after fine-tuning to classes"
    arms = {label: final(table, name, "single_accuracy") for label, name in CROSSED.items()}
    difference = both(arms[VIEWS], arms[CLASSES])
    low, high = interval(difference) if len(difference) > 1 else (math.nan, math.nan)
    ends = ([low], [high]) if len(difference) > 1 else ([], [])
    claim, count = "Labels that name the stronger view keep both views", len(difference)
    quantity = "20 labels (class and stronger view) minus 10 classes: "
    yield Claim("C1", claim, source, f"{quantity}{after}", difference)
    yield Claim("C1", claim, source, f"{quantity}95 % interval, low end", ends[0], ABOVE_ZERO, seeds=count)
    yield Claim("C1", claim, source, f"{quantity}95 % interval, high end", ends[1], seeds=count)
    others = {
        "C2": (RANDOM, CLASSES, "Finer labels without meaning (a random bit)"),
        "C3": ("5 groups of classes", CLASSES, "Coarser labels: 5 groups of two classes"),
        "C4": ("2 groups of classes", CLASSES, "Coarser labels: 2 groups of five classes"),
    }
    for id, (one, two, claim) in others.items():
        difference = both(arms[one], arms[two])
        yield Claim(id, claim, source, f"minus 10 classes: {after}", difference)
        if len(difference) > 1:
            for words, end in zip(("low", "high"), interval(difference), strict=True):
                yield Claim(id, claim, source, f"... 95 % interval, {words} end", [end], seeds=count)
    claim = "Where labels of each granularity leave the encoder"
    for label, arm in CROSSED.items():
        yield Claim("C5", claim, source, f"{label}: {after}", arms[label])
        for phase, words in (
            ("pretrain", "on its own labels"),
            ("probe", "of a linear head, frozen encoder"),
        ):
            values = final(table, arm, "single_accuracy", phase)
            yield Claim("C5", claim, source, f"{label}: single-view accuracy {words}", values)
        for column, words in (("views_per_class", "views per class"), ("train_accuracy", "training accuracy")):
            yield Claim("C5", claim, source, f"{label}: {words} after fine-tuning", final(table, arm, column))
    claim = "Trained five times as long, so that the finer label is learnt (added after C1 was seen)"
    longer = {label: final(table, arm, "single_accuracy") for label, arm in LONGER.items()}
    for label, arm in LONGER.items():
        yield Claim("C6", claim, source, f"{label}: {after}", longer[label])
        yield Claim("C6", claim, source, f"{label}: pretraining loss", final(table, arm, "loss", "pretrain"))
    for label in (VIEWS, RANDOM):
        difference = both(longer[label], longer[CLASSES])
        ends = [[end] for end in interval(difference)] if len(difference) > 1 else [[], []]
        band = ABOVE_ZERO if label == VIEWS else -math.inf
        quantity = f"{label} minus 10 classes: 95 % interval"
        yield Claim("C6", claim, source, f"{quantity}, low end", ends[0], band, seeds=len(difference))
        yield Claim("C6", claim, source, f"{quantity}, high end", ends[1], seeds=len(difference))
    claim = "Where labels of each granularity leave the encoder"
    difference = both(final(table, STABLE, "single_accuracy"), arms[VIEWS])
    quantity = "mask reconstruction minus 20 labels (class and stronger view): single-view accuracy"
    yield Claim("C5", claim, source, quantity, difference)


def _more(table: pd.DataFrame) -> Iterable[Claim]:
    for id, name in zip(("R1", "R2", "R3"), MORE, strict=True):
        claim = f"Other setting, {name}"
        for tail in (STABLE, PAPER, JOINT, "fixed blocks"):
            values = final(table, f"{name}, {tail}", "single_accuracy")
            yield Claim(id, claim, "setting R varied", f"{tail}: single-view accuracy", values)
    claim = "More kernels a block let both views win"
    for name in WIDE:
        values = final(table, name, "single_accuracy")
        yield Claim("R4", claim, "setting R varied", f"{name}: single-view accuracy", values)
