"""Checks of finished label spaces, which their families yield (L1 to L7 of docs/label_spaces.md)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from granularity.store.artifacts import Artifact

PUBLISHED = Path(__file__).parents[4] / "config" / "published" / "label_counts.csv"
HOLDS, FAILS, NOTE = "holds", "FAILS", "note"


@dataclass(frozen=True)
class Check:
    """One check: its id, what was looked at, what should be there, what is there, and the verdict.

    The verdict is `holds`, `FAILS`, or `note` for what is worth telling and cannot be wrong.
    """

    id: str
    what: str
    expected: str
    found: str
    verdict: str


def compare(identifier: str, what: str, expected: object, found: object, holds: bool | None = None) -> Check:
    """A check that holds if `found` equals `expected`, unless the caller knows better."""
    verdict = HOLDS if (expected == found if holds is None else holds) else FAILS
    return Check(identifier, what, str(expected), str(found), verdict)


def published(data: str) -> pd.DataFrame:
    """The published counts of a data set: `check`, `quantity`, `published`, `source`."""
    import pandas as pd

    table = pd.read_csv(PUBLISHED)
    return table[table["data"] == data].reset_index(drop=True)


def in_one_target_class(space: Artifact, empty_allowed: bool = False) -> Check:
    """L5: every label lies in one target class, and none is empty."""
    properties = space.json("properties.json")
    empty = 0 if empty_allowed else properties["empty_classes"]
    text = f"{properties['straddling_classes']:.1%} straddle, {empty} empty"
    what = f"{space.params['space']}: every label in one target class"
    holds = properties["straddling_share"] == 0 and not empty
    return compare("L5", what, "0.0% straddle, 0 empty", text, holds)
