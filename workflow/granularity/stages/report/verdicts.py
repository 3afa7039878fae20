"""The sections of verdicts: every claim with its verdict beside the numbers, and the figures of each study."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from granularity.stages.report.words import count
from granularity.store.artifacts import Artifact


@dataclass(frozen=True)
class StudyResult:
    """The verdicts on one study.

    Attributes:
        name: the study's name, in words.
        simulated: whether it is a world of the theory, and not about images.
        about: a sentence on how large the study was; empty for a study of images.
        verdicts: number of claims per verdict, identities left out.
        identities: number of identities per verdict; only a mistake in the code can make one fail.
        claims: a row per claim: id, claim, source, verdict.
        checks: a row per quantity: the columns of `checks.csv`, what was `found`, and the conditions `met`.
        figures: name -> data URI, so that they keep their own look.
    """

    name: str
    simulated: bool
    about: str
    verdicts: dict[str, int]
    identities: dict[str, int]
    claims: list[dict[str, Any]]
    checks: list[dict[str, Any]]
    figures: dict[str, str]

    @property
    def published(self) -> bool:
        """Whether a paper's numbers stand beside ours."""
        return any(row["published"] for row in self.checks)


def read(results: Iterable[Artifact]) -> list[StudyResult]:
    """Read what the page shows of verified artifacts of stage `verdicts`."""
    return [_read(artifact) for artifact in results]


def _read(artifact: Artifact) -> StudyResult:
    verdicts, identities = (artifact.summary[kind] for kind in ("verdicts", "identities"))
    checks = pd.DataFrame(columns=["id", "claim", "source", "kind"])
    if verdicts or identities:  # or else the file has no columns
        checks = pd.read_csv(artifact.folder / "checks.csv", keep_default_na=False, dtype={"published": str})
    claims = checks.drop_duplicates(["id", "kind"])[["id", "claim", "source", "kind"]].to_dict("records")
    figures = sorted(name for name in artifact.manifest["files"] if name.endswith(".svg"))
    simulated = "runs" in artifact.summary
    size = f"Size “{artifact.facts['size']}”, {count(artifact.summary['runs'], 'run')}." if simulated else ""
    return StudyResult(
        name=artifact.facts["study"].replace("_", " "),
        simulated=simulated,
        about=size,
        verdicts=dict(Counter(verdicts.values())),
        identities=dict(Counter(identities.values())),
        claims=[
            {**row, "verdict": {"claim": verdicts, "identity": identities}[row["kind"]][row["id"]]} for row in claims
        ],
        checks=[{**row, "found": _found(row), "met": _met(row)} for row in checks.to_dict("records")],
        figures={name.removeprefix("figures/").removesuffix(".svg"): _uri(artifact, name) for name in figures},
    )


def _met(row: dict[str, Any]) -> str:
    """How many of the conditions of the theorem behind a row its arms meet; empty where there are none."""
    conditions = row["conditions"].split("; ") if row["conditions"] else []
    met = sum(condition.endswith(": met") for condition in conditions)
    return f"{met} of {len(conditions)} conditions met" if conditions else ""


def _found(row: dict[str, Any]) -> str:
    """The measured mean, with its interval, or else its range over seeds where there are several."""
    if row["measured"] == "":
        return "–"
    if row["interval_low"] != "":
        mean, low, high = (f"{float(row[key]):.3g}" for key in ("measured", "interval_low", "interval_high"))
        return f"{mean} (interval {low} to {high})"
    mean, low, high = (f"{float(row[key]):.4g}" for key in ("measured", "minimum", "maximum"))
    return mean if low == high else f"{mean} ({low} to {high})"


def _uri(artifact: Artifact, name: str) -> str:
    data = base64.b64encode((artifact.folder / name).read_bytes()).decode()
    return f"data:image/svg+xml;base64,{data}"
