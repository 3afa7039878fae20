"""Tables of docs/neighbours.md."""

import numpy as np
import pandas as pd
from tables import HERE, SCORED, compared, inside, lines, predictions, scored

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
