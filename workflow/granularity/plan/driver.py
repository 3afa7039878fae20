"""Settings that Snakemake's own process makes for its jobs."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.base.stage import Job
from granularity.plan.fresh import Results
from granularity.plan.graph import Plan
from granularity.plan.hold import hold
from granularity.stages import STAGES
from granularity.store import mending, trust
from granularity.store.generations import folder_of

MANY = 5000  # jobs that Snakemake takes a while to plan
# What Snakemake is asked for that makes no result: whoever only looks need not hold a name.
LOOKS = "unlock|touch|lint|report|summary|detailed-summary|dag|d3dag|rulegraph|filegraph|list|cleanup|archive"
LOOKING = re.compile(rf"--({LOOKS}|conda-create|conda-cleanup-envs|containerize|generate|print-compilation)|-[tSDl]")


def prepare(workflow: Any, plan: Plan) -> Callable[[Job], None]:
    """Set the environment of jobs, hold the name, and see that names and stamps of results belong together.

    Args:
        workflow: Snakemake's object of that name.
        plan: what it is to make.

    Returns:
        what to call with each job that Snakemake meets: it lets those be made again whose results are not what is
        asked for.

    Raises:
        GranularityError: `--cache` was given names of rules, files of keys are not in order, or another configuration
            of this name is being made.
    """
    # for the report's record of how it was made
    os.environ.setdefault("GRANULARITY_COMMAND", shlex.join(["snakemake", *sys.argv[1:]]))
    # Slurm's warning before a job's end is for the stage, which saves its work; Snakemake, around it, would die of it.
    if "SLURM_JOB_ID" in os.environ:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    # `--cache` is for the stages, which verify what they find (granularity.store.cache); Snakemake would trust it.
    if workflow.enable_cache:
        if workflow.workflow_settings.cache:
            raise GranularityError(
                "--cache takes no names of rules here: it shares embeddings, clusterings and label spaces"
                " (a target right behind it is taken for one; put targets first)"
            )
        # Now, and not in a job hours later: is there something wrong with the files of keys?
        trust.trusted()
        trust.sign(b"")
        # Snakemake warns where it names no folder.
        os.environ.update(GRANULARITY_CACHE=os.environ.get("SNAKEMAKE_OUTPUT_CACHE", ""))
    if not workflow.is_main_process:  # but one of its jobs on a cluster, while others are at work
        return lambda job: None
    if len(plan) > MANY:
        say(f"planning {len(plan):,} jobs")
    modify = workflow.modifier.modify_path  # where Snakemake has results: a module may have a prefix
    is_dry = _is_dry(sys.argv)
    if not is_dry and not any(map(LOOKING.match, sys.argv[1:])):
        hold(plan, Path(modify(plan.root)))
    results = [(plan.folder(job), stage) for stage in STAGES for job in plan.jobs(stage)]
    mending.tell(results) if is_dry else mending.mend(results)
    return _remaking(workflow, plan, modify)


def _remaking(workflow: Any, plan: Plan, modify: Callable[[str], str]) -> Callable[[Job], None]:
    """What lets jobs be made again whose results are not what is asked for; Snakemake adds all that follows from them.

    As `--forcerun` does, but that would also make what nobody has asked for: it takes what it is given for a target. So
    each job is looked at when Snakemake asks for its input, which it does for those alone that its targets need, and
    before it decides which of them run.
    """
    results = Results(plan, lambda job: folder_of(modify(plan.stamp(job))))

    def look(job: Job) -> None:
        if not workflow.touch and results.outdated(job):
            workflow.dag.forcefiles.add(modify(plan.stamp(job)))

    return look


def _is_dry(words: list[str]) -> bool:
    """Whether Snakemake is only to plan: `-n`, also among other letters. Its own `workflow.dryrun` is set later."""
    return any(re.match(r"--dry-?run|-\w*n", word) for word in words)
