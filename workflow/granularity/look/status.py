"""The state of a configuration: `granularity status`."""

import atexit
import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from granularity.base.errors import GranularityError
from granularity.base.progress import SECONDS_BETWEEN_LINES, say
from granularity.base.stage import Job as PlannedJob
from granularity.look.text import fitted, megabytes, seconds, table_of, tables_of
from granularity.plan.fresh import OTHER_INPUTS, OTHER_VERSION, Results
from granularity.plan.graph import Plan, beside
from granularity.stages import STAGES
from granularity.store import lock, place
from granularity.store.artifact import Artifact, OtherVersionError, by_stage

# `done` compares sizes, not hashes (`granularity verify` hashes). A job is `running` while its writer holds its
# lock or, where locks cannot be seen, has touched it within a minute; `interrupted`: killed without a word in its log.
STATES = ("done", "running", "failed", "interrupted", "outdated", "waiting")
RARE = ("interrupted", "outdated")  # hidden if there are none
TAIL_BYTES, TAIL_LINES = 16_384, 3
ERRORS = (r"(error|stopped): ", r"Traceback \(most recent call last\)", "Fatal Python error", r"\s*Usage: ")
ERROR = re.compile("|".join([*ERRORS, r".*: command not found"]))

LEFT = re.compile(r"about (\d+) s left$")
BAR, WATCHED = 30, 2.0  # characters of a bar; seconds between two looks

COLUMNS = {  # how jobs are combined, how the value is printed, and the key of the costs
    "wall": (sum, seconds, "wall_seconds"),
    "CPU": (sum, seconds, "cpu_seconds"),
    "memory": (max, megabytes, "peak_memory_mb"),
    "GPU": (sum, seconds, "gpu_seconds"),
    "GPU memory": (max, megabytes, "gpu_peak_memory_mb"),
}

State = tuple[str, tuple[str, ...], Artifact | None]  # one of `STATES`, the reason, and the artifact


@dataclass
class Job:
    """One planned artifact of a configuration: its place and its state."""

    planned: PlannedJob
    folder: Path
    log: Path
    state: str  # one of `STATES`
    detail: tuple[str, ...]  # the reason, or the last lines of its log
    artifact: Artifact | None  # the artifact, if it can be read
    claim: dict[str, Any] | None  # by the writer that works on it, or was killed
    group: str | None  # its condition, after the cell of a study

    @property
    def stage(self) -> str:
        return self.planned.stage

    @property
    def wildcards(self) -> dict[str, str]:
        return dict(self.planned.values)


def never_run(plan: Plan) -> str | None:
    """Return a line if the configuration was never run, naming those that have results; None if it was."""
    root = Path(plan.root)
    if root.exists():
        return None
    others = sorted(one.name for one in root.parent.glob("[!.]*/") if one.is_dir())
    there = f"there are results of {', '.join(others)}" if others else "there are no other results either"
    return f"{plan.config.name} was never run here; {there} (granularity status -f FILE shows another configuration)"


def look(plan: Plan) -> list[Job]:
    """Return the current state of every job of a configuration, except worlds of the theory without any trace."""
    planned = [job for stage in STAGES for job in plan.jobs(stage)]
    # Read the locks first: a job that ends meanwhile then counts as running, never as lost.
    stores = {place.store_of(plan.folder(job)) for job in planned}
    locks = {(store, entry["output"]): entry for store in stores for entry in lock.all_in(store / place.LOCKS).values()}
    works = {(store, name) for store in stores for name in place.works_of(store).values()}
    results, of_others, traces, jobs = Results(plan), set(), {None}, []
    for entry in planned:  # inputs come before what is made from them
        folder, log = plan.folder(entry), Path(beside(STAGES[entry.stage], plan.root, "logs").format(**entry.values))
        name = (place.store_of(folder), place.name_in(place.store_of(folder), folder))
        state, detail, artifact = _state(results, entry, log, locks.get(name), name in works)
        if state == "done" and any(id(source) in of_others for sources in entry.inputs.values() for source in sources):
            state, detail = "outdated", (OTHER_INPUTS,)
        of_others |= {id(entry)} if detail == (OTHER_INPUTS,) else set()
        traces |= {_world(entry)} if state != "waiting" else set()
        claim = locks.get(name) if state in ("running", "interrupted") else None
        group = "/".join(filter(None, (plan.config.name.partition("/")[2], entry.values.get("condition")))) or None
        jobs.append(Job(entry, folder, log, state, detail, artifact, claim, group))
    return [job for job in jobs if _world(job.planned) in traces]


def look_all(plans: Sequence[Plan]) -> list[Job]:
    """Return the jobs of all cells of a study; a job that cells share, such as the theory, once."""
    return list({job.folder: job for plan in plans for job in look(plan)}.values())


def say_failed(plans: Sequence[Plan]) -> None:
    """At exit, below the output of Snakemake, print what is wrong with each failed job: its log's error."""
    failed = [job for job in look_all(plans) if job.state == "failed"]
    lines = [f"{job.folder}: {line}" for job in failed for line in job.detail[-1 if _is_traceback(job) else 0 :]]
    atexit.register(lambda: [say(line) for line in lines])


def _is_traceback(job: Job) -> bool:
    return job.detail[0].startswith("Traceback")


def _world(planned: PlannedJob) -> str | None:
    """Return the world of the theory that a job belongs to."""
    of_theory = planned.values.get("name") == "theory"
    return planned.values.get("world", planned.values["study"] if of_theory else None)


def _state(results: Results, planned: PlannedJob, log: Path, claim: dict | None, unfinished: bool) -> State:
    stamp = place.stamp_of(results.plan.folder(planned))
    try:
        result = _result(results, planned, stamp) if stamp.exists() else None
    except OSError as error:
        return "failed", (f"{error.filename}: {error.strerror}",), None
    if claim is not None and lock.seems_alive(claim):
        return "running", tuple(_tail(log)[-1:]), result[2] if result else None
    if result is not None:
        return result
    tail = _tail(log)
    error = max((number for number, line in enumerate(tail) if ERROR.match(line)), default=None)
    if error is not None:
        return "failed", tuple(tail[max(error, len(tail) - TAIL_LINES) :]), None
    if unfinished:
        return "interrupted", (*tail[-1:], "finished work is kept, and the next run continues from there"), None
    return ("interrupted", tuple(tail[-1:]), None) if claim is not None else ("waiting", (), None)


def _result(results: Results, planned: PlannedJob, stamp: Path) -> State:
    """Return state, detail and artifact of a job that has a stamp."""
    try:
        artifact = results.open(planned)
        damage = next(artifact.problems(hashed=False), None) or artifact.unlike(stamp)
    except OtherVersionError:
        return "outdated", (OTHER_VERSION,), None
    except GranularityError as error:
        return "failed", (str(error),), None
    state, why = ("failed", damage) if damage else ("outdated", results.unlike(planned))
    return (state, (why,), artifact) if why else ("done", (), artifact)


def _tail(log: Path) -> list[str]:
    """Return the last lines of a log that are not empty."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = stream.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    return [line.rstrip() for line in lines if line.strip()]


# ---------------------------------------------------------------- what is printed


def as_json(plans: Sequence[Plan], jobs: list[Job]) -> str:
    """Return counts and costs of every stage, and every job, as JSON."""
    stages = []
    for (condition, stage), of_stage in _stages(jobs).items():
        cost = {key: value for row in _cost(of_stage) for key, value in row.items() if key not in ("stage", "jobs")}
        stages.append({"condition": condition, "stage": stage, **_counts(of_stage), **cost})
    found = {"name": plans[-1].config.name, "root": plans[-1].root, "total": _counts(jobs), "stages": stages}
    return json.dumps({**found, "jobs": [_as_dict(job) for job in jobs]}, indent=2)


def _as_dict(job: Job) -> dict[str, Any]:
    found = {"stage": job.stage, **job.wildcards, "state": job.state, "detail": list(job.detail)}
    found |= {"folder": str(job.folder), "log": str(job.log)}
    found |= {"claim": {key: job.claim[key] for key in ("host", "pid", "job", "started", "beat")}} if job.claim else {}
    made = job.artifact
    return found | ({} if made is None else {"digest": made.digest, "cost": made.manifest["cost"]})


def describe(jobs: list[Job]) -> str:
    """Return a table by stage; below it running, failed and killed jobs, and why results are outdated."""
    total = _counts(jobs)
    states = [state for state in STATES if state not in RARE or total[state]]
    on_gpu = any("gpu_seconds" in row for row in _cost(jobs))
    columns = [name for name in COLUMNS if on_gpu or "GPU" not in name]
    rows, last = [["", "stage", "jobs", *states, *columns]], None
    for (condition, stage), of_stage in _stages(jobs).items():
        group = condition or stage
        rows.append([group if group != last else "", stage, *_cells(of_stage, states, columns)])
        last = group
    lines = tables_of([*rows, ["all", "", *_cells(jobs, states, columns)]], 2, at=3 + len(states))
    for state in ("running", "failed", "interrupted"):
        matching = [job for job in jobs if job.state == state]
        lines += ["", state] if matching else []
        for job in matching:
            lines += [f"  {job.folder}{_who(job)}", *(f"      {line}" for line in job.detail)]
            lines += [f"      {job.log}"] if job.artifact is None and job.state == "failed" else []
    if total["outdated"]:
        reasons = [job.detail[0] for job in jobs if job.state == "outdated"]
        lines += ["", "outdated", *(f"  {reasons.count(reason)} {reason}" for reason in dict.fromkeys(reasons))]
    return "\n".join(fitted(lines))


def watch(plans: Sequence[Plan]) -> list[Job]:
    """Show a bar per running job until no job is left, or one has failed and none ran for a minute (others wait for
    it); return the jobs in their final state.
    """
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console, ran = Console(highlight=False), time.monotonic()
    with Live(console=console, auto_refresh=False) as live:
        while True:
            began, jobs = time.monotonic(), look_all(plans)
            screen = Text("\n".join(bars(jobs)), overflow="ellipsis", no_wrap=True)
            if console.is_terminal:
                live.update(screen, refresh=True)
            else:
                console.print(screen, "", soft_wrap=True)
            states = {job.state for job in jobs}
            ran = began if "running" in states else ran
            if states <= {"done", "failed"} or ("failed" in states and began - ran > lock.SILENT_SECONDS):
                return jobs
            spent = time.monotonic() - began
            time.sleep(max(spent, SECONDS_BETWEEN_LINES if not console.is_terminal else WATCHED))


def bars(jobs: list[Job]) -> list[str]:
    """Return how many jobs are done, and for each running job a bar and its remaining time, if its log has it."""
    total = _counts(jobs)
    lines = [", ".join(f"{total[state]} {state}" for state in STATES if total[state]) + f", of {len(jobs)} jobs"]
    rows = []
    for job in (job for job in jobs if job.state == "running" and job.claim):
        spent, left = time.time() - job.claim["started"], LEFT.search(job.detail[0] if job.detail else "")
        name = " ".join([job.stage, *job.wildcards.values()])
        if left is None:
            rows.append([name, "", "", seconds(spent)])
            continue
        remains = max(0.0, float(left[1]) - (time.time() - job.log.stat().st_mtime))
        part = spent / (spent + remains) if spent + remains else 1.0
        filled = round(part * BAR)
        rows.append([name, "#" * filled + "." * (BAR - filled), f"{part:.0%}", f"{seconds(remains)} left"])
    return [*lines, *(table_of(rows, 2) if rows else [])]


def _stages(jobs: list[Job]) -> dict[tuple[str | None, str], list[Job]]:
    """Group jobs by condition and stage: each condition in turn, then the theory and the report."""
    found: dict[tuple[str | None, str], list[Job]] = {}
    groups = list(dict.fromkeys(job.group for job in jobs))
    places = {group: (group is None, place) for place, group in enumerate(groups)}
    for job in sorted(jobs, key=lambda one: places[one.group]):
        found.setdefault((job.group, job.stage), []).append(job)
    return found


def _counts(jobs: list[Job]) -> dict[str, int]:
    return {"jobs": len(jobs)} | {state: sum(job.state == state for job in jobs) for state in STATES}


def _cost(jobs: list[Job]) -> list[dict[str, Any]]:
    return by_stage(job.artifact for job in jobs if job.artifact is not None)


def _cells(jobs: list[Job], states: list[str], columns: list[str]) -> list[str]:
    counts, rows = _counts(jobs), _cost(jobs)
    cells = [str(counts["jobs"]), *(str(counts[state] or "-") for state in states)]
    for combine, words, key in map(COLUMNS.get, columns):
        values = [row[key] for row in rows if row.get(key) is not None]
        cells.append(words(combine(values) if values else None))
    return cells


def _who(job: Job) -> str:
    """Return who works on a job and since when, or who did until it was killed."""
    if job.claim is None:
        return ""
    host, pid, slurm, started = (job.claim[key] for key in ("host", "pid", "job", "started"))
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(started))
    spent = (time.time() if job.state == "running" else job.claim["beat"]) - started
    return f"  {host}, process {pid}{f', Slurm job {slurm}' if slurm else ''}, since {since} ({seconds(spent)})"
