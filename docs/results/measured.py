"""All numbers of trainings and measures in some folders of results, a row each:

python docs/results/measured.py results/NAME/draw-* > studies/TABLE/results.csv
python docs/results/measured.py results/NAME/draw-* --keys 'linear|kind/mean' > studies/TABLE/results.csv    # some keys
"""

import argparse
import sys
from pathlib import Path

import pandas as pd
from tables import name_of

import granularity

COLUMNS = ["results", "network", "space", "transfer", "pretrain_seed", "epoch", "split", "measure", "key", "value"]

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--keys", default="", help="a regular expression that keys of measures match")
    given = parser.parse_args()
    found = pd.concat([granularity.runs(folder).assign(results=name_of(folder)) for folder in sorted(given.folders)])
    kept = found["key"].isna() | found["key"].str.contains(given.keys)
    found[kept][COLUMNS].to_csv(sys.stdout, index=False, float_format="%.6g", lineterminator="\n")
