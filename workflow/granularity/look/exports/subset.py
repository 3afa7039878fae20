"""A balanced subset of the training images, for `samples.subset`: equally many of each cluster, if it has enough."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.base.seeds import seed_of
from granularity.look.exports import whole
from granularity.look.exports.labels import spaces_of


def export(results: Path, to: Path, names: Sequence[str], count: int, seed: int = 0) -> None:
    """Write the `sample_id` of some training images into a new text file, in the order of the sample table.

    `count` is divided evenly over the classes of the first label space; if a class has too few images, the others take
    the rest. Within each class it is divided in the same way over the classes of the next space, and so on
    (hierarchical sampling of Vo et al. 2024). A smaller subset is part of a larger one. Raises GranularityError: there
    are too few images, there is no such label space of one condition, or images have several labels in it.
    """
    spaces = spaces_of(results, names)[1]
    tables = {name: space.table("labels.parquet", ["sample_id", "label"]) for name, space in spaces.items()}
    for name in (name for name, table in tables.items() if table["label"].dtype == object):
        raise GranularityError(f"--space {name}: its images have several labels; choose a space with one for each")
    ids = tables[names[0]]["sample_id"].astype("str")
    if count > len(ids):
        raise GranularityError(f"--images {count}: there are {len(ids)} training images")
    if (bad := ids.str.contains(r"[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")).any():
        raise GranularityError(f"{results}: the sample_id {ids[bad].iloc[0]!r} has a line break; rename the image")
    labels = pd.DataFrame({name: table["label"].to_numpy() for name, table in tables.items()})
    chosen = np.sort(balanced(labels, seed)[:count])
    sizes = np.bincount(pd.factorize(labels[names[0]])[0][chosen], minlength=labels[names[0]].nunique())
    say(f"{count} of {len(ids)} training images: {sizes.min()} to {sizes.max()} in each class of {names[0]}")
    with whole(to) as file:
        file.write_text("".join(f"{sample_id}\n" for sample_id in ids.iloc[chosen]), encoding="utf-8")


def balanced(labels: pd.DataFrame, seed: int) -> np.ndarray:
    """Return an order of images whose every prefix is balanced, given their class at each level, coarse to fine.

    Classes take turns, in random order, until they run out of images. Each contributes its images in an order found in
    the same way one level below; at the lowest level the order is random.
    """
    rng = np.random.default_rng(seed_of(seed, "subset"))
    order = rng.permutation(len(labels))
    for level in reversed(range(labels.shape[1])):
        group = labels.groupby(list(labels.columns[: level + 1]), sort=True).ngroup().to_numpy()
        turn = pd.Series(group[order]).groupby(group[order]).cumcount().to_numpy()
        first = rng.permutation(group.max() + 1)[group[order]]
        order = order[np.lexsort((first, turn))]
    return order
