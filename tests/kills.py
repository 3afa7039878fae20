"""SIGKILL for random processes of a running workflow, at random moments, until it has finished all the same.

    python tests/kills.py --kills 100        # about 15 minutes on two quiet cores

Runs a configuration undisturbed, then again and again under fire: a process of it is killed (a stage, or Snakemake
itself), and the workflow is started again, beside whatever the kill has left running, until it finishes. Every artifact
must have the digest of the undisturbed run (but for the report, which holds measured costs). Prints the kills of each
stage. `--seed` repeats a choice of victims, though not the moments.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

from checkout import Checkout
from granularity import artifacts
from granularity.artifacts import Artifact

CONFIG = ("config/config.yaml", "config/experiments/smoke.yaml")
SLOW = {"GRANULARITY_CHECKPOINT_SECONDS": "0.1"}  # so that there is something to continue from
DRIVER = "snakemake"


class Fire:
    """A checkout under fire."""

    def __init__(self, folder: Path, seed: int = 0):
        self.checkout = Checkout(folder)
        self.kills: Counter[str] = Counter()
        self.starts = 0
        self.random = random.Random(seed)
        self.environment = self.checkout.environment | SLOW

    def start(self) -> subprocess.Popen:
        self.starts += 1
        subprocess.run([DRIVER, "--unlock", "--quiet", "all", "--configfile", CONFIG[1]], **self._quiet(), check=False)
        command = [DRIVER, "--cores", "2", "--quiet", "all", "--configfile", CONFIG[1]]
        return subprocess.Popen(command, **self._quiet(), start_new_session=True)

    def _quiet(self) -> dict:
        log = (self.checkout.path("fire.log")).open("ab")
        return {"cwd": self.checkout.path("."), "env": self.environment, "stdout": log, "stderr": log}

    def digests(self) -> dict[str, str]:
        found = (Artifact.open(folder) for folder in artifacts.find(self.checkout.path("results")))
        return {str(one.path): one.digest for one in found if one.kind != "report"}

    def finish_undisturbed(self) -> None:
        if self.start().wait() != 0:
            sys.exit(f"the workflow fails when it is left alone: {self.checkout.path('fire.log').read_text()[-3000:]}")

    def finish_under_fire(self, kills: int, patience: float) -> None:
        """Restart until it finishes; at most so many kills, each at a moment up to `patience` seconds after a start."""
        left = kills
        while True:
            driver = self.start()
            deadline = time.monotonic() + self.random.uniform(0.0, patience)
            while driver.poll() is None and left > 0:
                if time.monotonic() > deadline and self._kill_one(driver):
                    left -= 1
                    deadline = time.monotonic() + self.random.uniform(0.3, patience)
                time.sleep(0.02)
            if driver.wait() == 0:
                return

    def _kill_one(self, driver: subprocess.Popen) -> bool:
        """Kill a process of the workflow; of stages, one that was hit least so far."""
        victims: dict[str, list[psutil.Process]] = {}
        for process in psutil.process_iter(["cmdline", "cwd"]):
            if process.info["cwd"] == str(self.checkout.path(".").resolve()):
                victims.setdefault(_stage(process.info["cmdline"] or []), []).append(process)
        victims.pop("", None)
        stages = [stage for stage in victims if stage != DRIVER]
        if not stages:
            return False
        least = min(self.kills[stage] for stage in stages)
        stage = self.random.choice([stage for stage in stages if self.kills[stage] == least])
        if self.random.random() < 0.15 and DRIVER in victims:
            stage = DRIVER
        process = self.random.choice(victims[stage])
        try:
            process.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            return False
        self.kills[stage] += 1
        return True


def _stage(command: list[str]) -> str:
    """What a process does, from its command line: a stage's name, snakemake, or nothing that is ours."""
    names = [Path(word).name for word in command[:3]]
    if "granularity" in names:
        place = names.index("granularity") + 1
        return command[place] if place < len(command) else ""
    return DRIVER if DRIVER in names else ""


def test_under_fire(folder: Path, kills: int, patience: float, seed: int = 0) -> Counter[str]:
    """Kill so many processes over as many runs as it takes; exits with a message if a result differs."""
    fire = Fire(folder, seed)
    fire.finish_undisturbed()
    expected = fire.digests()
    while (done := fire.kills.total()) < kills:
        subprocess.run(["rm", "-rf", "results"], cwd=fire.checkout.path("."), check=True)
        fire.finish_under_fire(min(kills - done, 40), patience)
        found = fire.digests()
        if found != expected:
            different = sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))
            raise AssertionError(f"after {fire.kills.total()} kills these differ: {different}")
        leftovers = [
            path for path in fire.checkout.path("results").rglob(".*") if not path.name.startswith(".snakemake")
        ]
        if leftovers:
            raise AssertionError(f"left behind: {leftovers}")
        print(f"{fire.kills.total()} kills, {fire.starts} starts, {len(found)} artifacts equal", flush=True)
    return fire.kills


test_under_fire.__test__ = False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--patience", type=float, default=6.0, help="seconds at most between a start and a kill")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kills = test_under_fire(Path(folder), arguments.kills, arguments.patience, arguments.seed)
    for stage, count in kills.most_common():
        print(f"{stage:12s} {count}")


if __name__ == "__main__":
    main()
