"""The tables behind the report.

Errors are validation errors in percent, differences are in percentage points. An arm is compared with the
retraining baseline: the same two stages, both on the target labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from granularity.stages.report.conditions import BASELINE, ConditionResults, Space
from granularity.stages.report.series import place, series_of
from granularity.stages.report.statistics import VERDICTS, holm, outcome, verdict, welch
from granularity.store.artifacts import Artifact
from granularity.store.cost import by_stage

EMBEDDING = "embedding"
PROBES = ("linear", "knn")


@dataclass(frozen=True)
class Panel:
    """The arms that are compared with one baseline: networks of a condition, finetuned in one way.

    Attributes:
        network: the network whose runs on the target labels are the baseline; it is among `networks`.
        networks: all that are compared with it.
        runs: their finetunings.
    """

    condition: ConditionResults
    transfer: str
    network: str
    networks: list[str]
    runs: pd.DataFrame
    label: str


def panels(conditions: list[ConditionResults]) -> list[Panel]:
    """Every baseline with what is compared with it.

    A network that is not pretrained on the target labels, as with an objective that takes none, is compared with the
    first one of the same architecture that is, with the same recipe if there is one.
    """
    networks = list(dict.fromkeys(name for one in conditions for name in one.models))
    transfers = list(dict.fromkeys(name for one in conditions for name in one.finetune["transfer"]))
    found = []
    for condition in conditions:
        for transfer, runs in condition.finetune.groupby("transfer", sort=False):
            members: dict[str, list[str]] = {}
            for network in (name for name in condition.models if name in set(runs["network"])):
                members.setdefault(_lender(condition, network, runs), []).append(network)
            for network, held in members.items():
                more = [network] if len(networks) > 1 else []
                more += [transfer] if len(transfers) > 1 else []
                label = ", ".join([condition.label, *more])
                found.append(Panel(condition, transfer, network, held, runs[runs["network"].isin(held)], label))
    return found


def _lender(condition: ConditionResults, network: str, runs: pd.DataFrame) -> str:
    with_baseline = list(dict.fromkeys(runs.loc[runs["space"] == BASELINE, "network"]))
    if network in with_baseline:
        return network
    wanted = condition.models[network]
    same = [one for one in with_baseline if condition.models[one]["model"] == wanted["model"]]
    return next((one for one in same if condition.models[one] == wanted), same[0] if same else network)


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


def results(conditions: list[ConditionResults]) -> pd.DataFrame:
    """One row per label space, network, transfer and condition, and one for each one-pass baseline.

    Columns: `label`, the rows that share a baseline, in words; `network`, `transfer`; `baseline`, the network whose
    baseline it is compared with; `granularity`, null without label space; mean and std of the error (percent) over
    `runs`; `difference` from the retraining baseline with its 95 % interval `low`, `high` (percentage points, Welch
    over runs); `p`, and `p_holm`, adjusted over all comparisons of the report; `backbone_std`, the std of the means of
    the `backbones`; `backbone_low`, `backbone_high`, the interval when each backbone counts once; `pretrain_mean`, the
    error before finetuning, a predicted class counting as its parent; `outcome`, over runs; `standing`, what is left
    of it over backbones, a key of `VERDICTS`; `verdict`, its words.
    """
    table = pd.DataFrame([row for panel in panels(conditions) for row in _panel_rows(panel)])
    if table.empty:
        return table
    table["granularity"] = table["granularity"].astype("Int64")
    table["p_holm"] = holm(table["p"])
    outcomes = map(outcome, table["low"], table["high"], table["p_holm"])
    table["outcome"] = [
        "baseline" if role == "baseline" else key for role, key in zip(table["role"], outcomes, strict=True)
    ]
    table["standing"] = list(map(verdict, table["outcome"], table["backbone_low"], table["backbone_high"]))
    table["verdict"] = table["standing"].map(VERDICTS)
    return table


def _panel_rows(panel: Panel) -> Iterator[dict[str, Any]]:
    condition = panel.condition
    own = panel.runs["network"] == panel.network
    baseline = panel.runs[own & (panel.runs["space"] == BASELINE)]
    elsewhere = bool(panel.runs["other_data"].any())  # where the error before finetuning is on other images
    where = {"condition": condition.name, "label": panel.label, "train_images": condition.images("train")}
    for network in panel.networks:
        runs = panel.runs[panel.runs["network"] == network]
        before = condition.pretrain[condition.pretrain["network"] == network]
        named = {"network": network, "transfer": panel.transfer, "baseline": panel.network if len(baseline) else None}
        for space in in_order(condition, _spaces_of(condition, runs)):
            of_space = runs[runs["space"] == space.name]
            role = "baseline" if space.name == BASELINE and network == panel.network else "arm"
            head = {"space": space.name, "family": space.family, "series": series_of(space), "role": role}
            size = of_space["granularity"].iloc[0]
            error = np.nan if elsewhere else before.loc[before["space"] == space.name, "val_error"].mean()
            row = {"granularity": None if pd.isna(size) else int(size), **_compare(of_space, baseline, role)}
            yield {**where, **named, **head, **row, "pretrain_mean": error}
        one_pass = before[before["space"] == BASELINE]
        if network == panel.network and len(one_pass) and not elsewhere:
            head = {"space": "target (one pass)", "family": "manual", "series": "one_pass", "role": "one_pass"}
            size = int(one_pass["granularity"].iloc[0])
            yield {**where, **named, **head, "granularity": size, **_compare(one_pass, baseline, "one_pass")}


def _spaces_of(condition: ConditionResults, runs: pd.DataFrame) -> list[Space]:
    """Label spaces that the networks of some runs were pretrained on, in the condition's order."""
    families = dict(zip(runs["space"], runs["family"], strict=True))
    known = [space for space in condition.spaces if space.name in families]
    names = {space.name for space in known}
    return known + [Space(name, family) for name, family in families.items() if name not in names]


def _compare(runs: pd.DataFrame, baseline: pd.DataFrame, role: str) -> dict[str, Any]:
    by_backbone = runs.groupby("pretrain_seed")["val_error"].mean()
    nothing = (np.nan, np.nan, np.nan)
    compared = role != "baseline"
    low, high, p = welch(runs["val_error"], baseline["val_error"]) if compared else nothing
    baseline_means = baseline.groupby("pretrain_seed")["val_error"].mean()
    backbone_low, backbone_high, _ = welch(by_backbone, baseline_means) if compared else nothing
    return {
        "runs": len(runs),
        "backbones": len(by_backbone),
        "mean": runs["val_error"].mean(),
        "std": runs["val_error"].std(ddof=1),
        "difference": runs["val_error"].mean() - baseline["val_error"].mean() if compared else 0.0,
        "low": low,
        "high": high,
        "p": p,
        "backbone_std": by_backbone.std(ddof=1),
        "backbone_low": backbone_low,
        "backbone_high": backbone_high,
    }


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
