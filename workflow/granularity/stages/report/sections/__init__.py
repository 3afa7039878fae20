"""The sections of the page, found by name.

How to add a section, such as a plot
------------------------------------
Write ``NAME.py`` here, or a file of your own that contains ``EXTENDS = "section"`` and is named under `extensions` in
the configuration. Its name is its anchor on the page. It holds:

``HEADING``
    Its heading, also shown in the table of contents.
``build(loaded) -> Part | None``
    Its tables, written to ``tables/``, its figures (SVG, in ``figures/``), and further values for its template; None if
    there is nothing to show. `loaded` is a :class:`granularity.stages.report.loaded.Loaded`;
    :mod:`granularity.stages.report.drawing` draws in the style of the other figures.

Its HTML is a second file, ``NAME.html.j2``: in the folder above, or beside a file of your own. It takes `tables` (lists
of rows), `figures`, `loaded`, the values, and the macros of ``macros.html.j2``. Without one, the page shows the file's
docstring above its figures and tables. Captions for Snakemake's own report are in ``workflow/report/captions/``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

ORDER = ("curve", "caveats", "questions", "results", "measures", "pictures")
ORDER += ("spaces", "clusters", "claims", "reproduce")


@dataclass(frozen=True)
class Part:
    """`tables` and `figures` (SVG) are written to files, by name; `values` are passed to the template as well."""

    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    figures: dict[str, str] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
