"""The state of a configuration: `granularity status`.

It reads manifests, claims and the ends of logs, hashes no data and writes nothing, so it may be asked while jobs run,
on any machine that sees the files. A job that waits in a queue, or that still imports and checks its inputs, has left
no trace yet and counts as waiting.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from granularity.base.errors import GranularityError
from granularity.base.stage import Job as PlannedJob
from granularity.plan.fresh import OTHER_INPUTS, OTHER_VERSION, Results
from granularity.plan.graph import Plan, beside
from granularity.stages import STAGES
from granularity.store import claim, generations
from granularity.store.artifacts import Artifact
from granularity.store.manifests import OtherVersionError

STATES = {
    "done": "a whole result, up to date (sizes are compared, not hashes: `granularity verify` hashes)",
    "running": "its writer holds the lock on its claim, or, where no lock tells, has touched it within a minute",
    "failed": "no result, and an error in its log; or a result that cannot be read",
    "interrupted": "killed without a word in its log",
    "outdated": "a result of other code, packages, inputs, files, device or parameters, which Snakemake makes again",
    "waiting": "nothing of this",
}
TAIL_BYTES = 16_384
TAIL_LINES = 3
ERROR = re.compile(
    r"(error|stopped): |Traceback \(most recent call last\)|Fatal Python error|\s*Usage: "
    r"|.*: command not found"
)


@dataclass
class Job:
    """One artifact of a configuration: where it lies, and how far it is."""

    stage: str
    wildcards: dict[str, str]
    folder: Path
    log: Path
    state: str = "waiting"
    detail: tuple[str, ...] = ()  # why; or the last lines of its log
    claim: dict[str, Any] | None = None  # of the writer that works on it, or was killed
    artifact: Artifact | None = None  # what lies there and can be read


def look(plan: Plan) -> list[Job]:
    """Every job of a configuration as it is now, without the worlds of the theory that have left no trace."""
    planned = [job for stage in STAGES for job in plan.jobs(stage)]
    # Claims first: a job that ends meanwhile is then seen to run, and never as if it had been lost.
    stores = {generations.store_of(plan.folder(job)) for job in planned}
    claims = {(store, name): found for store in stores for name, found in claim.all_claims(store).items()}
    works = {(store, name) for store in stores for name in generations.works_of(store).values()}
    results, jobs = Results(plan), []
    for job in planned:
        output = plan.folder(job)
        store = generations.store_of(output)
        name = (store, generations.name_in(store, output))
        jobs.append(_job(results, job, claims.get(name), name in works))
    _pass_on(planned, jobs)
    traces = {_world(job) for job in jobs if job.state != "waiting"}
    return [job for job in jobs if _world(job) in {None, *traces}]


def _pass_on(planned: list[PlannedJob], jobs: list[Job]) -> None:
    """What was made from a result that was made from other inputs is outdated, too; inputs come first in the list."""
    of_others = set()
    for plan, job in zip(planned, jobs, strict=True):
        follows = any(id(source) in of_others for sources in plan.inputs.values() for source in sources)
        if job.state == "done" and follows:
            job.state, job.detail = "outdated", (OTHER_INPUTS,)
        if job.detail == (OTHER_INPUTS,):
            of_others.add(id(plan))


def _world(job: Job) -> str | None:
    """The world of the theory that a job belongs to."""
    of_theory = job.wildcards.get("name") == "theory"
    return job.wildcards.get("world", job.wildcards["study"] if of_theory else None)


def _job(results: Results, planned: PlannedJob, claimed: dict[str, Any] | None, unfinished: bool) -> Job:
    plan, stage = results.plan, STAGES[planned.stage]
    folder = plan.folder(planned)
    log = Path(beside(stage, plan.root, "logs").format(**planned.values))
    job = Job(stage.name, dict(planned.values), folder, log, claim=claimed)
    stamp = generations.stamp_of(folder)
    try:
        there = stamp.exists()
        if there:
            job.state, job.detail, job.artifact = _result(results, planned, stamp)
    except OSError as error:
        job.state, job.detail, job.claim = "failed", (f"{error.filename}: {error.strerror}",), None
        return job
    if claimed is not None and claim.is_live(claimed):
        job.state, job.detail = "running", tuple(_tail(log)[-1:])
    elif not there:
        job.state, job.detail = _remains(job, unfinished)
    if job.state not in ("running", "interrupted"):
        job.claim = None
    return job


def _result(results: Results, planned: PlannedJob, stamp: Path) -> tuple[str, tuple[str, ...], Artifact | None]:
    """State, detail and artifact where there is a stamp."""
    try:
        artifact = results.open(planned)
        damage = next(artifact.corrupt(hashed=False), None) or artifact.unlike(stamp)
    except OtherVersionError:
        return "outdated", (OTHER_VERSION,), None
    except GranularityError as error:
        return "failed", (str(error),), None
    if damage is not None:
        return "failed", (damage,), artifact
    why = results.unlike(planned)
    return ("outdated", (why,), artifact) if why else ("done", (), artifact)


def _remains(job: Job, unfinished: bool) -> tuple[str, tuple[str, ...]]:
    """State and detail of a job that has no stamp, from what its last attempt left."""
    tail = _tail(job.log)
    error = max((number for number, line in enumerate(tail) if ERROR.match(line)), default=None)
    if error is not None:
        return "failed", tuple(tail[max(error, len(tail) - TAIL_LINES) :])
    if unfinished:
        return "interrupted", (*tail[-1:], "what was finished is kept, and the next run goes on from there")
    return ("interrupted", tuple(tail[-1:])) if job.claim is not None else ("waiting", ())


def _tail(log: Path) -> list[str]:
    """The last lines of a log that are not empty."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = stream.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    return [line.rstrip() for line in lines if line.strip()]
