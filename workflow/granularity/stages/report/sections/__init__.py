"""The sections of the page, found by name.

How to add a section, such as a plot
------------------------------------
Write ``NAME.py`` here, or a file of your own that the configuration names under `extensions` and that says
``EXTENDS = "section"``. Its name is its anchor on the page. It holds:

``HEADING``
    What stands above it, and in the table of contents.
``build(loaded) -> Part | None``
    Its tables, which are written to ``tables/``, its figures (SVG, ``figures/``), and what its template takes beside
    them; None where there is nothing to show. `loaded` is a :class:`granularity.stages.report.loaded.Loaded`;
    :mod:`granularity.stages.report.drawing` draws as the other figures are drawn.

Its HTML is a second file, ``NAME.html.j2``: in the folder above, or beside a file of your own. It takes `tables` (lists
of rows), `figures`, `loaded`, the values, and the macros of ``macros.html.j2``. Without one the file's docstring stands
above its figures and tables as they are. Captions for Snakemake's own report are in ``report/captions/``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

ORDER = ("curve", "caveats", "questions", "results", "measures", "spaces", "clusters", "claims", "reproduce")


@dataclass(frozen=True)
class Part:
    """`tables` and `figures` (SVG) are written, by name; `values` is what the template takes beside them."""

    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    figures: dict[str, str] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
