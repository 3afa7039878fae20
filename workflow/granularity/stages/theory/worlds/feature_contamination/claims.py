"""World 4's claims. They read the run table only; bands come from runs of an earlier implementation, X's from pilots.

C1 to C14 are judged seed by seed. Claims that begin with "Paper:" are the paper's own where a reproduction
had reason to doubt them. X1 to X4 cross the world with label granularity. C16 and X5, what the baselines rest on, are
in `swept`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from granularity.claims.claim import ABOVE_ZERO, Claim
from granularity.stages.theory.runs import RUN_COLUMNS, at
from granularity.stages.theory.worlds.feature_contamination import swept
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
    """C1 to C16, P1 to P4 and X1 to X5 of the run table (see `Claim`)."""
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
        swept.judge,
    )
    found = [check for part in parts for check in part(table)]
    return sorted(found, key=lambda check: ("CPX".index(check.id[0]), int(check.id[1:])))


def _learnt(table: pd.DataFrame) -> Iterable[Claim]:
    head = ("C1", "The task is learnt in distribution, with ReLU and without", "Theorem 4.3")
    for arm in (RELU, LINEAR):
        yield Claim(*head, f"{arm}: ID hinge risk", at(table, arm, "id_risk"), high=0.02, arms=(arm,))
        yield Claim(*head, f"{arm}: ID accuracy", at(table, arm, "id_acc"), 0.995, arms=(arm,))


def _contamination(table: pd.DataFrame) -> Iterable[Claim]:
    head = ("C2", "ReLU neurons of both classes grow positive background weights", "Theorem 4.2")
    for column, low, high in (("bg_sum", 0.8, 1.1), ("core_sum", 1.1, 1.4)):
        yield Claim(*head, f"ReLU: {column}", at(table, RELU, column), low, high, arms=(RELU,))
    for sign in ("plus", "minus"):
        values = at(table, RELU, f"bg_sum_{sign}")
        yield Claim(*head, f"ReLU: bg_sum, {sign} neurons", values, ABOVE_ZERO, arms=(RELU,))
    head = ("C3", "A linear network learns no background", "Theorem 4.4")
    yield from _untouched(table, head, LINEAR)
    largest = at(table, LINEAR, "bg_largest") - at(table, LINEAR, "bg_largest", step=0)
    quantity = "identity: largest |<w, m_j>| over the background, end - start"
    yield Claim(*head, quantity, largest, high=0, arms=(LINEAR,))


def _untouched(table: pd.DataFrame, head: tuple[str, str, str], arm: str, **more: str) -> Iterable[Claim]:
    """Background weights that no gradient has moved: no mean, and the norm of pure decay."""
    yield Claim(*head, f"{arm}: |bg_sum|", np.abs(at(table, arm, "bg_sum")), high=0.03, arms=(arm,), **more)
    lr, decay, steps = (first(table, arm, key) for key in ("lr", "decay", "steps"))
    ratio = at(table, arm, "bg_norm") / (at(table, arm, "bg_norm", step=0) * (1 - lr * decay) ** steps)
    yield Claim(*head, f"{arm}: bg_norm / pure decay", ratio, 0.98, 1.02, arms=(arm,), **more)


def _risks(table: pd.DataFrame) -> Iterable[Claim]:
    head = ("C4", "Out of distribution a ReLU network fails, a linear one does not", "Theorem 4.3")
    bands = {(RELU, "ood"): (0.8, 0.9), (RELU, "worst"): (0.97, np.inf)}
    for arm in (RELU, LINEAR):
        for test, z in KEPT.items():
            band = bands.get((arm, test), (-np.inf, 0.01))
            values = at(table, arm, f"{test}_risk")
            yield Claim(*head, f"{arm}: hinge risk at z_bg = {z}", values, *band, arms=(arm,))
    head = ("C5", "The lower the test background, the higher a ReLU network's risk", "Section 4.1")
    order = [at(table, RELU, f"{test}_risk") for test in ("one", "zero", "half", "ood", "worst")]
    rises = np.diff(order, axis=0).min(0) if all(map(len, order)) else []
    quantity = "ReLU: smallest rise over z_bg = +1, 0, U[-1/2, 0], U[-1, 0], -1"
    yield Claim(*head, quantity, rises, ABOVE_ZERO, arms=(RELU,))
    for test, z in (("one", "+1"), ("zero", "0"), ("half", "U[-1/2, 0]")):
        yield Claim(*head, f"ReLU: risk at z_bg = {z}", at(table, RELU, f"{test}_risk"), arms=(RELU,))


def _activity(table: pd.DataFrame) -> Iterable[Claim]:
    head = ("C6", "Neurons become active for one class", "Theorem 4.1, Fig. 3(b)")
    ends = (("rate_pos", 0.8, np.inf), ("rate_neg", -np.inf, 0.1), ("frac_aligned", 0.75, np.inf))
    for column, low, high in ends:
        yield Claim(*head, f"ReLU: {column}", at(table, RELU, column), low, high, arms=(RELU,))
    starts = (("rate_pos", 0.4, 0.6), ("rate_neg", 0.4, 0.6), ("frac_aligned", -np.inf, 0.15))
    for column, low, high in starts:
        values = at(table, RELU, column, step=0)
        yield Claim(*head, f"ReLU: {column} at step 0", values, low, high, arms=(RELU,))
    yield Claim(*head, "identity: frac_aligned", at(table, LINEAR, "frac_aligned"), arms=(LINEAR,))


def _controls(table: pd.DataFrame) -> Iterable[Claim]:
    claim = "The driver is the background's mean: with a centred one nothing is contaminated"
    head, own = ("C7", claim, "Eq. 7, control"), {"arms": (CENTRED,)}
    yield Claim(*head, f"{CENTRED}: |bg_sum|", np.abs(at(table, CENTRED, "bg_sum")), high=0.03, **own)
    for test in KEPT:
        yield Claim(*head, f"{CENTRED}: {test}_risk", at(table, CENTRED, f"{test}_risk"), high=0.03, **own)
    for column in ("bg_sum", "ood_risk"):
        yield Claim(*head, f"{QUARTER}: {column}", at(table, QUARTER, column), arms=(QUARTER,))
    claim = "No spurious correlation: background and class are independent, the dictionary is orthonormal"
    head, same = ("C8", claim, "Section 4.1"), {"kind": "identity"}
    values = at(table, RELU, "bg_label_correlation", step=0)
    yield Claim(*head, "largest |corr(z_j, y)| sqrt(n)", values, high=4, arms=(RELU,), **same)
    error = at(table, FULL, "dictionary_error", step=0)
    yield Claim(*head, "largest entry of |M M^T - I|", error, high=1e-5, arms=(FULL,), **same)
    claim = "The gradient by hand is autograd's, and Eq. 7's class-signed average along the background"
    for column, words in (("gradient_error", "gradient"), ("equation_7_error", "Eq. 7")):
        for arm in (RELU, LINEAR, FULL):
            values = np.concatenate([at(table, arm, column, step=0), at(table, arm, column)])
            quantity = f"{arm}: relative error of {words}, start and end"
            yield Claim("C9", claim, "Section 4.2, Eq. 7", quantity, values, high=1e-5, arms=(arm,), **same)
    head = ("C11", "At the paper's size accuracy does not fall, only risk rises", "Theorem 4.3")
    yield Claim(*head, "ReLU, 32 background: OOD accuracy", at(table, RELU, "ood_acc"), 0.98, arms=(RELU,))
    for arm in (*WIDE.values(), LEAKY):
        band = (0.85, 0.97) if arm == WIDE[64] else ()
        yield Claim(*head, f"{arm}: OOD accuracy", at(table, arm, "ood_acc"), *band, arms=(arm,))
    for arm in (*WIDE.values(), *WIDE_LINEAR.values(), LEAKY):
        yield Claim(*head, f"{arm}: OOD hinge risk", at(table, arm, "ood_risk"), arms=(arm,))
    head = ("C14", "With gradients restricted to the core nothing is contaminated", "Section 5")
    values = at(table, PROJECTED, "ood_risk")
    yield Claim(*head, f"{PROJECTED}: ood_risk", values, high=0.03, arms=(PROJECTED,))
    yield from _untouched(table, head, PROJECTED, **same)  # no gradient reaches these weights


def _shells(table: pd.DataFrame) -> Iterable[Claim]:
    head = ("C10", "On shells, accuracy falls to chance out of distribution", "Fig. 10")
    for arm in SHELLS.values():
        yield Claim(*head, f"{arm}: ID accuracy", at(table, arm, "id_acc"), 0.99, arms=(arm,))
        yield Claim(*head, f"{arm}: OOD accuracy", at(table, arm, "ood_acc"), high=0.6, arms=(arm,))
        yield Claim(*head, f"{arm}: OOD logistic loss", at(table, arm, "ood_risk"), arms=(arm,))
    for arm in SHELLS_CENTRED.values():
        for test in ("id", "ood"):
            yield Claim(*head, f"{arm}: {test.upper()} accuracy", at(table, arm, f"{test}_acc"), 0.99, arms=(arm,))
    for phi, arm in SHELLS_FIXED.items():
        fall = at(table, arm, "id_acc") - at(table, arm, "ood_acc")
        band = () if phi == "gelu" else (ABOVE_ZERO,)
        yield Claim(*head, f"{arm}: held-out ID - OOD accuracy", fall, *band, arms=(arm,))
        for test in ("id", "ood"):
            yield Claim(*head, f"{arm}: {test.upper()} accuracy", at(table, arm, f"{test}_acc"), arms=(arm,))


def _regression(table: pd.DataFrame) -> Iterable[Claim]:
    head = ("C12", "Regression onto the core contaminates a ReLU network only", "Fig. 9")
    error = {(*key, test): at(table, arm, f"{test}_risk") for key, arm in REGRESSION.items() for test in ("id", "ood")}
    bands = {("relu", "id"): (-np.inf, 1e-3), ("relu", "ood"): (0.05, np.inf)}
    for (phi, test), (low, high) in (bands | {("identity", t): (-np.inf, 1e-3) for t in ("id", "ood")}).items():
        arm = REGRESSION["yz", phi]
        quantity = f"{arm}: {test.upper()} mean squared error"
        yield Claim(*head, quantity, error["yz", phi, test], low, high, arms=(arm,))
    ratio, arm = error["z", "relu", "ood"] / error["z", "relu", "id"], REGRESSION["z", "relu"]
    yield Claim(*head, f"{arm}: OOD / ID error", ratio, 20, arms=(arm,))
    arm = REGRESSION["z_given_yz", "identity"]
    quantity = f"{arm}: ID error (ill-posed for a linear network)"
    yield Claim(*head, quantity, error["z_given_yz", "identity", "id"], 0.08, arms=(arm,))
    for target in ("z", "z_given_yz"):
        for phi in ("relu", "identity"):
            for test in ("id", "ood"):
                arm = REGRESSION[target, phi]
                quantity = f"{arm}: {test.upper()} mean squared error"
                yield Claim(*head, quantity, error[target, phi, test], arms=(arm,))
    for arm in SMALL.values():
        yield Claim(*head, f"{arm}: bg_norm at step 0", at(table, arm, "bg_norm", step=0), arms=(arm,))
        yield Claim(*head, f"{arm}: bg_norm", at(table, arm, "bg_norm"), arms=(arm,))
        yield Claim(*head, f"{arm}: OOD mean squared error", at(table, arm, "ood_risk"), arms=(arm,))


def _exact(table: pd.DataFrame) -> Iterable[Claim]:
    head = ("C13", "Reduced coordinates, the time scale lr t, and repetition", "construction")
    ood = at(table, RELU, "ood_risk")
    for arm, most in ((FULL, 0.02), (SLOW, 0.01)):
        other = at(table, arm, "ood_risk")
        difference = np.abs(other - ood) if len(other) == len(ood) else []
        own = {"kind": "identity" if arm == FULL else "claim", "arms": (arm, RELU)}
        yield Claim(*head, f"{arm}: |OOD risk - that of {RELU}|", difference, high=most, **own)
    one, two = (table[(table["setting"] == arm) & (table["seed"] == 0)].reset_index(drop=True) for arm in (RELU, AGAIN))
    values = [name for name in table.columns if name not in RUN_COLUMNS]
    unequal = []
    if len(one) and len(two):
        same = one[values].eq(two[values]) | (one[values].isna() & two[values].isna())
        unequal = [float((~same).to_numpy().sum()) + abs(len(one) - len(two))]
    quantity = "numbers of a run's log that differ on repetition"
    yield Claim(*head, quantity, unequal, 0, 0, kind="identity", arms=(RELU, AGAIN))
    claim = "A step is no slower than the authors' script's, in reduced coordinates 3 times faster"
    yield Claim("C15", claim, "construction", "timed by benchmarks/theory_contamination.py, not here", [])


def _paper(table: pd.DataFrame) -> Iterable[Claim]:
    claim = "Paper: at learning rate 0.001 (no momentum given) the ID loss nears zero"
    head = ("P1", claim, "Appendix F.1, Fig. 8")
    values = at(table, LETTER, "id_risk", step=20_000)
    yield Claim(*head, f"{LETTER}: ID hinge risk at step 20,000", values, high=0.02, arms=(LETTER,))
    recorded = {LETTER: (20_000, 100_000), MOMENTUM: (5000, 10_000, 20_000), SCRIPT: (1000, 2000, 3000)}
    for arm, steps in recorded.items():
        for step in (step for step in steps if first(table, arm, "steps") >= step):
            for column in ("id_risk", "ood_risk", "bg_sum"):
                values = at(table, arm, column, step=step)
                yield Claim(*head, f"{arm}: {column} at step {step:,}", values, arms=(arm,))
    claim = "Paper: every activation fails out of distribution (the script's fixed samples: GELU hardly)"
    arm = SHELLS_FIXED["gelu"]
    fall = at(table, arm, "id_acc") - at(table, arm, "ood_acc")
    yield Claim("P2", claim, "Fig. 10", f"{arm}: held-out ID - OOD accuracy", fall, ABOVE_ZERO, arms=(arm,))
    claim = "Paper: a linear network generalises in regression onto z, its input carrying y z"
    arm = REGRESSION["z_given_yz", "identity"]
    for test in ("id", "ood"):
        quantity = f"identity: {test.upper()} mean squared error"
        yield Claim("P3", claim, "Fig. 9(b)", quantity, at(table, arm, f"{test}_risk"), high=1e-3, arms=(arm,))
    claim = "Paper: the norm of background weights grows in ReLU networks (its plotted measure)"
    for arm in (RELU, LONG):
        grown = at(table, arm, "bg_norm") - at(table, arm, "bg_norm", step=0)
        yield Claim("P4", claim, "Fig. 8", f"{arm}: bg_norm, end - start", grown, ABOVE_ZERO, arms=(arm,))


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
                quantity, own = f"{arm}: margin kept at z_bg = {z}", {"reason": PILOT, "arms": (arm,)}
                yield Claim(id, claim, source, quantity, kept(table, arm, test), *band, untested=void, **own)
            for column in columns:
                yield Claim(id, claim, source, f"{arm}: {column}", at(table, arm, column), arms=(arm,))
    claim = "At equal risk in distribution 8 labels fail less: decay 0.0001, 6000 steps"
    risk = at(table, LONGER[4], "id_risk")
    yield Claim("X1", claim, source, f"{LONGER[4]}: ID risk", risk, high=0.05, reason=PILOT, arms=(LONGER[4],))
    fine, coarse = (at(table, LONGER[g], "ood_risk") for g in (4, 1))
    saved = coarse - fine if len(fine) == len(coarse) else []
    both = (LONGER[1], LONGER[4])
    yield Claim("X1", claim, source, "OOD risk, 2 labels minus 8", saved, 0.5, reason=PILOT, arms=both)
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
            own = {"reason": PILOT, "arms": (fine, coarse)}
            yield Claim("X2", claim, source, f"{name}, fine - coarse, {loss}", values, low, high, **own)
