"""The HTML page: one file, no request to anywhere, every text escaped."""

from __future__ import annotations

import os
from pathlib import Path

import jinja2
import pandas as pd
import yaml
from markupsafe import Markup

from granularity.config.options import Config
from granularity.stages.report import series, words
from granularity.stages.report.drawing import PAPER
from granularity.stages.report.tables import LEVEL, Condition
from granularity.stages.report.verdicts import StudyResult
from granularity.store.artifacts import Artifact

HERE = Path(__file__).parent


def render(
    config: Config,
    conditions: list[Condition],
    tables: dict[str, pd.DataFrame],
    figures: dict[str, str],
    montage_of: str | None,
    artifacts: dict[str, Artifact],
    studies: list[StudyResult],
) -> str:
    """The page's text.

    Args:
        config: the resolved configuration.
        conditions: what was read.
        tables: `results`, `probe`, `properties`, `cost` and `published`, of :mod:`granularity.stages.report.tables`.
        figures: name -> SVG.
        montage_of: the label space and condition of the montage, in words; None where there is none.
        artifacts: everything read, by role.
        studies: what was judged, of images and of the theory's worlds.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "num": number,
        "signed": signed,
        "p": p_value,
        "share": share,
        "count": words.count,
        "listing": words.listing,
    }
    environment.globals |= {"series": series.words, "interval": interval}
    results = tables["results"]
    return environment.get_template("page.html.j2").render(
        config=config,
        conditions=conditions,
        level=round(100 * LEVEL),
        css=Markup((HERE / "page.css").read_text(encoding="utf-8")),
        headline=words.headline(results),
        findings=[(condition, words.findings(results, condition)) for condition in conditions],
        tally=words.tally(results),
        caveats=words.caveats(config, conditions, results),
        leak=words.leak(config),
        tables={name: table.to_dict("records") for name, table in tables.items()},
        measures=_measures(conditions),
        published=_side_by_side(tables["published"], results),
        paper_baseline=_paper_baseline(tables["published"]),
        figures={name: _inline(svg) for name, svg in figures.items()},
        montage_of=montage_of,
        command=os.environ.get("GRANULARITY_COMMAND", "snakemake"),
        yaml=yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True),
        packages=_versions(artifacts, "packages"),
        hardware=_versions(artifacts, "hardware"),
        artifacts=artifacts,
        studies=studies,
    )


# ---------------------------------------------------------------- numbers in words


def _missing(value: object) -> bool:
    return bool(pd.isna(value))


def number(value: float | None, digits: int = 2) -> str:
    """A number with thousands separated; an en dash where there is none."""
    return "–" if _missing(value) else f"{value:,.{digits}f}".replace("-", "−")


def signed(value: float | None, digits: int = 2) -> str:
    """A difference with its sign; an en dash where there is none."""
    return "–" if _missing(value) else words.signed(value, digits)


def interval(low: float, high: float) -> str:
    """Both ends of an interval of a difference; an en dash where there is none."""
    return "–" if _missing(low) else f"{words.signed(low)} to {words.signed(high)}"


def share(value: float | None) -> str:
    """A share as a percentage."""
    return "–" if _missing(value) else f"{100 * value:.1f} %"


def p_value(value: float | None) -> str:
    """A p-value to three decimals."""
    return "–" if _missing(value) else "< 0.001" if value < 0.001 else f"{value:.3f}"


# ---------------------------------------------------------------- parts


def _inline(svg: str) -> Markup:
    return Markup(svg.replace(PAPER, "var(--paper)"))


def _measures(conditions: list[Condition]) -> list[tuple[str, str, str]]:
    """Columns of the properties table: key, heading, filter; the target rank and the finest, no more."""
    ranks = list(dict.fromkeys(rank for condition in conditions for rank in condition.shown_ranks))
    columns = [(f"purity_{rank}", f"purity, {rank}", "share") for rank in ranks]
    columns += [(f"mutual_information_bits_{rank}", f"mutual information, {rank} (bits)", "num") for rank in ranks]
    return columns + [(f"nmi_{rank}", f"NMI, {rank}", "num") for rank in ranks]


def _paper_baseline(published: pd.DataFrame) -> dict | None:
    rows = published[published["note"] == "retraining baseline"].to_dict("records")
    return rows[0] if rows else None


def _side_by_side(published: pd.DataFrame, results: pd.DataFrame) -> list[dict]:
    """The range of differences in each family, in the paper and here, in percentage points."""
    rows = []
    for family in dict.fromkeys(published["arm"]):
        theirs = published[(published["arm"] == family) & (published["note"] != "retraining baseline")]
        ours = results[(results["family"] == family) & (results["role"] == "arm")]
        here = [ours[ours["label"] == label] for label in results["label"].unique()]
        rows.append({"family": series.words(family), "paper": _range(theirs), "here": [_range(part) for part in here]})
    return rows


def _range(rows: pd.DataFrame) -> str:
    if rows.empty:
        return "–"
    low, high = rows.loc[rows["difference"].idxmin()], rows.loc[rows["difference"].idxmax()]
    text = f"{words.signed(low['difference'])} (G = {low['granularity']:,})"
    return text if len(rows) == 1 else f"{text} to {words.signed(high['difference'])} (G = {high['granularity']:,})"


def _versions(artifacts: dict[str, Artifact], key: str) -> dict[str, str]:
    """What the manifests say of packages or hardware; several values where stages ran on different ones."""
    found: dict[str, dict[str, None]] = {}
    for artifact in artifacts.values():
        for name, value in artifact.manifest[key].items():
            found.setdefault(name, {})[str(value)] = None
    return {name: "; ".join(values) for name, values in found.items()}
