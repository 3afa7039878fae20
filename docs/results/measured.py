"""All that was measured of the networks of one condition, a row per number:

python docs/results/measured.py results/NAME/CONDITION > docs/results/TABLE.csv
"""

import sys
from pathlib import Path

import pandas as pd

COLUMNS = ["network", "space", "pretrain_seed", "epoch", "split", "measure", "key", "value"]

if __name__ == "__main__":
    parts = [
        pd.read_parquet(file).merge(pd.read_parquet(file.with_name("runs.parquet")), on="run")
        for file in sorted(Path(sys.argv[1]).glob("measure/*/*/*/values.parquet"))
    ]
    found = pd.concat(parts)[COLUMNS].sort_values(["measure", *COLUMNS[:5], "key"])
    found.to_csv(sys.stdout, index=False, float_format="%.6g", lineterminator="\n")
