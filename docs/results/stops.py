"""Tables and the figure of the study tiny_imagenet_tree: where in a tree of labels finer pretraining stops helping."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from tables import BASELINE, HERE, compared, inside, lines, predictions, ranged, read, shown

from granularity.claims.statistics import interval, mean_of

NAME = "tiny_imagenet_tree"
TREE = {BASELINE: 12, "manual-group": 20, "manual-family": 39, "manual-type": 76, "manual-synset": 200}
TREE |= {"kmeans-class-2": 400, "kmeans-class-5": 1000}
CONTROLS = {
    "kmeans-superclass-3": 36,
    "random-superclass-3": 36,
    "kmeans-superclass-17": 204,
    "random-superclass-17": 204,
}
MORE = {arm: labels for arm, labels in TREE.items() if labels <= 200} | {"random-36": 36, "random-204": 204}
MORE |= {"kmeans-36": 36, "kmeans-204": 204, "kmeans-superclass-3": 36, "kmeans-superclass-17": 204}
MORE |= {"kmeans-superclass-7": 84, "rebalanced-G84": 84}
COLUMNS = {
    "finetuned": ("resnet18", "target"),
    "from epoch 8": ("resnet18", "epoch-8"),
    "from epoch 6": ("resnet18", "epoch-6"),
    "CIFAR-10": ("resnet18", "cifar10"),
    "CIFAR-10, head alone": ("resnet18", "cifar10-head"),
    "plain network": ("plain", "target"),
}
IMAGES = "tiny_imagenet_images"
FEW, MANY = (f"{images} images, 384000 shown" for images in (8000, 16000))
FEW_SHORT, MANY_SHORT = (f"{images} images, 160000 shown" for images in (8000, 16000))
CHANGES = {  # one difference minus another, predicted in the question of the study's predictions; the first is primary
    "more images, 384000 shown": (MANY, FEW, {"low": -5.0, "high": -1.5}),
    "more images, 160000 shown": (MANY_SHORT, FEW_SHORT, {"low": -3.5, "high": -0.3}),
    "more steps, 8000 images": (FEW, FEW_SHORT, {"low": -2.0, "high": 0.3}),
    "more steps, 16000 images": (MANY, MANY_SHORT, {"low": -4.0, "high": -0.5}),
}
OUTCOMES = {
    "head": ("pretrain", "resnet18", None),
    "finetuned": ("finetune", "resnet18", "target"),
    "one stage": ("pretrain", "resnet18_merged", None),
    "CIFAR-10": ("finetune", "resnet18", "cifar10"),
}


def errors() -> dict[str, pd.DataFrame]:
    """By outcome, errors in percent: a row per draw, a column per arm."""
    table = read(NAME).query("measure == 'val_error'")
    found = {}
    for name, (stage, network, transfer) in OUTCOMES.items():
        own = table[(table["stage"] == stage) & (table["network"] == network)]
        own = own if transfer is None else own[own["transfer"] == transfer]
        wide = own.pivot(index="draw", columns="space", values="value")
        found[name] = wide[[arm for arm in (*TREE, *CONTROLS) if arm in wide]]
    return found


def levels() -> str:
    """Errors of every arm, its number of labels, and its images per label."""
    found, rows = errors(), []
    for arm, labels in (TREE | CONTROLS).items():
        means = [f"{one[arm].mean():.2f}" if arm in one and len(one) else "" for one in found.values()]
        rows.append([arm, str(labels), f"{8000 / labels:.0f}", *means])
    return lines(["pretrained on", "labels", "images per label", *found], rows)


def more() -> str:
    """Mean errors of the arms of tiny_imagenet_claims, finetuned: from kept epochs, on CIFAR-10, a plain network."""
    table, rows = read("tiny_imagenet_claims").query("measure == 'val_error' and stage == 'finetune'"), []
    table["network"] = table["network"].mask(table["network"] != "plain", "resnet18")
    means = table.groupby(["space", "network", "transfer"])["value"].mean()
    for arm, labels in MORE.items():
        found = [means.get((arm, *one)) for one in COLUMNS.values()]
        rows.append([arm, str(labels), *("" if one is None else f"{one:.2f}" for one in found)])
    return lines(["pretrained on", "labels", *COLUMNS], rows)


def means(study: str) -> str:
    """Mean errors of the arms of a study whose networks are trained `twice` or `once`."""
    found = read(study).groupby(["space", "stage", "network"])["value"].mean()
    arms = {arm: labels for arm, labels in (TREE | CONTROLS).items() if arm in found.index.levels[0]}
    ways = {"head": ("pretrain", "twice"), "finetuned": ("finetune", "twice"), "one stage": ("pretrain", "once")}
    cells = {arm: [found.get((arm, *way)) for way in ways.values()] for arm in arms}
    rows = [
        [arm, str(arms[arm]), *("" if one is None else f"{one:.2f}" for one in ones)] for arm, ones in cells.items()
    ]
    return lines(["pretrained on", "labels", *ways], rows)


def by_images() -> pd.DataFrame:
    """Errors of one stage on 200 labels minus one on the 12, and changes of that; the primary one is tested alone."""
    errors = read(IMAGES).query("measure == 'val_error'").pivot(index="draw", columns=["cell", "space"], values="value")
    pairs = {}
    for key, said in predictions(IMAGES).items():
        here = errors[said["where"]["cell"]]
        pairs[key] = here["manual-synset"], here[BASELINE]
    gains = {key: (fine - coarse).rename("gain") for key, (fine, coarse) in pairs.items()}
    changes = {key: (gains[more], gains[less]) for key, (more, less, _) in CHANGES.items()}
    primary = next(iter(CHANGES))
    return pd.concat([compared({primary: changes.pop(primary)}), compared(changes | pairs)])


def images() -> str:
    said = predictions(IMAGES) | {key: range_ for key, (*_, range_) in CHANGES.items()}
    rows = [
        [key, ranged(said[key]), shown(row), inside(row["difference"], said[key])]
        for key, row in by_images().iterrows()
    ]
    return lines(["one stage, 200 labels minus 12", "predicted", "came out", "it lies"], rows)


def two_lines(table: pd.DataFrame) -> list[list[float]]:
    """Slopes per doubling of the labels on both sides of the level with the least error (Simonsohn 2018).

    Each draw's slopes are over the levels up to, and from, the level that is best on average in the *other* draws, so
    the break is not chosen by what it is tested on.
    """
    arms = [arm for arm in TREE if arm in table]
    logs, sides = np.log2([TREE[arm] for arm in arms]), ([], [])
    for draw in table.index:
        best = int(table[arms].drop(index=draw).mean().to_numpy().argmin())
        own = table.loc[draw, arms].to_numpy()
        for side, part in zip(sides, (slice(0, best + 1), slice(best, None)), strict=True):
            if len(logs[part]) > 1:
                side.append(np.polyfit(logs[part], own[part], 1)[0])
    return [*sides]


def shapes() -> str:
    """Mean slopes, with intervals corrected for all of the table."""
    found = {name: two_lines(one) for name, one in errors().items()}
    number = sum(len(side) > 0 for sides in found.values() for side in sides)

    def cell(slopes: list[float]) -> str:
        mean = mean_of(slopes)
        low, high = interval(*mean, number)
        return shown(pd.Series({"difference": mean.difference, "low": low, "high": high})) if slopes else "none"

    rows = [[name, *map(cell, sides)] for name, sides in found.items()]
    return lines(["error", "slope up to the best level", "slope from there"], rows)


def drawing() -> None:
    """docs/images/tiny_imagenet_tree.svg: errors against the number of labels, as differences from the 12 classes."""
    plt.rcParams.update({"svg.hashsalt": "stops", "font.size": 9})
    found = errors()
    figure, axes = plt.subplots(1, 2, figsize=(9, 2.9), layout="constrained")
    base = found["finetuned"][BASELINE]
    for axis, names in zip(axes, (("finetuned", "head", "one stage"), ("CIFAR-10",)), strict=True):
        axis.axhline(0, color="grey", linewidth=0.8)
        for color, name in enumerate(names):
            against = base if name != "CIFAR-10" else found[name][BASELINE]
            arms = [arm for arm in TREE if arm in found[name]]
            draw(
                axis, [TREE[arm] for arm in arms], [found[name][arm] - against for arm in arms], name, f"C{color}", "o-"
            )
        own = "CIFAR-10" if "CIFAR-10" in names else "finetuned"
        against = found[own][BASELINE]
        for kind, mark in (("kmeans", "s"), ("random", "x")):
            arms = [arm for arm in CONTROLS if arm.startswith(kind)]
            words = {"kmeans": "clusters within the 12", "random": "random within the 12"}[kind]
            draw(axis, [CONTROLS[arm] for arm in arms], [found[own][arm] - against for arm in arms], words, "0.4", mark)
        axis.set(xscale="log", xticks=[12, 20, 39, 76, 200, 400, 1000], xlabel="labels pretrained on")
        axis.set_xticklabels([12, 20, 39, 76, 200, 400, 1000])
        axis.minorticks_off()
        axis.legend(frameon=False, fontsize=8)
    axes[0].set(title=f"the 12 classes (baseline {base.mean():.1f} %)", ylabel="minus the baseline (points)")
    axes[1].set(title=f"CIFAR-10 after finetuning (baseline {found['CIFAR-10'][BASELINE].mean():.1f} %)")
    figure.savefig(HERE.parent / f"images/{NAME}.svg", metadata={"Date": None, "Creator": None})


def draw(axis, x: list[int], differences: list[pd.Series], label: str, color: str, style: str) -> None:
    means = [mean_of(one.dropna()) for one in differences]
    ends = [interval(*one, 1) for one in means]
    y = [one.difference for one in means]
    around = [
        [a - low for a, (low, _) in zip(y, ends, strict=True)],
        [high - a for a, (_, high) in zip(y, ends, strict=True)],
    ]
    axis.errorbar(x, y, np.nan_to_num(around), fmt=style, color=color, capsize=3, markersize=4, label=label)
