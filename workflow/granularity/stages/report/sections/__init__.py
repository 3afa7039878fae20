"""The sections of the page, one file each, in their order. A section says itself whether it applies.

How to add a section
--------------------
Write ``NAME.py`` here and put it into `SECTIONS`. Its name is its anchor on the page. It holds:

``HEADING`` and ``LINK``
    What stands above it, and its word in the table of contents.
``applies(loaded) -> bool``
    Whether there is anything to show; `loaded` is a :class:`granularity.stages.report.loaded.Loaded`.
``build(loaded) -> Part``
    Its tables, which are written to ``tables/``, its figures (SVG, ``figures/``), and further values for
``TEMPLATE``
    its HTML, in jinja2: `tables` (lists of rows), `figures`, `loaded`, the values, and the macros of
    ``macros.html.j2``. Captions for Snakemake's own report are in ``report/captions/``.
"""

from __future__ import annotations

from granularity.stages.report.sections import (
    answer,
    caveats,
    clusters,
    cost,
    curve,
    differences,
    encoder,
    meaning,
    measures,
    paper,
    probes,
    reproduce,
    results,
    sizes,
    spaces,
    studies,
    theory,
    transfers,
    which,
)

SECTIONS = (
    curve,
    differences,
    caveats,
    meaning,
    which,
    sizes,
    transfers,
    results,
    answer,
    probes,
    measures,
    spaces,
    clusters,
    encoder,
    paper,
    studies,
    theory,
    cost,
    reproduce,
)
