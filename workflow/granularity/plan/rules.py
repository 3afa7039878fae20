"""Functions of a job's wildcards that answer all questions of the rules, so that rules contain no logic."""

import re
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from snakemake.exceptions import WorkflowError
from snakemake.io import ancient, local

from granularity.base.stage import Job
from granularity.plan import commands
from granularity.plan.graph import Plan, beside, pattern
from granularity.stages import STAGES
from granularity.store.place import STAMP

ROOT = "results/{cell}"  # of a plan; `cell` is its configuration's name


class Rules:
    """Functions of wildcards for the rule of each stage, over the plans of a study's cells, or the only plan.

    `look` is called with each job before Snakemake decides. `cores` are all that jobs share; None on a cluster.
    """

    def __init__(
        self,
        plans: Sequence[Plan],
        look: Callable[[Plan, Job], None] = lambda plan, job: None,
        cores: int | None = None,
    ):
        self.plans, self._look, self._cores = {plan.config.name: plan for plan in plans}, look, cores
        self.plan = plans[-1]  # the study's, or the only one
        self.reports = [plan.config.name for plan in plans if not plan.cells]
        self.cells = "|".join(map(re.escape, self.reports))

    def output(self, stage: str) -> dict[str, Any]:
        """Return the stamps of results, with open wildcards; Snakemake would restore an `update()` after a failure."""
        return {"stamp": pattern(STAGES[stage], ROOT) + STAMP}

    def log(self, stage: str) -> str:
        return beside(STAGES[stage], ROOT, "logs")

    def benchmark(self, stage: str) -> str:
        return beside(STAGES[stage], ROOT, "benchmarks")

    def message(self, stage: str) -> str:
        """Return Snakemake's message for a job."""
        of_cell = len(self.plans) > 1 and STAGES[stage].place.startswith("{root}")
        return STAGES[stage].message + (" ({wildcards.cell})" if of_cell else "")

    def results(self, stage: str, **values: str) -> list[str]:
        """Return the stamps of all results of a stage, or of those with given values."""
        stamps = (plan.stamp(job) for plan in self.plans.values() for job in plan.jobs(stage, **values))
        return list(dict.fromkeys(stamps))  # the theory is the same in all plans

    def shown(self, wildcards: Any) -> list[str]:
        """Return the report of a plan."""
        return [f"{self.plans[wildcards.cell].root}/report{STAMP}"]

    def everything(self) -> list[str]:
        """Return the stamps of the report and all that it is made from; Snakemake may have no history of these."""
        return list(dict.fromkeys(stamp for plan in self.plans.values() for stamp in _made(plan)))

    def made(self, wildcards: Any) -> list[str]:
        """Return the stamps of a plan's results."""
        return _made(self.plans[wildcards.cell])

    def repeated(self, wildcards: Any) -> list[str]:
        """Return the stamps of everything; WorkflowError if cells differ in more than their draw."""
        if self.plan.config.axes:
            raise WorkflowError(
                "atlas: cells of a study with axes are no repetitions of each other; name those of one setting: "
                f"granularity atlas {self.plan.root}/CELL ..."
            )
        return self.everything()

    def targets(self) -> dict[str, list[str]]:
        """Return named targets: all stages, and the theory's worlds up to their verdicts."""
        found = {stage: self.results(stage) for stage in STAGES if stage not in ("report", "verdicts", "theory")}
        found["verdicts"] = [stamp for name in self.plans for stamp in self.results("verdicts", name=name)]
        found["theory"] = []
        plan = self.plans[self.reports[0]]
        for job in plan.jobs("verdicts", name="theory"):
            found[f"theory_{job.values['study']}"] = [plan.stamp(job)]
            found["theory"].append(plan.stamp(job))
        return found

    def about(self, target: str) -> str:
        """Return a line about a named target, for `snakemake --list`."""
        if target == "theory":
            return "Simulate and judge the papers' theory."
        if target not in STAGES:
            return f"Simulate and judge {target.removeprefix('theory_')}, one world of the theory."
        return STAGES[target].does

    def inputs(self, stage: str) -> Callable:
        """Return a function that returns the stamps of a job's inputs, by role, and the user's files.

        The files are `ancient`, because their content is compared (:mod:`granularity.plan.fresh`), and a clone has new
        times. (Stamps must not be: Snakemake would ignore jobs that follow, however indirectly, from a job that runs.)
        """

        def of_job(wildcards: Any) -> dict[str, list[str]]:
            plan, job = self._job(stage, wildcards)
            self._look(plan, job)
            stamps = {role: [plan.stamp(source) for source in jobs] for role, jobs in job.inputs.items() if jobs}
            extension_files = commands.own_files(plan, job)
            # A module's prefix applies only to results. (An absolute path would change as an input if the checkout
            # moves.) Files with braces are left out, because Snakemake always reads them as wildcards.
            files = [ancient(local(file)) for file in (*job.files, *extension_files) if "{" not in file]
            return stamps | ({"user_files": files} if files else {})

        return of_job

    def command(self, stage: str) -> Callable:
        """Return the function of the shell command, with Snakemake's paths, which a module's prefix may change."""

        def of_job(wildcards: Any, input: Any, output: Any) -> str:
            plan, job = self._job(stage, wildcards)
            inputs = {role: map(_folder, getattr(input, role, ())) for role in job.inputs}
            return shlex.join(commands.words(plan, job, inputs, _folder(output.stamp)))

        return of_job

    def threads(self, stage: str) -> Callable:
        share = self._cores and self._cores // max(1, len(self.results(stage)))
        return lambda wildcards: commands.threads(*self._job(stage, wildcards), share)

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


def _made(plan: Plan) -> list[str]:
    """Return the stamps of all results of a plan but the theory's."""
    jobs = [job for stage in STAGES if stage not in ("theory", "verdicts") for job in plan.jobs(stage)]
    return [plan.stamp(job) for job in [*jobs, *plan.jobs("verdicts", name=plan.config.name)]]


def _folder(stamp: str) -> str:
    return str(stamp).removesuffix(STAMP)
