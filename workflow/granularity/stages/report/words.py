"""The report's answer in plain words, made from the numbers alone: no outcome is written down beforehand."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from granularity.config.options import Config
from granularity.stages.report import series
from granularity.stages.report.tables import Condition


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
    size = results[results["role"] == "baseline"].set_index("condition")["granularity"]
    arms = arms[arms["granularity"].to_numpy() > size.loc[arms["condition"]].to_numpy()]
    if arms.empty:
        return "No label space finer than the target was pretrained on, so there is no answer."
    if not arms["p"].notna().any():
        return (
            "Not answered: no label space finer than the target has runs with a measurable spread, so nothing "
            "can be told from chance. Raise seeds.pretrain and seeds.finetune."
        )
    better = arms[arms["outcome"] == "better"]
    said = _gain(better, arms[arms["outcome"] == "better_unadjusted"], int(results["p"].notna().sum()))
    lucky = arms[arms["series"].map(lambda one: series.describe(one).meaningless) & (arms["high"] < 0)]
    if len(better) and len(lucky):
        said.append(
            f"Labels that mean nothing were below the baseline too, {_by_condition(lucky)}: what the labels mean is "
            "not, or not alone, the reason."
        )
    worse = arms[arms["outcome"] == "worse"]
    if len(worse):
        said.append(f"It hurt with {_by_condition(worse)}.")
    return " ".join(said)


def _gain(better: pd.DataFrame, maybe: pd.DataFrame, number: int) -> list[str]:
    """Sentences on the arms below the baseline: those that are so by every count, and those that are not."""
    compared = f"adjustment for all {count(number, 'comparison')} made"
    sure = better[better["backbone_high"] < 0]
    unsure = better.drop(sure.index)
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
    if better.empty and len(maybe):
        said.append(
            f"Not established: {_by_condition(maybe)} ended with a lower error than retraining on the target labels, "
            f"but no such difference stands after {compared}."
        )
    if better.empty and maybe.empty:
        said.append(
            "No sign of it: no finer label space ended with an error below that of retraining on the target labels by "
            "more than chance explains."
        )
    return said


def _by_condition(rows: pd.DataFrame) -> str:
    parts = [f"{listing(part['space'])} ({label})" for label, part in rows.groupby("label", sort=False)]
    return "; ".join(parts)


def findings(results: pd.DataFrame, condition: Condition) -> list[str]:
    """What one condition shows, a sentence or two an outcome."""
    table = results[results["condition"] == condition.name]
    baseline = table[table["role"] == "baseline"].iloc[0]
    arms = table[table["role"] == "arm"]
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
    one_pass = table[table["role"] == "one_pass"].iloc[0]
    side = "above" if one_pass["difference"] >= 0 else "below"
    said.append(
        f"Training once on the target labels, without a second stage, ends at {one_pass['mean']:.2f} %, "
        f"{abs(one_pass['difference']):.2f} points {side} the retraining baseline ({one_pass['verdict']})."
    )
    return said


def _apart(rows: pd.DataFrame, side: str) -> str:
    if rows.empty:
        return f"No label space has its 95 % interval of the difference wholly {side} zero."
    lost = rows[~rows["outcome"].isin(["better", "worse"])]
    if lost.empty:
        after = "Holm's adjustment for the number of comparisons does not change this."
    elif len(lost) == len(rows):
        after = "After Holm's adjustment none of this stands: it may be chance."
    else:
        after = f"After Holm's adjustment it does not stand for {listing(lost['space'])}, where it may be chance."
    return f"The 95 % interval of the difference lies wholly {side} zero for {_spaces(rows)}. {after}"


def _spaces(rows: pd.DataFrame) -> str:
    parts = []
    for row in rows.itertuples():
        parts.append(row.space if pd.isna(row.difference) else f"{row.space} ({signed(row.difference)})")
    return listing(parts)


def tally(results: pd.DataFrame) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Which kinds of labels help: for every kind and condition, how many label spaces had which outcome."""
    arms = results[results["role"] == "arm"]
    labels = list(results["label"].unique())
    words = {"better": "better", "worse": "worse", "overlap": "not told apart", "untested": "not tested"}
    rows = []
    for one in series.sort(arms["series"]):
        cells = []
        for label in labels:
            outcomes = arms[(arms["series"] == one) & (arms["label"] == label)]["outcome"]
            # What did not survive the adjustment is not told apart.
            counts = outcomes.replace({"better_unadjusted": "overlap", "worse_unadjusted": "overlap"}).value_counts()
            cells.append(", ".join(f"{counts[key]} {words[key]}" for key in words if key in counts) or "–")
        rows.append((series.words(one), cells))
    return labels, rows


def caveats(config: Config, conditions: list[Condition], results: pd.DataFrame) -> list[str]:
    """What the numbers cannot show."""
    said = [_comparisons(results), _few_backbones(config, results)]
    images = listing(dict.fromkeys(f"{condition.images('val'):,}" for condition in conditions))
    point = 100 / max(1, conditions[0].images("val"))
    said.append(
        f"Every run is scored on the same {images} validation images (each is {point:.2g} % of them) "
        "and trained on the same training images. The intervals hold the chance of initialisation and order, not "
        "that of another draw of images, another data set, network or recipe."
    )
    if any(space.params.get("clusterings") for condition in conditions for space in condition.spaces):
        said.append(leak(config))
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


def _few_backbones(config: Config, results: pd.DataFrame) -> str:
    backbones = config.seeds.pretrain
    apart = results[(results["low"] > 0) | (results["high"] < 0)]
    tested = apart[apart["backbone_low"].notna()]
    if apart.empty:
        check = "No interval was apart from zero to begin with."
    elif tested.empty:
        check = "With one backbone a label space, no interval over backbones can be given."
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


def leak(config: Config) -> str:
    """What human labels the encoder has seen, and so what a clustered label space may owe to them."""
    if not config.encoder.trained_here:
        return (
            f"The encoder ({config.encoder.model}, weights: {config.encoder.pretrained or 'its own'}) was trained "
            "elsewhere. What its training data named may be in the clusters: a clustered label space is not free "
            "of human labels."
        )
    fine = config.encoder.captions.granularity == "fine"
    rank = config.samples.ranks[-1] if fine else config.samples.target
    what = "every k-means label space is made with them, and its results are no finding about unlabelled images"
    if not fine:
        what = "the k-means label spaces know the target classes, but were told nothing finer"
    return (
        f"The encoder's captions name the rank “{rank}” of each training image. These labels leak into the "
        f"embedding: {what}."
    )
