"""World 4's claims (how to read them: `theory.statements`) and figures: 3(b), 7, 8, 9, 10 of the paper, and others.

Bands come from an earlier implementation, X's from pilots. X crosses the world with label granularity.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from granularity.claims.claim import Claim, unmet
from granularity.stages.theory import statements
from granularity.stages.theory.figures import SPREAD, Curve, Line, Points, draw, panel, points
from granularity.stages.theory.runs import RUN_COLUMNS
from granularity.stages.theory.statements import Runs, minus, over, swept
from granularity.stages.theory.worlds.feature_contamination import settings as a

NO_MARGIN = "no margin between classes is learnt (ID risk above 0.5), so nothing can be said of contamination"
LEARNT = 0.1  # ID risk of the paper's network at most, where C16 is judged
NAMES: dict[str, Any] = dict(YZ_RELU=a.REGRESSION["yz", "relu"], YZ_LINEAR=a.REGRESSION["yz", "identity"])
NAMES |= dict(Z_RELU=a.REGRESSION["z", "relu"], Z_GIVEN_LINEAR=a.REGRESSION["z_given_yz", "identity"])
NAMES |= dict(OTHER_TARGETS=[arm for (target, _), arm in a.REGRESSION.items() if target != "yz"])
NAMES |= dict(PACED_RELU=[a.PACED[target, "relu"] for target in a.TARGETS], PRINTED=a.PRINTED)
NAMES |= dict(PACED_LINEAR=[a.PACED[target, "identity"] for target in ("z", "yz")])
NAMES |= dict(PACED_GIVEN_LINEAR=a.PACED["z_given_yz", "identity"])
NAMES |= dict(PACES={arm: (a.PACED[key], arm) for key, arm in a.REGRESSION.items() if key[1] == "relu"})
NAMES["FROM_SLOWER"] = (
    "set before these arms were run, from step 200 of ReLU, yz from yz, at the rate 0.01; expected to hold"
)
NAMES["AS_P3"] = "set before this arm was run; expected to fail, as P3"
NAMES |= dict(FULL_AND_RELU=(a.FULL, a.RELU), SLOW_AND_RELU=(a.SLOW, a.RELU), TWICE=(a.RELU, a.AGAIN))
NAMES |= dict(GELU_FIXED=a.SHELLS_FIXED["gelu"], LONGER_FINE=a.LONGER[4], LONGER_BOTH=(a.LONGER[1], a.LONGER[4]))
NAMES |= dict(FINE_COARSE=(a.LABELS[4], a.LABELS[1]), FINE_COARSE_SOFTMAX=(a.SOFTMAX[4], a.SOFTMAX[1]))
NAMES |= dict(ONE_VARIED=[arm for *_, arm in swept(a.VARIED, a.SWEPT, a.MORE)])
NAMES["PAIRS_VARIED"] = {
    f"{key} = {value:g}": tuple(a.VARIED_LABELS[g].format(key, value) for g in (4, 1))
    for key, value, _ in swept("", a.SWEPT_LABELS, a.MORE_LABELS)
}
NAMES |= dict(PILOT="from pilot runs of three to five seeds", BEFORE="set before these arms were run")
NAMES |= dict(CENTRED=a.CENTRED, FULL=a.FULL, LABELS=a.LABELS, LABELS_LINEAR=a.LABELS_LINEAR, LEAKY=a.LEAKY)
NAMES |= dict(LETTER=a.LETTER, LINEAR=a.LINEAR, LONG=a.LONG, LONGER=a.LONGER, OF_BACKGROUND=a.OF_BACKGROUND)
NAMES |= dict(PROJECTED=a.PROJECTED, QUARTER=a.QUARTER, RANDOM=a.RANDOM, RANDOM_SOFTMAX=a.RANDOM_SOFTMAX, RELU=a.RELU)
NAMES |= dict(SHELLS=a.SHELLS, SHELLS_CENTRED=a.SHELLS_CENTRED, SHELLS_FIXED=a.SHELLS_FIXED, SMALL=a.SMALL)
NAMES |= dict(SOFTMAX=a.SOFTMAX, WIDE=a.WIDE, WIDE_LINEAR=a.WIDE_LINEAR)
RECORDED = {a.LETTER: (20_000, 100_000), a.MOMENTUM: (5000, 10_000, 20_000), a.SCRIPT: (1000, 2000, 3000)}  # of P1


def judge(table: pd.DataFrame) -> list[Claim]:
    """C1 to C17, P1 to P5 and X1 to X5 of the run table (see `Claim`)."""
    runs, tables = Runs(table), statements.tables("feature_contamination")
    text = tables["statements"]
    for arm, steps in RECORDED.items():
        text += tables["clock"].replace("ARM", arm)
        for step in (step for step in steps if runs.parameters(arm, "steps")[0] >= step):
            text += tables["at_step"].replace("SHOWN", f"{step:,}").replace("STEP", str(step))
    functions = start_and_end, decayed, paced, smallest_rise, gain, kept, unequal, unlearnt, void
    return statements.judge(table, text + tables["rest"], NAMES, *functions)


def start_and_end(runs: Runs, arm: str, column: str) -> np.ndarray:
    return np.concatenate([runs(arm, column, step=0), runs(arm, column)])


def decayed(runs: Runs, arm: str) -> np.ndarray:
    """Norm of the background weights, over what pure decay leaves: 1 where no gradient has moved them."""
    lr, decay, steps = runs.parameters(arm, "lr", "decay", "steps")
    return runs(arm, "bg_norm") / (runs(arm, "bg_norm", step=0) * (1 - lr * decay) ** steps)


def paced(runs: Runs, slow: str, fast: str) -> np.ndarray:
    """Return OOD errors at lr 0.001, step 2000, over those at lr 0.01, step 200, both with momentum 0.9."""
    return over(runs(slow, "ood_risk", step=2000), runs(fast, "ood_risk", step=200))


def smallest_rise(runs: Runs, arm: str) -> np.ndarray:
    order = [runs(arm, f"{test}_risk") for test in ("one", "zero", "half", "ood", "worst")]
    return np.diff(order, axis=0).min(0) if all(map(len, order)) else np.empty(0)


def unequal(runs: Runs, *arms: str) -> list[float]:
    """How many numbers of seed 0's log differ between two arms."""
    table = runs.table[runs.table["seed"] == 0]
    one, two = (table[table["setting"] == arm].reset_index(drop=True) for arm in arms)
    if not (len(one) and len(two)):
        return []
    values = [name for name in table.columns if name not in RUN_COLUMNS]
    same = one[values].eq(two[values]) | (one[values].isna() & two[values].isna())
    return [float((~same).to_numpy().sum()) + abs(len(one) - len(two))]


def unlearnt(runs: Runs, arm: str) -> str:
    risk = runs(arm, "id_risk")
    return unmet((not (risk > LEARNT).any(), f"not learnt: ID risk {risk.max(initial=0):.2f}, above {LEARNT:g}"))


def void(runs: Runs, *arms: str) -> str:
    return NO_MARGIN if any((runs(arm, "id_risk") > 0.5).any() for arm in arms) else ""


def kept(runs: Runs, arm: str, test: str = "ood") -> np.ndarray:
    """Share of the mean margin E[y h] that is left on a test set (`ood`: z_bg ~ U[-1, 0]); one value per seed."""
    return runs(arm, f"{test}_margin") / runs(arm, "id_margin")


def gain(runs: Runs, fine: str, coarse: str, test: str = "ood") -> np.ndarray:
    return minus(kept(runs, fine, test), kept(runs, coarse, test))


# ---------------------------------------------------------------- figures

OOD = "out of distribution, $z_{bg}$ ~ U[−1, 0]"
STEPS = {"log": "sym", "xlabel": "training step"}
LOSSES = STEPS | {"yscale": "log", "legend": "best"}
RISK = {"ylabel": "hinge risk", "ylim": (-0.03, 1.1)}
TESTS = {"one": "+1", "zero": "0", "half": "U[−½, 0]", "ood": "U[−1, 0]", "worst": "−1"}
TASKS = {"z": "z, z", "z_given_yz": "yz, z", "yz": "yz, yz"}
MECHANISM = {a.RELU: (a.RELU, "-"), a.QUARTER: ("ReLU, background mean ¼", "-"), a.CENTRED: (a.CENTRED, "--")}
MECHANISM |= {a.PROJECTED: (a.PROJECTED, ":"), a.LINEAR: ("identity", "-.")}
CLOCKS = {a.RELU: ("lr 0.5, N = 256", "-"), a.SLOW: ("lr 0.1, N = 256", "--")}
CLOCKS |= {a.MOMENTUM: ("lr 0.001, momentum 0.9", "-"), a.LETTER: ("lr 0.001, as printed", "--")}
CLOCKS |= {a.SCRIPT: ("authors' script (fixed data)", ":")}
CROSSED = (
    (a.LABELS, "subclass, hinge", True),
    (a.LABELS_LINEAR, "subclass, hinge, identity", True),
    (a.SOFTMAX, "subclass, cross-entropy", True),
    ({4: a.RANDOM}, "random IDs, hinge", False),
    ({4: a.RANDOM_SOFTMAX}, "random IDs, cross-entropy", False),
    ({4: a.OF_BACKGROUND}, "by background, hinge", False),
)


def figures(table: pd.DataFrame, folder: Path) -> None:
    """Draw all nine."""
    runs, both = Runs(table), (a.RELU, a.LINEAR)
    risks, norms, activity = [], [], []
    for colour, arm in enumerate(both):
        rows = runs.rows(arm)
        curves = [Curve(rows, "id_risk", "in distribution"), Curve(rows, "ood_risk", "$z_{bg}$ ~ U[−1, 0]")]
        curves.append(Curve(rows, "worst_risk", "$z_{bg}$ = −1", colour=6, style=":"))
        risks.append(panel(*curves, **STEPS, **RISK, title=arm, legend="best"))
        curves = [Curve(rows, "core_norm", "core features", colour=2)]
        curves.append(Curve(rows, "bg_norm", "background features", colour=3, style="--"))
        words = {"ylim": (0, 0.8), "ylabel": "mean norm of a neuron's weights", "legend": "best"}
        norms.append(panel(*curves, **STEPS, **words))
        for column, style, words in (("rate_pos", "-", "positive class"), ("rate_neg", "--", "other class")):
            activity.append(Curve(rows, column, f"{arm}, {words}", colour=colour, style=style))
    draw(folder, "risks", *risks, *norms, columns=2, height=2.2)
    left, right = [], []
    for arm, (label, style) in MECHANISM.items():
        left.append(Curve(runs.rows(arm), "bg_sum", label, style=style))
        right.append(Points({i: runs(arm, f"{test}_risk") for i, test in enumerate(TESTS)}, label))
    left = panel(*left, **STEPS, legend="best", ylabel="background weight  ½ Σ$_{bg}$ ⟨w, m$_j$⟩")
    right = panel(*right, **RISK, ticks=TESTS.values(), dodge=0.06, xlabel="test background $z_{bg}$")
    draw(folder, "mechanism", left, right)
    words = {"ylabel": "share of samples with ⟨w, x⟩ > 0", "ylim": (-0.03, 1.03)}
    draw(folder, "activity", panel(*activity, legend="center right", **STEPS, **words))
    _neurons(runs, folder)
    _clock(runs, folder)
    sizes = {"ReLU": {32: a.RELU} | a.WIDE, "identity": {32: a.LINEAR} | a.WIDE_LINEAR}
    words = {"xlabel": "background features (core features: 32)", "ticks": [32, *a.WIDE]}
    risk, accuracy = (
        [points(runs, arms, column, name) for name, arms in sizes.items()] for column in ("ood_risk", "ood_acc")
    )
    left = panel(*risk, ylabel="OOD hinge risk", ylim=(-0.03, 1.1), legend="center left", **words)
    chance = Line(y=0.5, label="chance", style=":")
    right = panel(*accuracy, chance, ylabel="OOD accuracy", ylim=(0.45, 1.03), legend="best", **words)
    draw(folder, "background_size", left, right)
    _regression(runs, folder)
    _shells(runs, folder)
    _granularity(runs, folder)


def _neurons(runs: Runs, folder: Path) -> None:
    rows = runs.rows(a.RELU)
    rows = rows[rows["seed"] == 0]
    count = int(rows["neurons"].iloc[0]) if len(rows) else 0
    plus = [rows[f"neuron_{k}_sign"].iloc[0] > 0 for k in range(count)]
    panels = []
    for name, title in (("plus", "+1"), ("minus", "−1")):
        series = []
        for k, up in enumerate(plus):
            label = "" if up in plus[:k] else f"$a_k$ {'>' if up else '<'} 0"
            series.append(Curve(rows, f"neuron_{k}_{name}", label, colour=int(not up), style="-" if up else "--"))
        words = {"title": f"samples of y = {title}", "ylim": (-1, 4.5), "ylabel": "mean pre-activation E⟨w$_k$, x⟩"}
        panels.append(panel(*series, legend="best", **STEPS, **words))
    draw(folder, "neurons", *panels, note="ten neurons of one ReLU network (seed 0), in distribution")


def _clock(runs: Runs, folder: Path) -> None:
    clocks = []
    for arm, (label, style) in CLOCKS.items():
        rows = runs.rows(arm)
        rows = rows.assign(s=(rows["step"] * rows["lr"] / (1 - rows["momentum"])).round(9))
        clocks.append((rows[rows["s"] > 0], label, style))
    words = RISK | {"xlabel": "time  s = lr × steps / (1 − momentum)", "log": "x", "xlim": (0.5, None)}
    panels = []
    for column, title, legend in (("id_risk", "in distribution", "best"), ("ood_risk", OOD, "")):
        curves = (Curve(rows, column, label, "s", style=style, mark=True) for rows, label, style in clocks)
        panels.append(panel(*curves, **words, title=title, legend=legend))
    draw(folder, "clock", *panels)


def _regression(runs: Runs, folder: Path) -> None:
    nets, tests = {"relu": "ReLU", "identity": "identity"}, {"id_risk": "ID", "ood_risk": "OOD"}
    panels, dots = [], []
    for phi, name in nets.items():
        curves = (Curve(runs.rows(a.REGRESSION["yz", phi]), column, label) for column, label in tests.items())
        words = {"title": f"{name}, yz from yz", "ylim": (1e-6, 30), "ylabel": "mean squared error a coordinate"}
        panels.append(panel(*curves, **LOSSES, **words))
        arms = [a.REGRESSION[target, phi] for target in TASKS]
        dots += [points(runs, arms, column, f"{name}, {test}", line=False) for column, test in tests.items()]
    words = {"title": "input core, target", "yscale": "log", "ylim": (1e-6, 3000), "legend": "upper right"}
    panels.append(panel(*dots, ticks=TASKS.values(), dodge=0.1, **words))
    draw(folder, "regression", *panels, width=6.8, height=2.4)


def _shells(runs: Runs, folder: Path) -> None:
    panels, dots = [], []
    for column, title in {"id_risk": "in distribution", "ood_risk": "out of distribution"}.items():
        curves = (Curve(runs.rows(arm), column, a.ACTIVATIONS[phi]) for phi, arm in a.SHELLS.items())
        panels.append(panel(*curves, **LOSSES, title=title, ylim=(1e-4, 30), ylabel="logistic loss (nats)"))
    groups = {"fresh data": a.SHELLS, "1000 fixed": a.SHELLS_FIXED, "centred": a.SHELLS_CENTRED}
    for label, arms in groups.items():
        placed = {i: arms[phi] for i, phi in enumerate(a.ACTIVATIONS) if phi in arms}
        dots.append(points(runs, placed, "ood_acc", label, line=False))
    words = {"ylabel": "OOD accuracy", "ylim": (-0.03, 1.6), "legend": "upper center"}
    panels.append(panel(*dots, ticks=a.ACTIVATIONS.values(), dodge=0.12, **words))
    draw(folder, "shells", *panels, width=6.8)


def _granularity(runs: Runs, folder: Path) -> None:
    def margin(arm: str, _: str) -> np.ndarray:  # a share of next to nothing says nothing
        margins = runs(arm, "id_margin")
        return kept(runs, arm) if len(margins) and margins.mean() > 0.05 else np.empty(0)

    panels = []
    for column, values_of, words in (
        ("ood_risk", runs, {"ylabel": "OOD hinge risk, class head"}),
        ("margin", margin, {"ylabel": "share of the margin kept OOD", "ylim": (-0.03, 1.05)}),
        ("bg_sum", runs, {"ylabel": "background weight"}),
    ):
        series = [points(values_of, {2 * g: arm for g, arm in arms.items()}, column, *how) for arms, *how in CROSSED]
        panels.append(panel(*series, log="x", xlabel="training labels", ticks=[2, 4, 8], dodge=0.05, **words))
    note = f"{SPREAD}; random IDs, hinge: no margin in distribution, so none to keep"
    draw(folder, "granularity", *panels, width=6.8, height=2.6, note=note, legend=3)
