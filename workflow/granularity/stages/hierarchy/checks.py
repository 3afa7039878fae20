"""Checks of finished label spaces, yielded by their families (L1 to L7 of docs/label_spaces.md)."""

from dataclasses import dataclass
from pathlib import Path

from granularity.stages.hierarchy.labels import Frame
from granularity.store.artifact import Artifact

PUBLISHED = Path(__file__).parents[2] / "claims" / "numbers" / "label_counts.csv"
HOLDS, FAILS, NOTE = "holds", "FAILS", "note"


@dataclass(frozen=True)
class Check:
    """What was checked, what is expected, what was found, and the verdict: `holds`, `FAILS` or `note`."""

    id: str
    what: str
    expected: str
    found: str
    verdict: str


def compare(identifier: str, what: str, expected: object, found: object, holds: bool | None = None) -> Check:
    """Return a check that holds if `found` equals `expected`; `holds` overrides this."""
    verdict = HOLDS if (expected == found if holds is None else holds) else FAILS
    return Check(identifier, what, str(expected), str(found), verdict)


def published(data: str) -> Frame:
    """Return the published counts of a data set: `check`, `quantity`, `published`, `source`."""
    import pandas as pd

    return pd.read_csv(PUBLISHED).query("data == @data").reset_index(drop=True)


def in_one_target_class(space: Artifact, empty_allowed: bool = False) -> Check:
    """L5: every label lies in one target class, and no label is empty (unless allowed)."""
    properties = space.json("properties.json")
    empty = 0 if empty_allowed else properties["empty_classes"]
    text = f"{properties['straddling_classes']:.1%} straddle, {empty} empty"
    subject = f"{space.params['space']}: every label in one target class"
    return compare("L5", subject, "0.0% straddle, 0 empty", text, properties["straddling_share"] == 0 and not empty)
