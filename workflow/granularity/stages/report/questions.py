"""The questions behind the headline, each answered from the numbers; where it is the same one, by the same rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from granularity.stages.report import words
from granularity.stages.report.between import STANDINGS
from granularity.stages.report.comparisons import QUESTIONS
from granularity.stages.report.conditions import ConditionResults
from granularity.stages.report.loaded import Loaded
from granularity.stages.report.statistics import MOST_PAIRS, answer

MEANING = {"better": "yes", "worse": "no", "open": "open", "untested": "open"}
GAINS = (
    "The verdict is by Holm’s p over all rows of the report; intervals are Bonferroni’s, and wider. “Would be needed”: "
    "so many backbones would tell such a difference apart, if it and its spread stayed; a dash where it is told, where "
    f"fewer than two backbones leave no spread, or where {MOST_PAIRS:,} would not do."
)
FINEST = {"better": "the finest is better", "worse": "the coarsest is better", "open": "can’t be told"}


def cases(results: pd.DataFrame) -> list[dict[str, Any]]:
    """The headline of each baseline by itself: a dict of the best arm's row of `results`, and the `answer`."""
    found = []
    for label, part in results.groupby("label", sort=False):
        arms = words.finer(part)
        told = answer(arms) if len(arms) else "open"
        best = {} if arms.empty or arms["low"].isna().all() else words.best_of(arms, told).to_dict()
        where = {"label": label, "train_images": part["train_images"].iloc[0], "transfer": part["transfer"].iloc[0]}
        picked = {"arms": int(arms["repeats"].isna().sum()), "baseline_mean": part["baseline_mean"].iloc[0]}
        found.append({**best, **where, "answer": told, **picked})
    return found


def meaning(compared: pd.DataFrame) -> list[dict[str, Any]]:
    """Whether what labels mean counts beside their number: the averages of the pairs of each baseline and network."""
    rows = compared[compared["question"] == "meaning"].to_dict("records")
    return [row | {"answer": MEANING[row["standing"]], "over_pairs": words.over_pairs(row)} for row in rows]


def finest(compared: pd.DataFrame) -> list[dict[str, Any]]:
    """The finest of each family against its coarsest."""
    rows = compared[compared["question"] == "finest"].to_dict("records")
    return [row | {"told": FINEST.get(row["standing"], "no interval")} for row in rows]


def gains(loaded: Loaded, question: str, name: str) -> dict[str, pd.DataFrame]:
    """A table of so a name: the rows of `between` of one question, with `told` in words. None where there is no row."""
    rows = loaded.between[loaded.between["question"] == question]
    return {name: rows.assign(told=rows["standing"].map(STANDINGS))} if len(rows) else {}


def caveats(loaded: Loaded) -> list[str]:
    """What the numbers cannot show, the most important first."""
    conditions, results, encoder = loaded.conditions, loaded.results, loaded.encoder
    images = words.listing(dict.fromkeys(f"{condition.images('val'):,}" for condition in conditions))
    point = 100 / max(1, conditions[0].images("val"))
    said = [
        "An interval that contains zero is not evidence of no effect: the backbones may be too few to see it.",
        f"Every run is scored on the same {images} validation images (each is {point:.2g} % of them) "
        "and trained on the same training images. The intervals hold the chance of initialisation and order, not "
        "that of another draw of images, another data set, network or recipe.",
    ]
    if encoder is not None and any(condition.of("cluster") for condition in conditions):
        said.append(encoder.leak)
    said += [*_alike(conditions), _corrected(loaded.comparisons), _backbones(results)]
    if any(condition.finetune["other_data"].any() for condition in conditions):
        said.append("Transfers to other data are trained and scored on the images of those data instead.")
    return said


def _alike(conditions: list[ConditionResults]) -> Iterator[str]:
    for condition in conditions:
        groups: dict[str, list[str]] = {}
        for space, first in condition.alike.items():
            groups.setdefault(first, []).append(space)
        for spaces in (one for one in groups.values() if len(one) > 1):
            yield (
                f"With {condition.label}, {words.listing(spaces)} part the images alike: one label space under "
                f"{len(spaces)} names. It counts once in averages and numbers of comparisons, with the mean of all "
                "its names."
            )


def _corrected(compared: pd.DataFrame) -> str:
    asked = compared[compared["comparisons"] > 0].drop_duplicates("question")
    numbers = [f"{QUESTIONS[row.question]} ({row.comparisons})" for row in asked.itertuples()]
    return (
        "Each interval is over backbones, paired by pretraining seed, and corrected (Bonferroni) for the number of its "
        f"question's comparisons: {'; '.join(numbers) or 'none'}. Only what this configuration holds is counted: label "
        "spaces and training-set sizes tried and then dropped are not. Which arm is the best is picked from the same "
        "numbers, so its mean is likely to flatter it."
    )


def _backbones(results: pd.DataFrame) -> str:
    backbones = int(results.loc[results["role"] != "one_pass", "backbones"].min())
    return (
        f"{words.count(backbones, 'pretrained backbone')} {'stands' if backbones == 1 else 'stand'} behind each label "
        "space. Runs finetuned from one backbone are not independent, and count once."
    )
