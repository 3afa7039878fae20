"""Checks of finished label spaces, which their families yield (L1 to L7 of docs/label_spaces.md)."""

from dataclasses import dataclass
from pathlib import Path

from granularity.stages.hierarchy.labels import Frame
from granularity.store.artifact import Artifact

PUBLISHED = Path(__file__).parents[4] / "config" / "published" / "label_counts.csv"
HOLDS, FAILS, NOTE = "holds", "FAILS", "note"


@dataclass(frozen=True)
class Check:
    """What was looked at, what should be there, what is, and whether it `holds`, `FAILS`, or is a `note`."""

    id: str
    what: str
    expected: str
    found: str
    verdict: str


def compare(identifier: str, what: str, expected: object, found: object, holds: bool | None = None) -> Check:
    """A check that holds if `found` equals `expected`, unless the caller knows better."""
    verdict = HOLDS if (expected == found if holds is None else holds) else FAILS
    return Check(identifier, what, str(expected), str(found), verdict)


def published(data: str) -> Frame:
    """The published counts of a data set: `check`, `quantity`, `published`, `source`."""
    import pandas as pd

    return pd.read_csv(PUBLISHED).query("data == @data").reset_index(drop=True)


def in_one_target_class(space: Artifact, empty_allowed: bool = False) -> Check:
    """L5: every label lies in one target class, and none is empty."""
    found = space.json("properties.json")
    empty = 0 if empty_allowed else found["empty_classes"]
    text = f"{found['straddling_classes']:.1%} straddle, {empty} empty"
    what = f"{space.params['space']}: every label in one target class"
    return compare("L5", what, "0.0% straddle, 0 empty", text, found["straddling_share"] == 0 and not empty)
