"""How far a configuration is: `granularity status`.

It reads manifests, claims and the ends of logs, hashes no data and writes nothing, so it may be asked while jobs run,
on any machine that sees the files. A job that waits in a queue, or that still imports and checks its inputs, has left
no trace yet and counts as waiting.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from granularity.base.errors import GranularityError
from granularity.config.options import Config
from granularity.look.inspection import is_current
from granularity.plan import jobs as plan
from granularity.store import claim
from granularity.store.artifacts import MANIFEST, Artifact
from granularity.store.manifests import OtherVersionError

STATES = {
    "done": "a whole result, up to date (sizes are compared, not hashes: `granularity verify` hashes)",
    "running": "its process is alive, or on another host has touched its claim within a minute",
    "failed": "no result, and an error in its log; or a result that cannot be read",
    "interrupted": "killed without a word in its log",
    "outdated": "a result of other code, inputs or parameters, which Snakemake makes again",
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


def look(config: Config) -> list[Job]:
    """Every job of a configuration as it is now, without the worlds of the theory that have left no trace."""
    jobs = [_job(config, *one) for one in expected(config)]
    worlds = {job.wildcards["world"] for job in jobs if "world" in job.wildcards and job.state != "waiting"}
    return [job for job in jobs if job.wildcards.get("world") in {None, *worlds}]


def expected(config: Config) -> Iterator[tuple[str, dict[str, str], dict[str, Any]]]:
    """Kind and wildcards of every artifact, and what the configuration alone says of the parameters it records."""
    seed = {"seed": config.seeds.base}
    size = {"size": config.theory.size}
    of_kind = {
        "samples": seed | config.samples.model_dump(mode="json", exclude={"root"}),  # the stage may resolve the root
        "pixels": config.pixels.model_dump(mode="json"),
        "encoder": seed | {"model": config.encoder.model} | config.encoder.captions.model_dump(mode="json"),
        "embedding": config.encoder.model_dump(mode="json", exclude={"captions"}),
        "clusters": seed | config.cluster.model_dump(mode="json"),
        "probe": seed | config.probe.model_dump(mode="json"),
        "theory_runs": size,
        "theory": size,
        "report": config.model_dump(mode="json"),
    }
    own: dict[tuple[str, ...], dict[str, Any]] = {}
    for condition in config.conditions:
        name = plan.condition_name(condition)
        own |= {("label_space", name, space.name): space.params for space in plan.spaces(config, condition)}
        for kind in ("pretrain", "finetune", "probe"):
            # A run's id digests everything it is made from, recipes and network too.
            jobs = plan.units(config, condition, kind)
            own |= {(kind, name, unit): {"runs": [run.name for run in runs]} for unit, runs in jobs.items()}
    for kind in plan.PATHS:
        for wildcards in plan.targets(config, kind):
            yield kind, wildcards, of_kind.get(kind, seed) | own.get((kind, *wildcards.values()), {})


def _job(config: Config, kind: str, wildcards: dict[str, str], params: dict[str, Any]) -> Job:
    place = {"root": plan.root(config), **wildcards}
    folder, log = (Path(pattern.format(**place)) for pattern in (plan.PATHS[kind], plan.record(kind, "logs")))
    job = Job(kind, wildcards, folder, log)
    # The claim first: a job that ends meanwhile is then seen to run, and never as if it had been lost.
    job.claim = claim.read_claim(folder)
    live = job.claim is not None and claim.is_live(job.claim)
    try:
        there = (folder / MANIFEST).exists()
    except OSError as error:
        job.state, job.detail, job.claim = "failed", (f"{error.filename}: {error.strerror}",), None
        return job
    if there:
        job.state, job.detail, job.artifact = _result(folder, params)
    if live:
        job.state, job.detail = "running", tuple(_tail(log)[-1:])
    elif not there:
        job.state, job.detail = _remains(job)
    if job.state not in ("running", "interrupted"):
        job.claim = None
    return job


def _result(folder: Path, params: dict[str, Any]) -> tuple[str, tuple[str, ...], Artifact | None]:
    """State, detail and artifact where there is a manifest."""
    try:
        artifact = Artifact.peek(folder)
        damage = next(artifact.corrupt(hashed=False), None)
    except OtherVersionError:
        return "outdated", ("written by another version of this program",), None
    except (GranularityError, OSError) as error:
        return "failed", (str(error),), None
    if damage is not None:
        return "failed", (damage,), artifact
    why = _outdated(artifact, params)
    return ("outdated", (why,), artifact) if why else ("done", (), artifact)


def _outdated(artifact: Artifact, params: dict[str, Any]) -> str | None:
    """Why Snakemake would make a whole result again, in words."""
    if any(artifact.stale()):
        return "made from other inputs"
    if not is_current(artifact):
        return "made by other code"
    # A parameter that a manifest does not name is not known to differ.
    differ = any(artifact.params.get(key, value) != value for key, value in params.items())
    return "made with other parameters" if differ else None


def _remains(job: Job) -> tuple[str, tuple[str, ...]]:
    """State and detail of a job that has no result, from what its last attempt left."""
    tail = _tail(job.log)
    error = max((number for number, line in enumerate(tail) if ERROR.match(line)), default=None)
    if error is not None:
        return "failed", tuple(tail[max(error, len(tail) - TAIL_LINES) :])
    parent, name = job.folder.parent, job.folder.name
    if any(parent.glob(f".{name}.work-*")):
        return "interrupted", (*tail[-1:], "what was finished is kept, and the next run goes on from there")
    if job.claim is not None or any(parent.glob(f".{name}.new-*")):
        return "interrupted", tuple(tail[-1:])
    return "waiting", ()


def _tail(log: Path) -> list[str]:
    """The last lines of a log that are not empty."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = stream.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    return [line.rstrip() for line in lines if line.strip()]
