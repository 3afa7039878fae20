"""SIGKILL for random processes of a running workflow, at random moments, until it has finished all the same.

    python tests/kills.py --kills 100                       # the default workflow, and a world of the theory
    python tests/kills.py --kills 100 --experiment smoke    # a small one
    python tests/kills.py --kills 40 --experiment smoke --draws 2    # a study
    python tests/kills.py --kills 100 --replace             # the smallest one, over results of another configuration

A process (a stage, or Snakemake itself) is killed again and again, and the workflow is started again, beside whatever
the kill has left running, until it finishes. Every artifact must have the digest of an undisturbed run (but for the
pages, which hold measured costs), no finished run (a training, or a measured network) may be lost or made a second
time, and nothing is left that `granularity gc` does not take away. With `--replace`, a run under fire replaces the
results of another seed, and another one goes back: nothing may be lost, and going back may compute nothing. `--seed`
repeats the times to live, though not who lives when.
"""

import argparse
import contextlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

from granularity.store import place
from granularity.store.artifact import PARTS, Artifact
from support.checkout import Checkout
from support.stores import leftovers, made_in, stamps_in
from support.tiny_chain import configure

OFTEN = {"GRANULARITY_CHECKPOINT_SECONDS": "0.1"}  # so that there is something to continue from
DRIVER = "snakemake"
VOLATILE = ("report", "gather")
TARGETS = ["report", "theory_mask_reconstruction"]
A_ROUND = 50  # kills, before it is run from the start again
A_REPLACEMENT = 10  # kills, before the results are replaced again
OTHER = ("--config", "seeds={'base': 1}")  # all results are others


class Fire:
    """A checkout under fire."""

    def __init__(self, checkout: Checkout, what: list[str], seed: int):
        self.checkout, self.what, self.random = checkout, what, random.Random(seed)
        self.kills: Counter[str] = Counter()
        self.results = checkout.path("results")
        self.finished: dict[Path, int] = {}  # runs and their inodes

    def start(self, *more: str) -> subprocess.Popen:
        log = self.checkout.path("fire.log").open("ab")
        how = {"cwd": self.checkout.folder, "env": self.checkout.environment | OFTEN, "stdout": log, "stderr": log}
        if any(self.checkout.path(".snakemake/locks").glob("*")):
            subprocess.run([DRIVER, *self.what, "--unlock"], **how, check=False)
        return subprocess.Popen([DRIVER, *self.what, *more, "--cores", "2"], **how, start_new_session=True)

    def digests(self) -> dict[str, str]:
        """By name."""
        stamps_in(self.results)
        found = (Artifact.open(folder) for folder in place.find(self.results))
        return {str(one.path): one.digest for one in found if one.kind not in VOLATILE}

    def keep_finished(self) -> None:
        """An AssertionError if a finished run is gone, or was made again."""
        found = {path: path.stat().st_ino for kind in PARTS for path in (self.results / place.STORE / kind).glob("*")}
        assert self.finished.items() <= found.items(), (
            f"lost or made again: {sorted({*self.finished.items()} - {*found.items()})}"
        )
        self.finished = found

    def generations(self) -> dict[str, str]:
        """By kind and key; of pages, that they are there."""
        return {key: "" if key.startswith(VOLATILE) else digest for key, digest in made_in(self.results).items()}

    def finish_undisturbed(self, *more: str) -> None:
        if self.start(*more).wait() != 0:
            sys.exit(f"the workflow fails when it is left alone: {self.checkout.path('fire.log').read_text()[-3000:]}")

    def tidy_up(self) -> None:
        """Take away what killed writers have left, and what no name leads to; nothing else is left then."""
        beside = [path for path in leftovers(self.results) if not place.is_torn(path)]
        assert {path.parent.name for path in beside} <= {".new", ".locks", ".work"}, beside
        self.checkout.run("granularity", "gc", "results", "--delete", "--older-than", "0")
        assert leftovers(self.results) == [], leftovers(self.results)
        self.finished = {}

    def finish_under_fire(self, kills: int, patience: float, *more: str) -> None:
        """Restart until it finishes; at most so many kills. Each process has its own time to live."""
        ends: dict[psutil.Process, float] = {}
        hit: Counter[str] = Counter()
        most = max(2, kills // 6)  # of a stage, or the first ones would have all
        while True:
            driver = self.start(*more)
            while driver.poll() is None:
                for stage, process in self._processes() if hit.total() < kills else ():
                    end = ends.setdefault(process, time.monotonic() + self.random.uniform(0.0, patience))
                    if hit[stage] < most and time.monotonic() > end:
                        with contextlib.suppress(psutil.NoSuchProcess):
                            process.kill()
                            hit[stage] += 1
                            self.kills[stage] += 1
                            break
                time.sleep(0.05)
            self.keep_finished()
            if driver.returncode == 0:
                break
        while self._processes():  # what a killed driver has left running
            time.sleep(0.1)

    def _processes(self) -> list[tuple[str, psutil.Process]]:
        """Those of this checkout, and what they do."""
        here = str(self.checkout.folder.resolve())
        found = [one for one in psutil.process_iter(["cmdline", "cwd"]) if one.info["cwd"] == here]
        stages = ((_stage(one.info["cmdline"] or []), one) for one in found)
        return [(stage, one) for stage, one in stages if stage]


def _stage(command: list[str]) -> str:
    """What a process does, from its command line: a stage's name, snakemake, or nothing that is ours."""
    names = [Path(word).name for word in command[:3]]
    if "granularity" in names:
        return "".join(command[names.index("granularity") + 1 :][:1])
    return DRIVER if DRIVER in names else ""


def under_fire(checkout: Checkout, kills: int, patience: float, what: list[str], seed: int = 0) -> Fire:
    """Kill so many processes over as many runs as it takes; an AssertionError if a result differs."""
    fire = Fire(checkout, what, seed)
    fire.finish_undisturbed()
    expected = fire.digests()
    while (done := fire.kills.total()) < kills:
        shutil.rmtree(fire.results)
        fire.finished = {}
        fire.finish_under_fire(min(kills - done, A_ROUND), patience)
        compare(fire, fire.digests(), expected)
        print(f"each of {len(fire.finished)} runs made once", flush=True)
        fire.tidy_up()
    return fire


def replacing_under_fire(checkout: Checkout, kills: int, patience: float, seed: int = 0) -> Fire:
    """Kill so many processes while results are replaced by others, and while they come back."""
    fire = Fire(checkout, configure(checkout), seed)
    fire.finish_undisturbed()
    first, names = fire.generations(), fire.digests()
    fire.finish_undisturbed(*OTHER)
    both, other_names = fire.generations(), fire.digests()
    assert len(both) >= 2 * len(first) and not set(other_names.items()) & set(names.items()), "not every one is another"
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
        fire.finish_under_fire(there // 3, patience / 3)
        compare(fire, fire.generations(), both)
        compare(fire, fire.digests(), names)
    fire.tidy_up()
    return fire


def compare(fire: Fire, found: dict[str, str], expected: dict[str, str]) -> None:
    print(f"{fire.kills.total()} kills, {len(expected)} results", flush=True)
    different = sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))
    assert not different, f"after {fire.kills.total()} kills these differ: {different}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--patience", type=float, default=3.0, help="seconds at most that a process lives")
    parser.add_argument("--experiment", help="a name in config/examples, instead of the default")
    parser.add_argument("--draws", type=int, default=1, help="of the experiment: more than one is a study")
    parser.add_argument("--replace", action="store_true", help="replace results, and go back")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    print(f"in {folder}, which is kept if something is wrong", flush=True)
    checkout = Checkout(folder, cold=True)
    if given.replace:
        fire = replacing_under_fire(checkout, given.kills, given.patience, given.seed)
    else:
        what = ["--configfile", f"config/examples/{given.experiment}.yaml"] if given.experiment else TARGETS
        what += ["--config", f"seeds={{'draws': {given.draws}}}"] if given.draws > 1 else []
        fire = under_fire(checkout, given.kills, given.patience, what, given.seed)
    shutil.rmtree(folder)
    print("\n".join(f"{stage:12s} {count}" for stage, count in fire.kills.most_common()))


if __name__ == "__main__":
    main()
