"""Options of stage `verdicts`, and what a study's name stands for."""

from __future__ import annotations

from pydantic import Field

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.base.section import Name, Section
from granularity.claims import published

ROOMS = ("world", "study")
PAPERS = {"label_granularity": "granularity"}  # of worlds that have another name than their paper's rows


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


def papers_of(study: str) -> tuple[str, ...]:
    """The papers whose published rows a study or world is held against, see :mod:`granularity.claims.published`.

    A study names them. A world's are those of its own name, where there are any: importing a world takes seconds.

    Raises:
        GranularityError: as :func:`room_of`.
    """
    if room_of(study) == "study":
        return extensions.find("study", study).PUBLISHED
    paper = PAPERS.get(study, study)
    return (paper,) if paper in published.papers() else ()
