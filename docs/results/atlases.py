"""Tables of docs/atlas.md and docs/reference/tables.md."""

import numpy as np
import pandas as pd
from tables import BASELINE, ONCE, SCORED, arms, compared, lines, outcomes, predictions, read, scored

from granularity.look import atlas as look

ATLAS = {  # rows, and what they are
    "class/linear": "linear probe of the class, error (%)",
    "group/linear": "of the group",
    "kind/linear": "of the kind, the target",
    "class/knn": "kNN probe of the class, error (%)",
    "class/nearest_mean": "nearest mean of the class, error (%)",
    "class/cdnv": "variance over distance (CDNV) of classes",
    "kind/cdnv": "CDNV of kinds",
    "kind/class/r1": "R1, classes within kinds",
    "class/nc1": "NC1 of classes",
    "kind/nc1": "NC1 of kinds",
    "effective_rank": "effective rank",
}
COLUMNS = ["target", "random-superclass-5", "regrouped-5", "kmeans-superclass-5", "manual-class", ONCE]


def measured() -> dict[str, pd.DataFrame]:
    """Of each measure of the atlas a row per backbone and a column per label space."""
    table = read("cifar10_atlas").query("split == 'val'")
    space = table["space"].mask(table["network"] == ONCE, ONCE).mask(table["epoch"] == 0, "untrained")
    table = table.assign(space=space).dropna(subset="epoch")  # of the encoder
    table = table.drop_duplicates(["key", "space", "pretrain_seed"])  # untrained ones are the same whatever the labels
    return {
        key: part.pivot(index="pretrain_seed", columns="space", values="value") for key, part in table.groupby("key")
    }


def from_target(table: pd.DataFrame, key: str, arm: str) -> tuple[pd.Series, pd.Series]:
    """An arm and the target on the scale on which they are compared: errors as they are, else logarithms."""
    errors = key.endswith(("linear", "knn", "nearest_mean"))
    values = table if errors else np.log(table)
    return values[arm], values[BASELINE]


def atlas() -> str:
    tables = measured()
    pairs = {(key, arm): from_target(tables[key], key, arm) for key in ATLAS for arm in COLUMNS[1:]}
    finetuned = arms("cifar10_budget", "train-10000")
    pairs |= {("error", arm): (finetuned[arm], finetuned[BASELINE]) for arm in COLUMNS[1:]}
    found, rows = compared(pairs), []
    for key, name in (ATLAS | {"error": "error after finetuning (%)"}).items():
        table = finetuned if key == "error" else tables[key]
        row = [name]
        for arm in ["untrained", *COLUMNS]:
            differs = (key, arm) in pairs and found.loc[(key, arm), "low"] * found.loc[(key, arm), "high"] > 0
            text = f"{table[arm].mean():.2f}" if arm in table else ""
            row.append(f"**{text}**" if differs else text)
        rows.append(row)
    return lines(["measure", "untrained", *COLUMNS], rows)


def atlas_predicted() -> str:
    said, tables = predictions("cifar10_atlas"), measured()
    pairs = {(key, arm): from_target(tables[key], key, arm) for key, of in said.items() for arm in of}
    told = {(key, arm): said[key][arm] for key, arm in pairs}
    return outcomes(["measure", "arm"], compared(pairs), told, lambda key, row: [*key])


TREE = [  # rows of the atlas of nine label spaces, in its order
    *(f"probe/{rank}/{probe}" for rank in ("class", "kind") for probe in ("linear", "knn")),
    *(f"collapse/{rank}/{what}" for rank in ("class", "kind") for what in ("cdnv", "nc1")),
    "collapse/effective_rank",
    *(f"transferability/kind/{score}" for score in ("logme", "h_score", "leep", "nce")),
    *(f"selectivity/{rank}/mean" for rank in ("class", "kind")),
]


MORE = [  # rows that were added with six more columns
    *(f"robustness/kind/{shift}" for shift in ("none", "red", "inverted", "mean", "grey", "noise", "blur")),
    *(f"agreement/{what}" for what in ("cka", "knn", "procrustes")),
    look.ENDS,
    *(f"{look.ENDS}/{part}" for part in ("hardest tenth", "other images")),
]
ADDED = ("kmeans-50", "nearest-50-3", "levels-5", "random-instance", "distil", "mask")


TINY = [  # rows of the atlas of Tiny ImageNet
    *(f"probe/{rank}/{probe}" for rank in ("synset", "living_thing") for probe in ("linear", "knn")),
    *(f"collapse/{rank}/{what}" for rank in ("synset", "living_thing") for what in ("cdnv", "nc1")),
    "collapse/effective_rank",
    *(f"selectivity/{rank}/mean" for rank in ("synset", "living_thing")),
    look.ENDS,
    *(f"{look.ENDS}/{part}" for part in ("hardest tenth", "other images")),
]


def of_finer() -> pd.DataFrame:
    return read("tiny_imagenet_finer/atlas")


def of_tree() -> pd.DataFrame:
    return read("cifar10_tree_atlas")


def matrix(table: pd.DataFrame, keys: list[str]) -> str:
    """Means of measures by label space, bold where the difference from the target is significant."""
    made = look.differences(table, keys)
    shown, stands = look.gridded(made["mean"]), look.gridded((made["low"] > 0) | (made["high"] < 0))
    arms = sorted(shown, key=lambda arm: arm != look.UNTRAINED)
    rows = [
        [
            key,
            *("" if np.isnan(one := shown.loc[key, arm]) else bold(f"{one:.2f}", stands.loc[key, arm]) for arm in arms),
        ]
        for key in shown.index
    ]
    return lines(["", *arms], rows)


def tree() -> str:
    return matrix(of_tree(), [*TREE, *MORE])


def tiny() -> str:
    """The same of Tiny ImageNet, on the residual network."""
    own = of_finer().query("arm.str.endswith('(resnet18)')")
    return matrix(own.assign(arm=own["arm"].str.removesuffix(" (resnet18)")), TINY)


def picture() -> str:
    """The atlas of CIFAR-10 as SVG."""
    return look.picture(look.differences(of_tree(), [*TREE, *MORE]))


def bold(text: str, whether: bool) -> str:
    return f"**{text}**" if whether == True else text  # noqa: E712 (it may be NaN)


def tree_relations() -> str:
    """Rank correlations that were predicted, over the first nine label spaces; corrected for all their rows."""
    first = of_tree().query("arm not in @ADDED")
    return related(look.relations(first, TREE), predictions("cifar10_tree_atlas"))


def related(found: pd.DataFrame, said: dict[str, dict]) -> str:
    found = found.rename(columns={"p": "holm"})
    rows = [
        [key, other, *scored(found.loc[(key, other)], told)] for other, of in said.items() for key, told in of.items()
    ]
    return lines(["measure", "with", *SCORED], rows)


def tree_more() -> str:
    """What was predicted of the added columns and rows: differences of arms."""
    tables, said = look.tables(of_tree()), predictions("cifar10_tree_more")["differences"]
    pairs = {name: tuple(tables[one["of"]][one[arm]] for arm in ("arm", "against")) for name, one in said.items()}
    return outcomes(
        ["of", "arm", "against"], compared(pairs), said, lambda key, row: [said[key]["of"], *row[["arm", "against"]]]
    )


def tree_more_relations() -> str:
    """Rank correlations over all fifteen arms that were predicted; corrected for all rows of their atlas."""
    measures = [*TREE, *(key for key in MORE if not key.startswith(look.ENDS))]
    return related(look.relations(of_tree(), measures), predictions("cifar10_tree_more")["relations"])


def finer_pairs() -> dict[str, tuple[pd.Series, pd.Series]]:
    """Labels that cut the 200 classes of Tiny ImageNet: errors after finetuning, by prediction."""
    errors, said = look.tables(of_finer())[look.ENDS], predictions("tiny_imagenet_finer")

    def arm(name: str, network: str) -> pd.Series:
        plain = f"{name} ({network})"
        return errors[plain if plain in errors else name].rename(name)

    return {key: tuple(arm(one[which], one["network"]) for which in ("arm", "against")) for key, one in said.items()}


def finer() -> str:
    pairs, said = finer_pairs(), predictions("tiny_imagenet_finer")
    rows = []
    for key, row in compared(pairs).iterrows():
        means = [f"{one.mean():.2f}" for one in pairs[key]]
        rows.append([said[key]["network"], row["arm"], means[0], row["against"], means[1], *scored(row, said[key])])
    return lines(["network", "arm", "it has", "against", "it has", *SCORED], rows)
