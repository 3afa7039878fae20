"""The page, its tables and figures: `papers.html`, `papers.csv` (a row per quantity of a claim), `papers_numbers.csv`,
`papers_figures.csv` and `papers_fig_N.svg`.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from granularity.claims import experiments as about
from granularity.claims import preregistered
from granularity.claims.claim import FAILS, HOLDS
from granularity.look.papers import answers, curves, experiments, judged, numbers, trained
from granularity.look.papers.curves import Figure
from granularity.look.papers.experiments import Experiment
from granularity.look.papers.judged import Claim, Group
from granularity.look.papers.numbers import Part
from granularity.look.papers.values import Answer
from granularity.stages import report

HERE, REPORT = Path(__file__).parent, Path(report.__file__).parent
PAGE = "papers.html"
Answers = Mapping[answers.Key, tuple[Answer, str]]
OWN = "of no paper"  # claims that belong to none
COPIED = ("quantity", "measured", "sd", "minimum", "maximum", "interval_low", "interval_high", "seeds", "band")
COPIED += ("published", "arms", "conditions")
CLASSES = {HOLDS: "better", FAILS: "worse"}  # of the report's style sheet


def write(root: Path) -> tuple[Path, dict[str, int]]:
    """Write the page and its tables into the folder of all results.

    Returns:
        The page, and the number of claims with each verdict.

    Raises:
        GranularityError: the folder cannot be written to, or the published rows are wrong.
    """
    wrong: list[str] = []
    here = experiments.here(wrong)
    groups = judged.groups(root, here, wrong)
    parts = numbers.parts(here, groups)
    tables = trained.tables(root, parts, wrong)
    found = answers.answers(root, parts, tables, wrong)
    drawn = {one: curves.draw(one) for one in curves.figures(root, parts, tables, wrong)}
    root.mkdir(parents=True, exist_ok=True)
    files = {
        "papers.csv": _claims_table(groups),
        "papers_numbers.csv": _numbers_table(parts, found),
        "papers_figures.csv": "".join(
            one.points.to_csv(index=False, header=not number, lineterminator="\n", float_format="%.6g")
            for number, one in enumerate(drawn)
        ),
        **{one.file: text for one, text in drawn.items()},
        PAGE: _html(root, here, groups, parts, found, drawn, wrong),
    }
    for name, text in files.items():
        _replace(root / name, text)
    of_papers = [group for group in groups if not group.finding]
    papers = {group.paper for group in of_papers}
    folded = [judged.folded(one for one in of_papers if one.paper == paper).values() for paper in papers]
    return root / PAGE, judged.tally(verdict for verdicts in folded for verdict in verdicts)


def _replace(file: Path, text: str) -> None:
    """Write a file whole or not at all."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


# ---------------------------------------------------------------- tables


def _claims_table(groups: Iterable[Group]) -> str:
    rows = []
    for group in groups:
        for one in group.claims:
            for check in one.checks:
                row = {"paper": group.paper, "study": group.study, "results": group.results, "id": one.id}
                row |= {"kind": one.kind, "claim": one.claim, "source": one.source, "verdict": one.verdict}
                row |= {name: check[name] for name in COPIED}
                row |= {"of_quantity": check["verdict"], "why": check["why"]} | _cost(group.cost)
                row |= {"data": group.data}
                rows.append(row | {"missing": "; ".join(group.missing), "command": check["command"] or group.command})
    return _csv(rows)


def _cost(cost: experiments.Cost | None) -> dict[str, str]:
    if cost is None:
        return {"cpu_hours": "", "gpu_hours": "", "cost_is": ""}
    return {"cpu_hours": f"{cost.cpu_hours:.4g}", "gpu_hours": f"{cost.gpu_hours:.4g}", "cost_is": cost.how}


def _numbers_table(parts: Iterable[Part], found: Answers) -> str:
    rows = []
    for part in parts:
        files = "; ".join(str(one.file) for one in part.experiments)
        for row in part.rows:
            answer, verdict = found[row["paper"], row["line"]]
            rows.append(row | answer.cells() | {"verdict": verdict, "study": part.entry.study, "experiments": files})
    return _csv(rows)


def _csv(rows: list[dict[str, str]]) -> str:
    text = io.StringIO()
    if rows:
        table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    return text.getvalue()


# ---------------------------------------------------------------- page


def _html(
    root: Path,
    here: list[Experiment],
    groups: list[Group],
    parts: list[Part],
    found: Answers,
    drawn: Mapping[Figure, str],
    wrong: list[str],
) -> str:
    from markupsafe import Markup

    from granularity.stages.report import templates

    environment = templates.environment(HERE)
    environment.globals |= {
        "chip": CLASSES,
        "ours": ours,
        "published": lambda check: check["published"].replace("-", "−") or "–",
    }
    environment.globals["where"] = lambda group, source: numbers.where(group, source, parts)
    styles = [(folder / "page.css").read_text(encoding="utf-8") for folder in (REPORT, HERE)]
    titles = {name: paper.title for name, paper in about.read().items()}
    shown = [group for group in groups if not group.finding]

    def numbered(part: Part) -> int:
        return sum(bool(found[row["paper"], row["line"]][0].values) for row in part.rows)

    papers = [_paper(name, title, shown, parts) for name, title in titles.items()]
    if any(group.paper not in titles for group in shown):
        papers.append(_paper("", OWN, shown, parts))
    for paper in papers:
        paper["with_number"] = sum(numbered(part) for part in parts if part.paper == paper["name"])
    return environment.get_template("page.html.j2").render(
        css=Markup("\n".join(styles)),
        papers=papers,
        findings=[group for group in groups if group.finding],
        parts=parts,
        answers=found,
        figures=[(one, Markup(text)) for one, text in drawn.items()],
        numbered=numbered,
        by_setting=_by_setting,
        here=[(one, _state(root, one, groups), _report(root, one.name)) for one in here],
        verdicts=judged.VERDICTS,
        tally=lambda group: judged.tally(one.verdict for one in group.claims if one.kind == "claim"),
        report=lambda name: _report(root, name),
        document=lambda path: _document(root, path),
        preregistered=preregistered.file_of,
        wrong=dict.fromkeys(wrong),
    )


def _paper(name: str, title: str, groups: list[Group], parts: list[Part]) -> dict[str, Any]:
    own, rows = [one for one in groups if one.paper == name], [part for part in parts if part.paper == name]
    return {
        "name": name,
        "title": title,
        "groups": own,
        "as_there": len({one.id for group in own if _as_there(group, rows) for one in group.claims if _counts(one)}),
        "claims": judged.tally(judged.folded(own).values()),
        "beyond": judged.tally(judged.folded(own, beyond=True).values()),
        "identities": judged.tally(judged.folded(own, "identity").values()),
        "rows": sum(len(part.rows) for part in rows),
        "with_experiment": sum(len(part.rows) for part in rows if part.experiments or part.groups),
    }


def _by_setting(part: Part) -> list[tuple[str, list[dict[str, str]]]]:
    found: dict[str, list[dict[str, str]]] = {}
    for row in part.rows:
        found.setdefault(row["setting"], []).append(row)
    return list(found.items())


def _as_there(group: Group, parts: list[Part]) -> bool:
    """Whether it was tested where the paper has it: in a world, or in the experiment of published rows."""
    return group.tested and (group.results == judged.THEORY or any(group in part.groups for part in parts))


def _counts(one: Claim) -> bool:
    return one.kind == "claim" and not one.beyond and one.verdict in (HOLDS, FAILS)


def _state(root: Path, one: Experiment, groups: list[Group]) -> str:
    if any(group.results == one.name and group.tested for group in groups):
        return "judged"
    return "results, not judged" if (root / one.name).is_dir() else "not run"


def _report(root: Path, name: str) -> str:
    """Where the report of some results lies, from the page; empty where there is none."""
    return f"{name}/report/report.html" if (root / name / "report" / "report.html").is_file() else ""


def _document(root: Path, path: str) -> str:
    """The way from the page to a document of the project; empty where it is not there."""
    return os.path.relpath(path, root) if os.path.isfile(path) else ""


def ours(check: dict[str, str]) -> str:
    """The measured mean of a quantity, with its interval, or else its range over what it is the mean of."""
    if not check["measured"] or check["seeds"] == "0":  # what was counted of nothing is no number
        return "–"
    mean, low, high = (_short(check[key]) for key in ("measured", "minimum", "maximum"))
    if check["interval_low"]:
        return f"{mean} (interval {_short(check['interval_low'])} to {_short(check['interval_high'])})"
    return mean if low == high else f"{mean} (range {low} to {high})"


def _short(cell: str) -> str:
    return f"{round(float(cell), 12) + 0:.4g}".replace("-", "−")  # what rounding leaves of a difference of equals is 0
