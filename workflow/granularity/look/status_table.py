"""What `granularity status` prints: a table by stage and a line per job for people, or JSON for programs."""

from __future__ import annotations

import json
import time
from typing import Any

from granularity.look.status import STATES, Job
from granularity.plan.graph import Plan
from granularity.store.cost import by_stage

RARE = ("interrupted", "outdated")  # no column where there are none


def as_json(plan: Plan, jobs: list[Job]) -> str:
    """Counts and costs of every stage, and every job."""
    stages = []
    for (condition, stage), of_stage in _stages(jobs).items():
        cost = {key: value for row in _cost(of_stage) for key, value in row.items() if key not in ("stage", "jobs")}
        stages.append({"condition": condition, "stage": stage, **_counts(of_stage), **cost})
    found = {"name": plan.config.name, "root": plan.root, "total": _counts(jobs), "stages": stages}
    return json.dumps({**found, "jobs": [_as_dict(job) for job in jobs]}, indent=2)


def _as_dict(job: Job) -> dict[str, Any]:
    found = {"stage": job.stage, **job.wildcards, "state": job.state, "detail": list(job.detail)}
    found |= {"folder": str(job.folder), "log": str(job.log)}
    if job.claim is not None:
        found["claim"] = {key: job.claim[key] for key in ("host", "pid", "job", "started", "beat")}
    if job.artifact is not None:
        found |= {"digest": job.artifact.digest, "cost": job.artifact.manifest["cost"]}
    return found


def describe(jobs: list[Job]) -> str:
    """A table by stage; below it what runs, what failed or was killed, and why results are outdated."""
    total, cost = _counts(jobs), _cost(jobs)
    states = [state for state in STATES if state not in RARE or total[state]]
    gpu = ["GPU", "GPU memory"] if cost and "gpu_seconds" in cost[0] else []
    rows = [["", "stage", "jobs", *states, "wall", "CPU", "memory", *gpu]]
    last = None
    for (condition, stage), of_stage in _stages(jobs).items():
        group = condition or stage
        rows.append([group if group != last else "", stage, *_cells(of_stage, states, bool(gpu))])
        last = group
    rows.append(["all", "", *_cells(jobs, states, bool(gpu))])
    lines = _table(rows)
    for state in ("running", "failed", "interrupted"):
        found = [job for job in jobs if job.state == state]
        lines += ["", state] if found else []
        for job in found:
            lines += [f"  {job.folder}{_who(job)}", *(f"      {line}" for line in job.detail)]
            lines += [f"      {job.log}"] if job.artifact is None and job.state == "failed" else []
    if total["outdated"]:
        reasons = [job.detail[0] for job in jobs if job.state == "outdated"]
        lines += ["", "outdated", *(f"  {reasons.count(why)} {why}" for why in dict.fromkeys(reasons))]
    return "\n".join(lines)


def _stages(jobs: list[Job]) -> dict[tuple[str | None, str], list[Job]]:
    """Jobs by condition and stage: condition after condition, then the theory and the report."""
    found: dict[tuple[str | None, str], list[Job]] = {}
    conditions = dict.fromkeys(job.wildcards.get("condition") for job in jobs)
    for condition in sorted(conditions, key=lambda name: name is None):
        for job in jobs:
            if job.wildcards.get("condition") == condition:
                found.setdefault((condition, job.stage), []).append(job)
    return found


def _counts(jobs: list[Job]) -> dict[str, int]:
    return {"jobs": len(jobs)} | {state: sum(job.state == state for job in jobs) for state in STATES}


def _cost(jobs: list[Job]) -> list[dict[str, Any]]:
    return by_stage(job.artifact for job in jobs if job.artifact is not None)


def _cells(jobs: list[Job], states: list[str], gpu: bool) -> list[str]:
    counts, rows = _counts(jobs), _cost(jobs)

    def over(combine: Any, key: str) -> float | None:
        values = [row[key] for row in rows if row.get(key) is not None]
        return combine(values) if values else None

    cells = [str(counts["jobs"]), *(str(counts[state] or "-") for state in states)]
    cells += [_time(over(sum, "wall_seconds")), _time(over(sum, "cpu_seconds")), _memory(over(max, "peak_memory_mb"))]
    return cells + ([_time(over(sum, "gpu_seconds")), _memory(over(max, "gpu_peak_memory_mb"))] if gpu else [])


def _table(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [str.ljust, str.ljust, *[str.rjust] * len(widths)]
    return ["  ".join(side(*cell) for side, *cell in zip(sides, row, widths)).rstrip() for row in rows]  # noqa: B905


def _who(job: Job) -> str:
    """Who works on a job and since when, or worked on it until it was killed."""
    if job.claim is None:
        return ""
    host, pid, slurm, started = (job.claim[key] for key in ("host", "pid", "job", "started"))
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(started))
    spent = (time.time() if job.state == "running" else job.claim["beat"]) - started
    return f"  {host}, process {pid}{f', Slurm job {slurm}' if slurm else ''}, since {since} ({_time(spent)})"


def _time(seconds: float | None) -> str:
    if seconds is None or seconds <= 0:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def _memory(mb: float | None) -> str:
    return "-" if mb is None else f"{mb:.0f} MB" if mb < 10_000 else f"{mb / 1000:.1f} GB"
