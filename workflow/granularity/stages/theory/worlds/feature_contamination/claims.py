"""World 4's claims. They read the run table only; bands come from runs of an earlier implementation, X's from pilots.

C1 to C14 are judged seed by seed. Claims that begin with "Paper:" are the paper's own where a reproduction
had reason to doubt them. X1 to X4 cross the world with label granularity.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from granularity.claims.claim import ABOVE_ZERO, Claim
from granularity.stages.theory.runs import RUN_COLUMNS, at
from granularity.stages.theory.worlds.feature_contamination.arms import (
    AGAIN,
    CENTRED,
    FULL,
    KEPT,
    LABELS,
    LABELS_LINEAR,
    LEAKY,
    LETTER,
    LINEAR,
    LONG,
    LONGER,
    MOMENTUM,
    OF_BACKGROUND,
    PROJECTED,
    QUARTER,
    RANDOM,
    RANDOM_SOFTMAX,
    REGRESSION,
    RELU,
    SCRIPT,
    SHELLS,
    SHELLS_CENTRED,
    SHELLS_FIXED,
    SLOW,
    SMALL,
    SOFTMAX,
    WIDE,
    WIDE_LINEAR,
)

# ---------------------------------------------------------------- claims


def first(table: pd.DataFrame, setting: str, key: str) -> float:
    """A parameter of one arm, NaN when it is not in the table."""
    found = table.loc[table["setting"] == setting, key]
    return float(found.iloc[0]) if len(found) else float("nan")


def judge(table: pd.DataFrame) -> list[Claim]:
    """C1 to C15, P1 to P4 and X1 to X4 of the run table (see `Claim`)."""
    parts = (
        _learnt,
        _contamination,
        _risks,
        _activity,
        _controls,
        _shells,
        _regression,
        _exact,
        _paper,
        _labels,
    )
    found = [Claim(*check) if isinstance(check, tuple) else check for part in parts for check in part(table)]
    return sorted(found, key=lambda check: ("CPX".index(check.id[0]), int(check.id[1:])))


def _learnt(table: pd.DataFrame) -> Iterable[tuple]:
    claim = "The task is learnt in distribution, with ReLU and without"
    for arm in (RELU, LINEAR):
        yield "C1", claim, "Theorem 4.3", f"{arm}: ID hinge risk", at(table, arm, "id_risk"), -np.inf, 0.02
        yield "C1", claim, "Theorem 4.3", f"{arm}: ID accuracy", at(table, arm, "id_acc"), 0.995


def _contamination(table: pd.DataFrame) -> Iterable[tuple]:
    claim, source = "ReLU neurons of both classes grow positive background weights", "Theorem 4.2"
    for column, low, high in (("bg_sum", 0.8, 1.1), ("core_sum", 1.1, 1.4)):
        yield "C2", claim, source, f"ReLU: {column}", at(table, RELU, column), low, high
    for sign in ("plus", "minus"):
        yield (
            "C2",
            claim,
            source,
            f"ReLU: bg_sum, {sign} neurons",
            at(table, RELU, f"bg_sum_{sign}"),
            ABOVE_ZERO,
        )
    yield from _untouched(table, "C3", "A linear network learns no background", "Theorem 4.4", LINEAR)
    largest = at(table, LINEAR, "bg_largest") - at(table, LINEAR, "bg_largest", step=0)
    quantity = "identity: largest |<w, m_j>| over the background, end - start"
    yield "C3", "A linear network learns no background", "Theorem 4.4", quantity, largest, -np.inf, 0


def _untouched(table: pd.DataFrame, id: str, claim: str, source: str, arm: str) -> Iterable[tuple]:
    """Background weights that no gradient has moved: no mean, and the norm of pure decay."""
    yield id, claim, source, f"{arm}: |bg_sum|", np.abs(at(table, arm, "bg_sum")), -np.inf, 0.03
    lr, decay, steps = (first(table, arm, key) for key in ("lr", "decay", "steps"))
    pure = at(table, arm, "bg_norm", step=0) * (1 - lr * decay) ** steps
    yield id, claim, source, f"{arm}: bg_norm / pure decay", at(table, arm, "bg_norm") / pure, 0.98, 1.02


def _risks(table: pd.DataFrame) -> Iterable[tuple]:
    claim, source = "Out of distribution a ReLU network fails, a linear one does not", "Theorem 4.3"
    bands = {(RELU, "ood"): (0.8, 0.9), (RELU, "worst"): (0.97, np.inf)}
    words = {"ood": "U[-1, 0]", "worst": "-1"}
    for arm in (RELU, LINEAR):
        for test, z in words.items():
            band = bands.get((arm, test), (-np.inf, 0.01))
            yield (
                "C4",
                claim,
                source,
                f"{arm}: hinge risk at z_bg = {z}",
                at(table, arm, f"{test}_risk"),
                *band,
            )
    claim = "The lower the test background, the higher a ReLU network's risk"
    order = [at(table, RELU, f"{test}_risk") for test in ("one", "zero", "half", "ood", "worst")]
    rises = np.diff(order, axis=0).min(0) if all(map(len, order)) else []
    quantity = "ReLU: smallest rise over z_bg = +1, 0, U[-1/2, 0], U[-1, 0], -1"
    yield "C5", claim, "Section 4.1", quantity, rises, ABOVE_ZERO
    for test, z in (("one", "+1"), ("zero", "0"), ("half", "U[-1/2, 0]")):
        yield "C5", claim, "Section 4.1", f"ReLU: risk at z_bg = {z}", at(table, RELU, f"{test}_risk")


def _activity(table: pd.DataFrame) -> Iterable[tuple]:
    claim, source = "Neurons become active for one class", "Theorem 4.1, Fig. 3(b)"
    for column, low, high in (
        ("rate_pos", 0.8, np.inf),
        ("rate_neg", -np.inf, 0.1),
        ("frac_aligned", 0.75, np.inf),
    ):
        yield "C6", claim, source, f"ReLU: {column}", at(table, RELU, column), low, high
    for column, low, high in (
        ("rate_pos", 0.4, 0.6),
        ("rate_neg", 0.4, 0.6),
        ("frac_aligned", -np.inf, 0.15),
    ):
        yield "C6", claim, source, f"ReLU: {column} at step 0", at(table, RELU, column, step=0), low, high
    yield "C6", claim, source, "identity: frac_aligned", at(table, LINEAR, "frac_aligned")


def _controls(table: pd.DataFrame) -> Iterable[Claim | tuple]:
    claim = "The driver is the background's mean: with a centred one nothing is contaminated"
    source = "Eq. 7, control"
    yield "C7", claim, source, f"{CENTRED}: |bg_sum|", np.abs(at(table, CENTRED, "bg_sum")), -np.inf, 0.03
    for test in ("ood", "worst"):
        yield (
            "C7",
            claim,
            source,
            f"{CENTRED}: {test}_risk",
            at(table, CENTRED, f"{test}_risk"),
            -np.inf,
            0.03,
        )
    for column in ("bg_sum", "ood_risk"):
        yield "C7", claim, source, f"{QUARTER}: {column}", at(table, QUARTER, column)
    claim = "No spurious correlation: background and class are independent, the dictionary is orthonormal"
    values = at(table, RELU, "bg_label_correlation", step=0)
    yield Claim("C8", claim, "Section 4.1", "largest |corr(z_j, y)| sqrt(n)", values, high=4, kind="identity")
    error = at(table, FULL, "dictionary_error", step=0)
    yield Claim("C8", claim, "Section 4.1", "largest entry of |M M^T - I|", error, high=1e-5, kind="identity")
    claim = "The gradient by hand is autograd's, and Eq. 7's class-signed average along the background"
    for column, words in (("gradient_error", "gradient"), ("equation_7_error", "Eq. 7")):
        for arm in (RELU, LINEAR, FULL):
            values = np.concatenate([at(table, arm, column, step=0), at(table, arm, column)])
            quantity = f"{arm}: relative error of {words}, start and end"
            yield Claim("C9", claim, "Section 4.2, Eq. 7", quantity, values, high=1e-5, kind="identity")
    claim = "At the paper's size accuracy does not fall, only risk rises"
    yield "C11", claim, "Theorem 4.3", "ReLU, 32 background: OOD accuracy", at(table, RELU, "ood_acc"), 0.98
    yield "C11", claim, "Theorem 4.3", f"{WIDE[64]}: OOD accuracy", at(table, WIDE[64], "ood_acc"), 0.85, 0.97
    for arm in (WIDE[48], WIDE[96], LEAKY):
        yield "C11", claim, "Theorem 4.3", f"{arm}: OOD accuracy", at(table, arm, "ood_acc")
    for arm in (*WIDE.values(), *WIDE_LINEAR.values(), LEAKY):
        yield "C11", claim, "Theorem 4.3", f"{arm}: OOD hinge risk", at(table, arm, "ood_risk")
    claim = "With gradients restricted to the core nothing is contaminated"
    yield "C14", claim, "Section 5", f"{PROJECTED}: ood_risk", at(table, PROJECTED, "ood_risk"), -np.inf, 0.03
    for check in _untouched(table, "C14", claim, "Section 5", PROJECTED):
        yield Claim(*check, kind="identity")  # no gradient reaches these weights


def _shells(table: pd.DataFrame) -> Iterable[tuple]:
    claim, source = "On shells, accuracy falls to chance out of distribution", "Fig. 10"
    for arm in SHELLS.values():
        yield "C10", claim, source, f"{arm}: ID accuracy", at(table, arm, "id_acc"), 0.99
        yield "C10", claim, source, f"{arm}: OOD accuracy", at(table, arm, "ood_acc"), -np.inf, 0.6
        yield "C10", claim, source, f"{arm}: OOD logistic loss", at(table, arm, "ood_risk")
    for arm in SHELLS_CENTRED.values():
        for test in ("id", "ood"):
            yield "C10", claim, source, f"{arm}: {test.upper()} accuracy", at(table, arm, f"{test}_acc"), 0.99
    for phi, arm in SHELLS_FIXED.items():
        fall = at(table, arm, "id_acc") - at(table, arm, "ood_acc")
        band = () if phi == "gelu" else (ABOVE_ZERO,)
        yield "C10", claim, source, f"{arm}: held-out ID - OOD accuracy", fall, *band
        for test in ("id", "ood"):
            yield "C10", claim, source, f"{arm}: {test.upper()} accuracy", at(table, arm, f"{test}_acc")


def _regression(table: pd.DataFrame) -> Iterable[tuple]:
    claim, source = "Regression onto the core contaminates a ReLU network only", "Fig. 9"
    error = {(*key, test): at(table, arm, f"{test}_risk") for key, arm in REGRESSION.items() for test in ("id", "ood")}
    bands = {("relu", "id"): (-np.inf, 1e-3), ("relu", "ood"): (0.05, np.inf)}
    for (phi, test), (low, high) in (bands | {("identity", t): (-np.inf, 1e-3) for t in ("id", "ood")}).items():
        quantity = f"{REGRESSION['yz', phi]}: {test.upper()} mean squared error"
        yield "C12", claim, source, quantity, error["yz", phi, test], low, high
    ratio = error["z", "relu", "ood"] / error["z", "relu", "id"]
    yield "C12", claim, source, f"{REGRESSION['z', 'relu']}: OOD / ID error", ratio, 20
    quantity = f"{REGRESSION['z_given_yz', 'identity']}: ID error (ill-posed for a linear network)"
    yield "C12", claim, source, quantity, error["z_given_yz", "identity", "id"], 0.08
    for target in ("z", "z_given_yz"):
        for phi in ("relu", "identity"):
            for test in ("id", "ood"):
                quantity = f"{REGRESSION[target, phi]}: {test.upper()} mean squared error"
                yield "C12", claim, source, quantity, error[target, phi, test]
    for arm in SMALL.values():
        yield "C12", claim, source, f"{arm}: bg_norm at step 0", at(table, arm, "bg_norm", step=0)
        yield "C12", claim, source, f"{arm}: bg_norm", at(table, arm, "bg_norm")
        yield "C12", claim, source, f"{arm}: OOD mean squared error", at(table, arm, "ood_risk")


def _exact(table: pd.DataFrame) -> Iterable[Claim | tuple]:
    claim, source = "Reduced coordinates, the time scale lr t, and repetition", "construction"
    ood = at(table, RELU, "ood_risk")
    for arm, most in ((FULL, 0.02), (SLOW, 0.01)):
        other = at(table, arm, "ood_risk")
        difference = np.abs(other - ood) if len(other) == len(ood) else []
        kind = "identity" if arm == FULL else "claim"
        yield Claim("C13", claim, source, f"{arm}: |OOD risk - that of {RELU}|", difference, high=most, kind=kind)
    one, two = (table[(table["setting"] == arm) & (table["seed"] == 0)].reset_index(drop=True) for arm in (RELU, AGAIN))
    values = [name for name in table.columns if name not in RUN_COLUMNS]
    unequal = []
    if len(one) and len(two):
        same = one[values].eq(two[values]) | (one[values].isna() & two[values].isna())
        unequal = [float((~same).to_numpy().sum()) + abs(len(one) - len(two))]
    quantity = "numbers of a run's log that differ on repetition"
    yield Claim("C13", claim, source, quantity, unequal, 0, 0, kind="identity")
    claim = "A step is no slower than the authors' script's, in reduced coordinates 3 times faster"
    yield "C15", claim, "construction", "timed by benchmarks/theory_contamination.py, not here", []


def _paper(table: pd.DataFrame) -> Iterable[tuple]:
    claim, source = (
        "Paper: at learning rate 0.001 (no momentum given) the ID loss nears zero",
        "Appendix F.1, Fig. 8",
    )
    values = at(table, LETTER, "id_risk", step=20_000)
    yield "P1", claim, source, f"{LETTER}: ID hinge risk at step 20,000", values, -np.inf, 0.02
    for arm, steps in (
        (LETTER, (20_000, 100_000)),
        (MOMENTUM, (5000, 10_000, 20_000)),
        (SCRIPT, (1000, 2000, 3000)),
    ):
        for step in steps:
            for column in ("id_risk", "ood_risk", "bg_sum"):
                if first(table, arm, "steps") >= step:
                    yield (
                        "P1",
                        claim,
                        source,
                        f"{arm}: {column} at step {step:,}",
                        at(table, arm, column, step=step),
                    )
    claim = "Paper: every activation fails out of distribution (the script's fixed samples: GELU hardly)"
    arm = SHELLS_FIXED["gelu"]
    fall = at(table, arm, "id_acc") - at(table, arm, "ood_acc")
    yield "P2", claim, "Fig. 10", f"{arm}: held-out ID - OOD accuracy", fall, ABOVE_ZERO
    claim = "Paper: a linear network generalises in regression onto z, its input carrying y z"
    for test in ("id", "ood"):
        values = at(table, REGRESSION["z_given_yz", "identity"], f"{test}_risk")
        yield "P3", claim, "Fig. 9(b)", f"identity: {test.upper()} mean squared error", values, -np.inf, 1e-3
    claim = "Paper: the norm of background weights grows in ReLU networks (its plotted measure)"
    for arm in (RELU, LONG):
        grown = at(table, arm, "bg_norm") - at(table, arm, "bg_norm", step=0)
        yield "P4", claim, "Fig. 8", f"{arm}: bg_norm, end - start", grown, ABOVE_ZERO


def kept(table: pd.DataFrame, arm: str, test: str = "worst") -> np.ndarray:
    """Share of the mean margin E[y h] that is left on a test set (`worst`: z_bg = -1); one value per seed."""
    return at(table, arm, f"{test}_margin") / at(table, arm, "id_margin")


PILOT = "from pilot runs of three to five seeds"
NO_MARGIN = "no margin between classes is learnt (ID risk above 0.5), so nothing can be said of contamination"


def _labels(table: pd.DataFrame) -> Iterable[Claim]:
    source = "crossing, not in the paper"
    columns = [f"{test}_{name}" for test in ("id", "ood", "worst") for name in ("risk", "acc")]
    columns += ["rate_pos", "rate_neg", "bg_sum", "core_sum", "bg_norm", "id_label_acc", "ood_label_acc"]
    columns += ["overlap", "sibling_rivals"]
    groups = {
        "X1": ("Fine labels leave contamination little under the hinge", (*LABELS.values(), *LONGER.values())),
        "X3": ("It is the labels' meaning: controls", (*LABELS_LINEAR.values(), RANDOM, OF_BACKGROUND)),
        "X4": ("Under cross-entropy they lower it in part", (*SOFTMAX.values(), RANDOM_SOFTMAX)),
    }
    bands = {  # of the margin kept at U[-1, 0]
        LABELS[1]: (-np.inf, 0.2),
        LABELS[4]: (0.85, np.inf),
        LONGER[1]: (-np.inf, 0.2),
        LONGER[4]: (0.85, np.inf),
        LABELS_LINEAR[4]: (0.95, np.inf),
        SOFTMAX[1]: (-np.inf, 0.15),
        SOFTMAX[4]: (0.2, 0.4),
        RANDOM: (-np.inf, 0.2),
        RANDOM_SOFTMAX: (-np.inf, 0.15),
    }
    for id, (claim, arms) in groups.items():
        for arm in arms:
            void = NO_MARGIN if (at(table, arm, "id_risk") > 0.5).any() else ""
            for test, z in KEPT.items():
                band = bands.get(arm, ()) if test == "ood" else ()
                quantity = f"{arm}: margin kept at z_bg = {z}"
                yield Claim(id, claim, source, quantity, kept(table, arm, test), *band, untested=void, reason=PILOT)
            for column in columns:
                yield Claim(id, claim, source, f"{arm}: {column}", at(table, arm, column))
    claim = "At equal risk in distribution 8 labels fail less: decay 0.0001, 6000 steps"
    yield Claim("X1", claim, source, f"{LONGER[4]}: ID risk", at(table, LONGER[4], "id_risk"), high=0.05, reason=PILOT)
    fine, coarse = (at(table, LONGER[g], "ood_risk") for g in (4, 1))
    saved = coarse - fine if len(fine) == len(coarse) else []
    yield Claim("X1", claim, source, "OOD risk, 2 labels minus 8", saved, 0.5, reason=PILOT)
    least = {"hinge": 0.7, "cross-entropy": 0.15}
    for arms, loss in ((LABELS, "hinge"), (SOFTMAX, "cross-entropy")):
        claim = "Do fine labels change contamination? 8 labels minus 2, same seeds"
        fine, coarse = arms[4], arms[1]
        pairs = {
            f"margin kept at z_bg = {z}": [kept(table, a, test) for a in (fine, coarse)] for test, z in KEPT.items()
        }
        pairs |= {name: [at(table, arm, name) for arm in (fine, coarse)] for name in columns[2:9]}
        for name, (a, b) in pairs.items():
            values = a - b if len(a) == len(b) else []
            low = least[loss] if name.endswith("U[-1, 0]") else -np.inf
            high = 0.0 if name == "bg_sum" else np.inf
            yield Claim("X2", claim, source, f"{name}, fine - coarse, {loss}", values, low, high, reason=PILOT)
