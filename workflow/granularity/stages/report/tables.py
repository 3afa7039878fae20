"""The tables behind the report, and the statistics in them.

Errors are validation errors in percent, differences are in percentage points. An arm is compared with the
retraining baseline: the same two stages, both on the target labels.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from granularity.look.cost import by_stage
from granularity.plan import jobs
from granularity.stages.report.series import place, series_of
from granularity.store.artifacts import Artifact

LEVEL = 0.95
VERDICTS = {
    "better": "better than the baseline",
    "better_unadjusted": "lower, but not after adjustment",
    "overlap": "not told apart from the baseline",
    "worse_unadjusted": "higher, but not after adjustment",
    "worse": "worse than the baseline",
    "untested": "cannot be tested: too few runs, or no spread between them",
    "baseline": "the baseline",
}


@dataclass(frozen=True)
class Condition:
    """What the report reads of one condition. `label` says it in words, such as `300 training images`."""

    name: str
    label: str
    ranks: list[str]
    target: str
    spaces: list[jobs.Space]
    samples: pd.DataFrame
    properties: dict[str, dict[str, Any]]
    classes: dict[str, pd.DataFrame]
    pretrain: pd.DataFrame
    finetune: pd.DataFrame
    probe: pd.DataFrame
    encoder_history: pd.DataFrame | None
    artifacts: dict[str, Artifact] = field(repr=False)

    @property
    def shown_ranks(self) -> list[str]:
        """The target rank and the finest, once if they are the same."""
        return list(dict.fromkeys([self.target, self.ranks[-1]]))

    @property
    def probed_ranks(self) -> list[str]:
        """The same of those that were probed; the coarsest of them where the target was not."""
        probed = [rank for rank in self.ranks if rank in set(self.probe["rank"])]
        return list(dict.fromkeys([self.target if self.target in probed else probed[0], probed[-1]]))

    def images(self, split: str) -> int:
        return int((self.samples["split"] == split).sum())


def in_order(condition: Condition) -> list[jobs.Space]:
    """The label spaces of a condition: the target, then series by series, from coarse to fine."""

    def key(space: jobs.Space) -> tuple:
        size = condition.properties[space.name]["granularity"]
        return space.name != jobs.TARGET, place(series_of(space)), size

    return sorted(condition.spaces, key=key)


# ---------------------------------------------------------------- statistics


def welch(arm: Iterable[float], baseline: Iterable[float]) -> tuple[float, float, float]:
    """Interval and two-sided p-value of the difference of two means, by Welch's t-test.

    Args:
        arm, baseline: validation errors in percent, one a run.

    Returns:
        Lower and upper end of the 95 % interval of mean(arm) - mean(baseline), and the p-value. All are NaN where
        a sample has one value only, or where neither has any spread: such data hold no measure of chance.
    """
    arm, baseline = np.asarray(list(arm), float), np.asarray(list(baseline), float)
    if min(len(arm), len(baseline)) < 2 or np.ptp(arm) + np.ptp(baseline) == 0:
        return np.nan, np.nan, np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # one of the two has no spread: Welch still holds
        test = stats.ttest_ind(arm, baseline, equal_var=False)
        interval = test.confidence_interval(LEVEL)
    return float(interval.low), float(interval.high), float(test.pvalue)


def holm(p: Iterable[float]) -> np.ndarray:
    """P-values adjusted for their number by Holm's step-down method (Scand. J. Statist. 6, 1979); NaN stays NaN."""
    p = np.asarray(list(p), float)
    adjusted = np.full(len(p), np.nan)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    steps = p[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps)) if len(order) else []
    return adjusted


def verdict(low: float, high: float, p_holm: float) -> str:
    """A key of `VERDICTS` from the interval of a difference and its adjusted p-value."""
    if np.isnan(low) or np.isnan(high):
        return "untested"
    if low <= 0 <= high:
        return "overlap"
    side = "better" if high < 0 else "worse"
    return side if p_holm < 1 - LEVEL else f"{side}_unadjusted"


# ---------------------------------------------------------------- tables


def results(conditions: list[Condition]) -> pd.DataFrame:
    """One row a label space and condition, and one for the one-pass baseline.

    Columns: mean and std of the error (percent) over `runs`; `difference` from the retraining baseline with its
    95 % interval `low`, `high` (percentage points, Welch over runs); `p`, and `p_holm`, adjusted over all comparisons
    of the report; `backbone_std`, the std of the means of the `backbones`; `backbone_low`, `backbone_high`, the
    interval when each backbone counts once; `pretrain_mean`, the error before finetuning, a predicted class
    counting as its parent; `outcome`, a key of `VERDICTS`; `verdict`, its words.
    """
    table = pd.DataFrame([row for condition in conditions for row in _condition_rows(condition)])
    table["p_holm"] = holm(table["p"])
    outcomes = map(verdict, table["low"], table["high"], table["p_holm"])
    table["outcome"] = [
        "baseline" if role == "baseline" else key for role, key in zip(table["role"], outcomes, strict=True)
    ]
    table["verdict"] = table["outcome"].map(VERDICTS)
    return table


def _condition_rows(condition: Condition) -> list[dict[str, Any]]:
    baseline = condition.finetune[condition.finetune["space"] == jobs.TARGET]
    rows = []
    for space in in_order(condition):
        runs = condition.finetune[condition.finetune["space"] == space.name]
        before = condition.pretrain[condition.pretrain["space"] == space.name]["val_error"].mean()
        role = "baseline" if space.name == jobs.TARGET else "arm"
        head = {"space": space.name, "family": space.family, "series": series_of(space), "role": role}
        size = condition.properties[space.name]["granularity"]
        rows.append({**head, "granularity": size, **_compare(runs, baseline, role), "pretrain_mean": before})
    one_pass = condition.pretrain[condition.pretrain["space"] == jobs.TARGET]
    head = {"space": "target (one pass)", "family": "manual", "series": "one_pass", "role": "one_pass"}
    size = condition.properties[jobs.TARGET]["granularity"]
    rows.append({**head, "granularity": size, **_compare(one_pass, baseline, "one_pass")})
    where = {"condition": condition.name, "label": condition.label, "train_images": condition.images("train")}
    return [{**where, **row} for row in rows]


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


def probe(conditions: list[Condition]) -> pd.DataFrame:
    """Errors (percent) of probes on frozen networks: mean, lowest and highest over backbones."""
    frames = []
    for condition in conditions:
        frame = condition.probe.drop_duplicates(["run_id", "probe", "rank"])
        grouped = frame.groupby(["space", "family", "probe", "rank"], sort=False)
        frame = grouped.agg(
            granularity=("granularity", "first"),
            backbones=("val_error", "size"),
            mean=("val_error", "mean"),
            min=("val_error", "min"),
            max=("val_error", "max"),
        ).reset_index()
        frame.insert(0, "condition", condition.name)
        frame.insert(1, "label", condition.label)
        spaces = in_order(condition)
        series = {space.name: series_of(space) for space in spaces}
        frame["series"] = frame["space"].map(series).fillna("embedding")
        for column, order in (("space", [*series, "embedding"]), ("rank", condition.ranks)):
            frame[column] = pd.Categorical(frame[column], order)
        frame = frame.sort_values(["space", "rank", "probe"], ascending=[True, True, False])
        frames.append(frame.astype({"space": str, "rank": str, "granularity": "Int64"}))
    return pd.concat(frames, ignore_index=True)


def properties(conditions: list[Condition]) -> pd.DataFrame:
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


def cost(artifacts: dict[str, Artifact]) -> pd.DataFrame:
    """What each stage cost: the columns of :func:`granularity.look.cost.by_stage`."""
    return pd.DataFrame(by_stage(artifacts.values()))


def published(file: Path) -> pd.DataFrame:
    """The paper's numbers with their difference from the paper's own baseline; empty where the file is not there."""
    if not file.is_file():
        return pd.DataFrame(columns=["arm", "granularity", "mean", "std", "note", "difference"])
    table = pd.read_csv(file, keep_default_na=False)
    baseline = table.loc[table["note"] == "retraining baseline", "mean"].item()
    return table.assign(difference=table["mean"] - baseline)
