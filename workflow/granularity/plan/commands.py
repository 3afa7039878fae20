"""The command of a job: what `snakemake -np` prints, and what a person can copy and run alone."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path

from granularity.base import extensions
from granularity.base.stage import Job
from granularity.plan.graph import Plan
from granularity.stages import STAGES
from granularity.store.code import code_digest


def words(plan: Plan, job: Job) -> list[str]:
    """The command, but for its threads."""
    stage = STAGES[job.stage]
    start = ["python", "-m", "granularity.machine.launch", str(job.processes)] if job.processes > 1 else ["granularity"]
    found = [*start, stage.name]
    if not stage.gathers:
        for role in stage.inputs:
            for source in job.inputs.get(role, ()):
                found += [flag(role), str(plan.folder(source))]
    found += ["--options", json.dumps(job.options, separators=(",", ":"))]
    if stage.seeded:
        found += ["--seed", str(plan.config.seeds.base)]
    if stage.needs.gpu:
        found += ["--device", plan.config.device]
    for file in own_files(plan, job):
        found += ["--extension", file]
    return [*found, "--output", str(plan.folder(job))]


def text(plan: Plan, job: Job) -> str:
    """The command as a shell takes it."""
    return shlex.join(words(plan, job))


def digest(plan: Plan, job: Job) -> str:
    """The digest of the code that makes its result."""
    return code_digest(*plan.code(job))


def own_files(plan: Plan, job: Job) -> list[str]:
    """The user's files that the job's command has to load."""
    own = set(extensions.own_files())
    return [] if STAGES[job.stage].gathers else [name for name in plan.code(job) if name in own]


def flag(role: str) -> str:
    """The option of the command for an input."""
    return f"--{role}"


def gathered(plan: Plan, job: Job) -> Mapping[str, tuple[Path, ...]]:
    """The inputs of a stage that finds them by its configuration."""
    return {role: tuple(map(plan.folder, sources)) for role, sources in job.inputs.items()}
