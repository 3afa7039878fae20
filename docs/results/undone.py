"""Tables, sentences and the figure of docs/findings/contamination_undone.md: directions of a shift, removed."""

import re
import sys
import textwrap

import numpy as np
import pandas as pd
from tables import HERE, STUDIES, inside, lines, predictions, table_of

from granularity.stages.theory.runs import at

NAME = "contamination_undone"
METHODS = {"gradients": "gradients", "whitened": "gradients, whitened", "inputs": "inputs in training and test"}
METHODS |= {"rescaled": "trained weights, rescaled", "test": "trained weights", "coral": "hidden means matched"}
INPUTS = (12, 50, 200, 1000, 5000)
ANSWER = """
**The direction is enough; training is not needed.** With 1,000 unlabelled inputs of each kind, projected gradients
lower the OOD risk from {ERM} to {gradients, n = 1000}. Removing the direction from trained weights, then restoring
the mean margin, gives {rescaled, n = 1000}: the kill criterion is met. Unrestored, the risk is {test, n = 1000}. In
distribution it rises from {ERM | id_risk} to {gradients, n = 1000 | id_risk} and {rescaled, n = 1000 | id_risk}.
- **With 50 inputs, training moves the harm out of distribution.** Risks in distribution and OOD are {gradients, n =
50 | id_risk} and {gradients, n = 50} with projected gradients, {rescaled, n = 50 | id_risk} and {rescaled, n = 50}
with trained weights.
- **The noise is class balance.** The estimate takes a different share of classes for the shift. With 70 % positive
inputs OOD, 5,000 inputs leave {70 % positive}. Dividing the difference of means by the covariance (*whitened*) lowers
it to {70 % positive, whitened}.
- **If four blocks of the background shift in different groups**, one mean leaves {mean, d = 4}. Singular vectors of
group differences, their rank chosen by permutation, leave {means, d = 4} (means) and {moments, d = 4} (second
moments). If all signs change, second moments see nothing; in {false} of ten seeds they removed core features too.
- **It fails where the shift flips core features with the label:** 8 of 32 leave {flips 8 core}, because means do not
move. A shift added to all 32 costs one class: the risk in distribution is {added to 32 core | id_risk}.
- **{inside} of {all} predictions** lie in their ranges (nominal coverage: 80 %). By number of inputs, the law's range
held once in five. *Seen afterwards:* given the overlap and class balance that networks drew, law and risk have a
correlation of {correlation} (logarithms).
"""


def rows() -> pd.DataFrame:
    return pd.read_csv(table_of(NAME)).assign(phase="train", event="end")


def world():
    if str(STUDIES / NAME) not in sys.path:
        sys.path.append(str(STUDIES / NAME))
    import contamination_undone

    return contamination_undone


def number(value: float) -> str:
    return f"{value:.3f}" if abs(value) >= 0.001 or value == 0 else f"{value:.1g}"


def risk(arm: str, measure: str = "ood_risk") -> float:
    values = at(rows(), arm, measure)
    return values.mean() if len(values) else np.nan


def drawn(arms: str) -> pd.DataFrame:
    """Networks of arms, with the law's risk given the overlap and the class balance that each has drawn."""
    found = rows().query("setting.str.fullmatch(@arms)", engine="python")
    known, e = found["d_bg"] / 32 * found["overlap"], found["imbalance"]
    return found.assign(law=(world().risk_given(known + e) + world().risk_given(known - e)) / 2)


def risks() -> str:
    """OOD risk, and risk in distribution in brackets, by method and number of inputs; first the law's."""
    found = [["gradients, law", *(number(world().risk_law(n)) for n in INPUTS)]]
    found.append(["..., law of the draws", *(number(drawn(f"gradients, n = {n}")["law"].mean()) for n in INPUTS)])
    for key, label in METHODS.items():
        arms = [f"{key}, n = {n}" for n in INPUTS]
        cells = (
            f"{number(risk(arm))} ({number(risk(arm, 'id_risk'))})" if risk(arm) == risk(arm) else "" for arm in arms
        )
        found.append([label, *cells])
    return lines(["removed from", *(f"{n:,}" for n in INPUTS)], found)


def outcomes() -> dict[str, tuple[float, str]]:
    """By prediction, the mean over seeds and where it lies."""
    said, values = predictions(NAME), world().measured(rows())
    return {name: (one.mean(), inside(one.mean(), said[name])) for name, one in values.items()}


def predicted() -> str:
    """The predictions that miss their ranges."""
    said = predictions(NAME)
    missed = {name: one for name, one in outcomes().items() if one[1] != "inside"}
    found = [[name, f"{said[name]['low']:g}…{said[name]['high']:g}", f"{one:.3g}"] for name, (one, _) in missed.items()]
    return lines(["missed", "predicted", "came out"], found)


def answer() -> str:
    """`ANSWER` with numbers in place of what stands in braces: an arm's OOD risk, or its risk in distribution."""
    said, found = predictions(NAME), outcomes()
    counts = {"inside": str(sum(where == "inside" for _, where in found.values())), "all": str(len(said))}
    each, none = drawn("gradients, .*n = [0-9]+|gradients, n = [0-9]+"), rows().query("setting == 'moments, d = 1'")
    counts["correlation"] = f"{np.log(each['law']).corr(np.log(each['ood_risk'])):.2f}"
    counts["false"] = str((none["rank"] > 0).sum())

    def value(one: re.Match[str]) -> str:
        arm, _, measure = one[1].partition(" | ")
        return counts.get(arm) or number(risk(arm, measure or "ood_risk"))

    filled = re.sub(r"{(.*?)}", value, " ".join(ANSWER.split()))
    return "\n".join(textwrap.fill(f"- {one}", 120, subsequent_indent="  ") for one in filled.split(" - "))


def drawing() -> None:
    world().figures(rows(), HERE.parent / "images")
