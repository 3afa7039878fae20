"""A copy of the repository that works on a cluster, as a user's would, and what Slurm and the files say of its jobs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import psutil
import yaml
from safetensors import SafetensorError, safe_open
from slurm_cluster import ACCOUNT, Cluster

from granularity.store.artifact import Artifact
from granularity.store.place import find
from support.checkout import Checkout, wait

HERE = Path(__file__).parent
EXPERIMENT = "config/disturbed.yaml"
RESULTS = "results/disturbed"
CHAIN = f"{RESULTS}/train-60"
PRETRAINING = f"{CHAIN}/pretrain/resnet18/all"
TARGET = f"{PRETRAINING}.stamp"
WORK = "results/.store/.work"
STEPS = 1200  # of each of its trainings
MINUTES = 60
# What a site edits, and patience that suits a test.
SITE = {
    "slurm-init-seconds-before-status-checks": 1,
    "max-status-checks-per-second": 2,
    "latency-wait": 20,
    "retries": 4,
}


class Checkpoint(NamedTuple):
    step: int
    written: int


class Job(NamedTuple):
    """What squeue says of a job."""

    number: int
    name: str
    state: str
    partition: str
    node: str
    limit: str
    memory: str
    rule: str


class Site(Checkout):
    """A checkout with a site's own profile, `profiles/site`."""

    def __init__(self, folder: Path, cluster: Cluster, like: Site | None = None, results: bool = False):
        """Like another one: with its code, and with its `results` and Snakemake's records of them."""
        super().__init__(folder, cold=True)  # what Slurm watches over are its own children
        self.cluster, path = cluster, f"{cluster.folder}/bin:{self.environment['PATH']}"
        self.environment |= cluster.environment | {"PATH": path, "GRANULARITY_CHECKPOINT_SECONDS": "0.2"}
        if like is not None:
            made = shutil.ignore_patterns(*(() if results else ("results", ".snakemake")))
            shutil.copytree(like.folder, folder, symlinks=True, dirs_exist_ok=True, ignore=made)
            return
        shutil.copy(HERE / "experiment.yaml", folder / EXPERIMENT)
        shutil.copytree(folder / "profiles" / "slurm", folder / "profiles" / "site")
        self.edit_profile(lambda profile: profile["default-resources"].update(slurm_account=ACCOUNT))
        self.edit_profile(lambda profile: profile.update(SITE))

    def edit_profile(self, edit) -> None:
        file = self.folder / "profiles" / "site" / "config.yaml"
        profile = yaml.safe_load(file.read_text())
        edit(profile)
        file.write_text(yaml.safe_dump(profile))

    def edit_needs(self, stage: str, old: str, new: str) -> None:
        """Change what the jobs of a stage ask for."""
        file = self.folder / "workflow" / "granularity" / "stages" / stage / "__init__.py"
        (line,) = (line for line in file.read_text().splitlines() if line.strip().startswith("needs=Needs("))
        assert old in line
        file.write_text(file.read_text().replace(line, line.replace(old, new)))

    def submit(self, *arguments: str, **environment: str) -> subprocess.Popen:
        """A driver on the cluster; targets before options."""
        command = [sys.executable, str(HERE / "snakemake_impatient.py"), "--workflow-profile", "profiles/site"]
        return self.start(*command, *arguments, "--configfile", EXPERIMENT, **environment)

    def finish(self, driver: subprocess.Popen, seconds: float = 20 * MINUTES, code: int = 0) -> str:
        """What a driver has printed by its end."""
        output, ended = wait(driver, seconds)
        assert ended, f"the driver hangs: {self.jobs()}\n{output[-6000:]}"
        assert driver.returncode == code, output[-6000:]
        return output

    def jobs(self) -> list[Job]:
        """This checkout's jobs, in the order of their submission."""
        text = self.cluster.run("squeue", "--noheader", "--states=all", "-o", "%i|%j|%T|%P|%N|%l|%m|%k|%Z")
        rows = [line.split("|") for line in text.splitlines()]
        return sorted(Job(int(row[0]), *row[1:8]) for row in rows if row[8] == str(self.folder))

    def slurm_log(self, job: Job) -> str:
        (file,) = self.folder.glob(f".snakemake/slurm_logs/**/{job.number}.log")
        return file.read_text()

    def digests(self) -> dict[str, str]:
        """Of every artifact, reports apart: those hold measured costs."""
        found = {path: Artifact.peek(path) for path in find(self.folder / "results")}
        return {str(path.relative_to(self.folder)): one.digest for path, one in found.items() if one.kind != "report"}

    def checkpoint(self) -> Checkpoint | None:
        """The first training's, if it is at work."""
        for file in self.path(WORK).glob("pretrain-*/target-*.running"):
            try:
                with safe_open(file, "numpy") as state:
                    return Checkpoint(json.loads(state.metadata()["notes"])["step"], file.stat().st_mtime_ns)
            except (OSError, SafetensorError):
                continue
        return None

    def first_is_done(self) -> bool:
        return bool(list(self.path(WORK).parent.glob("run/*"))) or self.path(TARGET).exists()

    def wait_until(self, condition, what: str, driver: subprocess.Popen | None = None, seconds: float = 5 * MINUTES):
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            if driver is not None and driver.poll() is not None:
                raise AssertionError(f"the driver ended before {what}: {driver.communicate()[0][-6000:]}")
            assert time.monotonic() < deadline, f"no {what} within {seconds} seconds: {self.jobs()}"
            time.sleep(0.05)
        return found

    def wait_for_training(self, driver: subprocess.Popen) -> int:
        """The step of its checkpoint, when the first training is half done; no other saves first as late."""

        def half():
            return (found := self.checkpoint()) and found.step >= STEPS // 2 and found

        return self.wait_until(half, "checkpoint", driver).step

    def trainers(self) -> list[int]:
        """The processes that train here."""
        here = [one for one in psutil.process_iter(["cwd", "cmdline"]) if one.info["cwd"] == str(self.folder)]
        return [one.pid for one in here if "granularity\0pretrain" in "\0".join(one.info["cmdline"] or ())]

    def stop_trainer(self) -> int:
        """Halt the one that trains here, so that it is not done too soon, on however fast a machine."""
        (trainer,) = self.trainers()
        os.kill(trainer, signal.SIGSTOP)
        return trainer
