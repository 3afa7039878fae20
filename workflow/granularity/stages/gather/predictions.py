"""Predictions of a study: a file written before its run, and how the results compare with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, JsonValue, ValidationError, model_validator

from granularity.base import strict_yaml
from granularity.base.errors import GranularityError
from granularity.base.section import Section, dotted, explained
from granularity.base.stage import Planned

if TYPE_CHECKING:
    import pandas as pd

Points = Annotated[float, Field(allow_inf_nan=False)]


class Prediction(Section):
    """A range for the difference between two arms' errors, in points, averaged over draws; below zero is better.

    An arm is a label space of the first network, or NETWORK/SPACE. Its error is measured after finetuning, or after
    pretraining if the network is not finetuned. With `measure`, the difference is that of a number measured of the
    pretrained networks, in its own unit.
    """

    arm: str
    against: str = "target"
    transfer: str = Field("", description="Which transfer's error is meant (empty: the only one).")
    low: Points
    high: Points
    measure: str = Field("", description="MEASURE/KEY, such as probe/class/linear (empty: the error).")
    where: dict[str, JsonValue] = Field(
        {}, description="Values of axes (none: the mean over all cells of a draw), and the condition."
    )
    reason: str = Field("", description="Why this is expected.")

    @model_validator(mode="after")
    def _ordered(self):
        if self.low >= self.high:
            raise ValueError(f"low: {self.low} is not below high = {self.high}")
        return self


class Predictions(Section):
    """The expected findings of a study."""

    question: str
    coverage: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.8, description="Share of the ranges that are expected to be right."
    )
    pilots: str = Field("", description="Results that had been seen when this was written.")
    power: str = Field("", description="Smallest difference that this many draws and backbones can detect.")
    predictions: Annotated[dict[str, Prediction], Field(min_length=1)]


def read(file: Path) -> Predictions:
    """Read a file of predictions; GranularityError: what is wrong with it."""
    values = strict_yaml.read(file)
    try:
        return Predictions.model_validate(values)
    except ValidationError as error:
        lines = [
            f"{file}: {dotted(path)}{shown}: {what}" for path, shown, what in explained(error, Predictions, values)
        ]
        raise GranularityError(*lines) from None


def complaints(plan: Planned, networks: Sequence[str]) -> Iterator[str]:
    """Yield what predictions mention but a study's plan does not make, each as "predictions: what".

    `networks`: the names of those of all cells; the first is that of an arm without a network.
    """
    config = plan.config
    if config.predictions is None or not config.predictions.is_file():
        return  # missing paths are reported elsewhere
    made, transfers = list(_made(plan)), _targets(plan, networks)
    for id, prediction in read(config.predictions).predictions.items():
        place, chosen = f"predictions: {config.predictions}: {id}", made
        for key, value in prediction.where.items():
            known = {str(one[key]): one[key] for one in chosen if key in one}
            held = _alike(known.values(), value)
            chosen = [one for one in chosen if one.get(key) in held]
            if not chosen:
                yield f"{place}: {_none(key, value, known)}"
                break
        if not chosen:
            continue
        pair = {arm: network_of(arm, networks) for arm in (prediction.arm, prediction.against)}
        arms = dict.fromkeys(one["arm"] for one in chosen)
        for arm in (arm for arm, named in pair.items() if named not in arms):
            yield f"{place}: there is no arm '{arm}'; there are {', '.join(map('/'.join, arms))}"
        conditions = dict.fromkeys(one["condition"] for one in chosen if one["arm"] in pair.values())
        if len(conditions) > 1:
            yield f"{place}: {_several(conditions)}"
        if prediction.measure:
            name = prediction.measure.partition("/")[0]
            splits = {measure.name: measure.splits for measure in config.measures}
            if name not in splits:
                yield f"{place}: measure: '{name}' is not measured; measures are {', '.join(splits) or 'none'}"
            elif len(splits[name]) > 1 and "val" not in splits[name]:
                named = ", ".join(splits[name])
                yield f"{place}: measure: measure '{name}' on one split or on 'val' too, not on {named}"
            continue
        for network in dict.fromkeys(network for network, _ in pair.values()):
            if len({one["finetuned"] for one in chosen if one["arm"][0] == network}) > 1:
                yield f"{place}: where: {network} is finetuned in some of these cells only; choose cells by their axes"
        transfer = prediction.transfer or (next(iter(transfers)) if len(transfers) == 1 else "")
        if transfer not in transfers:
            known = ", ".join(transfers)
            yield f"{place}: transfer: must be one of {known}, not '{prediction.transfer}'"
        for network in dict.fromkeys(network for network, _ in pair.values() if network in networks):
            if network not in transfers.get(transfer, networks):
                yield f"{place}: transfer: '{transfer}' does not finetune {network}, whose error is on another target"


def _made(plan: Planned) -> Iterator[dict[str, Any]]:
    """Yield the planned arms of each cell: its values of the axes, `condition`, `arm` (network, label space), and
    whether its network is `finetuned`.
    """
    for cell, values in zip(plan.cells, plan.axes.values(), strict=True):
        axes = {key: value for key, value in values.items() if key != "draw"}
        finetuned = {network.name for way in cell.transfers for network in cell.networks_of(way)}
        for condition in cell.conditions:
            for network in cell.networks:
                for space in dict.fromkeys(run.space for run in cell.pretrainings(network, condition)):
                    arm = {"arm": (network.name, space), "finetuned": network.name in finetuned}
                    yield axes | {"condition": condition.name, **arm}


def _targets(plan: Planned, networks: Iterable[str]) -> dict[str, set[str]]:
    """Return, by way to finetune, the networks with an error on its target."""
    ways: dict[str, set[str]] = {}
    for cell in plan.cells:
        for way in cell.transfers:
            ways.setdefault(way.name, set()).update(one.name for one in cell.networks_of(way))
    never = set(networks).difference(*ways.values())
    own = {way.name for cell in plan.cells for way in cell.transfers if way.data is None}
    return {name: finetuned | (never if name in own else set()) for name, finetuned in ways.items()}


def _alike(known: Iterable[Any], value: Any) -> list[Any]:
    """Return which of some values of an axis are a given one: equal, or written alike (a table has 40 for "40")."""
    return [one for one in known if one == value or str(one) == str(value)]


def _none(key: str, value: Any, known: Iterable[Any]) -> str:
    return f"where: no cell has {key} = {value}; there are {', '.join(map(str, known)) or 'no values of it'}"


def _several(conditions: Iterable[str]) -> str:
    """Say that a prediction is not of one condition."""
    names = sorted(conditions)
    return f"where: its arms are in several conditions, {', '.join(names)}; name one, such as condition: {names[0]}"


def network_of(arm: str, networks: Sequence[str]) -> tuple[str, str]:
    """Return the network and the label space of an arm."""
    network, slash, space = arm.rpartition("/")
    return (network, space) if slash else (networks[0], arm)


def judged(said: Predictions, runs: pd.DataFrame, networks: list[str]) -> pd.DataFrame:
    """Return a row per prediction: its `id`, `arm`, `against`, `measure`, `low`, `high`; the `difference` found, as
    mean over `draws`, with its interval `lower` to `upper` (Student's, over draws, corrected for all predictions) and
    its uncorrected `p`; whether it lies `inside` the range, and whether the range `excludes` zero.

    `runs`: the rows of the stage's `runs.parquet`. Raises GranularityError: no row has a value of `where`, or the arms
    have rows of several conditions.
    """
    import pandas as pd

    from granularity.claims.statistics import interval, mean_of, p_value
    from granularity.stages.gather.tables import DTYPES

    axes = [name for name in runs if name not in (*DTYPES, "draw")]  # arms are compared within a cell
    errors = runs[(runs["measure"] == "val_error") & runs["stage"].isin(["pretrain", "finetune"])]
    tuned = errors["stage"] == "finetune"
    here = pd.MultiIndex.from_frame(errors[["network", *axes]])
    errors = errors[tuned | ~here.isin(here[tuned])]  # a network may be finetuned in one cell and not in another
    rows = []
    for id, prediction in said.predictions.items():
        chosen = _measured(runs, id, prediction.measure) if prediction.measure else errors
        if prediction.transfer and not prediction.measure:
            chosen = errors[(errors["stage"] == "pretrain") | (errors["transfer"] == prediction.transfer)]
        for key, value in prediction.where.items():
            known = runs[key].unique().tolist() if key in runs else []
            if not (held := _alike(known, value)):
                raise GranularityError(f"predictions: {id}: {_none(key, value, known)}")
            chosen = chosen[chosen[key].isin(held)]
        means, conditions = [], set()
        for arm in (prediction.arm, prediction.against):
            network, space = network_of(arm, networks)
            own = chosen[(chosen["network"] == network) & (chosen["space"] == space)]
            means.append(own.groupby(["draw", *axes])["value"].mean())
            conditions |= set(own["condition"])
        if len(conditions) > 1:
            raise GranularityError(f"predictions: {id}: {_several(conditions)}")
        mean = mean_of((means[0] - means[1]).dropna().groupby("draw").mean())
        lower, upper = interval(*mean, len(said.predictions))
        row = {"id": id, **prediction.model_dump(include={"arm", "against", "measure", "low", "high"})}
        row |= {"draws": mean.pairs, "difference": mean.difference, "lower": lower, "upper": upper, "p": p_value(*mean)}
        row["inside"] = prediction.low <= mean.difference <= prediction.high
        row["excludes"] = not prediction.low <= 0 <= prediction.high
        rows.append(row)
    return pd.DataFrame(rows)


def _measured(runs: pd.DataFrame, id: str, name: str) -> pd.DataFrame:
    """Return one measured number of the pretrained networks, on validation images if it was measured on any.

    Raises GranularityError: there is none of that name.
    """
    last = runs["epoch"] == runs.groupby("run")["epoch"].transform("max")
    measured = runs[(runs["stage"] == "measure") & runs["finetune_seed"].isna() & last & (runs["epoch"] > 0)]
    names = measured["measure"] + "/" + measured["key"]
    if name not in (known := sorted(names.unique())):
        raise GranularityError(f"predictions: {id}: measure: there is no '{name}'; there are {', '.join(known)}")
    named = measured[names == name]
    return named[named["split"] == "val"] if (named["split"] == "val").any() else named
