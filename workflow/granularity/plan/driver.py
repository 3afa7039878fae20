"""Settings that Snakemake's own process makes for its jobs."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from typing import Any

from granularity.base.errors import GranularityError
from granularity.plan.graph import Plan
from granularity.stages import STAGES
from granularity.store import mending, trust


def prepare(workflow: Any, plan: Plan) -> None:
    """Set the environment of jobs, and see that names and stamps of results belong together.

    Args:
        workflow: Snakemake's object of that name.
        plan: what it is to make.

    Raises:
        GranularityError: `--cache` was given names of rules, or files of keys are not in order.
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
    if workflow.is_main_process:  # and not one of its jobs on a cluster, while others are at work
        results = [(plan.folder(job), stage) for stage in STAGES for job in plan.jobs(stage)]
        mending.tell(results) if _is_dry(sys.argv) else mending.mend(results)


def _is_dry(words: list[str]) -> bool:
    """Whether Snakemake is only to plan: `-n`, also among other letters. Its own `workflow.dryrun` is set later."""
    return any(re.match(r"--dry-?run|-\w*n", word) for word in words)
