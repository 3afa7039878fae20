"""The workflow on a real Slurm with the profile that users get: where its jobs run, and what no mishap may change.

Every disturbed run must end in the digests of an undisturbed one on one machine. The disturbances that mostly wait for
Slurm's own clocks happen at once, in checkouts of their own; then a node and the controller go away.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from slurm_cluster import CPU_NODES
from slurm_site import CHAIN, EXPERIMENT, PRETRAINING, TARGET, Site

from granularity import config_files
from granularity.resources import memory_mb, minutes

pytestmark = pytest.mark.slurm

CONDITION = {"condition": "train-60"}
SEEN = """
rule all:
    input: "cpu.txt", "gpu.txt"
    localrule: True
rule on_cpu:
    output: "cpu.txt"
    resources: mem_mb=500, runtime=10, gpu=0
    shell: "env | grep -E '^(SLURMD_NODENAME|CUDA_VISIBLE_DEVICES)=' > {output}"
rule on_gpu:
    output: "gpu.txt"
    resources: mem_mb=500, runtime=10, gpu=1
    shell: "env | grep -E '^(SLURMD_NODENAME|CUDA_VISIBLE_DEVICES)=' > {output}"
"""


@pytest.fixture(scope="module")
def undisturbed(cluster, tmp_path_factory) -> Site:
    """All of the chain but the report, made on one machine."""
    site = Site(tmp_path_factory.mktemp("local"), cluster)
    site.snakemake("finetune", "probe", "--configfile", EXPERIMENT)
    return site


@pytest.fixture(scope="module")
def new_site(cluster, undisturbed, tmp_path_factory) -> Callable[[], Site]:
    """A checkout in which everything is made, up to the pretraining."""

    def make(name: str) -> Site:
        site = Site(tmp_path_factory.mktemp(name), cluster, undisturbed, results=True)
        shutil.rmtree(site.path(PRETRAINING))
        return site

    return make


def assert_undisturbed(site: Site, undisturbed: Site) -> None:
    assert site.digests() == undisturbed.digests()
    assert "all sound" in site.run("granularity", "verify", "results")
    assert not list(site.folder.glob("results/**/.*"))  # no claims, no work folders, no leftovers


# ---------------------------------------------------------------- where jobs run


def test_the_whole_workflow(cluster, undisturbed, tmp_path, monkeypatch):
    site = Site(tmp_path, cluster, undisturbed)
    site.finish(site.submit())
    jobs = site.jobs()
    assert len(jobs) == 11 and {job.state for job in jobs} == {"COMPLETED"}, jobs
    assert {job.partition for job in jobs} == {"cpu"} and {job.node for job in jobs} <= set(CPU_NODES)
    assert all(re.fullmatch(r"granularity_[-0-9a-f]{36}", job.name) for job in jobs)
    config = config_files.load(site.path("config/config.yaml"), site.path(EXPERIMENT))
    monkeypatch.chdir(site.folder)
    for rule, kind, trainings in (("make_samples_", "samples", 1), ("make_pretraining_", "pretrain", 2)):
        (job,) = (job for job in jobs if job.rule.startswith(f"rule_{rule}"))
        asked = memory_mb(config, kind, CONDITION), minutes(config, kind, CONDITION, trainings)
        assert (job.memory, job.limit) == (f"{asked[0]}M", f"{asked[1]}:00"), rule
    assert_undisturbed(site, undisturbed)
    assert "<html" in site.path("results/disturbed/report.html").read_text()
    logs = list(site.folder.glob(".snakemake/slurm_logs/**/*.log"))
    assert len(logs) == 11  # kept, one a job


def test_a_gpu_is_held_by_those_who_ask_and_by_nobody_else(cluster, tmp_path):
    """With a workflow of two rules: no stage could compute on a GPU that is only pretended."""
    site = Site(tmp_path, cluster)
    site.path("Snakefile").write_text(SEEN)
    site.finish(site.submit("--set-resources", "on_gpu:gpu_model=h200"))
    assert re.fullmatch("SLURMD_NODENAME=c[1-3]\n", site.path("cpu.txt").read_text())
    on_gpu = dict(line.split("=") for line in site.path("gpu.txt").read_text().splitlines())
    assert on_gpu["SLURMD_NODENAME"] == "g1" and re.fullmatch("[0-7]", on_gpu["CUDA_VISIBLE_DEVICES"])
    assert {job.rule: job.partition for job in site.jobs()} == {"rule_on_cpu": "cpu", "rule_on_gpu": "gpu"}


def test_with_cuda_the_stages_that_use_gpus_go_where_they_are(cluster, tmp_path):
    """They fail there, since there are none, and in one line each."""
    site = Site(tmp_path, cluster)
    site.edit_profile(lambda profile: profile.update(retries=0))
    output = site.finish(
        site.submit("embed", f"{CHAIN}/label_spaces/target/manifest.json", "--config", "device=cuda"), code=1
    )
    places = {job.rule.partition("_wildcards")[0].removeprefix("rule_"): job.partition for job in site.jobs()}
    assert places == {"make_samples": "cpu", "make_label_space": "cpu", "make_encoder": "gpu"}
    assert "error: device = cuda: torch sees no GPU" in output


# ---------------------------------------------------------------- disturbances


def over_its_time_limit(site: Site) -> None:
    """Killed outright: on a cluster that gives no warning."""
    site.edit_needs("pretrain", "30, 2.0", "1, 0.0")
    site.edit_profile(lambda profile: profile["default-resources"].pop("slurm_extra"))
    driver = site.submit(TARGET)
    at = site.wait_for_training(driver)
    (trainer,) = site.trainers()
    os.kill(trainer, signal.SIGSTOP)  # so that it is not done in time, on however fast a machine
    site.wait_until(lambda: len(site.jobs()) == 2, "second attempt", driver)
    goes_on_from(site, driver, at)
    site.finish(driver)
    assert_each_attempt_had_twice_the_time(site, "TIMEOUT", 1)


def warned_before_its_time_limit(site: Site) -> None:
    """The warning arrives in time, and nothing but the training hears it. No other checkpoint is due."""
    site.edit_needs("pretrain", "30, 2.0", "3, 0.0")
    driver = site.submit(TARGET, GRANULARITY_CHECKPOINT_SECONDS="3600")
    work = site.path(PRETRAINING).parent
    site.wait_until(lambda: list(work.glob(".all.work-*")), "training", driver)
    (trainer,) = site.wait_until(site.trainers, "training", driver)
    os.kill(trainer, signal.SIGSTOP)  # Slurm wakes it with its warning
    site.wait_until(lambda: trainer not in site.trainers(), "end of the job", driver)
    saved = list(work.glob(".all.work-*/*"))
    output = site.finish(driver)
    assert saved, "nothing was saved"
    assert "stopped: SIGUSR1; finished work is kept" in output
    assert "User defined signal" not in output
    assert_each_attempt_had_twice_the_time(site, "FAILED", 3)


def assert_each_attempt_had_twice_the_time(site: Site, state: str, minutes: int) -> None:
    """There are two of them, unless this machine is very busy."""
    jobs = site.jobs()
    assert [job.state for job in jobs] == [state] * (len(jobs) - 1) + ["COMPLETED"] and len(jobs) > 1, jobs
    assert [job.limit for job in jobs] == [f"{minutes * 2**n}:00" for n in range(len(jobs))], jobs


def over_its_memory(site: Site) -> None:
    site.edit_needs("pretrain", "1500,", "500,")
    site.finish(site.submit(TARGET))
    first, *_, last = site.jobs()
    assert first.state in ("FAILED", "OUT_OF_MEMORY") and first.memory == "501M", site.jobs()
    assert "exceeded memory limit" in site.slurm_log(first)
    assert last.state == "COMPLETED" and last.memory in ("1002M", "2005M")


def cancelled(site: Site) -> None:
    driver = site.submit(TARGET)
    at = site.wait_for_training(driver)
    site.cluster.run("scancel", str(site.jobs()[0].number))
    site.wait_until(lambda: not site.trainers(), "end of the job", driver)
    goes_on_from(site, driver, at)
    site.finish(driver)
    assert [job.state for job in site.jobs()] == ["CANCELLED", "COMPLETED"]


def driver_interrupted(site: Site) -> None:
    """Control-C, and the command once more."""
    driver = site.submit(TARGET)
    at = site.wait_for_training(driver)
    os.killpg(driver.pid, signal.SIGINT)
    site.finish(driver, code=1)
    site.wait_until(lambda: not site.trainers(), "end of the job")
    assert [job.state for job in site.jobs()] == ["CANCELLED"]
    driver = site.submit(TARGET)
    goes_on_from(site, driver, at)
    site.finish(driver)


def driver_killed(site: Site) -> None:
    """Its job goes on, and the rerun starts the same one beside it."""
    driver = site.submit(TARGET)
    at = site.wait_for_training(driver)
    (orphan,) = site.trainers()
    os.kill(orphan, signal.SIGSTOP)  # until the other one works, on however fast a machine
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


AT_ONCE = (
    over_its_time_limit,
    warned_before_its_time_limit,
    over_its_memory,
    cancelled,
    driver_interrupted,
    driver_killed,
)


@pytest.fixture(scope="module")
def disturbed(new_site) -> Iterator[dict[str, Future]]:
    """All disturbances that leave the cluster as it is, at once."""
    with ThreadPoolExecutor(3) as pool:  # more than two cores can do at once, as most of it is waiting

        def run(scenario: Callable[[Site], None], site: Site) -> Site:
            scenario(site)
            return site

        sites = {scenario: new_site(scenario.__name__) for scenario in AT_ONCE}
        yield {scenario.__name__: pool.submit(run, scenario, site) for scenario, site in sites.items()}


@pytest.mark.parametrize("name", [scenario.__name__ for scenario in AT_ONCE])
def test_a_job_or_driver_is_disturbed(disturbed, undisturbed, name):
    assert_undisturbed(disturbed[name].result(), undisturbed)


def test_a_node_is_lost_with_its_job_running_on(undisturbed, new_site):
    """As when its network fails: Slurm starts the job anew elsewhere, while the first one still writes."""
    site = new_site("node")
    driver = site.submit(TARGET)
    at = site.wait_for_training(driver)
    node = site.jobs()[0].node
    (orphan,) = site.trainers()
    os.kill(orphan, signal.SIGSTOP)
    try:
        site.cluster.lose_node(node)
        site.wait_until(lambda: len(site.trainers()) == 2, "second writer", driver)
        goes_on_from(site, driver, at)
        os.kill(orphan, signal.SIGCONT)
        site.finish(driver)
    finally:
        site.cluster.find_node(node)
    (*_, job) = site.jobs()
    assert job.state == "COMPLETED" and job.node != node
    site.wait_until(lambda: not site.trainers(), "end of the orphan")
    assert_undisturbed(site, undisturbed)


def test_the_controller_is_away_for_half_a_minute(undisturbed, new_site):
    site = new_site("controller")
    driver = site.submit(TARGET)
    site.wait_for_training(driver)
    site.cluster.stop_controller()
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            driver.wait(30)
    finally:
        site.cluster.start_controller()
    site.finish(driver)
    assert_undisturbed(site, undisturbed)


def goes_on_from(site: Site, driver: subprocess.Popen, step: int) -> None:
    """Wait for the next checkpoint of the first training: it must be beyond that step, or the training done."""
    before = site.checkpoint()

    def later():
        found = site.checkpoint()
        return found if found not in (None, before) else site.first_is_done()

    now = site.wait_until(later, "checkpoint", driver)
    assert now is True or now.step >= step, (now, step)
