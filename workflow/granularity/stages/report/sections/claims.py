"""What papers claim about images and about simulated worlds, and our verdicts."""

import base64
from collections import Counter
from typing import Any

import pandas as pd

from granularity.stages.report.loaded import Loaded
from granularity.stages.report.sections import Part
from granularity.store.artifact import Artifact

HEADING = "What papers claim"
NUMBERS = ("measured", "sd", "minimum", "maximum", "interval_low", "interval_high", "comparisons", "p", "seeds")


def build(loaded: Loaded) -> Part | None:
    studies, worlds = ([study(one) for one in artifacts.values()] for artifacts in (loaded.studies, loaded.worlds))
    if not studies and not worlds:
        return None
    table = pd.DataFrame([{"study": one["name"], **row} for one in studies for row in one["checks"]])
    for name in NUMBERS if len(table) else ():  # untested claims have empty cells
        table[name] = pd.to_numeric(table[name], errors="coerce")
    return Part({"claims": table} if len(table) else {}, values={"studies": studies, "worlds": worlds})


def study(verdicts: Artifact) -> dict[str, Any]:
    """Return what the page shows of a verified artifact of stage `verdicts`.

    `verdicts` and `identities`: the number of each verdict; `claims`: a row for each, and `checks`: a row per quantity,
    with the columns of `checks.csv`, what was `found`, and the conditions `met`; `figures`: name -> data URI, which
    preserves their look.
    """
    summary, claims = verdicts.summary, {}
    by = {"claim": summary["verdicts"], "identity": summary["identities"]}
    checks = [{**row, "found": _found(row), "met": ""} for row in checks_of(verdicts)]
    for row in checks:
        if row["conditions"]:  # of the theorem behind the claim
            met = [condition.endswith(": met") for condition in row["conditions"].split("; ")]
            row["met"] = f"{sum(met)} of {len(met)} conditions met"
        claims.setdefault((row["kind"], row["id"]), {**row, "verdict": by[row["kind"]][row["id"]]})
    figures = {}
    for name in sorted(name for name in verdicts.manifest["files"] if name.endswith(".svg")):
        data = base64.b64encode((verdicts.folder / name).read_bytes()).decode()
        figures[name.removeprefix("figures/").removesuffix(".svg")] = f"data:image/svg+xml;base64,{data}"
    counts = {kind: dict(Counter(summary[kind].values())) for kind in ("verdicts", "identities")}
    about = {"name": verdicts.facts["study"].replace("_", " "), "size": verdicts.facts.get("size")}
    about |= {"runs": summary.get("runs"), "claims": list(claims.values())}
    return about | counts | {"checks": checks, "figures": figures}


def checks_of(verdicts: Artifact) -> list[dict[str, str]]:
    """Return the rows of `checks.csv`, all cells as text."""
    if not (verdicts.summary["verdicts"] or verdicts.summary["identities"]):  # without claims the file has no columns
        return []
    return pd.read_csv(verdicts.folder / "checks.csv", keep_default_na=False, dtype=str).to_dict("records")


def _found(row: dict[str, str]) -> str:
    """Return the measured mean with its interval, or else with its range over seeds if there are several."""
    if row["measured"] == "":
        return "–"
    if row["interval_low"] != "":
        numbers = (float(row[key]) for key in ("measured", "interval_low", "interval_high"))
        return "{:.3g} (interval {:.3g} to {:.3g})".format(*numbers)
    mean, low, high = (f"{float(row[key]):.4g}" for key in ("measured", "minimum", "maximum"))
    return mean if low == high else f"{mean} ({low} to {high})"
