"""Tables of results: all numbers of trainings and measures, and comparisons over the draws of a study."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from granularity.claims.statistics import Difference, mean_of, unpaired
from granularity.stages.report.comparisons import answer, standing, with_intervals
from granularity.stages.report.words import finer
from granularity.store.artifact import Artifact

DTYPES = dict.fromkeys(("condition", "stage", "network", "transfer", "run", "parent", "space", "family"), "str")
DTYPES |= dict.fromkeys(("granularity", "pretrain_seed", "finetune_seed", "epoch"), "Int64")
DTYPES |= {"split": "str", "measure": "str", "key": "str", "value": "float64"}
OF_ONE = [
    "question",
    "label",
    "network",
    "transfer",
    "space",
    "other",
    "holds",
]  # identifies a comparison within a cell


def runs(artifacts: Iterable[tuple[str, Artifact]]) -> pd.DataFrame:
    """Return all numbers of some trainings and measures, each with its condition; see :func:`granularity.runs`."""
    tables = []
    for condition, one in artifacts:
        table = one.table("runs.parquet").rename(columns={"run_id": "run"})
        if one.kind == "measure":
            table = one.table("values.parquet").merge(table, on="run", how="left", validate="many_to_one")
        else:
            table = table.drop(columns=["backbone", "weights"], errors="ignore")
            table = table.melt([name for name in table if name in DTYPES], var_name="measure").dropna(subset="value")
        tables.append(table.assign(condition=condition, stage=one.kind).reindex(columns=[*DTYPES]).astype(DTYPES))
    return pd.concat(tables, ignore_index=True).drop_duplicates(ignore_index=True)


def over_draws(
    comparisons: Mapping[str, pd.DataFrame], cells: Mapping[str, Mapping[str, Any]], unit: str
) -> pd.DataFrame:
    """Average each comparison of the cells' reports over the draws that it was made in.

    Args:
        comparisons: by cell, its table of :func:`granularity.stages.report.comparisons.compare`.
        cells: by cell, its values of the axes, and `draw`.
        unit: `draw`: Student's interval over draws, using each draw's mean over backbones. `backbone`: over
            backbones within their draw, as if these draws were the only ones (Welch, Satterthwaite).

    Returns:
        A row per combination of the axes and comparison: the axes; `OF_ONE`; `draws`; `difference`, the mean over
        draws, in points, with its standard `error`; `pairs`, its degrees of freedom plus one; `low`, `high`, corrected
        for the `comparisons` of the question over the whole study; `standing`.
    """
    axes = [name for name in next(iter(cells.values())) if name != "draw"]
    if not comparisons:
        return with_intervals([], [*axes, *OF_ONE, "draws"]).assign(standing=[])
    together = pd.concat(
        [table.assign(**_words(cells[cell])) for cell, table in comparisons.items()], ignore_index=True
    )
    together = together[together["repeats"].isna()]
    # The number of its pairs, which may differ between draws, does not tell a mean over pairs from another.
    together["other"] = together["other"].mask(together["question"] == "meaning")
    rows = []
    for names, found in together.groupby([*axes, *OF_ONE], sort=False, dropna=False):
        over = mean_of(found["difference"]) if unit == "draw" else _within(found)
        rows.append({**dict(zip([*axes, *OF_ONE], names, strict=True)), "draws": len(found), **over._asdict()})
    table = with_intervals(rows, [*axes, *OF_ONE, "draws"])
    return table.assign(standing=[standing(*row) for row in zip(table["low"], table["high"], strict=True)])


def answers(
    compared: pd.DataFrame,
    spaces: pd.Series,
    results: Mapping[str, pd.DataFrame],
    cells: Mapping[str, Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Return the answer for each combination of the axes and baseline, from comparisons of :func:`over_draws`, whose
    label spaces are `spaces`; only those finer than their cell's target count, as in a report.

    `results`: by cell, the report's table of arms. A row has the axes; `answer`, a key of
    :data:`granularity.stages.report.comparisons.ANSWERS`; the number of `spaces`, and of those that are `better`; and
    the comparison behind it: the first declared one, or without any that with the lowest difference, of those that are
    better if any is.
    """
    if not results:
        return []
    axes = [name for name in next(iter(cells.values())) if name != "draw"]
    arms = pd.concat([table.assign(**_words(cells[cell])) for cell, table in results.items()], ignore_index=True)
    means = arms[arms["role"] == "baseline"].groupby([*axes, "label"])["mean"].mean().rename("baseline_mean")
    declared = (compared["question"] == "primary").any()
    asked = compared[compared["question"] == ("primary" if declared else "finer")].join(means, on=[*axes, "label"])
    if not declared:
        keys = [*axes, "label", "network", "space"]
        fine = pd.concat([finer(table).assign(**_words(cells[cell])) for cell, table in results.items()])
        fine = fine.set_index(keys).index
        asked = asked[asked.assign(space=spaces[asked.index]).set_index(keys).index.isin(fine)]
    rows = []
    for _, found in asked.groupby([*axes, "label"], sort=False):
        shown = found.iloc[:1] if declared else found.sort_values("difference", kind="stable")
        reply, better = answer(shown), found["standing"] == "better"
        behind = shown[better[shown.index]] if reply == "yes" else shown
        rows.append({**behind.iloc[0], "answer": reply, "spaces": len(found), "better": int(better.sum())})
    return rows


def _within(found: pd.DataFrame) -> Difference:
    """Return the mean over draws; its error counts only the spread of backbones within each draw."""
    weights, deviations = np.full(len(found), 1 / len(found)), found["error"] * np.sqrt(found["pairs"])
    return unpaired(weights, found["difference"], deviations, found["pairs"])


def _words(values: Mapping[str, Any]) -> dict[str, str | int]:
    """Return values of axes as columns; values that are neither numbers nor text become text."""
    return {key: one if isinstance(one, int | float | str) else str(one) for key, one in values.items()}


def with_axes(table: pd.DataFrame, cells: Sequence[str], values: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """Return a table with the axes and the draw of each row's cell as its first columns."""
    own = pd.DataFrame([_words(values[cell]) for cell in cells], index=table.index)
    return pd.concat([own, table], axis=1)
