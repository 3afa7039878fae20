"""What the workflow itself costs: planning, a run in which every job does nothing, a finished run, a job's start-up.

    python benchmarks/workflow.py

Takes the papers' experiments with every seed (config/experiments), in a temporary copy of the checkout with empty data
folders. Nothing is trained: in the copy, `granularity` is a script that puts a prepared artifact, of the right contract
and with a line of text for data, where the job should write; so Snakemake itself sees real jobs and real results.
Each time is the least of three, wall clock, with the processor time of the same run in brackets.

Prints, and exits with status 1 if one of the first two misses its limit:

- seconds of a dry run of each experiment (limit: 5), beside the same trainings in jobs of one label space and of one
  family, beside ten training-set sizes of the largest, which tells how it grows, and with all of the theory;
- seconds of `snakemake` on the finished run until "Nothing to be done" (limit: 10), beside `granularity status`;
- seconds per job that Snakemake adds to the commands themselves;
- seconds from the start of a stage's command to its first line, by `import`, beside the bare interpreter, and what that
  comes to for all jobs of the largest experiment.
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
sys.path.insert(0, str(TESTS))

from granularity.config import files as config_files  # noqa: E402
from granularity.plan.graph import Plan  # noqa: E402
from granularity.stages import STAGES  # noqa: E402
from support.checkout import Checkout  # noqa: E402

EXPERIMENTS = ("inat2021_resnet34", "imagenet1k_resnet50", "imagenet21k_vit_b16")
LARGEST = EXPERIMENTS[0]
DRY_LIMIT, FINISHED_LIMIT = 5.0, 10.0
REPEATS = 3
CORES = str(len(os.sched_getaffinity(0)))
STUB = """#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in
  --output) output=$2 ;;
  esac
  shift
done
mkdir -p "$(dirname "$output")" && cp -P "prepared/$output" "$output" && cp "prepared/$output.stamp" "$output.stamp"
"""
# In a process of its own: the code of the copy makes them, whatever is edited here meanwhile.
WRITE = """
import sys
from granularity.config import files
from granularity.plan.graph import Plan
from support import minimal_results
minimal_results.write(Plan(files.load("config/config.yaml", *sys.argv[1:])))
"""


class Took:
    """Wall clock and processor time of a command and its children."""

    def __init__(self, checkout: Checkout, *command: str):
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        self.output = checkout.run(*command)
        after, self.wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - started
        self.cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def __str__(self) -> str:
        return f"{self.wall:6.2f} s ({self.cpu:5.2f} s)"


def best(checkout: Checkout, *command: str) -> Took:
    return min((Took(checkout, *command) for _ in range(REPEATS)), key=lambda took: took.wall)


def main() -> None:
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        checkout = Checkout(Path(folder))
        os.chdir(folder)  # configurations and artifacts are named relative to the checkout
        prepare_data()
        print(f"load average {os.getloadavg()[0]:.1f} on {CORES} cores\ndry run (`snakemake -n`)")
        jobs = {"as it is": {name: dry_run(checkout, name, missed) for name in EXPERIMENTS}[LARGEST]}
        for level in ("run", "space", "family"):
            over = {"jobs": dict.fromkeys(("pretrain", "finetune", "measure"), level)}
            jobs[level] = dry_run(checkout, LARGEST, [], f"... in jobs of one {level}", over)
        sizes = [{"train_size": 50_000 * number} for number in range(1, 11)]
        dry_run(checkout, LARGEST, [], "... at ten training-set sizes", {"conditions": sizes})
        theory = {"theory": {"size": "paper", "parts": 32}}
        dry_run(checkout, LARGEST, missed, "... and all theory, the papers' size", theory, ("report", "theory"))
        for name in EXPERIMENTS:
            finished_run(checkout, name, missed)
        start_up(checkout, jobs)
        os.chdir(ROOT)
    print(*missed, sep="\n")
    sys.exit(bool(missed))


def prepare_data() -> None:
    for name in EXPERIMENTS:
        text = Path(f"config/experiments/{name}.yaml").read_text()
        for data in re.findall(r"^  (?:root|wordnet): (\S+)", text, re.MULTILINE):
            if not Path(data).is_absolute():
                Path(data).mkdir(parents=True, exist_ok=True)


def files_of(name: str, over: dict | None = None) -> list[str]:
    files = [f"config/experiments/{name}.yaml"]
    if over is not None:
        Path("over.yaml").write_text(json.dumps({**over, "name": "over"}))
        files.append("over.yaml")
    return files


def dry_run(
    checkout: Checkout,
    name: str,
    missed: list,
    title: str | None = None,
    over: dict | None = None,
    targets: tuple[str, ...] = (),
) -> Counter:
    """Time it; returns the jobs of each rule."""
    took = best(checkout, "snakemake", "-n", *targets, "--configfile", *files_of(name, over))
    lines = took.output[took.output.index("Job stats:") :].splitlines()[3:]
    jobs = Counter({rule: int(count) for rule, count in map(str.split, lines[: lines.index("")])})
    total = jobs.pop("total")
    print(f"  {title or name:38s} {total:5d} jobs  {took}")
    if took.wall > DRY_LIMIT:
        missed.append(f"MISSED: the dry run of {name} took {took.wall:.2f} s, more than {DRY_LIMIT:.0f} s")
    return jobs


def finished_run(checkout: Checkout, name: str, missed: list) -> None:
    root = Plan(config_files.load("config/config.yaml", *files_of(name))).root
    checkout.run("env", f"PYTHONPATH={TESTS}{os.pathsep}workflow", sys.executable, "-c", WRITE, *files_of(name))
    results, prepared = Path(root), Path("prepared", root)
    prepared.parent.mkdir(parents=True, exist_ok=True)
    results.rename(prepared)
    stub = Path("bin/granularity")
    stub.parent.mkdir(exist_ok=True)
    stub.write_text(STUB)
    stub.chmod(0o755)

    real = checkout.environment["PATH"]
    command = ["snakemake", "--configfile", *files_of(name)]
    plain = Took(checkout, *command, "-n", "-p")
    commands = re.findall("^Shell command: (granularity .*)", plain.output, re.MULTILINE)
    Path("commands").write_text("\0".join(commands))
    logs = {str(Path(log).parent) for text in commands for log in re.findall(r"> (\S+) 2>&1", text)}
    for log in logs:
        Path(log).mkdir(parents=True, exist_ok=True)
    checkout.environment["PATH"] = f"{stub.parent.absolute()}{os.pathsep}{real}"
    try:
        alone = Took(checkout, "xargs", "-0", "-P", CORES, "-n", "1", "-a", "commands", "bash", "-c")
        checkout.run("rm", "-r", str(results))
        run = Took(checkout, *command)
        finished = best(checkout, *command)
    finally:
        checkout.environment["PATH"] = real
    assert "Nothing to be done" in finished.output, finished.output[-2000:]
    states = best(checkout, "granularity", "status", "--json", "-f", "config/config.yaml", "-f", *files_of(name))
    total = json.loads(states.output)["total"]
    assert total["done"] == total["jobs"] == len(commands), total

    print(f"{name}, {len(commands)} jobs that do nothing, {CORES} cores")
    print(f"  `snakemake`, every job                      {run}")
    print(f"  its commands alone, side by side            {alone}")
    print(f'  `snakemake`, "Nothing to be done"           {finished}')
    added = (run.wall - alone.wall - finished.wall) / len(commands)
    print(f"  Snakemake adds, a job (first - second - third) {1000 * added:3.0f} ms")
    print(f"  `granularity status`                        {states}")
    if finished.wall > FINISHED_LIMIT:
        missed.append(
            f"MISSED: {name}: {finished.wall:.2f} s until 'Nothing to be done', more than {FINISHED_LIMIT:.0f} s"
        )


def start_up(checkout: Checkout, jobs: dict[str, Counter]) -> None:
    """What a stage's process costs before it does anything, where that goes, and what it comes to for a whole run."""
    print(f"start-up of a job's process\n  {'bare python':12s} {best(checkout, sys.executable, '-c', 'pass')}")
    cpu = {}
    for name, stage in STAGES.items():
        statement = f"import granularity.cli, {stage.module}"
        took = best(checkout, sys.executable, "-c", statement)
        listing = checkout.run(sys.executable, "-X", "importtime", "-c", statement)
        found = [(int(us) // 1000, module) for us, module in re.findall(r"\| +(\d+) \| +(\w+)$", listing, re.MULTILINE)]
        largest = sorted((one for one in found if one[0] >= 50 and one[1] != "granularity"), reverse=True)[:4]
        print(f"  {name:12s} {took}  {', '.join(f'{module} {ms} ms' for ms, module in largest)}")
        cpu[name] = took.cpu
    print(f"start-up of all jobs of {LARGEST}, processor time")
    for level, counts in jobs.items():
        total = {stage: counts[f"make_{stage}"] * seconds for stage, seconds in cpu.items()}
        most = sorted(total, key=total.get, reverse=True)[:3]
        named = ", ".join(f"{stage} {total[stage]:.0f} s" for stage in most)
        print(f"  jobs: {level:10s} {counts.total():4d} jobs {sum(total.values()):7.0f} s   ({named})")


if __name__ == "__main__":
    main()
