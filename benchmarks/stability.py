"""Whether the report's primary comparisons have one verdict with any base seed: the default run, ten times,
of its conditions that have any.

    python benchmarks/stability.py --seeds 10                       # the default configuration: some half an hour
    python benchmarks/stability.py --table studies/digits/stability.csv

The base seed moves the draw of the images, the clusterings, the assignment of labels by chance, and all networks. Takes
a temporary copy of the checkout; prints one JSON object per comparison: `work`, `ours` (seeds with the most frequent
verdict), `peer` (seeds), `ratio`, `goal`. `--table` keeps every difference, with its interval.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import yaml
from common import ROOT, row

sys.path.insert(0, str(ROOT / "tests"))

from support.checkout import Checkout

KEPT = ["base_seed", "label", "space", "other", "pairs", "difference", "low", "high", "standing"]


def rows(
    quick: bool = False, device: str = "cpu", configfile: str = "config/config.yaml", seeds: int = 10, table: str = ""
) -> Iterator[dict]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        checkout = Checkout(Path(folder), cold=True)
        conditions = yaml.safe_load(checkout.path(configfile).read_text())["conditions"]
        asked = [one for one in conditions if one.get("primary")]
        for seed in range(2 if quick else seeds):
            over = {"name": f"seed-{seed}", "seeds": {"base": seed}, "conditions": asked}
            over |= {"pretrain": {"epochs": 3}} if quick else {}
            checkout.path("seed.yaml").write_text(json.dumps(over))
            checkout.snakemake("--cores", "all", "--configfile", configfile, "seed.yaml")
            compared = pd.read_csv(checkout.path(f"results/seed-{seed}/report/tables/comparisons.csv"))
            found.append(compared[compared["question"] == "primary"].assign(base_seed=seed)[KEPT])
            print(found[-1].to_string(header=not seed, index=False), file=sys.stderr, flush=True)
    every = pd.concat(found)
    if table:
        every.to_csv(ROOT / table, index=False, float_format="%.4f")
    for (label, space, other), one in every.groupby(["label", "space", "other"], sort=False):
        same, of = int(one["standing"].value_counts().iloc[0]), len(one)
        verdict = one["standing"].mode()[0]
        yield row(f"{label}, {space} against {other}: {verdict} (base seeds; of all)", same, of, same / of, 0.9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configfile", default="config/config.yaml")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--table", default="", help="a CSV file to write, relative to the repository")
    given = parser.parse_args()
    for one in rows(configfile=given.configfile, seeds=given.seeds, table=given.table):
        print(json.dumps(one))


if __name__ == "__main__":
    main()
