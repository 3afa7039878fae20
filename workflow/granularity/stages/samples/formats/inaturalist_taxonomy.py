"""The ranks of iNaturalist's categories, and how many classes each has."""

from __future__ import annotations

from itertools import combinations

import pandas as pd

TAXONOMY = ("kingdom", "phylum", "class", "order", "family", "genus", "specific_epithet")
FIELDS = ("kingdom", "supercategory", *TAXONOMY[1:])  # these, and `name` as `species`, are ranks
MISSING = "NA"


def ranks(categories: list[dict]) -> pd.DataFrame:
    """The ranks of a list of categories: one row per category, one categorical column per rank, in the list's order.

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


def pairs(categories: list[dict]) -> dict[str, int]:
    """Number of different values that each two text fields have together, for counts that are to be explained."""
    texts = pd.DataFrame(categories).select_dtypes(exclude="number").drop(columns="image_dir_name", errors="ignore")
    codes = {name: pd.factorize(texts[name], use_na_sentinel=False)[0].astype("int64") for name in texts}
    return {
        f"{one} + {other}": len(pd.unique(codes[one] * len(texts) + codes[other]))
        for one, other in combinations(codes, 2)
    }
