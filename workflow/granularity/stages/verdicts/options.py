"""Options of stage `verdicts`, and what a study's name stands for."""

from __future__ import annotations

from pydantic import Field

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.base.section import Name, Section

ROOMS = ("world", "study")


class Options(Section):
    """One study to judge."""

    study: Name = Field(description="A world of the theory (docs/theory.md), or a study of images (docs/studies.md).")


def room_of(study: str) -> str:
    """The room in which a study is found by its name (see :mod:`granularity.base.extensions`): `world` or `study`.

    Raises:
        GranularityError: there is no such study, or a world and a study of one name.
    """
    found = [room for room in ROOMS if study in extensions.names(room)]
    if not found:
        known = [name for room in ROOMS for name in extensions.names(room)]
        raise GranularityError(f"verdicts: there is no study '{study}'; there are {', '.join(known)}")
    if len(found) > 1:
        raise GranularityError(f"verdicts: '{study}' is a world of the theory and a study; rename the study's file")
    return found[0]
