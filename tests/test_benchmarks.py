"""The benchmarks run: every part of those for a GPU, on what this machine has, at the smallest sizes."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_part_of_a_visit_to_a_gpu_runs(tmp_path):
    environment = {**os.environ, "QUICK": "1", "PYTHONPATH": ""}
    ended = subprocess.run(
        [ROOT / "benchmarks" / "on_gpu.sh", tmp_path], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr + "".join(log.read_text()[-2000:] for log in tmp_path.glob("*.log"))
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert all({"work", "ours", "peer", "ratio", "goal"} <= row.keys() and row["ratio"] > 0 for row in rows)
    parts = re.findall(r"^ +part (\w+)", (ROOT / "benchmarks" / "on_gpu.sh").read_text(), flags=re.MULTILINE)
    with_rows = {name for name in parts if '{"work"' in (tmp_path / f"{name}.log").read_text()}
    assert with_rows == set(parts) - {"tests"}
    assert len((tmp_path / "table.txt").read_text().splitlines()) == len(rows) + 1
