"""What the store costs: the share of a whole run that finding, hashing, verifying and publishing its results takes.

    python benchmarks/store.py                    # the default run, some six minutes on two cores
    python benchmarks/store.py --configfile config/experiments/smoke.yaml

Runs Snakemake in a temporary copy of the checkout. In the copy, `granularity` is a script that runs the same command
with clocks around the functions of the store: the key of the result, looking for it, claims, opening and verifying
inputs, and all of writing but what the stage does. Then, once everything is there, the same run again with every job
forced: what going back costs per job.

Prints a table, and one JSON object per row: `work, ours, peer, ratio, goal`. `ours` and `peer` are seconds of processor
time (or of wall clock), of the store and of the commands as a whole, start-up included.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
GOAL = 0.03
NOTES = "GRANULARITY_BENCHMARK"  # the folder in which each command notes what it took
depth, spent = 0, {"wall": 0.0, "cpu": 0.0}


def clock() -> dict[str, float]:
    return {"wall": time.perf_counter(), "cpu": time.process_time()}


@contextlib.contextmanager
def counted(sign: int = 1):
    """Count the time within as the store's; with -1, as not the store's within such a time."""
    global depth
    outermost, began = depth == (0 if sign > 0 else 1), clock()
    depth += sign
    try:
        yield
    finally:
        depth -= sign
        if outermost:
            for name, now in clock().items():
                spent[name] += sign * (now - began[name])


def timed(function: Callable) -> Callable:
    @functools.wraps(function)
    def run(*args, **kwargs):
        with counted():
            return function(*args, **kwargs)

    return run


def job() -> None:
    """One command of a rule, with clocks."""
    from granularity import cli
    from granularity.store import task, writer
    from granularity.store.artifacts import Artifact

    create = writer.create

    @contextlib.contextmanager
    def clocked(*args, **kwargs):
        with counted(), create(*args, **kwargs) as out, counted(-1):
            yield out

    writer.create = clocked
    task.find = timed(task.find)
    Artifact.open = timed(Artifact.open)
    task.Task.origin = functools.cached_property(timed(task.Task.origin.func))
    task.Task.origin.__set_name__(task.Task, "origin")
    started = time.perf_counter()
    try:
        cli.main()
    finally:
        used = resource.getrusage(resource.RUSAGE_SELF)
        whole = {"wall": time.perf_counter() - started, "cpu": used.ru_utime + used.ru_stime}
        file = Path(os.environ[NOTES]) / f"{os.getpid()}-{time.time_ns()}.json"
        file.write_text(json.dumps({"store": spent, "whole": whole}))


def run(checkout, folder: Path, name: str, *arguments: str) -> tuple[dict, int, float]:
    """Run Snakemake; returns what the store and the commands took, the number of jobs, and the wall clock of all."""
    notes = folder / name
    notes.mkdir()
    checkout.environment[NOTES] = str(notes)
    began = time.perf_counter()
    checkout.snakemake(*arguments)
    wall = time.perf_counter() - began
    made = [json.loads(file.read_text()) for file in notes.iterdir()]
    parts = {part: {kind: sum(one[part][kind] for one in made) for kind in spent} for part in ("store", "whole")}
    return parts, len(made), wall


def main() -> None:
    from support.checkout import Checkout

    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--configfile", nargs="*", default=[])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder).absolute() / "checkout"
        copy.mkdir()
        checkout = Checkout(copy)
        commands = Path(folder) / "bin"
        commands.mkdir()
        script = commands / "granularity"
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).resolve()}" --job "$@"\n')
        script.chmod(0o755)
        checkout.environment["PATH"] = f"{commands}{os.pathsep}{checkout.environment['PATH']}"
        options = ["--cores", str(len(os.sched_getaffinity(0)))]
        options += ["--configfile", *given.configfile] if given.configfile else []
        rows = []
        print(f"load {os.getloadavg()[0]:.1f}")
        for name, more, goal in (("first run", [], GOAL), ("every job again", ["--forceall"], None)):
            parts, jobs, wall = run(checkout, Path(folder), name, *more, *options)
            for kind in spent:
                ours, peer = parts["store"][kind], parts["whole"][kind]
                rows.append({"work": f"store, {name}, {jobs} jobs, {kind}", "ours": ours, "peer": peer})
                rows[-1] |= {"ratio": ours / peer, "goal": goal}
            print(f"{name}: {jobs} jobs, {wall:.0f} s by the wall, {wall / jobs:.2f} s per job")
        for row in rows:
            print(f"{row['work']:42} {row['ours']:8.2f} s of {row['peer']:8.1f} s  {100 * row['ratio']:5.1f} %")
        for row in rows:
            print(json.dumps(row))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--job"]:
        del sys.argv[1]
        sys.argv[0] = "granularity"
        job()
    else:
        main()
