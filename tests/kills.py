"""SIGKILL for random processes of a running workflow, at random moments, until it has finished all the same.

    python tests/kills.py --kills 100                       # the default workflow, and a world of the theory
    python tests/kills.py --kills 10 --experiment smoke     # a small one
    python tests/kills.py --kills 100 --replace             # the smallest one, over results of another configuration

Runs it undisturbed, then again and again under fire: a process of it is killed (a stage, or Snakemake itself), and the
workflow is started again, beside whatever the kill has left running, until it finishes. Every artifact must have the
digest of the undisturbed run (but for the report, which holds measured costs). What killed writers leave is what
`granularity gc` takes away, and nothing else is left behind. With `--replace`, a run under fire replaces the results
of another seed, and another one goes back: nothing may be lost, and going back may compute nothing. Prints the kills
of each stage. `--seed` repeats the times to live, though not who lives when.
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

from granularity.store import artifacts, generations
from granularity.store.artifacts import Artifact
from support.checkout import Checkout
from support.stores import leftovers, made_in, stamps_in
from support.tiny_chain import configure

OFTEN = {"GRANULARITY_CHECKPOINT_SECONDS": "0.1"}  # so that there is something to continue from
DRIVER = "snakemake"
TARGETS = ("report", "theory_mask_reconstruction")
A_ROUND = 50  # kills, before it is run from the start again
A_REPLACEMENT = 10  # kills, before the results are replaced again
OTHER = ("--config", "seeds={'base': 1}")  # all results are others
FEW = 5  # a stage that was hit less often is killed sooner


class Fire:
    """A checkout under fire."""

    def __init__(self, checkout: Checkout, what: list[str], seed: int):
        self.checkout = checkout
        self.what = what
        self.kills: Counter[str] = Counter()
        self.starts = 0
        self.random = random.Random(seed)
        self.environment = self.checkout.environment | OFTEN

    def start(self, *more: str) -> subprocess.Popen:
        self.starts += 1
        if any(self.checkout.path(".snakemake/locks").glob("*")):
            subprocess.run([DRIVER, *self.what, "--unlock"], **self._quiet(), check=False)
        return subprocess.Popen([DRIVER, *self.what, *more, "--cores", "2"], **self._quiet(), start_new_session=True)

    def _quiet(self) -> dict:
        log = (self.checkout.path("fire.log")).open("ab")
        return {"cwd": self.checkout.path("."), "env": self.environment, "stdout": log, "stderr": log}

    @property
    def results(self) -> Path:
        return self.checkout.path("results")

    def digests(self) -> dict[str, str]:
        """By name."""
        stamps_in(self.results)
        found = (Artifact.open(folder) for folder in artifacts.find(self.results))
        return {str(one.path): one.digest for one in found if one.kind != "report"}

    def generations(self) -> dict[str, str]:
        """By kind and key; of reports, that they are there."""
        return {key: "" if key.startswith("report/") else digest for key, digest in made_in(self.results).items()}

    def finish_undisturbed(self, *more: str) -> None:
        if self.start(*more).wait() != 0:
            sys.exit(f"the workflow fails when it is left alone: {self.checkout.path('fire.log').read_text()[-3000:]}")

    def tidy_up(self) -> None:
        """Take away what killed writers have left, and what no name leads to; nothing else is left then."""
        beside = [path for path in leftovers(self.results) if not generations.is_torn(path)]
        if {path.parent.name for path in beside} - {".new", ".claims", ".work"}:
            raise AssertionError(f"left behind: {beside}")
        self.checkout.run("granularity", "gc", "results", "--delete", "--older-than", "0")
        if leftovers(self.results):
            raise AssertionError(f"left behind after gc: {leftovers(self.results)}")

    def finish_under_fire(self, kills: int, patience: float, *more: str) -> None:
        """Restart until it finishes; at most so many kills. Each process has its own time to live."""
        ends: dict[psutil.Process, float] = {}
        hit: Counter[str] = Counter()
        most = max(2, kills // 6)  # of a stage, or the first ones would have all
        while True:
            driver = self.start(*more)
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


def under_fire(checkout: Checkout, kills: int, patience: float, what: list[str], seed: int = 0) -> Fire:
    """Kill so many processes over as many runs as it takes; an AssertionError if a result differs."""
    fire = Fire(checkout, what, seed)
    fire.finish_undisturbed()
    expected = fire.digests()
    while (done := fire.kills.total()) < kills:
        shutil.rmtree(fire.results)
        fire.finish_under_fire(min(kills - done, A_ROUND), patience)
        compare(fire, fire.digests(), expected)
        fire.tidy_up()
        print(f"{fire.kills.total()} kills, {fire.starts} starts, {len(expected)} artifacts equal", flush=True)
    return fire


def replacing_under_fire(checkout: Checkout, kills: int, patience: float, seed: int = 0) -> Fire:
    """Kill so many processes while results are replaced by others, and while they come back."""
    fire = Fire(checkout, configure(checkout), seed)
    fire.finish_undisturbed()
    first, names = fire.generations(), fire.digests()
    fire.finish_undisturbed(*OTHER)
    both, other_names = fire.generations(), fire.digests()
    if len(both) < 2 * len(first) or set(other_names.items()) & set(names.items()):
        raise AssertionError("the other configuration has not replaced every result")
    fire.finish_undisturbed()
    compare(fire, fire.generations(), both)
    compare(fire, fire.digests(), names)
    while (done := fire.kills.total()) < kills:
        fire.tidy_up()
        compare(fire, fire.generations(), first)  # so the others are computed again
        there = min(kills - done, A_REPLACEMENT)
        fire.finish_under_fire(there - there // 3, patience, *OTHER)
        compare(fire, fire.generations(), both)
        compare(fire, fire.digests(), other_names)
        if there // 3:
            fire.finish_under_fire(there // 3, patience / 3)
        else:
            fire.finish_undisturbed()
        compare(fire, fire.generations(), both)
        compare(fire, fire.digests(), names)
        print(f"{fire.kills.total()} kills, {fire.starts} starts, {len(both)} generations equal", flush=True)
    fire.tidy_up()
    return fire


def compare(fire: Fire, found: dict[str, str], expected: dict[str, str]) -> None:
    different = sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))
    if different:
        raise AssertionError(f"after {fire.kills.total()} kills these differ: {different}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--patience", type=float, default=3.0, help="seconds at most that a process lives")
    parser.add_argument("--experiment", help="a name in config/experiments; by default the default configuration")
    parser.add_argument("--replace", action="store_true", help="replace results, and go back")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    print(f"in {folder}, which is kept if something is wrong", flush=True)
    what = [] if arguments.experiment else [*TARGETS]
    what += ["--configfile", f"config/experiments/{arguments.experiment}.yaml"] if arguments.experiment else []
    checkout = Checkout(folder, cold=True)
    if arguments.replace:
        fire = replacing_under_fire(checkout, arguments.kills, arguments.patience, arguments.seed)
    else:
        fire = under_fire(checkout, arguments.kills, arguments.patience, what, arguments.seed)
    shutil.rmtree(folder)
    for stage, count in fire.kills.most_common():
        print(f"{stage:12s} {count}")


if __name__ == "__main__":
    main()
