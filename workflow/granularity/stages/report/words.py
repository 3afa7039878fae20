"""The report's answer in plain words, made from the numbers alone: no outcome is written down beforehand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from granularity.stages.report import series
from granularity.stages.report.comparisons import AVERAGED, HOLDS
from granularity.stages.report.statistics import ANSWERS, STANDINGS, answer


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


def headline(results: pd.DataFrame, compared: pd.DataFrame) -> tuple[str, str]:
    """The answer, a key of `ANSWERS`, and the sentences that go with it: the best arm, its control, and all pairs."""
    arms = finer(results)
    if arms.empty:
        return "open", "No label space finer than the target, other than by chance, was pretrained on."
    if arms["low"].isna().all():
        return "open", (
            "No interval can be given: too few backbones stand behind each label space, or they do not differ. Raise "
            "seeds.pretrain."
        )
    found = answer(arms)
    where = {label: answer(part) for label, part in arms.groupby("label", sort=False)}
    best = best_of(arms, found)
    others = [f"{label}: {ANSWERS[one].lower()}" for label, one in where.items() if label != best["label"]]
    if len(others) > 2:  # the sections have each
        alike = Counter(one for label, one in where.items() if label != best["label"])
        others = [f"{number} times {ANSWERS[one].lower()}" for one, number in alike.items()]
    return found, (
        f"With {best['label']}, {AT_BEST[found]} pretrained on {_names(best, results)}{_size(best)} end "
        f"{_points(best['difference'])} retraining on the target labels ({interval_of(best)}); "
        f"{_beside(best, results)}.{_all_pairs(best, compared)}{f' Elsewhere: {listing(others)}.' if others else ''}"
    )


AT_BEST = {"yes": "networks", "no": "even the best networks,", "open": "the best networks, perhaps by chance,"}


def finer(results: pd.DataFrame) -> pd.DataFrame:
    """Label spaces with a meaning that are finer than the target: not what has no labels, or no baseline.

    They are what the question is about: the headline, and every mark of better or worse on the page, are theirs alone.
    """
    arms = results[(results["role"] == "arm") & ~results["meaningless"].astype(bool)]
    size = results[results["role"] == "baseline"].set_index("label")["granularity"]
    return arms[arms["granularity"].astype(float) > arms["label"].map(size).astype(float)]


def best_of(arms: pd.DataFrame, found: str) -> pd.Series:
    """The best of some arms that have intervals, of those that the answer `found` is about."""
    where = {label: answer(part) for label, part in arms.groupby("label", sort=False)}
    held = arms[arms["standing"] == "better"] if found == "yes" else arms[arms["low"].notna()]
    elsewhere = held["label"].map(where) != found  # where the answer is another
    return held.assign(elsewhere=elsewhere).sort_values(["elsewhere", "difference"], kind="stable").iloc[0]


def _beside(arm: pd.Series, results: pd.DataFrame) -> str:
    """The control of an arm, in half a sentence."""
    if pd.isna(arm["control"]):
        return "there are no labels by chance of the same G to hold this against"
    same = results[(results["label"] == arm["label"]) & (results["network"] == arm["network"])]
    control = same.set_index("space").loc[arm["control"]]
    told = {"open": "which can’t be told from chance", "untested": "which cannot be tested"}
    apart = "more than chance explains"
    if arm["control_holds"] not in AVERAGED:
        apart += f", but no evidence of meaning, as {HOLDS[arm['control_holds']]}"
    return (
        f"on labels by chance of the same G, {arm['control']}, they end {_points(control['difference'])} "
        f"({interval_of(control)}), and the two differ by {signed(arm['control_difference'])} "
        f"({interval_of(arm, 'control_')}), {told.get(arm['control_standing'], apart)}"
    )


def _all_pairs(arm: pd.Series, compared: pd.DataFrame) -> str:
    """What all pairs say of meaning where the best arm is, in a sentence for each kind of them."""
    rows = compared[(compared["question"] == "meaning") & (compared["label"] == arm["label"])]
    rows = rows[rows["network"] == arm["network"]].to_dict("records")
    return "".join(f" {over_pairs(row)}." for row in rows)


def over_pairs(row: Mapping[str, Any]) -> str:
    """What the average over pairs of one kind says of meaning: a row of question `meaning`."""
    where, told = OVER[row["holds"]]
    pairs, points = count(int(row["other"]), "pair"), signed(row["difference"])
    return f"{where} ({pairs}), {told[row['standing']]} ({points} points, {interval_of(row)})"


def interval_of(row: Mapping[str, Any], prefix: str = "") -> str:
    """The interval of a difference; words where there is none."""
    low, high = row[f"{prefix}low"], row[f"{prefix}high"]
    return "no interval" if pd.isna(low) else f"{signed(low)} to {signed(high)}"


def _points(difference: float) -> str:
    return f"{abs(difference):.2f} points {'below' if difference < 0 else 'above'}"


def _names(arm: pd.Series, results: pd.DataFrame) -> str:
    """A label space, and those that part the images alike."""
    same = (results["label"] == arm["label"]) & (results["network"] == arm["network"])
    others = results.loc[same & (results["repeats"] == arm["space"]), "space"]
    return " = ".join([arm["space"], *others])


def _size(row: Mapping[str, Any]) -> str:
    return "" if pd.isna(row["granularity"]) else f" (G = {int(row['granularity']):,})"


def findings(table: pd.DataFrame, compared: pd.DataFrame) -> list[str]:
    """Findings from the rows that share a baseline, and their comparisons."""
    arms = table[table["role"] == "arm"]
    baselines = table[table["role"] == "baseline"]
    said = []
    if baselines.empty:
        said.append(f"There is no retraining baseline to compare {listing(arms['space'])} with.")
    for baseline in baselines.to_dict("records"):
        ends = f"{signed(baseline['mean_low'])} to {signed(baseline['mean_high'])}".replace("+", "")
        spread = "" if pd.isna(baseline["mean_low"]) else f" ({ends}, {count(baseline['backbones'], 'backbone')})"
        said.append(f"The retraining baseline ends at {baseline['mean']:.2f} % validation error{spread}.")
        arms_of = {standing: arms[arms["standing"] == standing] for standing in STANDINGS}
        said += [f"{words}: {_spaces(arms_of[key])}." for key, words in OUTCOMES.items() if len(arms_of[key])]
    for row in compared.to_dict("records"):
        if row["question"] == "meaning":
            network = f" ({row['network']})" if compared["network"].nunique() > 1 else ""
            said.append(f"{over_pairs(row)}{network}.")
        elif row["question"] == "finest":
            told = {"open": "can’t be told apart", "untested": "cannot be compared"}.get(
                row["standing"], row["standing"]
            )
            said.append(
                f"{row['space']}, the finest of its family, against {row['other']}, the coarsest: "
                f"{signed(row['difference'])} points ({interval_of(row)}): {told}."
            )
    alone = finer(table)
    alone = alone[alone["control"].isna()]
    if len(alone):
        said.append(f"No labels by chance of the same G are beside {listing(alone['space'])}.")
    for one_pass in table[table["role"] == "one_pass"].to_dict("records"):
        said.append(
            f"Training once on the target labels, without a second stage, ends at {one_pass['mean']:.2f} %: "
            f"{signed(one_pass['difference'])} points ({interval_of(one_pass)}), {one_pass['verdict']}."
        )
    return said


OUTCOMES = {
    "better": "Better than the baseline",
    "worse": "Worse than the baseline",
    "open": "Can’t be told from the baseline, in either direction",
    "untested": "Without an interval, as there are fewer than two backbones in common or no spread",
}
MEANING = {
    "better": "meaning counts, what the labels say of the target with the rest",
    "worse": "labels by chance do better",
    "open": "whether meaning counts can’t be told",
    "untested": "there is no interval",
}
BEYOND = MEANING | {
    "better": "meaning beyond it counts",
    "open": "whether meaning beyond it counts can’t be told",
}
OVER = {
    "both": ("Where both a label space and its control hold the target", BEYOND),
    "neither": ("Where neither of them holds the target", MEANING),
}


def _spaces(rows: pd.DataFrame) -> str:
    return listing(f"{row.space} ({signed(row.difference)})" for row in rows.itertuples())


def tally(results: pd.DataFrame) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Count, for every kind of labels and baseline, the label spaces with each verdict."""
    arms = results[results["role"] == "arm"]
    labels = list(results["label"].unique())
    counts = arms.groupby(["series", "label"])["standing"].value_counts()
    short = {"better": "better", "open": "can’t be told", "worse": "worse", "untested": "no interval"}
    rows = []
    for one in series.sort(arms["series"]):
        found = [{key: counts.get((one, label, key), 0) for key in short} for label in labels]
        cells = [", ".join(f"{cell[key]} {short[key]}" for key in short if cell[key]) or "–" for cell in found]
        rows.append((series.words(one), cells))
    return labels, rows
