"""The report's answer in plain words, made from the numbers alone: no outcome is written down beforehand."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from granularity.stages.report import series
from granularity.stages.report.conditions import ConditionResults
from granularity.stages.report.encoder import Encoder


def listing(items: Iterable[object]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    items = [str(item) for item in items]
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1] if items else "none"


def count(number: int, word: str, plural: str | None = None) -> str:
    """`1 run`, `2 runs`."""
    return f"{number:,} {word if number == 1 else plural or word + 's'}"


def signed(number: float, digits: int = 2) -> str:
    """A difference with its sign, the minus a real one."""
    return f"{number:+.{digits}f}".replace("-", "−")


def headline(results: pd.DataFrame) -> str:
    """The answer in one or two sentences: for which labels finer-grained pretraining helped, if for any."""
    arms = results[results["role"] == "arm"]
    size = results[results["role"] == "baseline"].set_index("label")["granularity"]
    coarse = arms["label"].map(size).astype(float)
    arms = arms[arms["granularity"].astype(float) > coarse]  # not what has no labels, or no baseline
    if arms.empty:
        return "No label space finer than the target was pretrained on, so there is no answer."
    if not arms["p"].notna().any():
        return (
            "Not answered: no label space finer than the target has runs with a measurable spread, so nothing "
            "can be told from chance. Raise seeds.pretrain and seeds.finetune."
        )
    said = _gain(arms, int(results["p"].notna().sum()))
    better = arms["standing"].isin(["better", "better_over_runs", "better_untested"])
    lucky = arms[arms["series"].map(lambda one: series.describe(one).meaningless) & (arms["high"] < 0)]
    if better.any() and len(lucky):
        said.append(
            f"Labels that mean nothing were below the baseline too, {_by_condition(lucky)}: what the labels mean is "
            "not, or not alone, the reason."
        )
    worse = arms[arms["standing"] == "worse"]
    maybe = arms[arms["standing"].isin(["worse_over_runs", "worse_untested"])]
    if len(worse):
        said.append(f"It hurt with {_by_condition(worse)}.")
    if len(maybe):
        said.append(f"It may have hurt with {_by_condition(maybe)}: over runs, but not when each backbone counts once.")
    return " ".join(said)


def _gain(arms: pd.DataFrame, number: int) -> list[str]:
    """Sentences on the arms below the baseline: those that are so by every count, and those that are not."""
    compared = f"adjustment for all {count(number, 'comparison')} made"
    sure = arms[arms["standing"] == "better"]
    unsure = arms[arms["standing"].isin(["better_over_runs", "better_untested"])]
    maybe = arms[arms["standing"] == "better_unadjusted"]
    said = []
    if len(sure):
        said.append(
            f"Yes, for some labels: {_by_condition(sure)} ended with a lower validation error than retraining on the "
            f"target labels. This stands after {compared}, and when each backbone counts once."
        )
    if len(unsure):
        said.append(
            f"{'Less surely so' if len(sure) else 'Perhaps'}: {_by_condition(unsure)} ended lower over runs, after "
            f"{compared if not len(sure) else 'adjustment'}, but not when each backbone counts once; the backbones are "
            "few, and it may be their luck."
        )
    if said:
        return said
    if len(maybe):
        return [
            f"Not established: {_by_condition(maybe)} ended with a lower error than retraining on the target labels, "
            f"but no such difference stands after {compared}."
        ]
    return [
        "No sign of it: no finer label space ended with an error below that of retraining on the target labels by "
        "more than chance explains."
    ]


def _by_condition(rows: pd.DataFrame) -> str:
    parts = [f"{listing(part['space'])} ({label})" for label, part in rows.groupby("label", sort=False)]
    return "; ".join(parts)


def findings(table: pd.DataFrame) -> list[str]:
    """Findings from the rows that share a baseline, a sentence or two per outcome."""
    arms = table[table["role"] == "arm"]
    baselines = table[table["role"] == "baseline"]
    if baselines.empty:
        return [f"There is no retraining baseline to compare {_spaces(arms)} with."]
    baseline = baselines.iloc[0]
    spread = "" if pd.isna(baseline["std"]) else f" (std {baseline['std']:.2f} over {count(baseline['runs'], 'run')})"
    said = [f"The retraining baseline ends at {baseline['mean']:.2f} % validation error{spread}."]
    for rows, side in ((arms[arms["high"] < 0], "below"), (arms[arms["low"] > 0], "above")):
        said.append(_apart(rows, side))
    overlap = arms[(arms["low"] <= 0) & (arms["high"] >= 0)]
    if len(overlap):
        them = "it" if len(overlap) == 1 else "any of them"
        said.append(
            f"The interval contains zero for {_spaces(overlap)}: the data do not tell {them} from the baseline, "
            "in either direction."
        )
    untested = arms[arms["low"].isna()]
    if len(untested):
        said.append(f"No interval can be given for {_spaces(untested)}: too few runs, or no spread between them.")
    for one_pass in table[table["role"] == "one_pass"].to_dict("records"):
        side = "above" if one_pass["difference"] >= 0 else "below"
        said.append(
            f"Training once on the target labels, without a second stage, ends at {one_pass['mean']:.2f} %, "
            f"{abs(one_pass['difference']):.2f} points {side} the retraining baseline ({one_pass['verdict']})."
        )
    return said


def _apart(rows: pd.DataFrame, side: str) -> str:
    if rows.empty:
        return f"No label space has its 95 % interval of the difference wholly {side} zero."
    said = [f"Over runs, the 95 % interval of the difference lies wholly {side} zero for {_spaces(rows)}."]
    kept = rows[rows["outcome"].isin(["better", "worse"])]
    lost = rows.drop(kept.index)
    if kept.empty:
        return f"{said[0]} After Holm's adjustment none of this stands: it may be chance."
    if len(lost):
        said.append(f"After Holm's adjustment it does not stand for {listing(lost['space'])}, where it may be chance.")
    else:
        said.append("Holm's adjustment for the number of comparisons does not change this.")
    sure = kept[kept["standing"].isin(["better", "worse"])]
    if sure.empty:
        said.append("When each backbone counts once, it stands for none of them.")
    elif len(sure) < len(rows):
        said.append(f"When each backbone counts once, too, it stands for {listing(sure['space'])}.")
    else:
        said.append("It stands when each backbone counts once, too.")
    return " ".join(said)


def _spaces(rows: pd.DataFrame) -> str:
    parts = []
    for row in rows.itertuples():
        parts.append(row.space if pd.isna(row.difference) else f"{row.space} ({signed(row.difference)})")
    return listing(parts)


TALLIED = {
    "better": "better",
    "better_over_runs": "lower over runs alone",
    "worse_over_runs": "higher over runs alone",
    "worse": "worse",
    "overlap": "not told apart",
    "untested": "not tested",
}


def tally(results: pd.DataFrame) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Count, for every kind of labels and baseline, the label spaces with each verdict."""
    arms = results[results["role"] == "arm"]
    labels = list(results["label"].unique())
    rows = []
    for one in series.sort(arms["series"]):
        cells = []
        for label in labels:
            found = arms.loc[(arms["series"] == one) & (arms["label"] == label), "standing"]
            found = found.replace({f"{side}_untested": f"{side}_over_runs" for side in ("better", "worse")})
            # What did not survive the adjustment is not told apart.
            found = found.replace({f"{side}_unadjusted": "overlap" for side in ("better", "worse")}).value_counts()
            cells.append(", ".join(f"{found[key]} {TALLIED[key]}" for key in TALLIED if key in found) or "–")
        rows.append((series.words(one), cells))
    return labels, rows


def caveats(conditions: list[ConditionResults], results: pd.DataFrame, encoder: Encoder | None) -> list[str]:
    """Caveats: what the numbers cannot show."""
    said = [_comparisons(results), _few_backbones(results)]
    images = listing(dict.fromkeys(f"{condition.images('val'):,}" for condition in conditions))
    point = 100 / max(1, conditions[0].images("val"))
    said.append(
        f"Every run is scored on the same {images} validation images (each is {point:.2g} % of them) "
        "and trained on the same training images. The intervals hold the chance of initialisation and order, not "
        "that of another draw of images, another data set, network or recipe."
    )
    if any(condition.finetune["other_data"].any() for condition in conditions):
        said.append("Transfers to other data are trained and scored on the images of those data instead.")
    if encoder is not None and any(condition.of("cluster") for condition in conditions):
        said.append(encoder.leak)
    said.append("An interval that contains zero is not evidence of no effect: the runs may be too few to see it.")
    return said


def _comparisons(results: pd.DataFrame) -> str:
    number = int(results["p"].notna().sum())
    return (
        f"{count(number, 'comparison')} with the retraining baseline {'was' if number == 1 else 'were'} made. At "
        "the 95 % level about one in twenty finds a difference where there is none "
        f"(here {number / 20:.1f}), so verdicts use p-values adjusted by Holm's method over all of them. Only what "
        "this configuration holds is counted: label spaces and training-set sizes tried and then dropped are not."
    )


def _few_backbones(results: pd.DataFrame) -> str:
    backbones = int(results.loc[results["role"] != "one_pass", "backbones"].min())
    apart = results[(results["low"] > 0) | (results["high"] < 0)]
    tested = apart[apart["backbone_low"].notna()]
    if apart.empty:
        check = "No interval was apart from zero to begin with."
    elif tested.empty:
        check = "With one backbone per label space, no interval over backbones can be given."
    else:
        still = int(((tested["backbone_low"] > 0) | (tested["backbone_high"] < 0)).sum())
        check = (
            f"If each backbone counts once, {still} of the {count(len(apart), 'interval')} apart from zero "
            f"{'stays' if still == 1 else 'stay'} so."
        )
    return (
        f"Only {count(backbones, 'pretrained backbone')} {'stands' if backbones == 1 else 'stand'} behind each "
        "label space. Runs finetuned from one backbone are not independent, so intervals over runs are too narrow "
        f"where backbones differ. {check}"
    )
