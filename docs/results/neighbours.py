"""Tables for docs/neighbours.md."""

import re

import numpy as np
import pandas as pd
from tables import BASELINE, compared, lines, outcomes, predictions, read

from granularity.stages.verdicts.studies.neural_collapse_images import FITTED


def epochs() -> str:
    """Measures of the training images by epoch, mean over backbones, of networks on the pairs and on the classes."""
    table = read("cifar10_collapse/measures").query("split == 'train' and measure == 'collapse'")
    shown = {"pair/nc1": "NC1 of pairs", "pair/class/r1": "R1 of classes in pairs", "pair/class/r2": "R2"}
    shown |= {"class/nearest_mean": "error of the nearest class mean (%)"}
    grid = table.pivot_table(index=["space", "key"], columns="epoch", values="value", sort=False)
    rows = [
        [{"target": "pairs"}.get(space, "classes"), name, *(f"{value:.2f}" for value in grid.loc[space, key])]
        for space in grid.index.unique("space")
        for key, name in shown.items()
    ]
    return lines(["trained on", "measure", *(f"epoch {epoch}" for epoch in grid)], rows)


def ratios(name: str, results: str, key: str) -> pd.DataFrame:
    """Of one measure of training images, a row per backbone and a column per epoch; of a grid, a row per cell."""
    table = read(name).query("split == 'train' and key == @key and results == @results")
    return table.pivot(index=["network", "pretrain_seed"], columns="epoch", values="value")


def collapse_values() -> dict[str, pd.Series]:
    """Of other labels, another network and classes that are alike, by prediction; empty of networks that do not fit."""
    random, plain, fine = (f"cifar10-collapse-{name}" for name in ("random", "plain", "fine"))
    more = "cifar10_collapse_more"
    first = read("cifar10_collapse/measures").query("split == 'train' and space == 'target'")
    pairs = first.query("key == 'pair/class/r1' and epoch == 120")["value"].mean()
    r1, halves = ratios(more, plain, "pair/class/r1"), ratios(more, fine, "label/half/r1")
    apart = ratios(more, fine, "label/half/r2")
    alike = read("tiny_imagenet_collapse/pairs").query("epoch > 0")
    medians = alike.groupby(["labels", "run"])["ratio"].median()
    wordnet, drawn = medians["parents"], medians["random_parents"]
    found = {
        "A8": ratios(more, random, "pair/class/r1")[120] / pairs,
        "A9, end": r1[120],
        "A9, largest": r1[[1, 3, 10, 30, 120]].max(axis=1),
        "A12, F1": halves[20],
        "A12, F2": apart[20],
        "A13, F1": halves[120] - halves[20],
        "A13, F2": apart[120],
        "A10": pd.Series((wordnet.to_numpy()[:, None] - drawn.to_numpy()).ravel()),
    }
    for id, results in {"A8": random, "A9": plain, "A13": fine}.items():
        if ratios(more, results, "error").iloc[:, -1].mean() >= FITTED:
            found |= {key: found[key][:0] for key in found if key.startswith(id)}
    return found


def rest_values() -> dict[str, pd.Series]:
    """Of the paper's nine cells, a DenseNet and epochs, by prediction; empty of networks that do not fit."""
    rest = "cifar10_collapse_rest"
    epochs, grid, dense = (f"cifar10-collapse-{name}" for name in ("epochs", "grid", "densenet"))

    def last(results: str, key: str) -> pd.Series:
        """At the end, of backbones whose labels are fitted, but of errors."""
        wrong = ratios(rest, results, "error")[120]
        return wrong if key == "error" else ratios(rest, results, f"pair/class/{key}")[120][wrong < FITTED]

    def first(key: str) -> pd.Series:
        """The first epoch in which a ratio lies below a half; none: not a number."""
        below = ratios(rest, epochs, f"pair/class/{key}") < 0.5
        return below.idxmax(axis=1).where(below.any(axis=1))

    wrong, r1 = ({cell(network): value for (network, _), value in last(grid, key).items()} for key in ("error", "r1"))
    large = {key: value for key, value in wrong.items() if key != (0.1, 5e-3)}
    slow = [(1e-3, 5e-4), (1e-3, 5e-5)]
    found = {
        "A3": first("r2") - first("r3"),
        "A7, largest": [wrong[0.1, 5e-3] - max(large.values())],
        "A7, zero": [max(value for key, value in large.items() if key not in slow and key[0] > 1e-3)],
        "A7, small": [max(wrong[key] for key in slow)],
        "cells, R1": [min(r1.values())],
        "cells, decay": [r1[0.1, 5e-5] - r1[0.1, 5e-4]] if {(0.1, 5e-5), (0.1, 5e-4)} <= set(r1) else [],
        "DenseNet, R1": last(dense, "r1"),
        "DenseNet, R2": last(dense, "r2"),
        "DenseNet, null": last(dense, "r1") - last(dense, "r1_null"),
    }
    return {key: pd.Series(values, dtype=float) for key, values in found.items()}


def cell(network: str) -> tuple[float, float]:
    """Learning rate and weight decay in the name of a network of a grid."""
    lr, decay = re.search(r"_lr-(.+?)_weight_decay-(.+)$", network).groups()
    return float(lr), float(decay)


def of_seeds(name: str, **which: str | int) -> pd.Series:
    """One number of each draw of a study."""
    table = read(name)
    kept = np.logical_and.reduce(
        [table[column].isna() if one == "" else table[column] == one for column, one in which.items()]
    )
    return table[kept].groupby("draw")["value"].mean()


def masked() -> str:
    """Networks that were pretrained by masked images, beside others: errors, probes and maps."""

    def number(arm: str, measure: str) -> pd.Series:
        scratch = arm if arm.startswith("once") else "masked"
        if measure == "val_error":
            transfer = "" if arm.startswith("once") else "classes"
            return of_seeds("cifar10_mask", network=scratch, transfer=transfer, measure=measure)
        last = {"untrained": 0, "masked": 48, "once-16": 16}
        if measure == "probe":
            own = {"network": scratch, "measure": measure, "key": "class/linear", "epoch": last[arm]}
            return of_seeds("cifar10_mask", **own)
        own = {"network": scratch, "measure": "eigen_cam-centred", "key": measure}
        own |= {"transfer": "classes"} if arm == "finetuned" else {"transfer": "", "epoch": last[arm]}
        return of_seeds("cifar10_mask", **own)

    said, pairs = predictions("cifar10_mask"), {}
    for key, one in said.items():
        arms_ = [one[which].removeprefix("probe of ") for which in ("arm", "against")]
        measure = one.get("measure") or ("probe" if one["arm"].startswith("probe") else "val_error")
        pairs[key] = tuple(number(arm, measure).rename(arm) for arm in arms_)
    means = {key: [f"{one.mean():.2f}" for one in pair] for key, pair in pairs.items()}
    heads = ["", "arm", "it has", "the other"]
    return outcomes(heads, compared(pairs), said, lambda key, row: [key, said[key]["arm"], *means[key]])


LAYERS = {"FIRST": "layer1.0.act2", "LAST": "layer3.0.act2"}


def bordered_pairs() -> dict[str, tuple[pd.Series, pd.Series]]:
    """What units prefer, and what a probe loses under other borders than those of training, by prediction."""
    table = read("cifar10_border").dropna(subset="key")

    def number(arm: str, key: str, split: str = "val", under: str = "none") -> pd.Series:
        space, epoch = (BASELINE, 0) if arm == "untrained" else (arm, 8)
        which = {"border": under, "space": space, "epoch": epoch, "split": split, "key": key}
        own = table[np.logical_and.reduce([table[column] == one for column, one in which.items()])]
        return own.set_index("draw")["value"].rename(arm)

    def lost(arm: str, under: str, one: dict) -> pd.Series:
        after, before = (number(arm, "kind/linear", f"test-{one[which]}", under) for which in ("to", "from"))
        return (after - before).rename(arm)

    said, pairs = predictions("cifar10_border"), {}
    for name, one in said["units"].items():
        key, _, more = one["of"].partition(", ")
        for short, layer in LAYERS.items():
            key = key.replace(short, layer)
        against = number(one["arm"], key) if more else number(one["against"], key)
        pairs[name] = number(one["arm"], key, "test-inverted" if more else "val"), against
    for name, one in said["borders"].items():
        other = {"arm": one["arm"], "under": one["under"]} | one.get("minus", {})
        zero = lost(one["arm"], one["under"], one)
        pairs[name] = zero, lost(**other, one=one) if "minus" in one else 0 * zero
    return pairs


def bordered() -> str:
    said = predictions("cifar10_border")
    told = said["units"] | said["borders"]
    return outcomes(["", "arm"], compared(bordered_pairs()), told, lambda key, row: [key, row["arm"]])
