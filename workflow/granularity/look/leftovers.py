"""What `granularity gc` prints."""

from __future__ import annotations

import json

from granularity.look.inspection import size_text
from granularity.store.gc import Found


def describe(found: list[Found], delete: bool) -> str:
    """A line per folder, the largest first, and the sum."""
    lines = [f"{size_text(one.size):>8}  {one.path}  {one.why}" for one in found]
    total = size_text(sum(one.size for one in found))
    done = f"{len(found)} deleted, {total} freed" if delete else f"{len(found)} could go, {total}: add --delete"
    return "\n".join([*lines, done if found else "nothing can go"])


def as_json(found: list[Found]) -> str:
    return json.dumps([{"path": str(one.path), "bytes": one.size, "why": one.why} for one in found], indent=2)
