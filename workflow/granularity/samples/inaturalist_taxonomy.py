"""The ranks of iNaturalist's categories, and how many classes each has."""

from __future__ import annotations

from itertools import combinations

import pandas as pd

TAXONOMY = ("kingdom", "phylum", "class", "order", "family", "genus", "specific_epithet")
FIELDS = ("kingdom", "supercategory", *TAXONOMY[1:])  # these, and `name` as `species`, are ranks
MISSING = "NA"
# Numbers of classes in the paper -> the field that they are expected to count. The paper is silent on 6485; a listing
# of the 2021 categories in github.com/jvlmdr/hiercls (prepare_hierarchy/prepare_inaturalist.ipynb) counts as many
# different specific_epithet.
PUBLISHED = {
    11: "supercategory",
    13: "phylum",
    51: "class",
    273: "order",
    1103: "family",
    4884: "genus",
    6485: None,
}


def ranks(categories: list[dict]) -> pd.DataFrame:
    """The ranks of a list of categories: one row a category, one categorical column a rank, in the list's order.

    Those of FIELDS that the categories have, and `species`, their `name`. Where the fields from `kingdom` down are
    there, also `phylum_path` to `specific_epithet_path`, which keep equal names below different parents apart: the
    names from `kingdom` down, joined by `/`. No rank needs to refine another. A field that is empty or `NA` (orders
    of snails in 2018) is no class; in a path it is a step called NA.
    """
    given = pd.DataFrame(categories).reindex(columns=[*FIELDS, "name"]).dropna(axis="columns", how="all")
    given = given.astype("str").fillna(MISSING).replace("", MISSING)
    table = given.mask(given == MISSING).dropna(axis="columns", how="all").rename(columns={"name": "species"})
    path = given.get(TAXONOMY[0])
    for field in TAXONOMY[1:]:
        if path is None or field not in given:
            break
        path = path + "/" + given[field]
        table[f"{field}_path"] = path
    for rank in table:
        codes, names = pd.factorize(table[rank])
        table[rank] = pd.Categorical.from_codes(codes, names)
    return table


def distinct(categories: list[dict]) -> dict[str, dict[str, int]]:
    """For each rank, its number of different `names`, and of `paths`: of names with all those from kingdom above."""
    table = ranks(categories)
    counts = {}
    for rank in table:
        if not rank.endswith("_path"):
            above = "genus_path" if rank == "species" else f"{rank}_path"
            steps = table[[column for column in (above, rank) if column in table]]
            counts[rank] = {
                "names": int(table[rank].nunique()),
                "paths": len(steps[table[rank].notna()].drop_duplicates()),
            }
    return counts


def published_counts(categories: list[dict]) -> pd.DataFrame:
    """The numbers of classes that the paper gives for iNaturalist 2021, beside those of a list of categories.

    One row a published number G and field: `published`, `field`, `names`, `paths` (see :func:`distinct`) and
    `agrees` (names, paths, both, neither). Where the paper does not say which field it is, all that give G have a
    row: of the ranks, else of the pairs of text fields taken together, else there is one row with the field "none".
    """
    counts = distinct(categories)
    rows = []
    for published, field in PUBLISHED.items():
        none = {field or "none": {"names": 0, "paths": 0}}
        if field:
            giving = {field: counts[field]} if field in counts else none
        else:
            giving = _giving(published, counts) or _giving(published, _pairs(categories)) or none
        for name, count in giving.items():
            hits = [kind for kind, number in count.items() if number == published]
            agrees = "both" if len(hits) == 2 else "".join(hits) or "neither"
            rows.append({"published": published, "field": name, **count, "agrees": agrees})
    return pd.DataFrame(rows)


def _giving(published: int, counts: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    return {name: count for name, count in counts.items() if published in count.values()}


def _pairs(categories: list[dict]) -> dict[str, dict[str, int]]:
    """How many different values two text fields have together."""
    texts = pd.DataFrame(categories).select_dtypes(exclude="number").drop(columns="image_dir_name", errors="ignore")
    codes = {name: pd.factorize(texts[name], use_na_sentinel=False)[0].astype("int64") for name in texts}
    return {
        f"{one} + {other}": dict.fromkeys(("names", "paths"), len(pd.unique(codes[one] * len(texts) + codes[other])))
        for one, other in combinations(codes, 2)
    }
