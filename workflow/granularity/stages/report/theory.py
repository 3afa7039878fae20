"""The theory section: every claim with its verdict beside the numbers, and the figures of each world."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import pandas as pd

from granularity.store.artifacts import Artifact


@dataclass(frozen=True)
class World:
    """One simulated world.

    `verdicts` counts claims by verdict; `claims` has a row for each, and `checks` one for every quantity judged.
    """

    name: str
    size: str
    runs: int
    verdicts: dict[str, int]
    claims: list[dict[str, Any]]
    checks: list[dict[str, Any]]
    figures: dict[str, str]


def read(results: list[Artifact]) -> list[World]:
    """What the page shows of verified "theory" artifacts. Figures are data URIs, so that they keep their own look."""
    return [_world(artifact) for artifact in results]


def _world(artifact: Artifact) -> World:
    checks = pd.read_csv(artifact.path / "checks.csv", keep_default_na=False)
    verdicts = artifact.summary["verdicts"]
    claims = checks.drop_duplicates("id")[["id", "claim", "source"]].to_dict("records")
    figures = sorted(name for name in artifact.manifest["files"] if name.endswith(".svg"))
    return World(
        name=artifact.params["world"].replace("_", " "),
        size=artifact.params["size"],
        runs=artifact.summary["runs"],
        verdicts=pd.Series(verdicts).value_counts().to_dict(),
        claims=[{**row, "verdict": verdicts[row["id"]]} for row in claims],
        checks=[{**row, "found": _found(row)} for row in checks.to_dict("records")],
        figures={name.removeprefix("figures/").removesuffix(".svg"): _uri(artifact, name) for name in figures},
    )


def _found(row: dict[str, Any]) -> str:
    """The measured mean, and its range over seeds where there are several."""
    if row["measured"] == "":
        return "–"
    mean, low, high = (f"{float(row[key]):.4g}" for key in ("measured", "minimum", "maximum"))
    return mean if low == high else f"{mean} ({low} to {high})"


def _uri(artifact: Artifact, name: str) -> str:
    data = base64.b64encode((artifact.path / name).read_bytes()).decode()
    return f"data:image/svg+xml;base64,{data}"
