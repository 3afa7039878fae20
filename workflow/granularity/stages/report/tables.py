"""The tables behind the report.

Errors are validation errors in percent. An arm is compared with the retraining baseline: the same two stages, both on
the target labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from granularity.claims.statistics import interval, paired
from granularity.stages.report.comparisons import ONE_PASS
from granularity.stages.report.conditions import BASELINE, ConditionResults, Space
from granularity.stages.report.panels import Panel
from granularity.stages.report.series import describe, place, series_of
from granularity.stages.report.statistics import STANDINGS
from granularity.store.artifacts import Artifact
from granularity.store.cost import by_stage

EMBEDDING = "embedding"
PROBES = ("linear", "knn")


def label_of(conditions: list[ConditionResults], condition: ConditionResults, network: str) -> str:
    """A condition in words, and its network where the report has several."""
    several = len({name for one in conditions for name in one.models}) > 1
    return f"{condition.label}, {network}" if several else condition.label


def in_order(condition: ConditionResults, spaces: Iterable[Space] | None = None) -> list[Space]:
    """Label spaces of a condition: the target, then series by series, from coarse to fine."""

    def key(space: Space) -> tuple:
        size = condition.properties.get(space.name, {}).get("granularity", np.inf)
        return space.name != BASELINE, place(series_of(space)), size

    return sorted(condition.spaces if spaces is None else spaces, key=key)


# ---------------------------------------------------------------- tables


def results(panels: list[Panel], compared: pd.DataFrame) -> pd.DataFrame:
    """One row per label space, network, transfer and condition, and one for each one-pass baseline.

    Errors are in percent; differences and intervals are those of :func:`.comparisons.compare`, in percentage points.

    Columns: `label`, the rows that share a baseline, in words; `network`, `transfer`; `baseline`, the network whose
    baseline it is compared with, and `baseline_mean`, its error; `meaningless`, whether its labels are drawn by chance;
    `granularity`, null without label space; `runs`, and `mean`, `std` over the `backbones`; `mean_low` and `mean_high`,
    the interval of the mean by itself; `difference` from the baseline, `low`, `high`, `standing` and its `verdict` in
    words; `repeats`, a label space before it that parts the images alike, so that both have the numbers of all their
    runs; `control`, the labels by chance of the same G, and `control_difference`, `control_low`, `control_high`,
    `control_standing`, and `control_holds`, what both hold of the target (:data:`.comparisons.HOLDS`);
    `pretrain_mean`, the error before finetuning, a predicted class counting as its parent.
    """
    table = pd.DataFrame([row for panel in panels for row in _panel_rows(panel)])
    if table.empty:
        return table
    table["granularity"] = table["granularity"].astype("Int64")
    keys, found = ["label", "network", "space"], ["difference", "low", "high", "standing"]
    baseline, control = (compared[compared["question"].isin(one)] for one in (("finer", "chance"), ("control",)))
    table = table.merge(baseline[[*keys, *found, "repeats"]], on=keys, how="left", validate="one_to_one")
    named = {"other": "control"} | {key: f"control_{key}" for key in (*found, "holds")}
    control = control[[*keys, *named]].rename(columns=named)
    table = table.merge(control, on=keys, how="left", validate="one_to_one")
    table["standing"] = table["standing"].astype("str").fillna("untested").mask(table["role"] == "baseline", "baseline")
    table["verdict"] = table["standing"].map(STANDINGS)
    return table


def _panel_rows(panel: Panel) -> Iterator[dict[str, Any]]:
    condition, errors = panel.condition, panel.errors()
    held = (panel.network, BASELINE) in errors.index
    where = {"condition": condition.name, "label": panel.label, "train_images": condition.images("train")}
    where |= {"transfer": panel.transfer, "baseline": panel.network if held else None}
    where |= {"baseline_mean": errors.loc[(panel.network, BASELINE)].mean() if held else np.nan}
    for network in panel.networks:
        runs = panel.runs[panel.runs["network"] == network]
        before = condition.pretrain[condition.pretrain["network"] == network]
        for space in in_order(condition, [panel.spaces[name] for name in dict.fromkeys(runs["space"])]):
            role = "baseline" if space.name == BASELINE and network == panel.network else "arm"
            head = {"network": network, "space": space.name, "family": space.family, "series": series_of(space)}
            head |= {"role": role, "meaningless": describe(head["series"]).meaningless}
            ours, theirs = (table["space"].map(panel.alike) == panel.alike(space.name) for table in (before, runs))
            error = np.nan if panel.other_data else before.loc[ours, "val_error"].mean()
            row = {"granularity": panel.granularity(space.name), "runs": int(theirs.sum())}
            yield {**where, **head, **row, **_over_backbones(errors.loc[(network, space.name)]), "pretrain_mean": error}
        if network == panel.network and held and (one_pass := panel.one_pass()) is not None:
            head = {"network": network, "space": ONE_PASS, "family": "manual", "series": "one_pass", "role": "one_pass"}
            row = {"granularity": panel.granularity(BASELINE), "runs": len(one_pass), "meaningless": False}
            yield {**where, **head, **row, **_over_backbones(one_pass), "pretrain_mean": np.nan}


def _over_backbones(errors: pd.Series) -> dict[str, Any]:
    """An arm by itself: the mean over backbones and its interval, which is corrected for nothing."""
    mean, error, backbones = paired(errors, 0 * errors)
    low, high = interval(mean, error, backbones, 1)
    std = errors.std(ddof=1)
    return {"backbones": backbones, "mean": mean, "std": std, "mean_low": low, "mean_high": high}


def probe(conditions: list[ConditionResults]) -> pd.DataFrame:
    """Errors (percent) of probes on frozen networks: mean, lowest and highest over backbones.

    A row per entry of `measures` (`measure`), network, label space, `state` of the network, split, rank and probe.
    """
    frames = []
    for condition in conditions:
        found = condition.values[condition.values["file"] == "probe"]
        parts = found["key"].astype("str").str.rsplit("/", n=1)  # RANK/PROBE
        found = found.assign(rank=parts.str[0], probe=parts.str[-1])
        found = found[found["probe"].isin(PROBES)]
        frames.append(_summed(conditions, condition, found, ["rank", "probe"], "backbones"))
    table = pd.concat(frames, ignore_index=True)
    order = {rank: i for condition in conditions for i, rank in enumerate(condition.ranks)}
    return _sorted(table, {"rank": order, "probe": {name: i for i, name in enumerate(PROBES)}})


def measures(conditions: list[ConditionResults]) -> pd.DataFrame:
    """All other measured numbers: mean, lowest and highest over networks, a row per `key`."""
    frames = []
    for condition in conditions:
        found = condition.values[condition.values["file"] != "probe"]
        frames.append(_summed(conditions, condition, found, ["key"], "networks"))
    return _sorted(pd.concat(frames, ignore_index=True), {})


def _summed(
    conditions: list[ConditionResults], condition: ConditionResults, values: pd.DataFrame, keys: list[str], count: str
) -> pd.DataFrame:
    """Measured numbers over the runs of each label space; the embedding, measured in several jobs, counts once."""
    values = values.drop_duplicates(["measure", "run", "epoch", "split", "key"])
    first = next(iter(condition.models), "")
    values = values.assign(network=values["network"].fillna(first))  # the embedding is shown beside the first network
    spaces = {space.name: space for space in condition.spaces}
    groups = ["measure", "network", "space", "family", "state", "split", *keys]
    table = values.groupby(groups, sort=False).agg(
        granularity=("granularity", "first"),
        **{count: ("value", "size")},
        mean=("value", "mean"),
        min=("value", "min"),
        max=("value", "max"),
    )
    table = table.reset_index()
    series, at = {EMBEDDING: EMBEDDING}, {EMBEDDING: len(spaces) + 1}
    for i, space in enumerate(in_order(condition)):
        series[space.name], at[space.name] = series_of(space), i
    labels = [label_of(conditions, condition, network) for network in table["network"]]
    table = table.assign(
        series=table["space"].map(series).fillna(table["family"]),
        granularity=table["granularity"].astype("Int64"),
        _place=table["space"].map(at).fillna(len(spaces)),
        _network=table["network"].map({name: i for i, name in enumerate(condition.models)}),
    )
    table.insert(0, "condition", condition.name)
    table.insert(1, "label", labels)
    return table


def _sorted(table: pd.DataFrame, orders: dict[str, dict[str, int]]) -> pd.DataFrame:
    """By condition, network, label space and state, as they were planned; then by other columns, in given orders."""
    conditions = {name: i for i, name in enumerate(dict.fromkeys(table["condition"]))}
    keys = pd.DataFrame({"condition": table["condition"].map(conditions), "network": table["_network"]})
    keys["measure"] = table["measure"].map({name: i for i, name in enumerate(dict.fromkeys(table["measure"]))})
    keys["space"] = table["_place"]
    keys["state"] = table["state"].map({name: i for i, name in enumerate(dict.fromkeys(table["state"]))})
    for column, order in orders.items():
        keys[column] = table[column].map(order).fillna(len(order))
    index = keys.sort_values(list(keys.columns), kind="stable").index
    return table.drop(columns=["_place", "_network"]).loc[index].reset_index(drop=True)


def properties(conditions: list[ConditionResults]) -> pd.DataFrame:
    """Measured properties of every label space; shares are between 0 and 1, mutual information is in bits."""
    rows = []
    for condition in conditions:
        for space in in_order(condition):
            found = condition.properties[space.name]
            row = {"condition": condition.name, "label": condition.label, "space": space.name}
            row |= {"family": space.family, "series": series_of(space)}
            row |= {key: found[key] for key in ("granularity", "images", "empty_classes", "refines_target")}
            row |= {f"class_size_{key}": found["class_size"][key] for key in ("min", "median", "max")}
            row |= {key: found[key] for key in ("starved_share", "straddling_share")}
            for measure in ("purity", "mutual_information_bits", "nmi"):
                row |= {f"{measure}_{rank}": value for rank, value in found[measure].items()}
            rows.append(row)
    return pd.DataFrame(rows)


def cost(artifacts: Iterable[Artifact]) -> pd.DataFrame:
    """Costs of each stage: the columns of :func:`granularity.store.cost.by_stage`."""
    return pd.DataFrame(by_stage(artifacts))
