"""One label space more, after a finished run: its wall clock beside that of the whole run.

    python benchmarks/one_more.py                                     # the default configuration: some five minutes
    python benchmarks/one_more.py --configfile config/experiments/smoke.yaml

Takes a temporary copy of the checkout, runs `snakemake` to its end, adds `random: [50]` to the label spaces, and runs
it again. Prints how many runs each has trained and measured, whether every error of the first run is unchanged, and
one JSON object: `work`, `ours` (seconds of the second run), `peer` (of the first), `ratio`, `goal`: the share of the
trainings that are new, and 15 seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
import yaml

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from granularity.store.artifacts import Artifact, find  # noqa: E402
from support.checkout import Checkout  # noqa: E402

MORE, SECONDS = 50, 15.0


def held(results: Path) -> tuple[int, int, pd.Series]:
    """How many trainings and measured networks the store has, and the error of each finetuning by its id."""
    counts = [len(list((results / ".store" / kind).glob("*"))) for kind in ("run", "measured")]
    made = [Artifact.peek(name) for name in find(results) if "/finetune/" in str(name)]
    return *counts, pd.concat(one.table("runs.parquet").set_index("run_id")["val_error"] for one in made)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configfile", default="config/config.yaml")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        checkout = Checkout(Path(folder), cold=True)
        given = checkout.path(args.configfile)
        spaces = [
            yaml.safe_load(file.read_text()).get("label_spaces")
            for file in (checkout.path("config/config.yaml"), given)
        ]
        random = next(one["random"] for one in reversed(spaces) if one and "random" in one)
        (checkout.path("more.yaml")).write_text(json.dumps({"label_spaces": {"random": [*random, MORE]}}))
        took, found = [], []
        for files in ([args.configfile], [args.configfile, "more.yaml"]):
            started = time.perf_counter()
            checkout.snakemake("--cores", "all", "--configfile", *files)
            took.append(time.perf_counter() - started)
            found.append(held(checkout.path("results")))
    (runs, measured, before), (all_runs, all_measured, after) = found
    new = all_runs - runs
    print(f"first: {runs} trainings, {measured} networks measured; then {new} and {all_measured - measured} more")
    print(f"errors of the first run unchanged: {after[before.index].equals(before)}")
    goal = new / runs + SECONDS / took[0]
    row = {"work": "one label space more, after a finished run, wall clock", "ours": took[1], "peer": took[0]}
    print(json.dumps(row | {"ratio": took[1] / took[0], "goal": goal}))


if __name__ == "__main__":
    main()
