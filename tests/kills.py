"""SIGKILL for random processes of a running workflow, at random moments, until it has finished all the same.

    python tests/kills.py --kills 100                       # the default workflow, and a world of the theory
    python tests/kills.py --kills 10 --experiment smoke     # a small one

Runs it undisturbed, then again and again under fire: a process of it is killed (a stage, or Snakemake itself), and the
workflow is started again, beside whatever the kill has left running, until it finishes. Every artifact must have the
digest of the undisturbed run (but for the report, which holds measured costs), and nothing may be left behind. Prints
the kills of each stage. `--seed` repeats a choice of victims, though not the moments.
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

OFTEN = {"GRANULARITY_CHECKPOINT_SECONDS": "0.1"}  # so that there is something to continue from
DRIVER = "snakemake"
TARGETS = ("report", "theory_mask_reconstruction")
A_ROUND = 50  # kills, before it is run from the start again


class Fire:
    """A checkout under fire."""

    def __init__(self, folder: Path, experiment: str | None, targets: tuple[str, ...], seed: int):
        self.checkout = Checkout(folder)
        self.what = [*targets]
        if experiment is not None:
            self.what += ["--configfile", f"config/experiments/{experiment}.yaml"]
        self.kills: Counter[str] = Counter()
        self.starts = 0
        self.random = random.Random(seed)
        self.environment = self.checkout.environment | OFTEN

    def start(self) -> subprocess.Popen:
        self.starts += 1
        subprocess.run([DRIVER, *self.what, "--unlock"], **self._quiet(), check=False)
        return subprocess.Popen([DRIVER, *self.what, "--cores", "2"], **self._quiet(), start_new_session=True)

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


def under_fire(
    folder: Path, kills: int, patience: float, experiment: str | None = None, targets: tuple[str, ...] = (), seed=0
) -> Counter[str]:
    """Kill so many processes over as many runs as it takes; an AssertionError if a result differs."""
    fire = Fire(folder, experiment, targets, seed)
    fire.finish_undisturbed()
    expected = fire.digests()
    while (done := fire.kills.total()) < kills:
        subprocess.run(["rm", "-rf", "results"], cwd=fire.checkout.path("."), check=True)
        fire.finish_under_fire(min(kills - done, A_ROUND), patience)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--patience", type=float, default=6.0, help="seconds at most between a start and a kill")
    parser.add_argument("--experiment", help="a name in config/experiments; by default the default configuration")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        targets = () if arguments.experiment else TARGETS
        kills = under_fire(
            Path(folder), arguments.kills, arguments.patience, arguments.experiment, targets, arguments.seed
        )
    for stage, count in kills.most_common():
        print(f"{stage:12s} {count}")


if __name__ == "__main__":
    main()
