"""The workflow on a real Slurm with the profile that users get: where its jobs run, and what no mishap may change.

Every disturbed run must end in the digests of an undisturbed one on one machine. All of it happens at once, in
checkouts of its own, as most of it is waiting for Slurm; then the controller goes away.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from slurm_cluster import CPU_NODES, SPARE_NODES, Cluster
from slurm_site import CHAIN, EXPERIMENT, PRETRAINING, RESULTS, TARGET, WORK, Site

from granularity.config import files
from granularity.plan.commands import memory_mb, minutes
from granularity.plan.graph import Plan
from granularity.store.artifact import Artifact
from support.checkout import Checkout
from support.stores import leftovers

pytestmark = pytest.mark.slurm


class Sites:
    """Checkouts that begin alike."""

    def __init__(self, cluster: Cluster, folder: Path):
        """Make all of the chain but the report, on one machine."""
        self.cluster, self.folder = cluster, folder
        (folder / "undisturbed").mkdir()
        self.undisturbed = Site(folder / "undisturbed", cluster)
        here = Checkout(folder / "undisturbed", there=True)
        here.snakemake("finetune", "measure", "--configfile", EXPERIMENT)

    def new(self, name: str) -> Site:
        """One in which nothing is made."""
        (self.folder / name).mkdir()
        return Site(self.folder / name, self.cluster, self.undisturbed)

    def before_training(self, name: str) -> Site:
        """One in which everything is made, up to the pretraining."""
        (self.folder / name).mkdir()
        site = Site(self.folder / name, self.cluster, self.undisturbed, results=True)
        for made in (site.path(PRETRAINING).resolve(), site.path("results/.store/run")):
            shutil.rmtree(made)
        site.path(PRETRAINING).unlink()
        site.path(TARGET).unlink()
        return site

    def assert_undisturbed(self, site: Site) -> None:
        assert site.digests() == self.undisturbed.digests()
        assert "all sound" in site.run("granularity", "verify", "results")
        # No locks, no work folders; what a killed job was writing in is left for `granularity gc`.
        assert {path.parent.name for path in leftovers(site.path("results"))} <= {".new"}


@pytest.fixture(scope="module")
def sites(cluster, tmp_path_factory) -> Sites:
    return Sites(cluster, tmp_path_factory.mktemp("sites"))


@pytest.fixture(scope="module")
def at_once(request, sites) -> Iterator[dict[str, Future]]:
    """The scenarios that were asked for, at work."""
    params = (getattr(item, "callspec", None) for item in request.session.items)
    wanted = [spec.params["scenario"] for spec in params if spec and "scenario" in spec.params]
    pool = ThreadPoolExecutor(5)
    yield {scenario: pool.submit(scenario, sites) for scenario in wanted}
    pool.shutdown(wait=False, cancel_futures=True)  # after Control-C; they end when the cluster does


def the_whole_workflow(sites: Sites) -> None:
    site = sites.new("whole")
    site.finish(site.submit())
    jobs = site.jobs()
    assert len(jobs) == 11 and {job.state for job in jobs} == {"COMPLETED"}, jobs
    assert {job.partition for job in jobs} == {"cpu"} and {job.node for job in jobs} <= set(CPU_NODES)
    assert all(re.fullmatch(r"granularity_[-0-9a-f]{36}", job.name) for job in jobs)
    plan = Plan(files.load(site.path(EXPERIMENT)))
    for stage in ("samples", "pixels"):
        (job,) = (job for job in jobs if job.rule.startswith(f"rule_make_{stage}_"))
        (planned,) = plan.jobs(stage)
        asked = memory_mb(plan, planned), minutes(plan, planned)
        assert (job.memory, job.limit) == (f"{asked[0]}M", f"{asked[1]}:00"), stage
    sites.assert_undisturbed(site)
    assert "<html" in site.path(f"{RESULTS}/report/report.html").read_text()
    assert len(list(site.folder.glob(".snakemake/slurm_logs/**/*.log"))) == 11  # kept, one a job


def stages_with_cuda(sites: Sites) -> None:
    """Those that use GPUs go where they are, and fail in one line, since there are none."""
    site = sites.new("cuda")
    site.edit_profile(lambda profile: profile.update(retries=0))
    targets = ("embed", f"{CHAIN}/hierarchy/target.stamp")
    output = site.finish(site.submit(*targets, "--config", "device=cuda"), code=1)
    places = {job.rule.partition("_wildcards")[0].removeprefix("rule_"): job.partition for job in site.jobs()}
    assert places == {"make_samples": "cpu", "make_hierarchy": "cpu", "make_encoder": "gpu"}
    assert "error: device = cuda: torch sees no GPU" in output


def one_network_by_two_processes(sites: Sites) -> None:
    """In one job: the result is that of the same command without a scheduler."""
    site = sites.before_training("two_processes")
    words = shlex.split(site.command_of(TARGET, "--configfile", EXPERIMENT))
    options = json.loads(words[words.index("--options") + 1])
    options |= {"recipe": {"batch_size": 20, "epochs": 5, "micro_batch": 10}, "processes": 2}
    words[words.index("--options") + 1] = json.dumps(options)
    words += ["--threads", "2", "--output"]
    one, two = "apart/here", f"{CHAIN}/pretrain/there"  # or the second would find what the first has made
    site.run(*words, one)
    site.path("two.sh").write_text(f"#!/bin/bash\n{shlex.join([*words, two])}\n")
    log = site.path("two.log")
    site.run("sbatch", "--wait", "--time=5", "--mem=4000", "--cpus-per-task=2", f"--output={log}", "two.sh")
    made, expected = (Artifact.open(site.path(path)) for path in (two, one))
    assert made.digest == expected.digest and made.params["processes"] == 2, log.read_text()


def over_its_time_limit(sites: Sites) -> None:
    """Killed outright: on a cluster that gives no warning."""
    site = sites.before_training("over_its_time_limit")
    site.edit_needs("pretrain", "30, 2.0", "1, 0.0")
    site.edit_profile(lambda profile: profile["default-resources"].pop("slurm_extra"))
    site, driver, at = training(site)
    site.stop_trainer()
    site.wait_until(lambda: len(site.jobs()) == 2, "second attempt", driver)
    goes_on_from(site, driver, at)
    site.finish(driver)
    assert_each_attempt_had_twice_the_time(site, "TIMEOUT", 1)
    sites.assert_undisturbed(site)


def warned_before_its_time_limit(sites: Sites) -> None:
    """The warning arrives in time, and nothing but the training hears it. No other checkpoint is due."""
    site = sites.before_training("warned_before_its_time_limit")
    site.edit_needs("pretrain", "30, 2.0", "3, 0.0")
    driver = site.submit(TARGET, GRANULARITY_CHECKPOINT_SECONDS="3600")
    work = site.path(WORK)
    site.wait_until(lambda: list(work.glob("pretrain-*")), "training", driver)
    site.wait_until(site.trainers, "training", driver)
    trainer = site.stop_trainer()  # Slurm wakes it with its warning
    site.wait_until(lambda: trainer not in site.trainers(), "end of the job", driver)
    saved = list(work.glob("pretrain-*/*"))
    output = site.finish(driver)
    assert saved, "nothing was saved"
    assert "stopped: SIGUSR1; finished work is kept" in output
    assert "User defined signal" not in output
    assert_each_attempt_had_twice_the_time(site, "FAILED", 3)
    sites.assert_undisturbed(site)


def assert_each_attempt_had_twice_the_time(site: Site, state: str, minutes: int) -> None:
    """There are two of them, unless this machine is very busy."""
    jobs = site.jobs()
    assert [job.state for job in jobs] == [state] * (len(jobs) - 1) + ["COMPLETED"] and len(jobs) > 1, jobs
    assert [job.limit for job in jobs] == [f"{minutes * 2**n}:00" for n in range(len(jobs))], jobs


def over_its_memory(sites: Sites) -> None:
    site = sites.before_training("over_its_memory")
    site.edit_needs("pretrain", "1500,", "500,")
    site.finish(site.submit(TARGET))
    first, *_, last = site.jobs()
    assert first.state in ("FAILED", "OUT_OF_MEMORY") and first.memory == "501M", site.jobs()
    assert "exceeded memory limit" in site.slurm_log(first)
    assert last.state == "COMPLETED" and last.memory in ("1002M", "2005M")
    sites.assert_undisturbed(site)


def cancelled(sites: Sites) -> None:
    site, driver, at = training(sites.before_training("cancelled"))
    site.stop_trainer()  # Slurm wakes it to end it
    site.cluster.run("scancel", str(site.jobs()[0].number))
    site.wait_until(lambda: not site.trainers(), "end of the job", driver)
    goes_on_from(site, driver, at)
    site.finish(driver)
    assert [job.state for job in site.jobs()] == ["CANCELLED", "COMPLETED"]
    sites.assert_undisturbed(site)


def driver_interrupted(sites: Sites) -> None:
    """Control-C, and the command once more."""
    site, driver, at = training(sites.before_training("driver_interrupted"))
    site.stop_trainer()  # Slurm wakes it to end it
    os.killpg(driver.pid, signal.SIGINT)
    site.finish(driver, code=1)
    site.wait_until(lambda: not site.trainers() and site.jobs()[0].state == "CANCELLED", "end of the job")
    assert len(site.jobs()) == 1
    driver = site.submit(TARGET)
    goes_on_from(site, driver, at)
    site.finish(driver)
    sites.assert_undisturbed(site)


def driver_killed(sites: Sites) -> None:
    """Its job goes on, and the rerun starts the same one beside it."""
    site, driver, at = training(sites.before_training("driver_killed"))
    orphan = site.stop_trainer()  # until the other one works
    os.killpg(driver.pid, signal.SIGKILL)
    driver.communicate()
    site.snakemake("--unlock", "--configfile", EXPERIMENT)
    driver = site.submit(TARGET)
    site.wait_until(lambda: len(site.trainers()) == 2, "second writer", driver)
    goes_on_from(site, driver, at)
    os.kill(orphan, signal.SIGCONT)
    site.finish(driver)
    site.wait_until(lambda: site.jobs()[0].state != "RUNNING", "end of the orphan")
    first, second = site.jobs()
    assert second.state == "COMPLETED"
    assert first.name != second.name and {first.name[:12], second.name[:12]} == {"granularity_"}
    sites.assert_undisturbed(site)


def node_lost(sites: Sites) -> None:
    """As when its network fails: Slurm starts the job anew elsewhere, while the first one still writes."""
    site = sites.before_training("node_lost")
    site.edit_profile(lambda profile: profile["default-resources"].update(slurm_partition="spare"))
    site, driver, at = training(site)
    node = site.jobs()[0].node
    orphan = site.stop_trainer()
    try:
        site.cluster.lose_node(node)
        site.wait_until(lambda: len(site.trainers()) == 2, "second writer", driver)
        goes_on_from(site, driver, at)
        os.kill(orphan, signal.SIGCONT)
        site.finish(driver)
    finally:
        site.cluster.find_node(node)
    (*_, job) = site.jobs()
    assert job.state == "COMPLETED" and {node, job.node} == {*SPARE_NODES}
    site.wait_until(lambda: not site.trainers(), "end of the orphan")
    sites.assert_undisturbed(site)


AT_ONCE = (  # those that wait longest first
    over_its_time_limit,
    warned_before_its_time_limit,
    the_whole_workflow,
    node_lost,
    over_its_memory,
    driver_interrupted,
    driver_killed,
    cancelled,
    one_network_by_two_processes,
    stages_with_cuda,
)


@pytest.mark.parametrize("scenario", AT_ONCE, ids=lambda scenario: scenario.__name__)
def test_of_many_at_once(at_once, scenario):
    at_once[scenario].result()


def test_the_controller_is_away_for_half_a_minute(sites):
    site, driver, _ = training(sites.before_training("controller"))
    site.cluster.stop_controller()
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            driver.wait(30)
    finally:
        site.cluster.start_controller()
    site.finish(driver)
    sites.assert_undisturbed(site)


def training(site: Site) -> tuple[Site, subprocess.Popen, int]:
    """A driver whose training is half done, and the step of its checkpoint."""
    driver = site.submit(TARGET)
    return site, driver, site.wait_for_training(driver)


def goes_on_from(site: Site, driver: subprocess.Popen, step: int) -> None:
    """Wait for the next checkpoint of the first training: it must be beyond that step, or the training done."""
    before = site.checkpoint()

    def later():
        found = site.checkpoint()
        return found if found not in (None, before) else site.first_is_done()

    now = site.wait_until(later, "checkpoint", driver)
    assert now is True or now.step >= step, (now, step)
