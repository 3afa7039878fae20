"""Study: the width of a student with the least test loss, on Gaussian inputs that a teacher of some width has labelled.

Shi, Wei and Liang (2022), Figure 26, in small. Extends the world `feature_emergence`: teachers and students on digits.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pandas as pd
import torch

from granularity.base import strict_yaml
from granularity.claims import preregistered
from granularity.claims.claim import Claim
from granularity.stages.theory import engine, nets
from granularity.stages.theory import figures as draw
from granularity.stages.theory.engine import Rows, State, Trial
from granularity.stages.theory.worlds import feature_emergence
from granularity.stages.theory.worlds.feature_emergence import further

EXTENDS, NAME = "world", "students_by_width"
SAID = strict_yaml.read(Path(__file__).with_name("predictions.yaml"))


class Settings(feature_emergence.Settings):
    """A teacher (`teacher`, `steps`), and students of several widths (`student_steps`) on `inputs` Gaussians."""

    WORLD: ClassVar[str] = NAME

    inputs: engine.Count = 1297  # labelled by the teacher, to train students
    widths: tuple[engine.Count, ...] = ()


SIZES = {"quick": [Settings(name=name, **SAID["setting"] | arm) for name, arm in SAID["arms"].items()]}


def simulate(runs: Sequence[Trial], device: torch.device) -> Rows:
    """Train teachers on digits, then students; phases "teacher" and "student", the latter with a `width`."""
    cfg = runs[0].settings
    data = engine.collated(further.draw_digits(run, device) for run in runs)
    center, scale = data["L"].mean(1, keepdim=True), data["L"].std(1, keepdim=True)
    sources = [run.generator("students' inputs", device) for run in runs]
    count = cfg.inputs + further.TEST
    normal = engine.stacked(lambda g: torch.randn(count, further.PIXELS, generator=g, device=device), sources)
    inputs = center + scale * normal

    def right(net: State) -> State:
        return {"test_acc": further.hits(net, data["L_test"], data["labels_test"])}

    digits, teachers = (data["L"], data["labels"]), [cfg.teacher] * len(runs)
    rows, teacher = further.fit(runs, "teacher", teachers, digits, cfg.steps, right, data["U"])
    labels = further.forward(teacher, inputs)[0].argmax(2)
    train = inputs[:, : cfg.inputs], labels[:, : cfg.inputs]
    x, y = inputs[:, cfg.inputs :], labels[:, cfg.inputs :]

    def measured(net: State) -> State:
        loss = nets.softmax_residual(further.forward(net, x)[0], y)[0]
        return {"test_loss": loss, "test_acc": further.hits(net, x, y)}

    for width in cfg.widths:
        found, _ = further.fit(runs, f"student {width}", [width] * len(runs), train, cfg.student_steps, measured)
        rows += [row | {"width": width} for row in found]
    return rows


def losses(table: pd.DataFrame, arm: str) -> pd.DataFrame:
    """Return students' test losses after training: a row per seed, a column per width."""
    rows = table[
        (table["setting"] == arm) & table["phase"].str.startswith("student") & table["event"].str.contains("end")
    ]
    return rows.pivot(index="seed", columns="width", values="test_loss")


def measured(table: pd.DataFrame) -> dict[str, Sequence[float]]:
    """Return each arm's width with the least mean loss, and that width over the one with the teacher of 9."""
    arms = {arm: losses(table, arm) for arm in SAID["arms"]}
    best = {arm: float(loss.mean().idxmin()) for arm, loss in arms.items() if not loss.empty}
    shift = {f"{arm}: further right": best[arm] / best[SAID["first"][arm]] for arm in SAID["first"] if arm in best}
    return {name: [value] for name, value in (best | shift).items()}


def judge(table: pd.DataFrame) -> list[Claim]:
    """Judge the predictions."""
    return preregistered.claims(SAID, dict.fromkeys(SAID["predictions"], ()) | measured(table))


def figures(table: pd.DataFrame, folder: Path) -> None:
    """Draw students' test losses against their width, relative to the least of each arm."""
    panels = []
    for inputs in sorted({arm["inputs"] for arm in SAID["arms"].values()}):
        series = []
        for arm, options in SAID["arms"].items():
            if options["inputs"] == inputs and not (loss := losses(table, arm)).empty:
                relative = loss.div(loss.mean().min())
                series.append(
                    draw.Points({width: relative[width] for width in relative}, f"teacher of {options['teacher']}")
                )
        words = {"xlabel": "hidden units of the student", "ylabel": "test loss / least mean", "log": "xy"}
        words |= {} if panels else {"legend": "upper right"}
        panels.append(draw.panel(*series, title=f"{inputs:,} inputs", **words))
    draw.draw(folder, NAME, *panels, width=7, height=2.6)
