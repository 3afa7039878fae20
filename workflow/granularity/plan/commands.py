"""The command of a job: what `snakemake -np` prints, and what a person can copy and run alone."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from granularity.base import extensions
from granularity.base.stage import Job
from granularity.data.listing import names, state
from granularity.plan.graph import Plan
from granularity.stages import STAGES


def words(
    plan: Plan, job: Job, inputs: Mapping[str, Iterable[str]] | None = None, output: str | None = None
) -> list[str]:
    """The words of a job's command, but for `--threads`.

    Args:
        inputs: role -> folders, where they do not lie where the plan has them, as in a Snakemake module with a prefix.
        output: the folder of the result, likewise.
    """
    stage = STAGES[job.stage]
    found = ["granularity", stage.name]
    if inputs is None:
        inputs = {role: [str(plan.folder(source)) for source in sources] for role, sources in job.inputs.items()}
    for role in () if stage.gathers else stage.inputs:
        for folder in inputs.get(role, ()):
            found += [f"--{role}", folder]
    found += ["--options", json.dumps(job.options, separators=(",", ":"))]
    if stage.seeded:
        found += ["--seed", str(plan.config.seeds.base)]
    if stage.needs.gpu:
        found += ["--device", plan.config.device]
    for file in own_files(plan, job):
        found += ["--extension", file]
    return [*found, "--output", output or str(plan.folder(job))]


def listing(job: Job) -> str | None:
    """What tells that the user's files and folders that a job reads are not what they were; None where it reads none.

    Snakemake sees a file that is newer than a result, and no folder; this sees one that is older, too. Data sets are
    listed for the first job that asks, once a process.

    Raises:
        GranularityError: a folder cannot be read.
    """
    found = [*(_names(folder) for folder in job.folders), *(state(file) for file in job.files)]
    return ",".join(found) or None


@functools.cache
def _names(folder: str) -> str:
    return names(Path(folder))


def own_files(plan: Plan, job: Job) -> list[str]:
    """The user's files that the job's command has to load."""
    own = set(extensions.own_files())
    return [] if STAGES[job.stage].gathers else [name for name in plan.code(job) if name in own]
