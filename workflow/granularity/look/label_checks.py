"""Checks of label spaces against what is published and against their definitions (L1-L7 of docs/label_spaces.md)."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd

from granularity.base import extensions
from granularity.base.regular import read_text
from granularity.data.wordnet import WordNet
from granularity.stages.hierarchy.checks import Check, compare, published
from granularity.store.artifacts import Artifact

# ---------------------------------------------------------------- WordNet levels


def imagenet21k_synsets() -> list[str]:
    """The 21,843 labels of Google's ImageNet-21k checkpoints, as timm ships them."""
    folder = Path(importlib.util.find_spec("timm").submodule_search_locations[0])
    return (folder / "data" / "_info" / "imagenet21k_goog_synsets.txt").read_text().split()


def read_synsets(file: Path) -> list[str]:
    """Synset ids, one per line; what follows an id on its line is ignored."""
    return [line.split()[0] for line in read_text(file, what="list of synsets").splitlines() if line.strip()]


def level_counts(graph: WordNet, labels: list[str], levels: Iterable[int] = range(11)) -> pd.DataFrame:
    """Classes at each WordNet level of some labels: `level`, `granularity`, `several` (labels with more than one)."""
    rows = []
    for level in levels:
        above = [graph.level(label, level) for label in labels]
        rows.append((level, len(frozenset().union(*above)), sum(len(one) > 1 for one in above)))
    return pd.DataFrame(rows, columns=["level", "granularity", "several"])


def level_checks(counts: pd.DataFrame) -> list[Check]:
    """L1 and L2: the level counts of the 21,843 labels of ImageNet-21k."""
    found = {f"wordnet level {row.level}": int(row.granularity) for row in counts.itertuples()}
    return [
        compare(row.check, f"G at {row.quantity}", row.published, found[row.quantity])
        for row in published("imagenet21k").itertuples()
        if row.quantity in found
    ]


# ---------------------------------------------------------------- made label spaces


def checks(samples: Artifact, spaces: list[Artifact]) -> list[Check]:
    """All checks of the label spaces of one condition."""
    found = [*_of_samples(samples)]
    for space in spaces:
        name = space.params["family"]
        if name in extensions.names("family"):  # else it is of a user's file that is not loaded
            of_family = getattr(extensions.find("family", name), "checks", None)
            found += of_family(space, samples) if of_family is not None else []
    return found


def _of_samples(samples: Artifact) -> Iterator[Check]:
    source = samples.params["source"]
    if source == "imagenet21k" and "living_thing" in samples.params["ranks"]:
        table = samples.table("taxonomy.parquet")
        counts = table.groupby("living_thing", observed=True)[["train", "val"]].sum()
        for row in published(source).itertuples():
            kind, _, split = row.quantity.partition(" in ")
            if row.check == "L3":
                name = {"living things": "living thing", "others": "other"}[kind]
                yield compare("L3", row.quantity, row.published, int(counts[split].get(name, 0)))
    if source == "inaturalist":
        yield from inaturalist_checks(samples.summary["distinct"], samples.summary["pairs"])


def inaturalist_checks(distinct: dict[str, dict[str, int]], pairs: dict[str, int]) -> Iterator[Check]:
    """L4: the published numbers of classes beside those of the categories.

    Args:
        distinct: for each rank its number of different `names`, and of `paths`: equal names below different parents
            are two.
        pairs: the number of different values of two text fields together.
    """
    for row in published("inaturalist").itertuples():
        counts = distinct.get(row.quantity)
        if counts is not None:
            ways = [way for way, count in counts.items() if count == row.published]
            text = f"{counts['names']} names, {counts['paths']} paths"
            yield compare("L4", f"classes of {row.quantity}", row.published, text, bool(ways))
        elif row.quantity == "unknown":
            single = [
                f"{way} of {rank}"
                for rank, counts in distinct.items()
                for way in counts
                if counts[way] == row.published
            ]
            ways = single or [name for name, count in pairs.items() if count == row.published]
            yield compare("L4", "the unnamed G", row.published, ", ".join(ways) or "of no field or pair", bool(ways))
