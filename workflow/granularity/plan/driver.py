"""Settings that Snakemake's main process makes for its jobs."""

import atexit
import contextlib
import hashlib
import importlib.metadata
import json
import os
import re
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from snakemake.settings.types import DeploymentMethod, SharedFSUsage

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.base.shipped import HERE
from granularity.base.stage import Job
from granularity.config.files import DEFAULT, once
from granularity.plan.fresh import Results
from granularity.plan.graph import Plan
from granularity.stages.samples.options import too_few
from granularity.store import lock, place
from granularity.store.artifact import canonical_json
from granularity.store.code import DRIVER, ROOT, code_digest, package_digest

# Options of Snakemake that make no result; such runs need not hold the configuration's name.
LOOKS = "unlock|touch|lint|report|summary|detailed-summary|dag|d3dag|rulegraph|filegraph|list|cleanup|archive"
LOOKS += "|conda-create|conda-cleanup-envs|containerize|generate|print-compilation"
LOOKING = re.compile(rf"--({LOOKS})|-[tSDl]")
DRY_RUN = re.compile(r"--dry-?run|-[npkqrF]*n[npkqrF]*$")  # not -Rmake_pretrain


def prepare(workflow: Any, config: Any, plans: Sequence[Plan]) -> Callable[[Plan, Job], None]:
    """Set the environment of jobs, and hold the name of the configuration.

    Return a function to call with each job that Snakemake meets; it marks jobs with outdated results to run again.
    Raise GranularityError for settings that would lose results, or if another configuration of this name is running.
    """
    dry_run = any(map(DRY_RUN.match, sys.argv[1:]))
    makes = "--report-after-run" in sys.argv
    looks = dry_run or (not makes and any(map(LOOKING.match, sys.argv[1:])))
    _refuse(workflow, looks, config.device)
    # for the report's record of how it was made
    os.environ.setdefault("GRANULARITY_COMMAND", shlex.join(["snakemake", *sys.argv[1:]]))
    # Slurm's warning before a job ends is meant for the stage, which saves its work; it would kill Snakemake around it.
    if "SLURM_JOB_ID" in os.environ:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    if not workflow.is_main_process:  # but one of its jobs on a cluster, while others run
        return lambda plan, job: None
    os.environ[DRIVER] = f"{ROOT} {package_digest()}"
    modify = workflow.modifier.modify_path  # where Snakemake expects results: a module may have a prefix
    if not looks:
        hold(config, Path(modify(f"results/{config.name}")))
        _end_plainly()
        _wake_less()
    elif dry_run:
        files = _files((*workflow.configfiles, *workflow.overwrite_configfiles))
        atexit.register(say, f"What this costs on this machine, by stage: granularity config check{files}")

    began, results = time.time(), {}
    for plan in plans:
        results[plan] = Results(plan, lambda job, plan=plan: place.folder_of(modify(plan.stamp(job))))
        for condition in plan.conditions:
            (samples,) = plan.jobs("samples", condition=condition.name)
            counts = plan.summary(condition).get("images", {})
            complaints = list(too_few(samples.options["asks"], counts["train"])) if "train" in counts else []
            if complaints and not results[plan].outdated(samples):
                raise GranularityError(*(f"{condition.name}: {item}" for item in complaints))

    def remake(plan: Plan, job: Job) -> None:
        """Mark a job to run again if its result is outdated; Snakemake adds the jobs that depend on it."""
        for item in () if looks else (job, *(source for jobs in job.inputs.values() for source in jobs if source.at)):
            stamp = Path(modify(plan.stamp(item)))
            with contextlib.suppress(OSError):  # no later result could be newer
                if stamp.stat().st_mtime > time.time():
                    place.write_atomically(stamp, stamp.read_bytes())  # the present one may be another user's
                    os.utime(stamp, (began, began))
        if not workflow.touch and results[plan].outdated(job):
            workflow.dag.forcefiles.add(modify(plan.stamp(job)))

    return remake


def cores(workflow: Any) -> int | None:
    """Return the cores that all jobs share; None on a cluster, also in its jobs, which have those of their own."""
    return workflow.resource_settings.cores if workflow.is_main_process else None


def where_to_look(configfiles: Sequence[str | Path]) -> None:
    """Print how to follow a run, because its terminal shows nothing while a job runs."""
    say("To see each job's progress and remaining time, run in another terminal:")
    say(f"granularity status --watch{_files(configfiles)}")


def _files(configfiles: Sequence[str | Path]) -> str:
    """Return the options that tell a command a run's configuration."""
    named = [os.path.relpath(file) for file in once(configfiles)]
    return "".join(f" -f {shlex.quote(file)}" for file in named) if named != [str(DEFAULT)] else ""


def _end_plainly() -> None:
    """After a keyboard interrupt, print a last line that explains it, below Snakemake's output."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    interrupted = []

    def on_interrupt(number: int, frame: object) -> None:
        interrupted.append(number)
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, on_interrupt)
    stopped = "Stopped on request; the errors above say only that. The same command continues from here."
    atexit.register(lambda: say(stopped) if interrupted else None)


def _wake_less() -> None:
    """Let Snakemake's scheduler wake itself only while its limit of job starts per second holds jobs back.

    As it is, each pass plans another a second later while any job waits for a core, and each job that ends begins a
    chain of these: 17 % of a core in a study of 161 jobs (github.com/snakemake/snakemake/pull/3744).
    """
    with contextlib.suppress(ImportError, AttributeError):  # another version of Snakemake
        from snakemake.scheduling.job_scheduler import JobScheduler

        later = JobScheduler._schedule_reevalutation

        def if_held_back(scheduler: Any, delay: float) -> None:
            if not scheduler.job_rate_limiter.get_free_jobs():
                later(scheduler, delay)

        JobScheduler._schedule_reevalutation = if_held_back


def image(device: str) -> str:
    """Return the image for `--sdm apptainer`: GRANULARITY_IMAGE, or the one built from envs/granularity.def."""
    return os.environ.get("GRANULARITY_IMAGE") or str(HERE / f"envs/{'gpu' if device == 'cuda' else 'cpu'}.sif")


def _refuse(workflow: Any, looks: bool, device: str) -> None:
    """Refuse settings that would lose results; name the package for `envs/*.post-deploy.sh`."""
    if workflow.enable_cache:
        raise GranularityError("--cache verifies nothing: share one results folder instead (profiles/README.md)")
    storage = workflow.storage_settings
    if storage.default_storage_provider or SharedFSUsage.INPUT_OUTPUT not in storage.shared_fs_usage:
        raise GranularityError(
            "--default-storage-provider, and --shared-fs-usage without input-output, copy only stamps and lose "
            "results; run all jobs on one file system, and copy results with `granularity push` and `granularity pull`"
        )
    methods, file = workflow.deployment_settings.deployment_method, image(device)
    if DeploymentMethod.APPTAINER in methods and not (looks or "://" in file or os.path.exists(file)):
        raise GranularityError(
            f"--sdm apptainer: {file} does not exist; build it (docs/machines.md), or set GRANULARITY_IMAGE"
        )
    if DeploymentMethod.CONDA in methods:
        if package := _package():
            os.environ.setdefault("GRANULARITY_PACKAGE", package)
    elif not (looks or DeploymentMethod.APPTAINER in methods) and shutil.which("granularity") is None:
        raise GranularityError(
            "the command `granularity`, which jobs run, is not on the PATH; activate its environment"
        )


def _package() -> str | None:
    """Return what pip should install this package from: its checkout, or the commit that it was installed from."""
    if (checkout := ROOT.parents[1]).joinpath("pyproject.toml").is_file():
        return str(checkout)
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        found = json.loads(importlib.metadata.distribution("granularity").read_text("direct_url.json") or "{}")
        if vcs := found.get("vcs_info"):
            return f"granularity @ {vcs['vcs']}+{found['url']}@{vcs['commit_id']}"
        return found.get("url")
    return None


def hold(config: Any, root: Path) -> None:
    """Hold the name of a configuration until this process ends. Raise GranularityError if processes with another
    configuration or other code hold it.
    """
    digest = hashlib.sha256(canonical_json(config.model_dump(mode="json")).encode()).hexdigest()
    code = code_digest(*extensions.own_files())
    holder = lock.share(place.store_of(root) / f".driver-{root.name}", f"{digest} {package_digest()} {code}")
    if holder is not None:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder["started"]))
        name = "this name with other code" if holder["for"].startswith(digest) else "another configuration of this name"
        raise GranularityError(
            f"{root}: {name} is being made by {lock.who(holder)}, since {since}, in {holder['folder']}; wait until it "
            "ends, or give this run another name: --config name=..."
        )
