"""Answers to what the rules ask, as functions of a job's wildcards, so that rules hold no logic."""

import shlex
from collections.abc import Callable
from typing import Any

from snakemake.io import ancient, local

from granularity.base.stage import Job
from granularity.claims import preregistered
from granularity.plan import commands
from granularity.plan.graph import Plan, beside, pattern
from granularity.stages import STAGES
from granularity.store.place import STAMP


class Rules:
    """Functions of wildcards for the rule of each stage; `look` is called with each job before Snakemake decides."""

    def __init__(self, plan: Plan, look: Callable[[Job], None] = lambda job: None):
        self.plan, self._look = plan, look

    def output(self, stage: str) -> dict[str, Any]:
        """The stamp of every result, with open wildcards; an `update()` would be brought back after a failure."""
        return {"stamp": pattern(STAGES[stage], self.plan.root) + STAMP}

    def log(self, stage: str) -> str:
        return beside(STAGES[stage], self.plan.root, "logs")

    def benchmark(self, stage: str) -> str:
        return beside(STAGES[stage], self.plan.root, "benchmarks")

    def results(self, stage: str, **values: str) -> list[str]:
        """The stamps of all results of a stage, or of those with some values."""
        return [self.plan.stamp(job) for job in self.plan.jobs(stage, **values)]

    def everything(self) -> list[str]:
        """The stamps of the report and of all that it is made from, as Snakemake may have no history of these."""
        own = [stage for stage in STAGES if stage not in ("theory", "verdicts")]
        return [*(stamp for stage in own for stamp in self.results(stage)), *self.targets()["verdicts"]]

    def targets(self) -> dict[str, list[str]]:
        """Named targets: every stage; worlds of the theory up to their verdicts, those that are findings apart."""
        found = {stage: self.results(stage) for stage in STAGES if stage not in ("report", "verdicts", "theory")}
        found["verdicts"] = self.results("verdicts", name=self.plan.config.name)
        found |= {"theory": [], "findings": []}
        for job in self.plan.jobs("verdicts", name="theory"):
            stamp, world = self.plan.stamp(job), job.values["study"]
            found[f"theory_{world}"] = [stamp]
            found["findings" if preregistered.file_of(world) else "theory"].append(stamp)
        return found

    def inputs(self, stage: str) -> Callable:
        """The stamps of what a job reads, by role, and the user's files.

        These as `ancient`, for their content is compared (:mod:`granularity.plan.fresh`), and in a clone all are new.
        (Stamps must not be: Snakemake would not look at what follows, however indirectly, from a job that runs.)
        """

        def of_job(wildcards: Any) -> dict[str, list[str]]:
            job = self._job(stage, wildcards)
            self._look(job)
            found = {role: [self.plan.stamp(one) for one in jobs] for role, jobs in job.inputs.items() if jobs}
            own = commands.own_files(self.plan, job)
            # A module's prefix is for results. (An absolute path would be another input wherever the checkout moves.)
            # Nor one with braces, which Snakemake takes for a wildcard and cannot be made not to.
            files = [ancient(local(file)) for file in (*job.files, *own) if "{" not in file]
            return found | ({"user_files": files} if files else {})

        return of_job

    def command(self, stage: str) -> Callable:
        """The command for the shell, with the paths that Snakemake gives, which a module's prefix may have moved."""

        def of_job(wildcards: Any, input: Any, output: Any) -> str:
            job = self._job(stage, wildcards)
            inputs = {role: map(_folder, getattr(input, role, ())) for role in job.inputs}
            return shlex.join(commands.words(self.plan, job, inputs, _folder(output.stamp)))

        return of_job

    def threads(self, stage: str) -> Callable:
        return lambda wildcards: commands.threads(self.plan, self._job(stage, wildcards))

    def memory_mb(self, stage: str) -> Callable:
        return lambda wildcards, attempt: commands.memory_mb(self.plan, self._job(stage, wildcards), attempt)

    def minutes(self, stage: str) -> Callable:
        return lambda wildcards, attempt: commands.minutes(self.plan, self._job(stage, wildcards), attempt)

    def gpus(self, stage: str) -> Callable:
        return lambda wildcards: commands.gpus(self.plan, self._job(stage, wildcards))

    def _job(self, stage: str, wildcards: Any) -> Job:
        return self.plan.job(stage, dict(wildcards.items()))


def _folder(stamp: str) -> str:
    return str(stamp).removesuffix(STAMP)
