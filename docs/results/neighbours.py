"""Tables of docs/neighbours.md."""

import numpy as np
import pandas as pd
from tables import BASELINE, HERE, SCORED, compared, inside, lines, predictions, scored

from granularity.claims.statistics import holm


def collapse() -> str:
    """The claims about collapse: what was predicted of each, what came out, and its verdict by its own band."""
    found, rows = pd.read_csv(HERE / "cifar10_collapse.csv").set_index("id"), []
    for id, said in predictions("cifar10_collapse").items():
        row = found.loc[id]
        quantity = row["quantity"].partition(": ")[2]
        came = inside(row["measured"], said)
        measured = f"{row['measured']:.2f} ({row['minimum']:.2f} to {row['maximum']:.2f})"
        rows.append([id, quantity, f"{said['low']} to {said['high']}", measured, came, row["band"], row["verdict"]])
    return lines(["claim", "quantity", "predicted", "mean (range over backbones)", "it lies", "band", "verdict"], rows)


def epochs() -> str:
    """Measures of the training images by epoch, mean over backbones, of networks on the pairs and on the classes."""
    table = pd.read_csv(HERE / "cifar10_collapse_measures.csv").query("split == 'train' and measure == 'collapse'")
    shown = {"pair/nc1": "NC1 of pairs", "pair/class/r1": "R1 of classes in pairs", "pair/class/r2": "R2"}
    shown |= {"class/nearest_mean": "error of the nearest class mean (%)"}
    grid = table.pivot_table(index=["space", "key"], columns="epoch", values="value", sort=False)
    rows = [
        [{"target": "pairs"}.get(space, "classes"), name, *(f"{value:.2f}" for value in grid.loc[space, key])]
        for space in grid.index.unique("space")
        for key, name in shown.items()
    ]
    return lines(["trained on", "measure", *(f"epoch {epoch}" for epoch in grid)], rows)


def collapse_more() -> str:
    """What was predicted of other labels, another network and classes that are alike: means over backbones."""
    table = pd.read_csv(HERE / "cifar10_collapse_more.csv").query("split == 'train'")
    first = pd.read_csv(HERE / "cifar10_collapse_measures.csv").query("split == 'train' and space == 'target'")
    wrong = table[(table["key"] == "error") & (table["epoch"] == table.groupby("results")["epoch"].transform("max"))]
    wrong = wrong.groupby("results")["value"].mean()

    def of(name: str, key: str, rows: pd.DataFrame = table) -> pd.DataFrame:
        """A row per backbone and a column per epoch."""
        rows = rows[(rows["key"] == key) & (rows.get("results", name) == name)]
        return rows.pivot(index="pretrain_seed", columns="epoch", values="value")

    random, plain, fine = (f"cifar10-collapse-{name}" for name in ("random", "plain", "fine"))
    r1, halves = of(plain, "pair/class/r1"), of(fine, "label/half/r1")
    apart = of(fine, "label/half/r2")
    pairs = pd.read_csv(HERE / "tiny_imagenet_pairs.csv").query("epoch > 0")
    medians = pairs.groupby(["results", "run"])["ratio"].median().groupby("results", sort=False)
    wordnet, drawn = (medians.get_group(f"tiny-imagenet-collapse-{kind}") for kind in ("parents", "random_parents"))
    found = {
        "A8": of(random, "pair/class/r1")[120] / of(random, "pair/class/r1", first)[120].mean(),
        "A9, end": r1[120],
        "A9, largest": r1[[1, 3, 10, 30, 120]].max(axis=1),
        "A12, F1": halves[20],
        "A12, F2": apart[20],
        "A13, F1": halves[120] - halves[20],
        "A13, F2": apart[120],
        "A10": pd.Series((wordnet.to_numpy()[:, None] - drawn.to_numpy()).ravel()),
    }
    trained = {"A8": random, "A9": plain, "A12": "", "A13": fine, "A10": ""}
    rows = []
    for key, said in predictions("cifar10_collapse_more").items():
        values, name = found[key], trained[key.partition(",")[0]]
        untested = name and wrong[name] >= 1
        verdict = f"not tested: {wrong[name]:.1f} % training error" if untested else met(values.mean(), said["band"])
        span = f"{values.mean():.2f} ({values.min():.2f} to {values.max():.2f})"
        rows.append([key, said["of"], f"{said['low']} to {said['high']}", span, inside(values.mean(), said)])
        rows[-1] += [said["band"], verdict]
    return lines(["claim", "quantity", "predicted", "mean (range over backbones)", "it lies", "band", "verdict"], rows)


def met(value: float, band: str) -> str:
    """Whether a mean lies in a band such as `< 1.2` or `0.67 to 1.5`."""
    low, _, high = band.partition(" to ")
    if high:
        return "holds" if float(low) <= value <= float(high) else "fails"
    sign, limit = band.split()
    holds = {"<": value < float(limit), "<=": value <= float(limit), ">": value > float(limit)}[sign]
    return "holds" if holds else "fails"


def of_seeds(name: str, **which: str | int) -> pd.Series:
    """One number of each base seed of an experiment, from the table that measured.py made of it."""
    table = pd.read_csv(HERE / f"{name}.csv")
    base = table["results"].str.rpartition("-")[2].astype(int)
    kept = np.logical_and.reduce(
        [table[column].isna() if one == "" else table[column] == one for column, one in which.items()]
    )
    return table[kept].groupby(base[kept])["value"].mean()


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
    found = compared(pairs)
    found["holm"] = holm(found["p"])
    rows = [
        [key, said[key]["arm"], f"{pairs[key][0].mean():.2f}", f"{pairs[key][1].mean():.2f}", *scored(row, said[key])]
        for key, row in found.iterrows()
    ]
    return lines(["", "arm", "it has", "the other", *SCORED], rows)


LAYERS = {"FIRST": "layer1.0.act2", "LAST": "layer3.0.act2"}


def bordered() -> str:
    """What units prefer, and what a probe loses under other borders than those of training."""
    table = pd.read_csv(HERE / "cifar10_border.csv").dropna(subset="key")
    run = table["results"].str.extract(r"cifar10-border-?(.*?)-?(\d+)$")
    table = table.assign(under=run[0], seed=run[1].astype(int))

    def number(arm: str, key: str, split: str = "val", under: str = "") -> pd.Series:
        space, epoch = (BASELINE, 0) if arm == "untrained" else (arm, 8)
        which = {"under": under, "space": space, "epoch": epoch, "split": split, "key": key}
        own = table[np.logical_and.reduce([table[column] == one for column, one in which.items()])]
        return own.set_index("seed")["value"].rename(arm)

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
    found, told = compared(pairs), said["units"] | said["borders"]
    found["holm"] = holm(found["p"])
    return lines(["", "arm", *SCORED], [[key, row["arm"], *scored(row, told[key])] for key, row in found.iterrows()])
