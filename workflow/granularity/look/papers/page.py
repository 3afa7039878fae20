"""The page `papers.html`, its tables and figures."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from granularity.claims import experiments as about
from granularity.claims.claim import FAILS, HOLDS
from granularity.look.papers import claims, experiments, figures, numbers
from granularity.look.papers.answers import EntryRows
from granularity.look.papers.claims import Group
from granularity.stages.report import stage as report
from granularity.store import place

HERE = Path(__file__).parent
PAGE = "papers.html"
OWN = "of no paper"  # heading of claims that belong to no paper
CLASSES = {HOLDS: "better", FAILS: "worse"}  # CSS classes of the report


def write(root: Path) -> tuple[Path, dict[str, int]]:
    """Write the page and its tables into the folder of all results; return the page and the claims by verdict."""
    wrong: list[str] = []
    here = experiments.here(wrong)
    groups = claims.groups(root, here, wrong)
    parts = numbers.parts(here, groups)
    tables = numbers.tables(root, parts, wrong)
    rows = numbers.rows(root, parts, tables, wrong)
    drawn = [(figure, Markup(figures.draw(figure))) for figure in figures.figures(parts, tables)]
    titles = {name: paper.title for name, paper in about.read().items()}
    titles |= {"": OWN} if any(group.paper not in titles for group in groups) else {}
    papers = [_paper(name, title, groups, parts, rows) for name, title in titles.items()]
    values = {"papers": papers, "groups": groups, "parts": parts, "rows": rows, "here": here, "figures": drawn}
    values |= {"tables": tables}
    text = {"index": False, "lineterminator": "\n"}
    files = {
        "papers.csv": pd.DataFrame([row for group in groups for row in group.rows()]).to_csv(**text),
        "papers_numbers.csv": pd.DataFrame(list(rows.values())).drop(columns=["answer", "named"]).to_csv(**text),
        "papers_figures.csv": pd.concat([figure.points for figure, _ in drawn]).to_csv(**text, float_format="%.6g"),
        **{figure.file: svg for figure, svg in drawn},
        PAGE: _html(root, values, dict.fromkeys(wrong)),
    }
    root.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        place.write_atomically(root / name, content.encode())
    return root / PAGE, claims.tally(sum((Counter(paper["claims"]) for paper in papers), Counter()))


def _paper(name: str, title: str, groups: list[Group], parts: list[EntryRows], rows: dict[Any, dict]) -> dict[str, Any]:
    """Return a paper's line of the summary."""
    studies, parts = [item for item in groups if item.paper == name], [part for part in parts if part.paper == name]
    # Count as tested what was tested as in the paper: in a world, or in the experiment for published rows.
    comparable = [
        item
        for item in studies
        if item.tested and (item.results == claims.THEORY or any(item in p.groups for p in parts))
    ]
    tested = [item for group in comparable for item in group.claims if item.kind == "claim" and not item.beyond]
    return {
        "name": name,
        "title": title,
        "groups": studies,
        "as_there": len({item.id for item in tested if item.verdict in (HOLDS, FAILS)}),
        "claims": claims.tally(claims.folded(studies).values()),
        "beyond": claims.tally(claims.folded(studies, beyond=True).values()),
        "identities": claims.tally(claims.folded(studies, "identity").values()),
        "rows": sum(len(part.rows) for part in parts),
        "with_experiment": sum(len(part.rows) for part in parts if part.experiments or part.groups),
        "with_number": sum(bool(row["answer"].values) for (paper, _), row in rows.items() if paper == name),
    }


def _html(root: Path, found: dict[str, Any], wrong: dict[str, None]) -> str:
    """Return the page's text from the parts that :func:`write` collected."""

    tested = [group for group in found["groups"] if group.tested]

    def state(item: experiments.Experiment) -> str:
        """Return what became of a configuration; the command tells it from others of its name."""
        committed = [one.committed for one in tested if one.results == item.name and item.options in one.command]
        if False in committed:
            return "judged"
        if (root / item.name).is_dir():
            return "results, not judged"
        return "judged in the project's own run" if committed else "not run"

    def link(path: str) -> str:
        """Return the path from the page to a file; empty if it is missing."""
        return os.path.relpath(path, root) if os.path.isfile(path) else ""

    pages = report.environment(HERE)
    pages.globals |= {"chip": CLASSES, "ours": ours, "verdicts": claims.VERDICTS, "state": state}
    pages.globals |= {
        "published": lambda check: check["published"].replace("-", "−") or "–",
        "tally": lambda group: claims.tally(claim.verdict for claim in group.claims if claim.kind == "claim"),
        "where": lambda group, source: numbers.where(group, source, found["parts"]),
        "report": lambda name: link(str(root / name / "report" / "report.html")),
    }
    css = Markup((HERE / "page.css").read_text(encoding="utf-8"))
    return pages.get_template("papers.html.j2").render(css=css, wrong=wrong, **found)


def ours(check: dict[str, str]) -> str:
    """Return the measured mean of a quantity, with its interval, or else its range."""
    if not check["measured"] or check["seeds"] == "0":  # statistics of no values are not shown
        return "–"
    mean, low, high = (_short(check[key]) for key in ("measured", "minimum", "maximum"))
    if check["interval_low"]:
        return f"{mean} (interval {_short(check['interval_low'])} to {_short(check['interval_high'])})"
    return mean if low == high else f"{mean} (range {low} to {high})"


def _short(cell: str) -> str:
    return f"{round(float(cell), 12) + 0:.4g}".replace("-", "−")  # rounding first, so that a difference of equals is 0
