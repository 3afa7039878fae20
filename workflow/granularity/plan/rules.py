"""Answers to what the rules ask, as functions of a job's wildcards, so that rules hold no logic."""

import re
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from snakemake.io import ancient, local

from granularity.base.stage import Job
from granularity.claims import preregistered
from granularity.plan import commands
from granularity.plan.graph import Plan, beside, pattern
from granularity.stages import STAGES
from granularity.store.place import STAMP

ROOT = "results/{cell}"  # of a plan, whose configuration is called so


class Rules:
    """Functions of wildcards for the rule of each stage, over the plans of a study's cells, or the only one there is.

    `look` is called with each job before Snakemake decides.
    """

    def __init__(self, plans: Sequence[Plan], look: Callable[[Plan, Job], None] = lambda plan, job: None):
        self.plans, self._look = {plan.config.name: plan for plan in plans}, look
        self.plan = plans[-1]  # the study's, or the only one
        self.reports = [plan.config.name for plan in plans if not plan.cells]
        self.cells = "|".join(map(re.escape, self.reports))

    def output(self, stage: str) -> dict[str, Any]:
        """The stamp of every result, with open wildcards; an `update()` would be brought back after a failure."""
        return {"stamp": pattern(STAGES[stage], ROOT) + STAMP}

    def log(self, stage: str) -> str:
        return beside(STAGES[stage], ROOT, "logs")

    def benchmark(self, stage: str) -> str:
        return beside(STAGES[stage], ROOT, "benchmarks")

    def message(self, stage: str) -> str:
        """What Snakemake says of a job."""
        of_cell = len(self.plans) > 1 and STAGES[stage].place.startswith("{root}")
        return STAGES[stage].message + (" ({wildcards.cell})" if of_cell else "")

    def results(self, stage: str, **values: str) -> list[str]:
        """The stamps of all results of a stage, or of those with some values."""
        stamps = (plan.stamp(job) for plan in self.plans.values() for job in plan.jobs(stage, **values))
        return list(dict.fromkeys(stamps))  # the theory is the same in all plans

    def shown(self, wildcards: Any) -> list[str]:
        """The report of one plan."""
        return [f"{self.plans[wildcards.cell].root}/report{STAMP}"]

    def everything(self) -> list[str]:
        """The stamps of the report and of all that it is made from, as Snakemake may have no history of these."""
        own = [stage for stage in STAGES if stage not in ("theory", "verdicts")]
        return [*(stamp for stage in own for stamp in self.results(stage)), *self.targets()["verdicts"]]

    def targets(self) -> dict[str, list[str]]:
        """Named targets: every stage; worlds of the theory up to their verdicts, those that are findings apart."""
        found = {stage: self.results(stage) for stage in STAGES if stage not in ("report", "verdicts", "theory")}
        found["verdicts"] = [stamp for name in self.plans for stamp in self.results("verdicts", name=name)]
        found |= {"theory": [], "findings": []}
        plan = self.plans[self.reports[0]]
        for job in plan.jobs("verdicts", name="theory"):
            stamp, world = plan.stamp(job), job.values["study"]
            found[f"theory_{world}"] = [stamp]
            found["findings" if preregistered.file_of(world) else "theory"].append(stamp)
        return found

    def inputs(self, stage: str) -> Callable:
        """The stamps of what a job reads, by role, and the user's files.

        These as `ancient`, for their content is compared (:mod:`granularity.plan.fresh`), and in a clone all are new.
        (Stamps must not be: Snakemake would not look at what follows, however indirectly, from a job that runs.)
        """

        def of_job(wildcards: Any) -> dict[str, list[str]]:
            plan, job = self._job(stage, wildcards)
            self._look(plan, job)
            found = {role: [plan.stamp(one) for one in jobs] for role, jobs in job.inputs.items() if jobs}
            own = commands.own_files(plan, job)
            # A module's prefix is for results. (An absolute path would be another input wherever the checkout moves.)
            # Nor one with braces, which Snakemake takes for a wildcard and cannot be made not to.
            files = [ancient(local(file)) for file in (*job.files, *own) if "{" not in file]
            return found | ({"user_files": files} if files else {})

        return of_job

    def command(self, stage: str) -> Callable:
        """The command for the shell, with the paths that Snakemake gives, which a module's prefix may have moved."""

        def of_job(wildcards: Any, input: Any, output: Any) -> str:
            plan, job = self._job(stage, wildcards)
            inputs = {role: map(_folder, getattr(input, role, ())) for role in job.inputs}
            return shlex.join(commands.words(plan, job, inputs, _folder(output.stamp)))

        return of_job

    def threads(self, stage: str) -> Callable:
        return lambda wildcards: commands.threads(*self._job(stage, wildcards))

    def memory_mb(self, stage: str) -> Callable:
        return lambda wildcards, attempt: commands.memory_mb(*self._job(stage, wildcards), attempt)

    def minutes(self, stage: str) -> Callable:
        return lambda wildcards, attempt: commands.minutes(*self._job(stage, wildcards), attempt)

    def gpus(self, stage: str) -> Callable:
        return lambda wildcards: commands.gpus(*self._job(stage, wildcards))

    def _job(self, stage: str, wildcards: Any) -> tuple[Plan, Job]:
        values = dict(wildcards.items())
        plan = self.plans.get(values.pop("cell", values.get("name")), self.plans[self.reports[0]])
        return plan, plan.job(stage, values)


def _folder(stamp: str) -> str:
    return str(stamp).removesuffix(STAMP)
