"""Tables of docs/atlas.md."""

import numpy as np
import pandas as pd
from tables import BASELINE, ONCE, SCORED, compared, lines, outcomes, predictions, read, scored

from granularity.look import atlas as look

ROWS = [  # of the atlas, in its order
    *(f"probe/{rank}/{probe}" for rank in ("class", "kind") for probe in ("linear", "knn")),
    *(f"collapse/{rank}/{what}" for rank in ("class", "kind") for what in ("cdnv", "nc1")),
    "collapse/effective_rank",
    *(f"transferability/kind/{score}" for score in ("logme", "h_score", "leep", "nce")),
    *(f"selectivity/{rank}/mean" for rank in ("class", "kind")),
    *(f"robustness/kind/{shift}" for shift in ("none", "red", "inverted", "mean", "grey", "noise", "blur")),
    *(f"agreement/{what}" for what in ("cka", "knn", "procrustes")),
    look.ENDS,
    *(f"{look.ENDS}/{part}" for part in ("hardest tenth", "other images")),
]
# In the table.
SHOWN = ["probe/class/linear", "probe/class/knn", "probe/kind/linear", "collapse/kind/cdnv"]
SHOWN += ["collapse/effective_rank", "transferability/kind/leep", "robustness/kind/red"]
SHOWN += [look.ENDS, f"{look.ENDS}/hardest tenth"]
ADDED = ("kmeans-50", "nearest-50-3", "levels-5", "random-instance", "distil", "mask")


def of_tree() -> pd.DataFrame:
    return read("cifar10_tree_atlas")


def tree() -> str:
    """Means of some measures by label space, bold where the difference from the target is significant among all."""
    made = look.differences(of_tree(), ROWS)
    shown, stands = look.gridded(made["mean"]), look.gridded((made["low"] > 0) | (made["high"] < 0))
    arms = sorted(shown, key=lambda arm: arm != look.UNTRAINED)
    rows = [
        [
            key,
            *("" if np.isnan(one := shown.loc[key, arm]) else bold(f"{one:.2f}", stands.loc[key, arm]) for arm in arms),
        ]
        for key in SHOWN
    ]
    return lines(["", *arms], rows)


def bold(text: str, whether: bool) -> str:
    return f"**{text}**" if whether == True else text  # noqa: E712 (it may be NaN)


def picture() -> str:
    """The atlas of CIFAR-10 as SVG."""
    return look.picture(look.differences(of_tree(), ROWS))


def relations() -> str:
    """Rank correlations that were predicted, over the first nine arms, then over all fifteen; each corrected for all
    rows of its atlas.
    """
    first = of_tree().query("arm not in @ADDED")
    later = ("robustness", "agreement", look.ENDS)
    found = look.relations(first, [key for key in ROWS if not key.startswith(later)])
    parts = [(found, predictions("cifar10_tree_atlas"))]
    found = look.relations(of_tree(), [key for key in ROWS if not key.startswith(look.ENDS)])
    parts.append((found, predictions("cifar10_tree_more")["relations"]))
    rows = [
        [key, other, *scored(found.rename(columns={"p": "holm"}).loc[(key, other)], told)]
        for found, said in parts
        for other, of in said.items()
        for key, told in of.items()
    ]
    return lines(["measure", "with", *SCORED], rows)


def added() -> str:
    """Differences of arms that were predicted of the six added arms and the added rows."""
    tables, said = look.tables(of_tree()), predictions("cifar10_tree_more")["differences"]
    pairs = {name: tuple(tables[one["of"]][one[arm]] for arm in ("arm", "against")) for name, one in said.items()}
    made = compared(pairs, lambda name, numbers: look.of_pairs(said[name]["of"], numbers))
    return outcomes(["of", "arm", "against"], made, said, lambda key, row: [said[key]["of"], *row[["arm", "against"]]])


def six_arms() -> str:
    """Differences from the target that were predicted of the atlas of six arms; of all but errors in logarithms."""
    said, table = predictions("cifar10_atlas"), read("cifar10_atlas").query("split == 'val' and epoch > 0")
    table = table.assign(space=table["space"].mask(table["network"] == ONCE, ONCE))
    pairs = {}
    for key, arms in said.items():
        values = table[table["key"] == key].pivot(index="pretrain_seed", columns="space", values="value")
        values = values if key.endswith(("linear", "knn", "nearest_mean")) else np.log(values)
        pairs |= {(key, arm): (values[arm], values[BASELINE]) for arm in arms}
    told = {(key, arm): said[key][arm] for key, arm in pairs}
    return outcomes(["measure", "arm"], compared(pairs), told, lambda key, row: [*key])


def finer_pairs() -> dict[str, tuple[pd.Series, pd.Series]]:
    """Labels that cut the 200 classes of Tiny ImageNet: errors after finetuning, by prediction."""
    found = read("tiny_imagenet_finer/atlas")
    errors = {
        condition.partition(", ")[2]: look.tables(part)[look.ENDS] for condition, part in found.groupby("condition")
    }
    said = predictions("tiny_imagenet_finer")
    return {key: tuple(errors[one["network"]][one[which]] for which in ("arm", "against")) for key, one in said.items()}
