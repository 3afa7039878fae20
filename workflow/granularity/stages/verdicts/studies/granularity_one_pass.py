"""Hong et al. 2023, the baselines (experiment E8): training on the target's labels twice, against once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from granularity.claims import published
from granularity.claims.claim import ABOVE_ZERO, Claim, unmet
from granularity.stages.verdicts import arms as of

if TYPE_CHECKING:
    import pandas as pd

READS = of.READS
PUBLISHED = (of.PAPER,)
TABLES = {"iNaturalist 2021 mini": "T5", "ImageNet-21k": "T2", "ImageNet-1k": "T9"}  # that have the baseline


def judge(tables: dict[str, pd.DataFrame]) -> Iterator[Claim]:
    """Judge V11 of each condition, network and way of finetuning on the same images."""
    for ours in of.same_images(tables):
        once = [] if ours.one_pass is None else list(ours.one_pass)
        both = bool(once) and ours.baseline is not None
        few = f"one pass: {len(once)} runs, needs {of.RUNS}"
        base = [ours.baseline] if ours.baseline else []
        yield Claim(
            "V11",
            "Training on the target's labels twice is better than once",
            "Appendix, Tables 2, 5 and 9",
            f"{ours.where}: error after one pass minus the retraining baseline's",
            [sum(once) / len(once) - ours.baseline["mean"]] if both else [],
            low=ABOVE_ZERO,
            untested=unmet((both, "no baseline"), (len(once) >= of.RUNS, few), *of.enough(base)),
            reason=of.SIGN,
            published=_published(),
            seeds=len(once),
        )


def _published() -> list[float]:
    """The paper's differences, on each of its data sets."""
    rows = published.rows(of.PAPER)
    once = rows[rows["arm"] == "one pass"]
    errors = once["mean"].where(once["metric"] == "error_percent", 100 - once["mean"])
    data = once["setting"].str.partition(";")[0]
    return [error - of.paper(TABLES[name]).baseline["mean"] for error, name in zip(errors, data, strict=True)]
