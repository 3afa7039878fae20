"""Tables of docs/atlas.md."""

import numpy as np
import pandas as pd
from tables import SCORED, lines, predictions, read, scored

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


def of_tree() -> pd.DataFrame:
    return read("cifar10_tree_atlas")


def tree() -> str:
    """Means of measures by label space, bold where the difference from the target is significant."""
    made = look.differences(of_tree(), ROWS)
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


def bold(text: str, whether: bool) -> str:
    return f"**{text}**" if whether == True else text  # noqa: E712 (it may be NaN)


def picture() -> str:
    """The atlas of CIFAR-10 as SVG."""
    return look.picture(look.differences(of_tree(), ROWS))


def relations() -> str:
    """Rank correlations over all fifteen arms that were predicted; corrected for all rows of their atlas."""
    found = look.relations(of_tree(), [key for key in ROWS if not key.startswith(look.ENDS)])
    found = found.rename(columns={"p": "holm"})
    rows = [
        [key, other, *scored(found.loc[(key, other)], told)]
        for other, of in predictions("cifar10_tree_more")["relations"].items()
        for key, told in of.items()
    ]
    return lines(["measure", "with", *SCORED], rows)


def finer_pairs() -> dict[str, tuple[pd.Series, pd.Series]]:
    """Labels that cut the 200 classes of Tiny ImageNet: errors after finetuning, by prediction."""
    errors = look.tables(read("tiny_imagenet_finer/atlas"))[look.ENDS]

    def arm(name: str, network: str) -> pd.Series:
        plain = f"{name} ({network})"
        return errors[plain if plain in errors else name].rename(name)

    said = predictions("tiny_imagenet_finer")
    return {key: tuple(arm(one[which], one["network"]) for which in ("arm", "against")) for key, one in said.items()}
