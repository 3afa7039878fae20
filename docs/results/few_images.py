"""Tables and the figure of docs/findings/fixed.md: label spaces on few images, drawn once."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from tables import BASELINE, HERE, compared, inside, lines, outcomes, predictions, ranged, read, signed

from granularity.claims.statistics import interval, paired

LABELS = {  # labels in all, of each arm
    "cifar10": {BASELINE: 2, "manual-group": 5, "manual-class": 10, "random-parts-2": 20, "random-parts-4": 40},
    "digits": {BASELINE: 3, "manual-digit": 10, "random-parts-2": 20, "random-parts-4": 40},
}
AT = {"end": "after finetuning", "head": "of the pretrained head"}


def table(wide: pd.DataFrame, name: str) -> str:
    """What was predicted of `name`: an arm's error minus another's, or that of many images less that of few."""

    def arm(name: str, one: dict) -> pd.Series:
        def of(images: int) -> pd.Series:
            at, space = ("start", BASELINE) if name == "untrained" else (one["at"], name)
            return wide[one.get("data", "cifar10"), images, at, space].dropna()

        return (of(one["images"]) - (of(one["less"]) if "less" in one else 0)).rename(name)

    said = predictions(name)
    found = compared({key: (arm(one["arm"], one), arm(one["against"], one)) for key, one in said.items()})
    return outcomes([""], found, said, lambda key, row: [key])


def few() -> str:
    found = read("cifar10_few").query("key == 'class/linear'")
    last = found.groupby("images")["epoch"].transform("max")
    found["at"] = np.select([found["epoch"] == 0, found["epoch"] == last], ["start", "end"], "fifth")
    found["on"] = "cifar10"
    return table(found.pivot(index="draw", columns=["on", "images", "at", "space"], values="value"), "cifar10_few")


def errors() -> pd.DataFrame:
    """Errors in percent: a row per draw, a column per data set, number of images, moment and arm."""
    found = pd.concat([read(f"{on}_best").assign(on=on) for on in LABELS]).query("measure == 'val_error'")
    once = found["network"] == "once"  # the target alone, for the steps of both stages
    found["space"] = found["space"].mask(once, "once")
    found["at"] = np.where(once | found["transfer"].notna(), "end", "head")
    return found.pivot(index="draw", columns=["on", "images", "at", "space"], values="value").sort_index(axis=1)


def best() -> str:
    return table(errors(), "best")


def slopes() -> str:
    """G* by number of images, and the slope of ln G* on ln N with its interval by drawing base seeds anew."""
    wide, rng, rows = errors(), np.random.default_rng(0), []
    draws = np.array([rng.integers(len(wide), size=len(wide)) for _ in range(1000)])
    for key, one in predictions("best", "slopes").items():
        labels, images = LABELS[one["data"]], sorted(set(wide[one["data"]].columns.get_level_values(0)))
        values = np.stack([wide[one["data"], count, one["at"]][list(labels)] for count in images])  # images, seed, arm
        means = np.stack([values.mean(1), *values[:, draws].mean(2).swapaxes(0, 1)])
        best = np.array(list(labels.values()))[means.argmin(2)]  # as they are, then drawn anew; by images
        value, *drawn = np.polyfit(np.log(images), np.log(best).T, 1)[0].round(9)  # 0 where G* is constant
        low, high = np.quantile(drawn, [0.025, 0.975])
        found = ", ".join(f"{count} of {of:,}" for of, count in zip(images, best[0], strict=True))
        rows.append([key, found, ranged(one), f"{signed(value)} [{signed(low)}, {signed(high)}]", inside(value, one)])
    return lines(["", "G* of N images", "slope, predicted", "came out", "it lies"], rows)


def drawing() -> None:
    """Each arm's error minus the target's, with intervals at 95 %, against the number of labels."""
    wide = errors()
    plt.rcParams.update({"svg.hashsalt": "best", "font.size": 9})
    figure, axes = plt.subplots(2, 2, figsize=(7, 5), layout="constrained", sharey=True)
    panels = [(on, at) for on in LABELS for at in AT]
    for axis, (on, at) in zip(axes.flat, panels, strict=True):
        names, labels = zip(*list(LABELS[on].items())[1:], strict=True)
        for shift, images in enumerate(sorted(set(wide[on].columns.get_level_values(0)))):
            found = wide[on, images, at]
            each = [paired(found[name], found[BASELINE]) for name in names]
            middle = np.array([one.difference for one in each])
            ends = np.array([interval(*one, 1) for one in each])
            axis.errorbar(
                np.array(labels) * 1.05 ** (shift - 1.5),
                middle,
                np.abs(ends.T - middle),
                fmt="o-",
                color=f"C{shift}",
                capsize=2,
                label=f"{images:,} images",
            )
        axis.axhline(0, color="grey", linewidth=0.8)
        axis.set(title=f"{'CIFAR-10' if on == 'cifar10' else on}, {AT[at]}", xlabel="labels", xscale="log")
        axis.set_xticks(labels, [str(one) for one in labels])
        axis.minorticks_off()
    figure.supylabel("error minus the target's (points)", fontsize=9)
    axes[0, 0].legend(frameon=False, fontsize=8)
    figure.savefig(HERE.parent / "images/fixed_photographs.svg", metadata={"Date": None, "Creator": None})
