"""One label space more, after a finished run: its wall clock beside that of the whole run.

    python benchmarks/one_more.py                                     # the default configuration: some five minutes
    python benchmarks/one_more.py --configfile config/examples/smoke.yaml

Takes a temporary copy of the checkout, runs `snakemake` to its end, adds `random: [50]` to the label spaces, and runs
it again. Prints how many runs each has trained and measured, whether every error of the first run is unchanged, and
one JSON object: `work`, `ours` (seconds of the second run), `peer` (of the first), `ratio`, `goal`: the share of the
trainings that are new, and 15 seconds.
"""

import argparse
import glob
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import yaml
from common import ROOT, row

sys.path.insert(0, str(ROOT / "tests"))

from support.checkout import Checkout

MORE, SECONDS = 50, 15.0


def held(results: Path) -> tuple[int, int, pd.Series]:
    """How many trainings and measured networks the store has, and the error of each finetuning by its id."""
    counts = [len(list((results / ".store" / kind).glob("*"))) for kind in ("run", "measured")]
    made = glob.glob(f"{results}/**/finetune/**/runs.parquet", recursive=True)  # follows links, as names of results are
    errors = pd.concat(pd.read_parquet(file).set_index("run_id")["val_error"] for file in made)
    return *counts, errors.sort_index()


def rows(quick: bool = False, device: str = "cpu", configfile: str = "config/config.yaml") -> Iterator[dict]:
    configfile = "config/examples/smoke.yaml" if quick else configfile
    with tempfile.TemporaryDirectory() as folder:
        checkout = Checkout(Path(folder), cold=True)
        random = yaml.safe_load(checkout.path(configfile).read_text())["label_spaces"]["random"]
        (checkout.path("more.yaml")).write_text(json.dumps({"label_spaces": {"random": [*random, MORE]}}))
        took, found = [], []
        for files in ([configfile], [configfile, "more.yaml"]):
            started = time.perf_counter()
            checkout.snakemake("--cores", "all", "--configfile", *files)
            took.append(time.perf_counter() - started)
            found.append(held(checkout.path("results")))
    (runs, measured, before), (all_runs, all_measured, after) = found
    new = all_runs - runs
    print(f"first: {runs} trainings, {measured} networks measured; then {new} and {all_measured - measured} more")
    print(f"errors of the first run unchanged: {after[before.index].equals(before)}", flush=True)
    work, goal = "one label space more, after a finished run, wall clock", new / runs + SECONDS / took[0]
    yield row(work, took[1], took[0], took[1] / took[0], goal, at_most=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configfile", default="config/config.yaml")
    for one in rows(configfile=parser.parse_args().configfile):
        print(json.dumps(one))


if __name__ == "__main__":
    main()
