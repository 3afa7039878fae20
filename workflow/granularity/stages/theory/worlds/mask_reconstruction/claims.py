"""Claims of mask reconstruction. They read the run table only; bands come from pilot runs of two to five seeds.

A: exact identities. B: the simulations' claims. P: the paper's own statements, literally, where a finite size
is known to miss them; their text begins with "Paper:". C: the crossing with label granularity. R: other
settings. G: what the baselines' own sizes do, and the ingredients of masking one at a time. Every seed is judged
unless the quantity says mean, or the claim compares arms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from granularity.claims import published
from granularity.claims.claim import ABOVE_ZERO, Claim, together
from granularity.stages.theory.runs import at
from granularity.stages.theory.worlds.mask_reconstruction.arms import (
    AVERAGE,
    BLOCK,
    BLOCKED,
    CLASSES,
    CROSSED,
    ENDLESS,
    EXACT,
    FIXED,
    FREE,
    GAIN,
    JOINT,
    LITERAL,
    LONGER,
    MASKS,
    MORE,
    MORE_SCRATCHES,
    MUS,
    PAPER,
    RANDOM,
    SCRATCHES,
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


def judge(table: pd.DataFrame) -> list[Claim]:
    """A1 to A8, B1 to B13, G1 to G3, P1 to P8, C1 to C6 and R1 to R4 (see the module)."""
    parts = (_identities, _reconstruction, _supervised, _baselines, _settings, _kernels, _paper, _crossing, _more)
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
        yield Claim(id, *claims[id], quantity, values, low, high, kind="identity", arms=(EXACT,))


def _reconstruction(table: pd.DataFrame) -> Iterable[Claim]:
    claim, source = "Mask reconstruction captures every semantic", "Theorem 1a"
    for arm in (STABLE, PAPER):
        captured = kernel(table, arm, "captured") == 20
        share = [captured.mean()] if captured.size else []
        quantity = f"{arm}: seeds with 20 of 20 captured within 1500 steps, share"
        yield Claim("B1", claim, source, quantity, share, 0.8, seeds=captured.size, arms=(arm,))
        yield Claim("B1", claim, source, f"{arm}: steps taken", kernel_steps(table, arm), arms=(arm,))
    start = kernel(table, STABLE, "lambda_median", step=0)
    own = {"arms": (STABLE,)}
    yield Claim("B1", claim, source, "median Lambda(0) / threshold", start, 0.6, 0.95, **own)
    claim, source = "After mask reconstruction, fine-tuning classifies both kinds of samples", "Theorem 2"
    single = final(table, STABLE, "single_accuracy")
    multi = final(table, STABLE, "multi_accuracy")
    yield Claim("B2", claim, source, f"{STABLE}: multi-view accuracy", multi, 0.995, **own)
    yield Claim("B2", claim, source, f"{STABLE}: single-view accuracy", single, 0.98, **own)
    yield Claim("B2", claim, source, f"{STABLE}: single-view accuracy, mean", single, 0.99, judged="mean", **own)
    yield Claim("B2", claim, source, f"{STABLE}: training accuracy", final(table, STABLE, "train_accuracy"), **own)


def kernel_steps(table: pd.DataFrame, arm: str) -> np.ndarray:
    """Updates of mask reconstruction, one value per seed."""
    rows = table[(table["setting"] == arm) & (table["phase"] == "pretrain")]
    return rows.groupby("seed")["step"].max().to_numpy(dtype=float)


def _supervised(table: pd.DataFrame) -> Iterable[Claim]:
    claim, source = "Supervised training loses views at this initial scale (direction only: not one half)", "Lemma 1"
    for arm in (JOINT, BLOCK):
        own = {"arms": (arm,)}
        for kind in ("train", "multi"):
            values, quantity = final(table, arm, f"{kind}_accuracy"), kind.replace("multi", "multi-view")
            yield Claim("B3", claim, source, f"{arm}: {quantity} accuracy", values, 0.99, **own)
        single = final(table, arm, "single_accuracy")
        yield Claim("B3", claim, source, f"{arm}: single-view accuracy", single, 0.45, 0.85, **own)
        quantity = f"{arm}: single-view accuracy, mean"
        yield Claim("B3", claim, source, quantity, single, 0.55, 0.80, judged="mean", **own)
        quantity = f"{arm}: distance of single-view accuracy from one half"
        yield Claim("B3", claim, source, quantity, single - 0.5, **own)
    claim = "At this initial scale mask reconstruction is worth more than training from scratch (not at others: G1)"
    source, joint = "Theorem 2 and Lemma 1", final(table, JOINT, "single_accuracy")
    own = {"judged": "interval", "arms": (STABLE, JOINT)}
    gap = both(final(table, STABLE, "single_accuracy"), joint)
    quantity = "single-view accuracy, stable teacher minus from scratch"
    first = Claim("B4", claim, source, quantity, gap, 0.12, **own)
    gap = both(final(table, PAPER, "single_accuracy"), joint)
    quantity = "single-view accuracy, the paper's teacher minus from scratch"
    yield from together(
        [first, Claim("B4", claim, source, quantity, gap, 0.05, judged="interval", arms=(PAPER, JOINT))]
    )
    claim, source = "What is lost is whole views, and mask reconstruction keeps both", "Theorem 2, Lemma 1"
    views = final(table, STABLE, "views_per_class")
    yield Claim("B5", claim, source, f"{STABLE}: views per class", views, 1.9, arms=(STABLE,))
    for arm in (JOINT, BLOCK):
        views = final(table, arm, "views_per_class")
        yield Claim("B5", claim, source, f"{arm}: views per class", views, high=1.6, arms=(arm,))
        quantity = f"{arm}: semantics below 0.5 or above 0.9, share"
        yield Claim("B5", claim, source, quantity, final(table, arm, "two_valued"), 0.8, arms=(arm,))
    claim, source = "The pretrained encoder carries both views", "Theorem 2"
    quantity = "linear head on the frozen {}: {} accuracy"
    for arm, words, low in ((STABLE, "pretrained encoder", 0.95), (JOINT, "random encoder", -math.inf)):
        for kind in ("single", "train"):
            values = final(table, arm, f"{kind}_accuracy", "probe")
            band = low if kind == "single" else -math.inf
            yield Claim("B6", claim, source, quantity.format(words, kind), values, band, arms=(arm,))
    claim, source = "With 100 labels the gap stays", "Theorem 2, few labels"
    quantity = "single-view accuracy, {}, 100 labels"
    few = {arm: final(table, arm, "single_accuracy", "few labels") for arm in (STABLE, JOINT)}
    yield Claim("B7", claim, source, quantity.format(STABLE), few[STABLE], 0.95, arms=(STABLE,))
    yield Claim("B7", claim, source, quantity.format(JOINT), few[JOINT], high=0.85, arms=(JOINT,))


def _baselines(table: pd.DataFrame) -> Iterable[Claim]:
    """G1 to G3: the baselines' own sizes, and the ingredients of masking one at a time."""
    claim, source = (
        "Paper: supervised training loses views whatever its initial scale, width and step",
        "Lemma 1, varied",
    )
    swept = [(FREE, SCRATCHES), (FREE, MORE_SCRATCHES), (FIXED, BLOCKED)]
    arms = [name.format(key, v) for name, sweep in swept for key, values in sweep.items() for v in values]
    for arm in (JOINT, BLOCK, *arms):
        own = {"arms": (arm,)}
        single = final(table, arm, "single_accuracy")
        yield Claim("G1", claim, source, f"{arm}: single-view accuracy", single, 0.45, 0.85, **own)
        for kind in ("train", "multi"):
            values, quantity = final(table, arm, f"{kind}_accuracy"), kind.replace("multi", "multi-view")
            yield Claim("G1", claim, source, f"{arm}: {quantity} accuracy", values, **own)
    for step in (200, 400, 800):
        values = at(table, JOINT, "single_accuracy", phase="finetune", step=step)
        quantity = f"{JOINT}: single-view accuracy after {step} steps"
        yield Claim("G1", claim, source, quantity, values, 0.45, 0.85, arms=(JOINT,))
    claim = "Paper: mask reconstruction is worth more than training from scratch, at every scale of the latter"
    compared = []
    for arm in (JOINT, *(arm for arm in arms if arm.startswith("from scratch"))):
        scratch, ours = final(table, arm, "single_accuracy"), final(table, STABLE, "single_accuracy")
        gap = ours[: len(scratch)] - scratch if len(ours) and len(scratch) else []
        quantity, own = f"single-view accuracy, {STABLE} minus {arm}", {"judged": "interval", "arms": (STABLE, arm)}
        compared.append(Claim("G2", claim, "Theorem 2 and Lemma 1", quantity, gap, ABOVE_ZERO, **own))
    yield from together(compared)
    claim, compared = "Masks and the teacher's gain do different things", []
    for arm in (GAIN, MASKS, AVERAGE):
        own = {"arms": (arm,)}
        quantity = f"{arm}: semantics captured of 20"
        yield Claim("G3", claim, "not in the paper", quantity, kernel(table, arm, "captured"), **own)
        single = final(table, arm, "single_accuracy")
        quantity = f"{arm}: single-view accuracy after fine-tuning"
        yield Claim("G3", claim, "not in the paper", quantity, single, **own)
        for base in (STABLE, JOINT):
            other = final(table, base, "single_accuracy")
            gap = single - other[: len(single)] if len(other) and len(single) else []
            quantity = f"single-view accuracy, {arm} minus {base}"
            own = {"judged": "interval", "arms": (arm, base)}
            compared.append(Claim("G3", claim, "not in the paper", quantity, gap, **own))
    yield from together(compared)


def _settings(table: pd.DataFrame) -> Iterable[Claim]:
    claim = "With the literal rho = k^-0.01 = 0.977 a weak view is none: nothing to lose"
    values = final(table, LITERAL, "single_accuracy")
    yield Claim("B8", claim, "Definition 3.1", f"{LITERAL}: single-view accuracy", values, 0.98, arms=(LITERAL,))
    claim = "With the literal teacher and no stop growth explodes: Lemma E.1 not reproduced at finite size"
    for column, low in (("lambda_max", math.nextafter(50, 51)), ("lambda_min", -math.inf)):
        values = kernel(table, ENDLESS, column, step=600)
        words = f"{'largest' if low > 0 else 'smallest'} Lambda / threshold at step 600"
        yield Claim("B9", claim, "Lemma E.1", words, values, low, arms=(ENDLESS,))
    claim, source = "Single-view training samples teach the lost view", "Lemma 1, role of mu"
    curve = [final(table, arm, "single_accuracy") for arm in MUS.values()]
    there = all(map(len, curve))
    rises = np.diff(curve, axis=0).min(0) if there else []
    every = {"arms": tuple(MUS.values())}
    quantity = "single-view accuracy, smallest rise over mu = 0, 0.01, 0.1"
    yield Claim("B11", claim, source, quantity, rises, -0.05, **every)
    yield Claim(
        "B11",
        claim,
        source,
        "single-view accuracy, mu = 0.1 minus mu = 0",
        curve[2] - curve[0] if there else [],
        0.1,
        **every,
    )
    for mu, arm in MUS.items():
        multi, single = (final(table, arm, f"{kind}_accuracy") for kind in ("multi", "single"))
        yield Claim("B11", claim, source, f"mu = {mu:g}: multi-view accuracy", multi, 0.99, arms=(arm,))
        yield Claim("B11", claim, source, f"mu = {mu:g}: single-view accuracy", single, arms=(arm,))
    claim = "Real images: fine-tuning after mask reconstruction is at least as accurate"
    arms = ("mask reconstruction", "supervised")
    paper = [published.number("mask_reconstruction", table="T1", arm=arm) for arm in arms]
    quantity = "accuracy difference, paired, points (no images in a simulation)"
    yield Claim("B12", claim, "Table 1", quantity, [], published=[paper[0] - paper[1]])
    claim = "A moving-average teacher with a fixed decoder 1/theta does not grow semantics"
    start, end = (kernel(table, AVERAGE, "lambda_median", **w) for w in ({"step": 0}, {"event": "end"}))
    ratio = end / start if len(start) else []
    yield Claim(
        "B13", claim, "Section 1, data2vec variant", "median Lambda, end / start", ratio, high=1, arms=(AVERAGE,)
    )
    captured = kernel(table, AVERAGE, "captured")
    yield Claim("B13", claim, "Section 1, data2vec variant", "semantics captured of 20", captured, arms=(AVERAGE,))


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
            yield Claim("B10", claim, source, f"{arm}: {words}", kernel(table, arm, column), arms=(arm,))
    start = kernel(table, STABLE, "in_two_lotteries", step=0)
    quantity = "kernels in two or more lottery sets at the start"
    yield Claim("B10", claim, source, quantity, start, arms=(STABLE,))
    signs = {
        "u_positive_in_own": "head weights > 0 among the own class's lotteries, share",
        "u_negative_in_other": "head weights < 0 among other classes' lotteries, share",
        "u_outside_over_own": "mean |u| outside all lotteries / within own",
    }
    for column, words in signs.items():
        yield Claim("B10", claim, "F.3.1", f"{STABLE}: {words}", final(table, STABLE, column), arms=(STABLE,))


def _paper(table: pd.DataFrame) -> Iterable[Claim]:
    claim = "Paper: supervised training fails on half of single-view samples"
    for arm in (JOINT, BLOCK):
        values = final(table, arm, "single_accuracy")
        quantity = f"{arm}: single-view accuracy, mean"
        yield Claim("P1", claim, "Lemma 1", quantity, values, 0.49, 0.51, judged="mean", arms=(arm,))
    claim = "Paper: with its teacher's tau, fine-tuning classifies single-view samples"
    values = final(table, PAPER, "single_accuracy")
    yield Claim("P2", claim, "Theorem 2", f"{PAPER}: single-view accuracy", values, 0.98, arms=(PAPER,))
    for arm in (STABLE, PAPER):
        claim = "Paper: every semantic's winner comes from its lottery set"
        values = kernel(table, arm, "winner_in_lottery")
        yield Claim("P3", claim, "Theorem 1a", f"{arm}: winners in their lottery, share", values, 1, 1, arms=(arm,))
        claim = "Paper: a kernel holds at most one semantic"
        values = kernel(table, arm, "fused")
        yield Claim("P4", claim, "Theorem 1b", f"{arm}: kernels above threshold on two", values, 0, 0, arms=(arm,))
        claim = "Paper: kernels outside a semantic's lottery set do not learn it"
        values = kernel(table, arm, "outside_crossings")
        yield Claim("P5", claim, "Theorem 1c", f"{arm}: semantics crossed from outside", values, 0, 0, arms=(arm,))
    claim = "Paper: after capture growth nearly stops, Lambda stays below a power of log k"
    largest = kernel(table, ENDLESS, "lambda_max", step=600)
    width = table.loc[table["setting"] == ENDLESS, "width"]
    values = largest * float(width.iloc[0]) if len(largest) else []
    high = math.log(10) ** 2
    yield Claim(
        "P6", claim, "Lemma E.1", "largest Lambda at step 600 (band: log^2 k)", values, high=high, arms=(ENDLESS,)
    )
    claim = "Paper: with rho = k^-0.01 supervised training fails on half of single-view samples"
    values = final(table, LITERAL, "single_accuracy")
    quantity = f"{LITERAL}: single-view accuracy, mean"
    yield Claim("P7", claim, "Lemma 1, Definition 3.1", quantity, values, 0.49, 0.51, judged="mean", arms=(LITERAL,))
    claim = "Paper: its assumptions on the sizes (constants and logarithms as 1)"
    trained = table[table["task"] == "train"].drop_duplicates("setting")
    rows = trained.drop(columns=["setting", "seed"]).to_dict("records")
    met = [np.mean(list(Settings.model_construct(**row).conditions().values())) for row in rows]
    quantity = "conditions met by the best arm, share"
    best = [(max(met), trained["setting"].iloc[int(np.argmax(met))])] if met else []
    values, arms = [share for share, _ in best], [arm for _, arm in best]
    yield Claim("P8", claim, "Assumption B.2", quantity, values, 1, 1, arms=arms)


def _crossing(table: pd.DataFrame) -> Iterable[Claim]:
    source, after = "crossing with label granularity", "single-view accuracy after fine-tuning to classes"
    arms = {label: final(table, name, "single_accuracy") for label, name in CROSSED.items()}
    names = {
        "C1": (VIEWS, "Labels that name the stronger view keep both views", ABOVE_ZERO),
        "C2": (RANDOM, "Finer labels without meaning (a random bit)", -math.inf),
        "C3": ("5 groups of classes", "Coarser labels: 5 groups of two classes", -math.inf),
        "C4": ("2 groups of classes", "Coarser labels: 2 groups of five classes", -math.inf),
    }
    compared = []
    for id, (label, claim, low) in names.items():
        own = {"judged": "interval", "arms": (CROSSED[label], CROSSED[CLASSES])}
        difference = both(arms[label], arms[CLASSES])
        compared.append(Claim(id, claim, source, f"{label} minus 10 classes: {after}", difference, low, **own))
    yield from together(compared)
    claim = "Where labels of each granularity leave the encoder"
    for label, arm in CROSSED.items():
        own = {"arms": (arm,)}
        yield Claim("C5", claim, source, f"{label}: {after}", arms[label], **own)
        for phase, words in (
            ("pretrain", "on its own labels"),
            ("probe", "of a linear head, frozen encoder"),
        ):
            values = final(table, arm, "single_accuracy", phase)
            yield Claim("C5", claim, source, f"{label}: single-view accuracy {words}", values, **own)
        for column, words in (("views_per_class", "views per class"), ("train_accuracy", "training accuracy")):
            yield Claim("C5", claim, source, f"{label}: {words} after fine-tuning", final(table, arm, column), **own)
    difference = both(final(table, STABLE, "single_accuracy"), arms[VIEWS])
    quantity = "mask reconstruction minus 20 labels (class and stronger view): single-view accuracy"
    yield Claim("C5", claim, source, quantity, difference, arms=(STABLE, CROSSED[VIEWS]))
    claim = "Trained five times as long, so that the finer label is learnt (added after C1 was seen)"
    longer = {label: final(table, arm, "single_accuracy") for label, arm in LONGER.items()}
    for label, arm in LONGER.items():
        values, own = final(table, arm, "loss", "pretrain"), {"arms": (arm,)}
        yield Claim("C6", claim, source, f"{label}: {after}", longer[label], **own)
        yield Claim("C6", claim, source, f"{label}: pretraining loss", values, **own)
    compared = []
    for label in (VIEWS, RANDOM):
        difference, low = both(longer[label], longer[CLASSES]), ABOVE_ZERO if label == VIEWS else -math.inf
        own = {"judged": "interval", "arms": (LONGER[label], LONGER[CLASSES])}
        compared.append(Claim("C6", claim, source, f"{label} minus 10 classes: {after}", difference, low, **own))
    yield from together(compared)


def _more(table: pd.DataFrame) -> Iterable[Claim]:
    for id, name in zip(("R1", "R2", "R3"), MORE, strict=True):
        claim = f"Other setting, {name}"
        for tail in (STABLE, PAPER, JOINT, "fixed blocks"):
            arm = f"{name}, {tail}"
            values = final(table, arm, "single_accuracy")
            yield Claim(id, claim, "setting R varied", f"{tail}: single-view accuracy", values, arms=(arm,))
    claim = "More kernels a block let both views win"
    for name in WIDE:
        values = final(table, name, "single_accuracy")
        yield Claim("R4", claim, "setting R varied", f"{name}: single-view accuracy", values, arms=(name,))
