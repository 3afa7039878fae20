"""SIGKILL for random processes of a running workflow, at random moments, until it has finished all the same.

    python tests/kills.py --kills 100                       # the default workflow, and a world of the theory
    python tests/kills.py --kills 10 --experiment smoke     # a small one

Runs it undisturbed, then again and again under fire: a process of it is killed (a stage, or Snakemake itself), and the
workflow is started again, beside whatever the kill has left running, until it finishes. Every artifact must have the
digest of the undisturbed run (but for the report, which holds measured costs), and nothing may be left behind. Prints
the kills of each stage. `--seed` repeats the times to live, though not who lives when.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

from granularity.store import artifacts
from granularity.store.artifacts import Artifact
from support.checkout import Checkout

OFTEN = {"GRANULARITY_CHECKPOINT_SECONDS": "0.1"}  # so that there is something to continue from
DRIVER = "snakemake"
TARGETS = ("report", "theory_mask_reconstruction")
A_ROUND = 50  # kills, before it is run from the start again
FEW = 5  # a stage that was hit less often is killed sooner


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
        """Restart until it finishes; at most so many kills. Each process has its own time to live."""
        ends: dict[psutil.Process, float] = {}
        hit: Counter[str] = Counter()
        most = max(2, kills // 6)  # of a stage, or the first ones would have all
        while True:
            driver = self.start()
            while driver.poll() is None:
                for stage, process in self._processes() if hit.total() < kills else ():
                    if hit[stage] == most:
                        continue
                    if process not in ends:
                        longest = patience if self.kills[stage] < FEW else 5 * patience
                        ends[process] = time.monotonic() + self.random.uniform(0.0, longest)
                    elif time.monotonic() > ends[process] and _kill(process):
                        hit[stage] += 1
                        self.kills[stage] += 1
                        break
                time.sleep(0.05)
            if driver.returncode == 0:
                break
        while self._processes():  # what a killed driver has left running
            time.sleep(0.1)

    def _processes(self) -> list[tuple[str, psutil.Process]]:
        """Those of this checkout, and what they do."""
        here = str(self.checkout.path(".").resolve())
        found = [one for one in psutil.process_iter(["cmdline", "cwd"]) if one.info["cwd"] == here]
        stages = ((_stage(one.info["cmdline"] or []), one) for one in found)
        return [(stage, one) for stage, one in stages if stage]


def _kill(process: psutil.Process) -> bool:
    try:
        process.send_signal(signal.SIGKILL)
    except psutil.NoSuchProcess:
        return False
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
        shutil.rmtree(fire.checkout.path("results"))
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
    parser.add_argument("--patience", type=float, default=3.0, help="seconds at most that a process lives")
    parser.add_argument("--experiment", help="a name in config/experiments; by default the default configuration")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    print(f"in {folder}, which is kept if something is wrong", flush=True)
    targets = () if arguments.experiment else TARGETS
    kills = under_fire(folder, arguments.kills, arguments.patience, arguments.experiment, targets, arguments.seed)
    shutil.rmtree(folder)
    for stage, count in kills.most_common():
        print(f"{stage:12s} {count}")


if __name__ == "__main__":
    main()
