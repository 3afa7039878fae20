"""The command of a job, which `snakemake -np` prints and a person can run, and its requests to a scheduler."""

import functools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from granularity.base import extensions
from granularity.base.stage import Job
from granularity.data.listing import names, state
from granularity.plan.graph import Plan
from granularity.stages import STAGES
from granularity.stages.samples.options import expected_images

UNKNOWN = 1_000_000  # images of a data set whose source does not give their number
PAYS = 30.0  # seconds of work that justify a further CPU
_names = functools.cache(names)  # a data set is listed once
CUDA_MB = 4000  # main memory of a process that uses a GPU


def words(
    plan: Plan, job: Job, inputs: Mapping[str, Iterable[str]] | None = None, output: str | None = None
) -> list[str]:
    """Return the words of a job's command, without `--threads`; `inputs` and `output` override the planned paths."""
    stage = STAGES[job.stage]
    command = ["granularity", stage.name]
    if inputs is None:
        inputs = {role: [str(plan.folder(source)) for source in sources] for role, sources in job.inputs.items()}
    for role in () if stage.gathers else stage.inputs:
        for folder in inputs.get(role, ()):
            command += [f"--{role}", folder]
    command += ["--options", json.dumps(job.options, separators=(",", ":"))]
    if stage.seeded:
        command += ["--seed", str(plan.config.seeds.base)]
    if stage.needs.gpu:
        command += ["--device", plan.config.device]
    for file in own_files(plan, job):
        command += ["--extension", file]
    return [*command, "--output", output or str(plan.folder(job))]


def listing(job: Job) -> str | None:
    """Return a text that changes if the user's files or folders that a job reads change; None if it reads none."""
    found = [*(_names(Path(folder)) for folder in job.folders), *(state(file) for file in job.files)]
    return ",".join(found) or None


def own_files(plan: Plan, job: Job) -> list[str]:
    """Return the user's files that the job's command has to load."""
    own = set(extensions.own_files())
    return [] if STAGES[job.stage].gathers else [name for name in plan.code(job) if name in own]


# ---------------------------------------------------------------- resources


def memory_mb(plan: Plan, job: Job, attempt: int = 1) -> int:
    """Return the main memory of a job, in MB."""
    needs, count = STAGES[job.stage].needs, images(plan, job)
    process = needs.memory_mb + (CUDA_MB if uses_gpu(plan, job) else 0)
    process += count * needs.memory_kb / 1e3 + job.memory(count) / 1e6 + (threads(plan, job) - 1) * needs.thread_mb
    return round(process * job.processes * 2 ** (attempt - 1))


def minutes(plan: Plan, job: Job, attempt: int = 1) -> int:
    """Return the time limit of a job, in minutes."""
    needs = STAGES[job.stage].needs
    looks = images(plan, job) * job.passes / job.processes
    return round((needs.minutes * job.longer + looks * needs.ms * job.slower / 60_000) * 2 ** (attempt - 1))


def threads(plan: Plan, job: Job, share: int | None = None) -> int:
    """Return the CPUs of a job. Each process of a group has one and, on a GPU, one more for each of its readers.

    `share`: the CPUs that each job of the stage has if all run at once. A job that waits for more leaves some idle.
    """
    needs = STAGES[job.stage].needs
    if uses_gpu(plan, job) or job.processes > 1:
        return job.processes * (1 + (job.readers if uses_gpu(plan, job) else 0))
    seconds = images(plan, job) * job.passes * needs.ms * job.slower / 1000 if needs.threads > 1 else 0
    most = needs.threads if share is None else min(needs.threads, share)
    return max(1, min(most, job.parts, int(seconds / PAYS)))


def uses_gpu(plan: Plan, job: Job) -> bool:
    """Return whether a job reserves a GPU: only with `device: cuda`, because `auto` uses what it finds."""
    return plan.config.device == "cuda" and STAGES[job.stage].needs.gpu


def gpus(plan: Plan, job: Job) -> int:
    """Return the number of GPUs that a job reserves: one per process."""
    return job.processes if uses_gpu(plan, job) else 0


def images(plan: Plan, job: Job) -> int:
    """Return the number of images that a job reads: from the sample table if it exists, else from the source."""
    if job.stage in ("theory", "verdicts"):
        return 0
    read = [job, *job.inputs.get("samples", ())][-1]  # a transfer's images are not those of its condition
    names = [read.values["condition"]] if "condition" in job.values else [one.name for one in plan.conditions]
    return sum(_images(plan, name, counted=job.stage != "samples") for name in names)


def _images(plan: Plan, condition: str, counted: bool) -> int:
    one = plan.condition(condition)
    expected = expected_images(one.samples) or UNKNOWN
    if counted:  # the stage `samples` reads all that exist
        found = plan.summary(one)
        if "images" in found:
            return sum(found["images"].values())
        held_out = one.samples.validation
        if one.train_size != "all":
            return min(int(one.train_size) + (held_out if held_out >= 1 else 0), expected)
    return expected
