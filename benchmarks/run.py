"""Benchmarks: ours and a peer, measured in turns on one machine in one run.

    python benchmarks/run.py --list                        # the works
    python benchmarks/run.py                               # those that need neither a GPU nor much time: `make bench`
    python benchmarks/run.py kmeans embed:images=5000      # some of them, with other arguments of their `rows`
    python benchmarks/run.py kmeans --record "2 cores, alone"    # and put the rows into docs/performance.md

Each work is a module of this folder; its `rows(quick, device, ...)` yields objects: `work`, `ours`, `peer`, `ratio`,
`goal`. It runs in a process of its own on one thread; one that fails or takes too long is named, and the next begins.
Ends with a table, or with one JSON object a row (`--json`); the exit status is 1 if a work has failed.
"""

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from common import ROOT

USUAL, LONG = "make bench", "minutes"
WORKS = {  # name: what is compared, when it runs, the seconds it may take
    "train_step": ("a training step beside timm's, small networks in one job beside a job each", USUAL, 300),
    "pinned": ("pinned loops beside torch's own, a process each", USUAL, 600),
    "loader": ("JPEG to batch beside DataLoader and torchvision", USUAL, 120),
    "embed": ("stage embed beside open_clip with a DataLoader, on all cores", USUAL, 600),
    "cores": ("jobs on all cores beside scripts with their libraries' defaults", LONG, 3600),
    "growth": ("seconds and memory of stages by the number of images", LONG, 7200),
    "kmeans": ("stage cluster beside faiss.Kmeans, on all cores", USUAL, 600),
    "probes": ("probes beside scikit-learn", USUAL, 240),
    "verify": ("hashing results beside sha256sum", USUAL, 100),
    "theory": ("runs of the theory in groups beside one at a time", USUAL, 120),
    "theory_contamination": ("a step of feature contamination beside a plain autograd script", USUAL, 60),
    "workflow": ("planning the papers' experiments beside bare Snakemake", LONG, 900),
    "store": ("the store's share of a run's CPU time", LONG, 1800),
    "one_more": ("one label space more beside the whole run", LONG, 1800),
    "stability": ("the verdicts of the default run with ten base seeds: seeds=10,table=FILE.csv", LONG, 7200),
}
MEASURED, PAGE = ROOT / "benchmarks" / "measured.jsonl", ROOT / "docs" / "performance.md"
MARKS = "<!-- rows -->\n", "<!-- end of rows -->\n"


def met(row: dict) -> str:
    if row["goal"] is None:
        return ""
    reached = row["ratio"] <= row["goal"] if row.get("at_most") else row["ratio"] >= row["goal"]
    return f"{'≤ ' if row.get('at_most') else ''}{row['goal']:.3g}{'' if reached else ', missed'}"


def table(rows: list[dict]) -> str:
    lines = [f"{'work':100} {'ours':>9} {'peer':>9} {'ratio':>6}  goal"]
    lines += [f"{r['work'][:100]:100} {r['ours']:9.4g} {r['peer']:9.4g} {r['ratio']:6.3f}  {met(r)}" for r in rows]
    return "\n".join(lines)


def page(text: str, rows: list[dict]) -> str:
    """The text of the page with, between its marks, the goals missed by over a tenth and the numbers of others."""
    missed = [r for r in rows if "missed" in met(r)]
    reached, number = sum(bool(met(r)) for r in rows) - len(missed), len(missed)
    missed = [r for r in missed if not 1 / 1.1 <= r["ratio"] / r["goal"] <= 1.1]
    lines = ["| work | ratio | goal |", "|---|---|---|"]
    lines += [f"| {r['work']} | {r['ratio']:.3g} | {met(r).removesuffix(', missed')} |" for r in missed]
    lines += ["", f"{number - len(missed)} goals are missed by less, {reached} are met."]
    return text.split(MARKS[0])[0] + MARKS[0] + "\n".join(lines) + "\n" + MARKS[1] + text.split(MARKS[1])[1]


def record(rows: list[dict], when: str) -> None:
    """Put rows into the file of what was measured, in place of those of the same work, and write the page anew."""
    held = {r["work"]: r for r in map(json.loads, MEASURED.read_text(encoding="utf-8").splitlines())}
    held |= {r["work"]: {**r, "when": when} for r in rows}
    MEASURED.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in held.values()), encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), list(held.values())), encoding="utf-8")


def child(given: argparse.Namespace) -> None:
    name, _, words = given.works[0].partition(":")
    options = dict(word.split("=", 1) for word in filter(None, words.split(",")))
    options = {key: int(text) if text.isdecimal() else text for key, text in options.items()}
    import torch

    device = ("cuda" if torch.cuda.is_available() else "cpu") if given.device == "auto" else given.device
    for row in importlib.import_module(name).rows(quick=given.quick, device=device, **options):
        print(json.dumps(row), flush=True)


def measured(work: str, given: argparse.Namespace) -> tuple[list[dict], str]:
    """The rows of a work, and what went wrong, if anything."""
    name = work.partition(":")[0]
    command = [sys.executable, __file__, "--one", work, "--device", given.device, *["--quick"] * given.quick]
    paths = [str(ROOT / "workflow"), str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    if "avx512f" in Path("/proc/cpuinfo").read_text():  # the OpenBLAS in FAISS's wheel does not know newer processors
        environment.setdefault("OPENBLAS_CORETYPE", "SkylakeX")
    with open(given.out / f"{name}.log", "w") as log:
        pipes = {"stdout": subprocess.PIPE, "stderr": log, "text": True}
        process = subprocess.Popen(command, env=environment, start_new_session=True, **pipes)
        try:
            printed, wrong = process.communicate(timeout=WORKS[name][2])[0], ""
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            printed, wrong = process.communicate()[0], f"more than {WORKS[name][2]} s"
    wrong = wrong or (f"exit status {process.returncode}" if process.returncode else "")
    lines = (line for line in printed.splitlines() if line.startswith('{"work"'))
    return [json.loads(line) for line in lines], f"{name} ({wrong}; see {log.name})" if wrong else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("works", nargs="*", metavar="NAME[:KEY=VALUE,...]", help="default: those of `make bench`")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--quick", action="store_true", help="the smallest sizes, which show that a work runs")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="cpu")
    parser.add_argument("--json", action="store_true", help="print the rows, one JSON object each")
    parser.add_argument("--out", type=Path, default=ROOT / "bench", help="folder of the logs")
    parser.add_argument("--record", metavar="WHEN", help="put the rows into docs/performance.md")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.list:
        return print(*(f"{name:21} {what} ({when})" for name, (what, when, _) in WORKS.items()), sep="\n")
    works = given.works or [name for name, (_, when, _) in WORKS.items() if when == USUAL]
    unknown = [work for work in works if work.partition(":")[0] not in WORKS]
    if unknown:
        parser.error(f"there is no work {', '.join(unknown)}; --list names them")
    if given.one:
        return child(given)
    given.out.mkdir(parents=True, exist_ok=True)
    rows, failed = [], []
    for work in works:
        found, wrong = measured(work, given)
        print(f"{work}: {wrong or f'{len(found)} rows'}; load {os.getloadavg()[0]:.1f}", file=sys.stderr)
        rows += found
        failed += filter(None, [wrong])
    if given.record:
        record(rows, given.record)
    print("\n".join(map(json.dumps, rows)) if given.json else table(rows))
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
