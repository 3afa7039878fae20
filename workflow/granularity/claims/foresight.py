"""How well what is known of label spaces before training ranks them by what they gain: data sets left out one by one.

The rule, and why, is in `config/preregistrations/recommend.yaml`, which also names the predictors. A table of evidence
has a row per label space and group: `data` and the other columns of `GROUP`, `space`, `gain`, and the predictors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from granularity.claims import preregistered
from granularity.claims.claim import Claim
from granularity.claims.statistics import LEVEL, holm

NAME = "recommend"
_SAID = preregistered.read(NAME)
DUMB: list[str] = _SAID["dumb"]
CANDIDATES: list[str] = _SAID["candidates"]
PROPERTIES: dict[str, str] = _SAID["properties"]  # in words
MODEL, RANDOM = "model", "random"
FEATURES = [name for name in PROPERTIES if name != RANDOM]  # of the model
PREDICTORS = [*DUMB, *CANDIDATES, RANDOM]
GROUP = ["data", "configuration", "condition", "network", "transfer"]
FEWEST, DRAWS, PENALTY = 4, 2000, 0.1


@dataclass(frozen=True)
class Record:
    """What predictors have shown so far.

    Attributes:
        table: a row per predictor: `predictor`, `rho` (mean over data sets left out), `low`, `high` (interval over
            label spaces), `rho_meaning` (label spaces with a meaning alone, NaN where these are too few), `ahead_G`
            and `ahead_nmi_finest` (differences of rho), `worst` (least of these differences in any data set), `p`
            (Holm's), `beats`.
        by_data: a row per data set, a column per predictor: rho of the one that is left out.
        within: the same of single properties as they are, with no sign from elsewhere: a description, no prediction.
        ceiling: rank correlation of the gains of every other backbone with those of the rest; NaN where unknown.
        data, groups, spaces: how many data sets, groups, and rows it rests on. With fewer than two data sets the table
            is empty.
    """

    table: pd.DataFrame
    by_data: pd.DataFrame
    within: pd.DataFrame
    ceiling: float
    data: int
    groups: int
    spaces: int

    @property
    def winner(self) -> str | None:
        """Of the predictors that beat the dumb ones the one of largest rho."""
        won = self.table[self.table["beats"]] if len(self.table) else self.table
        return None if won.empty else str(won.sort_values("rho")["predictor"].iloc[-1])


class _Group(NamedTuple):
    data: str
    known: np.ndarray  # (predictors without the model, spaces), 0 throughout where one is unknown
    gain: np.ndarray  # (spaces,)
    spaces: np.ndarray  # (spaces,), their places among the data set's label spaces


def usable(evidence: pd.DataFrame) -> pd.DataFrame:
    """The rows of groups that are large enough."""
    evidence = evidence[evidence["gain"].notna()]
    return evidence[evidence.groupby(GROUP)["space"].transform("size") >= FEWEST]


def record(evidence: pd.DataFrame) -> Record:
    """Leave out each data set in turn and rank its label spaces by what the others say.

    Args:
        evidence: see the module; a predictor is NaN where it is not known.
    """
    rows = usable(evidence)
    groups, draws = _groups(rows)
    names = sorted(draws)
    held = {"data": len(names), "groups": len(groups), "spaces": len(rows), "ceiling": _ceiling(rows)}
    once = {name: np.ones((1, one.shape[1])) for name, one in draws.items()}
    index = pd.Index(names, name="data")
    held["within"] = pd.DataFrame(_correlations(groups, once)[:, 0], index, _COLUMNS) if names else pd.DataFrame()
    if len(names) < 2:
        return Record(pd.DataFrame(), pd.DataFrame(), **held)
    found = left_out(groups, once)[:, 0]  # (data sets, predictors)
    drawn = left_out(groups, draws).mean(0)  # (draws, predictors)
    table = pd.DataFrame({"predictor": PREDICTORS, "rho": found.mean(0)})
    table["low"], table["high"] = np.quantile(drawn, ((1 - LEVEL) / 2, (1 + LEVEL) / 2), axis=0)
    meaning = rows[~rows["meaningless"].astype(bool)] if "meaningless" in rows else rows
    groups_meaning, draws_meaning = _groups(usable(meaning))
    if len(draws_meaning) == len(names):
        once = {name: np.ones((1, one.shape[1])) for name, one in draws_meaning.items()}
        table["rho_meaning"] = left_out(groups_meaning, once)[:, 0].mean(0)
    else:
        table["rho_meaning"] = np.nan
    p, worst = np.zeros(len(PREDICTORS)), np.full(len(PREDICTORS), np.inf)
    for dumb in DUMB:
        peer = PREDICTORS.index(dumb)
        table[f"ahead_{dumb}"] = table["rho"] - table["rho"][peer]
        worst = np.minimum(worst, (found - found[:, [peer]]).min(0))
        p = np.maximum(p, np.minimum(1, 2 * ((drawn <= drawn[:, [peer]]).sum(0) + 1) / (DRAWS + 1)))
    judged = table["predictor"].isin(CANDIDATES).to_numpy()
    table["worst"] = np.where(judged, worst, np.nan)
    table["p"] = holm(np.where(judged, p, np.nan))
    table["beats"] = judged & (worst > 0) & (table["p"] <= 1 - LEVEL)
    return Record(table, pd.DataFrame(found, index, PREDICTORS), **held)


def claims(found: Record) -> list[Claim]:
    """The predictions of the preregistration, each with what was measured; none of it with fewer than two data sets."""
    measured: dict[str, list[float]] = {}
    rows = found.table.set_index("predictor") if len(found.table) else found.table
    for id in _SAID["predictions"]:
        what, _, predictor = id.partition(", ")
        if rows.empty:
            measured[id] = []
        elif what == "rho":
            measured[id] = [rows.loc[predictor, "rho"]]
        else:
            measured[id] = [rows.loc[predictor, "p"] if rows.loc[predictor, "worst"] > 0 else 1.0]
    return preregistered.claims(NAME, measured, dict.fromkeys(measured, found.data))


def score(evidence: pd.DataFrame, spaces: pd.DataFrame, predictor: str, data: str) -> np.ndarray:
    """Scores of label spaces that nothing was trained on, larger is better, by what other data sets say.

    Args:
        evidence: that of all data sets; `data`'s own is not used.
        spaces: one group of label spaces, a row each, with the predictors.
        predictor: one of `PREDICTORS`.
        data: the data set that they are of.

    Returns:
        float [spaces].
    """
    groups, draws = _groups(usable(evidence[evidence["data"] != data]))
    once = {name: np.ones((1, one.shape[1])) for name, one in draws.items()}
    known = _known(spaces)
    if predictor == MODEL:
        return _weights(groups, once)[0] @ _ranks(known[: len(FEATURES)], np.ones((1, len(spaces))))[0]
    place = _COLUMNS.index(predictor)
    sign = np.sign(_correlations(groups, once)[:, 0, place].mean()) if groups else 1.0
    return (sign or 1.0) * known[place]


_COLUMNS = [*FEATURES, RANDOM]


def left_out(groups: list[_Group], draws: dict[str, np.ndarray]) -> np.ndarray:
    """Rank correlations of each data set, its signs and weights taken from the others.

    Args:
        draws: by data set how often each of its label spaces counts, float (draws, spaces).

    Returns:
        float (data sets in alphabetical order, draws, predictors).
    """
    names = sorted(draws)
    single = _correlations(groups, draws)  # (data sets, draws, columns)
    found = []
    for place, name in enumerate(names):
        sign = np.sign(np.delete(single, place, axis=0).mean(0))
        mine = np.where(sign == 0, 1, sign) * single[place]
        weights = _weights([one for one in groups if one.data != name], draws)
        model = []
        for group in (one for one in groups if one.data == name):
            counts = draws[name][:, group.spaces]
            scores = np.einsum("bp,bpn->bn", weights, _ranks(group.known[: len(FEATURES)], counts))
            model.append(_correlation(_ranks_of_each(scores, counts), _ranks(group.gain[None], counts), counts)[:, 0])
        by_name = dict(zip(_COLUMNS, mine.T, strict=True)) | {MODEL: np.mean(model, axis=0)}
        found.append(np.stack([by_name[one] for one in PREDICTORS], axis=1))
    return np.stack(found)


def _groups(rows: pd.DataFrame) -> tuple[list[_Group], dict[str, np.ndarray]]:
    """The groups, and for each data set the bootstrap's counts of its label spaces."""
    rng = np.random.default_rng(0)
    groups, draws = [], {}
    for data, of_data in rows.groupby("data", sort=True):
        names = pd.Index(of_data["space"].unique())
        draws[str(data)] = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), DRAWS).astype(float)
        for _, one in of_data.groupby(GROUP, sort=True):
            groups.append(_Group(str(data), _known(one), one["gain"].to_numpy(float), names.get_indexer(one["space"])))
    return groups, draws


def _known(rows: pd.DataFrame) -> np.ndarray:
    values = np.stack([rows[name].to_numpy(float) for name in _COLUMNS])
    return np.where(np.isnan(values).any(axis=1, keepdims=True), 0, np.round(values, 9))


def _ranks(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Ranks from -0.5 to 0.5, ties shared, of label spaces that count so often: (draws, rows, spaces)."""
    values = values[:, :, None]
    below = (values > values.swapaxes(1, 2)) + 0.5 * (values == values.swapaxes(1, 2))
    return np.einsum("rij,bj->bri", below, counts) / _total(counts)[..., None] - 0.5


def _ranks_of_each(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The same of one row of other values in every draw, (draws, spaces): (draws, 1, spaces)."""
    values = np.round(values, 9)[:, :, None]
    below = (values > values.swapaxes(1, 2)) + 0.5 * (values == values.swapaxes(1, 2))
    return ((below @ counts[:, :, None])[..., 0] / _total(counts) - 0.5)[:, None]


def _total(counts: np.ndarray) -> np.ndarray:
    return np.maximum(counts.sum(-1, keepdims=True), 1)


def _correlation(one: np.ndarray, other: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Pearson's correlation of ranks, 0 where either is the same for all: (draws, rows)."""
    weight = counts[:, None]
    both, first, second = ((weight * pair).sum(-1) for pair in (one * other, one**2, other**2))
    scale = np.sqrt(first * second)
    return np.where(scale > 1e-12, both / np.maximum(scale, 1e-12), 0.0)


def _correlations(groups: list[_Group], draws: dict[str, np.ndarray]) -> np.ndarray:
    """Rank correlations of the single properties, without a sign: (data sets, draws, columns)."""
    found: dict[str, list[np.ndarray]] = {name: [] for name in sorted(draws)}
    for group in groups:
        counts = draws[group.data][:, group.spaces]
        found[group.data].append(_correlation(_ranks(group.known, counts), _ranks(group.gain[None], counts), counts))
    return np.stack([np.mean(one, axis=0) for one in found.values()])


def _weights(groups: list[_Group], draws: dict[str, np.ndarray]) -> np.ndarray:
    """Ridge regression of the gain's ranks on those of `FEATURES`: (draws, features)."""
    count = len(FEATURES)
    left, right = PENALTY * np.eye(count)[None], np.zeros((1, count))
    for group in groups:
        counts = draws[group.data][:, group.spaces]
        share = (counts / _total(counts))[:, None]
        known, gain = _ranks(group.known[:count], counts), _ranks(group.gain[None], counts)
        left = left + (share * known) @ known.swapaxes(1, 2)
        right = right + (share * known * gain).sum(-1)
    return np.linalg.solve(left, right[..., None])[..., 0]


def _ceiling(rows: pd.DataFrame) -> float:
    """How well half of the backbones predicts the other half: what no predictor can be asked to exceed by much."""
    if rows.empty or not {"gain_even", "gain_odd"} <= set(rows):
        return np.nan
    both = usable(rows.dropna(subset=["gain_even", "gain_odd"]))
    found = both.groupby(GROUP)[["gain_even", "gain_odd"]].apply(
        lambda one: one["gain_even"].corr(one["gain_odd"], method="spearman")
    )
    return float(found.groupby("data").mean().mean()) if len(found) else np.nan
