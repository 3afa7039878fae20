"""The three quickest benchmarks run, at their smallest sizes on what this machine has, and yield rows."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
QUICK = ["loader", "probes", "verify"]


@pytest.mark.parametrize("work", QUICK)
def test_a_work_yields_rows(work, tmp_path):
    command = [sys.executable, ROOT / "benchmarks" / "run.py", work, "--quick", "--json", "--out", tmp_path]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr + (tmp_path / f"{work}.log").read_text()[-2000:]
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert rows and all({"work", "ours", "peer", "ratio", "goal"} <= row.keys() and row["ratio"] > 0 for row in rows)
