"""What is compared with what, and the conclusions (docs/results.md, "The rule"): declared comparisons, arms with the
baseline, fine with coarse labels.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from granularity.claims.primary import Primary
from granularity.claims.statistics import LEVEL, holm, interval, p_value, paired
from granularity.stages.report import series
from granularity.stages.report.conditions import BASELINE, ConditionResults, ShownSpace
from granularity.stages.report.options import MERGED

ONE_PASS = "target (one pass)"
HEAD, MERGED_HEAD = "{} (head)", "{} (merged)"
QUESTIONS = {
    "primary": "the comparisons declared before the run",
    "finer": "label spaces with a meaning, against the baseline",
    "head": "the class head of pretraining, its classes merged into the target's, against the same networks finetuned",
    "merged": "a class head after the epochs of both stages, without finetuning, against the baseline",
    "stages": "the same, against networks that were finetuned after pretraining on the same labels",
    "chance": "random labels, and the target in one pass, against the baseline",
    "control": "label spaces with a meaning, against random labels of the same G",
    "meaning": "the same, averaged over pairs that hold the target, and over pairs that do not",
    "finest": "the finest of a family, against its coarsest",
}
# Whether a label space and its control *hold the target*: each of their labels lies in one target class. If only one
# of the two does, their difference also comes from the target, and is no evidence of meaning.
HOLDS = {
    "both": "both hold the target",
    "neither": "neither holds the target",
    "space": "the control does not hold the target",
    "control": "only the control holds the target",
}
AVERAGED = ("both", "neither")
SAME = 0.02  # largest relative difference of G: a cluster can come out empty, but an ID never drawn keeps its output
NEGLIGIBLE = 0.05  # a smaller gain, as a share of the baseline's error, counts as none
SEEN = 2  # standard deviations between backbones: a difference that a study should be able to show
MOST_PAIRS = 1000
STANDINGS = {
    "better": "better",
    "worse": "worse",
    "open": "not significant",
    "untested": "no interval: fewer than two backbones, or no spread",
    "baseline": "the baseline",
}
ANSWERS = {"yes": "Yes", "no": "No", "open": "Open"}
DIFFERENCE = ["difference", "error", "pairs", "comparisons"]


def standing(low: float, high: float) -> str:
    """Return a key of `STANDINGS` for the interval of a difference of errors."""
    if np.isnan(low):
        return "untested"
    return "better" if high < 0 else "worse" if low > 0 else "open"


def answer(arms: pd.DataFrame) -> str:
    """Return a key of `ANSWERS` for arms with `standing`, `low` (points) and `baseline_mean` (percent)."""
    if (arms["standing"] == "better").any():
        return "yes"
    excluded = arms["low"] > -NEGLIGIBLE * arms["baseline_mean"]  # False without an interval
    return "no" if len(arms) and excluded.all() else "open"


def pairs_needed(difference: float, error: float, pairs: int, comparisons: int) -> int | None:
    """Return how many pairs would exclude zero at this mean and spread; None if unknown or above `MOST_PAIRS`."""
    n = np.arange(2, MOST_PAIRS + 1)
    reaching = error * np.sqrt(pairs) * reach(n, comparisons)
    return next(iter(n[reaching < abs(difference)].tolist()), None)  # no number is below NaN


def reach(pairs: Any, comparisons: int) -> Any:
    """Return half the length of an interval, in standard deviations of the differences between backbones."""
    return stats.t.ppf(1 - (1 - LEVEL) / 2 / max(1, comparisons), pairs - 1) / np.sqrt(pairs)


def enough(comparisons: int) -> int:
    """Return the fewest backbones whose interval excludes zero for a difference of `SEEN` standard deviations."""
    n = np.arange(2, MOST_PAIRS + 1)
    return int(n[reach(n, comparisons) <= SEEN][0])


# ---------------------------------------------------------------- what is compared with one baseline


@dataclass(frozen=True)
class Panel:
    """The arms that are compared with one baseline: networks of a condition, finetuned in one way.

    The baseline belongs to `network`, one of `networks`; `runs` are their finetunings. `other_data`: whether these use
    other images than pretraining; then pretraining errors are not errors on the target.
    """

    condition: ConditionResults
    transfer: str
    network: str
    networks: list[str]
    runs: pd.DataFrame
    label: str
    other_data: bool

    @functools.cached_property
    def spaces(self) -> pd.DataFrame:
        """What its networks were pretrained on, by name: label spaces, or their substitutes.

        `meaningless`: whether its labels are random; `granularity`: None without labels; `refines`: whether it refines
        the target; `alike`: the first space that divides the images identically.
        """
        condition, spaces, rows = self.condition, {space.name: space for space in self.condition.spaces}, {}
        for run in self.runs.drop_duplicates("space").itertuples():
            space = spaces.get(run.space, ShownSpace(run.space, run.family, {}))
            name, size = series.series_of(space), None if pd.isna(run.granularity) else int(run.granularity)
            refines = condition.properties.get(run.space, {}).get("refines_target")
            alike = condition.alike.get(run.space, run.space)  # a space without labels equals no other
            rows[run.space] = space, name, series.describe(name).meaningless, size, refines, alike
        columns = ["space", "series", "meaningless", "granularity", "refines", "alike"]
        return pd.DataFrame.from_dict(rows, "index", dtype=object, columns=columns)

    @functools.cached_property
    def errors(self) -> pd.DataFrame:
        """Validation errors in percent, each backbone's mean: a row per network and label space, a column per seed.

        Label spaces that divide the images identically count as one: each gets the mean over all of them, seed by seed.
        """
        table = self.runs.groupby(["network", "space", "pretrain_seed"], sort=False)["val_error"].mean().unstack()
        networks, spaces = zip(*table.index, strict=True)
        return table.groupby([list(networks), self.spaces.loc[list(spaces), "alike"].tolist()]).transform("mean")

    @property
    def baseline(self) -> pd.Series | None:
        """The baseline's errors by pretraining seed."""
        at = (self.network, BASELINE)
        return self.errors.loc[at] if at in self.errors.index else None

    @property
    def one_pass(self) -> pd.Series | None:
        """Errors of the baseline's backbones before finetuning, by pretraining seed."""
        runs = self.condition.pretrain
        runs = runs[(runs["network"] == self.network) & (runs["space"] == BASELINE)]
        return None if self.other_data or runs.empty else runs.set_index("pretrain_seed")["val_error"]

    def before(self, network: str) -> dict[str, pd.Series]:
        """Return errors of a network's class head by pretraining seed, for each label space that refines the target."""
        runs = self.condition.pretrain.iloc[:0] if self.other_data else self.condition.pretrain
        holding = [name for name, properties in self.condition.properties.items() if properties["refines_target"]]
        runs = runs[(runs["network"] == network) & runs["space"].isin(holding)]
        return {
            space: held.set_index("pretrain_seed")["val_error"] for space, held in runs.groupby("space", sort=False)
        }

    def merged(self, network: str) -> dict[str, pd.Series]:
        """Return `before` of a network trained for all epochs, in the transfer whose epochs these are.

        That is the first that finetunes it on the same images (:func:`granularity.plan.trainings.networks`).
        """
        runs = self.condition.finetune
        first = runs.loc[(runs["network"] == network) & ~runs["other_data"], "transfer"].head(1)
        return self.before(network + MERGED) if (first == self.transfer).any() else {}

    @functools.cached_property
    def gains(self) -> dict[tuple[str, str], pd.Series]:
        """Differences from the baseline by seed, for label spaces that have a meaning and are finer than it."""
        if self.baseline is None:
            return {}
        finer = self.spaces["granularity"].fillna(0) > self.spaces.loc[BASELINE, "granularity"]
        named = self.spaces.index[finer & ~self.spaces["meaningless"].astype(bool)]
        return {at: self.errors.loc[at] - self.baseline for at in self.errors.index if at[1] in named}


def panels(conditions: list[ConditionResults]) -> list[Panel]:
    """Return every baseline with the networks compared with it: its own, and those of its architecture without one."""
    networks = {name for one in conditions for name in one.models}
    transfers = {name for one in conditions for name in one.finetune["transfer"]}
    baselines = []
    for condition in conditions:
        for transfer, runs in condition.finetune.groupby("transfer", sort=False):
            members, models = {}, condition.models
            for network in (name for name in models if name in set(runs["network"])):
                model, lenders = models[network], runs.loc[runs["space"] == BASELINE, "network"].unique()
                same = [one for one in lenders if models[one]["model"] == model["model"]]
                lender = min(same, key=lambda one: (one != network, models[one] != model), default=network)
                members.setdefault(lender, []).append(network)
            for network, held in members.items():
                more = [network] * (len(networks) > 1) + [transfer] * (len(transfers) > 1)
                label, panel_runs = ", ".join([condition.label, *more]), runs[runs["network"].isin(held)]
                other_data = bool(panel_runs["other_data"].any())
                baselines.append(Panel(condition, transfer, network, held, panel_runs, label, other_data))
    return baselines


# ---------------------------------------------------------------- comparisons


def compare(panels: list[Panel], declared: Mapping[str, Sequence[Primary]]) -> pd.DataFrame:
    """Return one row per comparison, with differences in percentage points of error; below zero is better.

    `declared`: each condition's primary comparisons, which concern its first network in the first transfer that
    finetunes it.

    Columns: `question`, a key of `QUESTIONS`; `label`, `network`, `transfer` and `space`, what is compared; `other`,
    with what (for `meaning`: `space` is null, and `other` the number of pairs); `holds`, a key of `HOLDS` for a
    control; `repeats`, a label space whose comparison this repeats, because both divide the images identically: it
    counts in no average or correction; `smallest`, `spread` and `planned` (the backbones required), for a primary
    comparison (:class:`.Primary`); `difference`, the mean over `pairs` of backbones of one pretraining seed, with its
    standard `error`; `low`, `high`, corrected for the `comparisons` of its question; `standing`, a key of `STANDINGS`.
    """
    columns = ["question", "label", "network", "transfer", "space", "other", "holds", "repeats"]
    planned = dict.fromkeys(("smallest", "spread", "planned"), float)
    rows, done = [], set()
    for panel in panels:
        condition, network = panel.condition.name, next(iter(panel.condition.models))
        if network in panel.networks and condition not in done:
            done.add(condition)
            rows += _declared(panel, network, declared.get(condition, ()))
    table = with_intervals([*rows, *(row for panel in panels for row in _of_panel(panel))], [*columns, *planned])
    verdicts = [standing(*row) for row in zip(table["low"], table["high"], strict=True)]
    return table.astype(planned).assign(standing=verdicts)


def with_intervals(rows: list[dict[str, Any]], columns: list[str]) -> pd.DataFrame:
    """Add to comparisons how many of them count per question, and their intervals, corrected for that number."""
    table = pd.DataFrame(rows, columns=[*columns, *DIFFERENCE[:3]]).astype({"difference": float, "error": float})
    counts = table["error"].notna() & (table["repeats"].isna() if "repeats" in table else True)
    table["comparisons"] = table["question"].map(table[counts].groupby("question").size()).fillna(0).astype(int)
    ends = [interval(*row) for row in table[DIFFERENCE].itertuples(index=False)]
    return table.join(pd.DataFrame(ends, columns=["low", "high"], index=table.index, dtype=float))


def _declared(panel: Panel, network: str, asked: Sequence[Primary]) -> Iterator[dict[str, Any]]:
    errors, named = panel.errors.loc[network], {"question": "primary", "label": panel.label}
    named |= {"network": network, "transfer": panel.transfer}
    for primary in asked:
        difference = paired(errors.loc[primary.arm], errors.loc[primary.against])
        planned = {"smallest": primary.smallest, "spread": primary.spread, "planned": primary.backbones(len(asked))}
        yield {**named, "space": primary.arm, "other": primary.against, **planned, **difference._asdict()}


def _of_panel(panel: Panel) -> Iterator[dict[str, Any]]:
    baseline, where = panel.baseline, {"label": panel.label, "transfer": panel.transfer}
    alike, series, refines = (panel.spaces[key].to_dict() for key in ("alike", "series", "refines"))
    chance = set(panel.spaces.index[panel.spaces["meaningless"].astype(bool)])
    first: dict[tuple[str, ...], str] = {}  # the first space of each comparison, by how it divides the images

    def row(question: str, network: str, space: str, other: str, one: Any, two: Any, **more: Any) -> dict[str, Any]:
        before = first.setdefault((question, network, alike.get(space, space), alike.get(other, other)), space)
        named = {"question": question, "network": network, "space": space, "other": other}
        repeats = None if before == space else before
        return {**where, **named, "repeats": repeats, **more, **paired(one, two)._asdict()}

    for network in panel.networks:
        arms = panel.errors.loc[network]
        sizes = panel.spaces.loc[arms.index, "granularity"].to_dict()
        labelled = [space for space, size in sizes.items() if size is not None and space != BASELINE]
        for space in sizes:
            if baseline is not None and (network, space) != (panel.network, BASELINE):
                yield row("chance" if space in chance else "finer", network, space, BASELINE, arms.loc[space], baseline)
        pairs: dict[str, list[tuple[str, str]]] = {holds: [] for holds in HOLDS}
        for space in (one for one in labelled if one not in chance):
            # The control has as many classes, and preferably also refines the target, or does not.
            gap = {one: abs(sizes[one] - sizes[space]) for one in sorted(chance & {*labelled})}
            near = [one for one in gap if gap[one] <= SAME * sizes[space]]
            control = min(near, key=lambda one: (refines[one] != refines[space], gap[one]), default=None)
            if control is not None:
                same = "both" if refines[space] else "neither"
                holds = same if refines[space] == refines[control] else "space" if refines[space] else "control"
                against = row("control", network, space, control, arms.loc[space], arms.loc[control], holds=holds)
                if against["repeats"] is None:
                    pairs[holds].append((space, control))
                yield against
        for holds in (one for one in AVERAGED if pairs[one]):
            averages = [arms.loc[list(names)].mean(axis=0, skipna=False) for names in zip(*pairs[holds], strict=True)]
            named = {"question": "meaning", "network": network, "other": str(len(pairs[holds])), "holds": holds}
            yield {**where, **named, **paired(*averages)._asdict()}
        for one in dict.fromkeys(series[space] for space in labelled):  # human ranks are one series
            spaces = [space for space in labelled if series[space] == one]
            coarsest, finest = min(spaces, key=sizes.__getitem__), max(spaces, key=sizes.__getitem__)
            if sizes[coarsest] < sizes[finest]:
                yield row("finest", network, finest, coarsest, arms.loc[finest], arms.loc[coarsest])
        for space, errors in panel.before(network).items():
            if space != BASELINE and space in arms.index:
                yield row("head", network, HEAD.format(space), space, errors, arms.loc[space])
        for space, errors in panel.merged(network).items():
            if baseline is not None:
                yield row("merged", network, MERGED_HEAD.format(space), BASELINE, errors, baseline)
            if space != BASELINE and space in arms.index:
                yield row("stages", network, MERGED_HEAD.format(space), space, errors, arms.loc[space])
    if baseline is not None and panel.one_pass is not None:
        yield row("chance", panel.network, ONE_PASS, BASELINE, panel.one_pass, baseline)


# ---------------------------------------------------------------- gains between sizes, and between transfers


def between(panels: list[Panel]) -> pd.DataFrame:
    """Return whether a label space's gain (see :attr:`Panel.gains`) differs between training-set sizes, or transfers.

    One row per label space and pair of sizes or transfers: each size is compared with the smallest, each transfer with
    the first. Two transfers start from the same backbones; two sizes share only the seeds.

    Columns besides those of :func:`compare`: `question`, `sizes` or `transfers`; `gain` and `other_gain` at `label` and
    `other`, over the seeds that both have; `difference` (below zero: the gain at `label` is larger); `p`, Holm's over
    all of the question; `standing`, by `p`; `needed`, see :func:`pairs_needed`, null if already significant.
    """
    rows = []
    for question, about in (("sizes", lambda one: one.transfer), ("transfers", lambda one: one.condition.name)):
        groups: dict[tuple[str, str], list[Panel]] = {}
        for panel in panels:
            groups.setdefault((panel.network, about(panel)), []).append(panel)
        for group in groups.values():
            first, *others = sorted(group, key=lambda one: one.condition.images("train"))
            rows += [{"question": question, **row} for other in others for row in _changes(other, first)]
    table = with_intervals(rows, ["question", "network", "space", "label", "gain", "other", "other_gain"])
    numbers = list(table[DIFFERENCE].itertuples(index=False))
    table["p"] = [p_value(*row[:3]) for row in numbers]
    for rows in table.groupby("question").groups.values():
        table.loc[rows, "p"] = holm(table.loc[rows, "p"])
    significant = table["p"] < 1 - LEVEL
    better = (table["difference"] < 0).map({True: "better", False: "worse"})
    table["standing"] = better.where(significant, "open").mask(table["p"].isna(), "untested")
    needed = [None if flag else pairs_needed(*row) for flag, row in zip(significant, numbers, strict=True)]
    return table.assign(needed=pd.array(needed, dtype="Int64"))


def _changes(here: Panel, there: Panel) -> Iterator[dict[str, Any]]:
    arms = {}  # the first of several names of the same space
    for network, space in (at for at in here.gains if at in there.gains):
        arms.setdefault((network, *(panel.spaces.loc[space, "alike"] for panel in (here, there))), (network, space))
    for network, space in arms.values():
        one, other = here.gains[network, space].align(there.gains[network, space], join="inner")
        named = {"network": network, "space": space, "label": here.label, "gain": one.mean()}
        yield named | {"other": there.label, "other_gain": other.mean()} | paired(one, other)._asdict()
