"""Every artifact of a configuration under the artifact contract, but with a line of text in place of its data.

For what looks at results without reading them: `granularity status`, and Snakemake.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from granularity.base.stage import Job
from granularity.machine.device import machine
from granularity.plan.graph import Plan
from granularity.stages import STAGES
from granularity.store.artifact import Artifact
from granularity.store.task import Task


def write(*plans: Plan) -> dict[str, Artifact]:
    """Write them below the working directory, without the theory; returns them by their stamps."""
    made: dict[str, Artifact] = {}
    for plan, stage in itertools.product(plans, STAGES):
        for job in plan.jobs(stage):
            if stage != "theory" and job.values.get("name") != "theory":
                made[plan.stamp(job)] = create(plan, job, made)
    return made


def create(
    plan: Plan,
    job: Job,
    made: Mapping[str, Artifact],
    fill: Callable[..., object] = lambda out, options: None,
    **params: Any,
) -> Artifact:
    """Write the artifact of one job, from those made before; `fill` writes files, the others hold a line of text."""
    stage = STAGES[job.stage]
    options = stage.model.model_validate(job.options)
    given = {role: tuple(map(plan.folder, sources)) for role, sources in job.inputs.items()}
    task = Task(stage, plan.folder(job), options, given, plan.config.seeds.base, machine=machine("cpu"))
    facts = {"seed": task.seed, **options.model_dump(mode="json"), **params}
    inputs = {str(plan.folder(source)): made[plan.stamp(source)] for of in job.inputs.values() for source in of}
    with task.create(inputs, facts, tuple(facts)) as out:
        if job.stage == "samples":  # what rules ask, for a job's resources
            out.summary["images"] = {"train": 500_000, "val": 100_000}
        fill(out, options.model_dump(mode="json"))
        for name in stage.files:
            if not out.path(name).exists():
                out.text(name, f"{task.output}\n")
    return Artifact.peek(task.output)
