"""Every artifact of a configuration under the artifact contract, but with a line of text in place of its data.

For what looks at results without reading them: `granularity status`, and Snakemake.
"""

from __future__ import annotations

from collections.abc import Mapping

from granularity.base.stage import Job
from granularity.plan.graph import Plan
from granularity.stages import STAGES
from granularity.store.artifacts import Artifact
from granularity.store.task import Task


def write(plan: Plan) -> dict[str, Artifact]:
    """Write them below the working directory, without the theory; returns them by their stamps."""
    made: dict[str, Artifact] = {}
    for stage in STAGES:
        for job in plan.jobs(stage):
            if stage != "theory" and job.values.get("name") != "theory":
                made[plan.stamp(job)] = create(plan, job, made)
    return made


def create(plan: Plan, job: Job, made: Mapping[str, Artifact]) -> Artifact:
    """Write the artifact of one job, from those made before."""
    stage = STAGES[job.stage]
    options = stage.model.model_validate(job.options)
    inputs = [plan.stamp(source) for sources in job.inputs.values() for source in sources]
    given = {
        role: tuple(plan.folder(source) for source in sources if plan.stamp(source) in made)
        for role, sources in job.inputs.items()
    }
    task = Task(stage, plan.folder(job), options, given, plan.config.seeds.base)
    facts = {"seed": task.seed, **options.model_dump(mode="json")}
    with task.create({name: made[name] for name in inputs}, facts, tuple(facts)) as out:
        for name in stage.files:
            out.text(name, f"{task.output}\n")
        if job.stage == "samples":  # what rules ask, for a job's resources
            out.summary["images"] = {"train": 500_000, "val": 100_000}
    return Artifact.peek(task.output)
