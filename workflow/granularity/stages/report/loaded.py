"""What the report reads, and the tables made from it. Errors are validation errors in percent."""

import os
import shlex
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd

from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.claims.primary import Primary
from granularity.claims.statistics import interval, paired
from granularity.stages.report import comparisons, conditions, words
from granularity.stages.report.comparisons import MERGED_HEAD, ONE_PASS, STANDINGS, Panel
from granularity.stages.report.conditions import BASELINE, ConditionResults, ShownSpace
from granularity.stages.report.options import MERGED, Report
from granularity.stages.report.series import describe, series_of
from granularity.store.artifact import Artifact, by_stage
from granularity.store.task import Task

EMBEDDING = "embedding"
OF_BASELINE = ("finer", "chance", "merged")  # questions about a difference from the baseline
PROBES = ("linear", "knn")


class Loaded:
    """Everything that sections of the page use.

    Attributes:
        name, configuration: the configuration's name, and all of it; `options` is its section `report`.
        pictures: of each measure with a picture, the kind of the file that draws it.
        conditions: those with trainings, so not a data set that is only transferred to.
        other_data: whether some transfer is to another data set, which has its own target.
        comparisons, between: see :mod:`granularity.stages.report.comparisons`.
        results, backbones, probe, measures, properties: see the functions of these names.
        cost: of each stage, see :func:`granularity.store.artifact.by_stage`.
        studies, worlds: verdicts on claims about images and about simulated worlds, by study.
        artifacts: everything read, by role; `links`: the path from the page to each (`folder`), and the `command` that
            shows how it was made.
        headline: see :func:`granularity.stages.report.words.headline`; None without results.
        architectures: the distinct architectures of the networks; `command`: the command that made the results.
    """

    def __init__(self, task: Task):
        """Open all inputs of a report, and make its tables."""
        self.configuration, self.pictures = task.options.configuration, task.options.pictures
        self.name = self.configuration.get("name", "")
        self.options = Report.model_validate(self.configuration.get("report", {}))
        self.command = os.environ.get("GRANULARITY_COMMAND", "snakemake")
        inputs = conditions.read(task)
        self.conditions = [condition for condition in inputs if len(condition.pretrain)]
        if not self.conditions:
            raise GranularityError("report: there are no pretrained networks to report on; give results of pretrain")
        self.other_data = any(condition.finetune["other_data"].any() for condition in self.conditions)
        self.studies = {artifact.facts["study"]: artifact for artifact in task.open_all("verdicts")}
        self.worlds: dict[str, Artifact] = {}
        for folder in task.options.theory:  # optional, so that no report waits for them
            try:
                world = Artifact.open(Path(folder), "verdicts")
                self.worlds[world.facts["study"]] = world
            except GranularityError as error:
                say(f"report: without the theory: {error}")
        self.artifacts = {role: artifact for condition in inputs for role, artifact in condition.artifacts.items()}
        self.artifacts |= {f"verdicts/{name}": artifact for name, artifact in self.studies.items()}
        self.artifacts |= {f"theory/{name}": artifact for name, artifact in self.worlds.items()}
        self.links = {role: _link(artifact.place, task.output) for role, artifact in self.artifacts.items()}
        panels = comparisons.panels(self.conditions)
        declared = {
            f"train-{entry['train_size']}": [Primary.model_validate(primary) for primary in entry.get("primary", ())]
            for entry in self.configuration.get("conditions", ())
        }
        self.comparisons, self.between = comparisons.compare(panels, declared), comparisons.between(panels)
        self.results, self.backbones = results(panels, self.comparisons), backbones(self.conditions)
        self.headline = words.headline(self.results, self.comparisons) if len(self.results) else None
        self.probe, self.measures = probe(self.conditions), measures(self.conditions)
        self.properties = properties(self.conditions)
        self.cost = pd.DataFrame(by_stage(self.artifacts.values()))
        models = [model["model"] for condition in self.conditions for model in condition.models.values()]
        self.architectures = list(dict.fromkeys(model["name"] for model in models))


def _link(place: Path, page: Path) -> dict[str, str]:
    command = shlex.join(["granularity", "inspect", os.path.relpath(place)])
    return {"folder": quote(os.path.relpath(place, page)) + "/", "command": command}


# ---------------------------------------------------------------- tables


def in_order(condition: ConditionResults, spaces: Iterable[ShownSpace] | None = None) -> list[ShownSpace]:
    """Return a condition's label spaces in order: the target, then series by series, from coarse to fine."""

    def key(space: ShownSpace) -> tuple:
        size = condition.properties.get(space.name, {}).get("granularity", np.inf)
        return space.name != BASELINE, describe(series_of(space)).place, size

    return sorted(condition.spaces if spaces is None else spaces, key=key)


def results(panels: list[Panel], compared: pd.DataFrame) -> pd.DataFrame:
    """Return one row per label space, network, transfer and condition, and for merged heads and one-pass baselines;
    errors are in percent.

    Columns: `label`, which rows with the same baseline share; `baseline`, the network whose baseline it is compared
    with, and `baseline_mean`, its error; `meaningless`, whether its labels are random; `granularity`, null without a
    label space; `runs`, and `mean`, `std` over the `backbones`; `mean_low` and `mean_high`, the uncorrected interval of
    the mean; `difference` from the baseline, `low`, `high`, `standing` and `repeats` as in
    :func:`.comparisons.compare`, and the `verdict` in words; `control`, the random labels of the same G, with the same
    columns (`control_...`) and `control_holds`; `pretrain_mean`, the error before finetuning, with predicted classes
    mapped to their parents; `artifact`, the first one that holds its runs.
    """
    table = pd.DataFrame([row for panel in panels for row in _panel_rows(panel)])
    if table.empty:
        return table
    table["granularity"] = table["granularity"].astype("Int64")
    keys, columns = ["label", "network", "space"], ["difference", "low", "high", "standing"]
    baseline, control = (compared[compared["question"].isin(questions)] for questions in (OF_BASELINE, ("control",)))
    table = table.merge(baseline[[*keys, *columns, "repeats"]], on=keys, how="left", validate="one_to_one")
    named = {"other": "control"} | {key: f"control_{key}" for key in (*columns, "holds")}
    control = control[[*keys, *named]].rename(columns=named)
    table = table.merge(control, on=keys, how="left", validate="one_to_one")
    table["standing"] = table["standing"].astype("str").fillna("untested").mask(table["role"] == "baseline", "baseline")
    return table.assign(verdict=table["standing"].map(STANDINGS))


def backbones(conditions: list[ConditionResults]) -> pd.DataFrame:
    """Return one row per backbone, from which every number on errors on the page can be recomputed.

    `condition`, `transfer` (null: the pretrained network itself, on its own data), `network`, `space`, `pretrain_seed`,
    and `error`, the validation error on the target in percent, averaged over its finetunings.
    """
    keys, frames = ["condition", "transfer", "network", "space", "pretrain_seed"], []
    for condition in conditions:
        for runs in (condition.pretrain.assign(transfer=None), condition.finetune):
            table = runs.assign(condition=condition.name).dropna(subset="val_error")
            frames.append(table.groupby(keys, sort=False, dropna=False)["val_error"].mean().rename("error"))
    return pd.concat(frames).reset_index()


def _panel_rows(panel: Panel) -> Iterator[dict[str, Any]]:
    condition, baseline = panel.condition, panel.baseline
    where = {"condition": condition.name, "label": panel.label, "train_images": condition.images("train")}
    where |= {"transfer": panel.transfer, "baseline": None if baseline is None else panel.network}
    where |= {"baseline_mean": np.nan if baseline is None else baseline.mean()}

    for network in panel.networks:
        runs, before = (table[table["network"] == network] for table in (panel.runs, condition.pretrain))
        for space in in_order(condition, panel.spaces.loc[list(dict.fromkeys(runs["space"])), "space"]):
            about = panel.spaces.loc[space.name]
            alike = panel.spaces.index[panel.spaces["alike"] == about["alike"]]
            ours, theirs = (table["space"].isin(alike) for table in (before, runs))
            row = {"network": network, "space": space.name, "family": space.family, "series": about["series"]}
            row["role"] = "baseline" if space.name == BASELINE and network == panel.network else "arm"
            row |= about[["meaningless", "granularity"]].to_dict()
            row["artifact"] = runs.loc[runs["space"] == space.name, "artifact"].iloc[0]
            row |= {"runs": int(theirs.sum()), **_over_backbones(panel.errors.loc[(network, space.name)])}
            ours &= before["pretrain_seed"].isin(panel.errors.loc[(network, space.name)].dropna().index)
            before_it = np.nan if panel.other_data else before.loc[ours, "val_error"].mean()
            yield where | row | {"pretrain_mean": before_it}
        for space, errors in panel.merged(network).items():
            about = panel.spaces.loc[space] if space in panel.spaces.index else {"granularity": None}
            row = {"network": network, "space": MERGED_HEAD.format(space), "family": "merged", "series": "merged"}
            row |= {"role": "merged", "meaningless": False, "granularity": about["granularity"], "runs": len(errors)}
            held = condition.pretrain
            mask = (held["network"] == network + MERGED) & (held["space"] == space)
            row["artifact"] = held.loc[mask, "artifact"].iloc[0]
            yield where | row | _over_backbones(errors)
        if network == panel.network and baseline is not None and panel.one_pass is not None:
            size, runs = panel.spaces.loc[BASELINE, "granularity"], len(panel.one_pass)
            row = {"network": network, "space": ONE_PASS, "family": "manual", "meaningless": False}
            row |= {"series": "one_pass", "role": "one_pass", "granularity": size, "runs": runs}
            first = before[before["space"] == BASELINE]
            row["artifact"] = first["artifact"].iloc[0]
            yield where | row | _over_backbones(panel.one_pass)


def _over_backbones(errors: pd.Series) -> dict[str, Any]:
    mean, error, backbones = paired(errors, 0 * errors)
    low, high = interval(mean, error, backbones, 1)
    return {"backbones": backbones, "mean": mean, "std": errors.std(ddof=1), "mean_low": low, "mean_high": high}


def probe(conditions: list[ConditionResults]) -> pd.DataFrame:
    """Return probe errors (percent) over backbones, by measure, network, space, `state`, split, rank and probe."""

    def errors(values: pd.DataFrame) -> pd.DataFrame:
        values = values[values["file"] == "probe"]
        parts = values["key"].astype("str").str.rsplit("/", n=1)  # RANK/PROBE
        values = values.assign(rank=parts.str[0], probe=parts.str[-1])
        return values[values["probe"].isin(PROBES)]

    ranks = dict.fromkeys(rank for condition in conditions for rank in condition.ranks)
    return _summed(conditions, errors, ["rank", "probe"], "backbones", {"rank": [*ranks], "probe": [*PROBES]})


def measures(conditions: list[ConditionResults]) -> pd.DataFrame:
    """Return all other measured numbers: mean, lowest and highest over networks, a row per `key`."""
    return _summed(conditions, lambda values: values[values["file"] != "probe"], ["key"], "networks", {})


def _summed(
    conditions: list[ConditionResults],
    pick: Callable[[pd.DataFrame], pd.DataFrame],
    keys: list[str],
    count: str,
    orders: dict[str, list[str]],
) -> pd.DataFrame:
    """Summarise measured numbers over the runs of each label space, in the planned order; the embedding counts once.
    Values that are not finite, for instance from constant features, are left out of means; `undefined` counts them.
    """
    groups = ["measure", "network", "space", "family", "state", "split", *keys]
    over = {"granularity": ("granularity", "first"), count: ("value", "count"), "undefined": ("value", "size")}
    over |= {name: ("value", name) for name in ("mean", "min", "max")} | {"artifact": ("artifact", "first")}
    several = len({name for one in conditions for name in one.models}) > 1
    frames = []
    for condition in conditions:
        values = pick(condition.values).drop_duplicates(["measure", "run", "epoch", "split", "key"])
        first = next(iter(condition.models), "")  # the embedding is shown with this network
        numbers = values["value"].astype("float64")  # the column has no type if nothing was measured
        values = values.assign(value=numbers.where(np.isfinite(numbers))).fillna({"network": first})
        if count == "backbones":  # each counts once, with the mean of its finetunings
            once = {"granularity": "first", "value": "mean", "artifact": "first"}
            values = values.groupby([*groups, "pretrain_seed"], sort=False, dropna=False).agg(once).reset_index()
        table = values.groupby(groups, sort=False).agg(**over).reset_index()
        table["undefined"] -= table[count]
        spaces = in_order(condition)
        series = {space.name: series_of(space) for space in spaces} | {EMBEDDING: EMBEDDING}
        at = {space.name: place for place, space in enumerate(spaces)} | {EMBEDDING: len(spaces) + 1}
        table = table.assign(
            series=table["space"].map(series).fillna(table["family"]),
            granularity=table["granularity"].astype("Int64"),
            _place=table["space"].map(at).fillna(len(spaces)),
            _network=table["network"].map({name: i for i, name in enumerate(condition.models)}),
        )
        table.insert(0, "condition", condition.name)
        table.insert(1, "label", condition.label + (", " + table["network"] if several else ""))
        frames.append(table)

    def places(column: pd.Series) -> pd.Series:
        names = orders.get(column.name, dict.fromkeys(column))
        order = {name: i for i, name in enumerate(names)}
        return column if column.name.startswith("_") else column.map(order).fillna(len(order))

    by = ["condition", "_network", "measure", "_place", "state", *orders]
    table = pd.concat(frames, ignore_index=True).sort_values(by, key=places, kind="stable", ignore_index=True)
    return table.drop(columns=["_place", "_network"])


def properties(conditions: list[ConditionResults]) -> pd.DataFrame:
    """Return measured properties of every label space; shares are between 0 and 1, mutual information is in bits."""
    rows = []
    for condition, space in ((one, space) for one in conditions for space in in_order(one)):
        artifacts = dict(zip((one.name for one in condition.spaces), condition.roles("hierarchy"), strict=True))
        facts = condition.properties[space.name]
        row = {"condition": condition.name, "label": condition.label, "space": space.name}
        row |= {"family": space.family, "series": series_of(space)}
        row |= {key: facts[key] for key in ("granularity", "images", "empty_classes", "refines_target")}
        row |= {f"class_size_{key}": facts["class_size"][key] for key in ("min", "median", "max")}
        row |= {key: facts[key] for key in ("starved_share", "straddling_share")}
        agreement = ("purity", "mutual_information_bits", "nmi")
        row["artifact"] = artifacts[space.name]
        rows.append(row | {f"{key}_{rank}": value for key in agreement for rank, value in facts[key].items()})
    return pd.DataFrame(rows)
