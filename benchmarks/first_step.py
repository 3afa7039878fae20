"""Seconds from the start of a pretraining job to the end of its first step, against an earlier commit of this project.

    python benchmarks/first_step.py [--images 20000] [--turns 3] [--against 5ee6097]

Photographs of 256 px; the job is `granularity pretrain`, with Python's start, the verifying of its inputs and all
preparation. Each side makes its own sample table, pixels and label space first, which is not counted; that commit has
squares (`pixels.npy`) only, we have them and JPEG. The sides take turns; the median counts.

Prints a table, and one JSON object per row: `work`, `ours` and `peer` (seconds), `ratio` (how many times as fast as the
peer) and `goal`. With 20,000 images: some ten minutes on two cores, and 10 GB of disk.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.photographs import photograph

ROOT = Path(__file__).parents[1]
GOALS = {20_000: 10.0}  # of fewer images, what both do at the start weighs more
SIZE, DISTINCT = 256, 64
BEFORE = "5ee6097"  # the last commit that computed the moments of the images in each job
RECIPE = {"batch_size": 32, "epochs": 1, "warmup_epochs": 0, "augment": {"crop": 64, "flip": True}}
MODEL = {"name": "vit_tiny_patch16_224", "args": {"img_size": 64}, "stem": "timm"}
RUN = "target-p0-00000000"
UNTIL_STEP = """
import os, sys, time
from torch.optim.optimizer import register_optimizer_step_post_hook
def stop(*_):
    print("first step", time.time(), flush=True)
    os._exit(0)
register_optimizer_step_post_hook(stop)
from granularity.cli import main
main()
"""


def pictures(folder: Path, images: int) -> None:
    """A few distinct photographs, many times: what they show does not matter here."""
    files = []
    for number in range(DISTINCT):
        file = io.BytesIO()
        photograph(number, 341, SIZE).save(file, "JPEG", quality=95)
        files.append({"bytes": file.getvalue(), "path": None})
    folder.mkdir()
    for split, count in {"train": images, "test": DISTINCT}.items():
        rows = [files[i % DISTINCT] for i in range(count)]
        table = pa.table({"image": rows, "kind": [f"kind {i % 10}" for i in range(count)]})
        pq.write_table(table, folder / f"{split}.parquet", row_group_size=1000)


class Side:
    """The package of one commit, and what it has made of the photographs."""

    def __init__(self, package: Path, folder: Path, data: Path, form: str | None = None):
        self.folder, self.turns = folder, 0
        self.environment = {**os.environ, "PYTHONPATH": str(package)}
        source = {"source": "parquet", "root": str(data), "ranks": ["kind"], "target": "kind"}
        self.made("samples", source)
        self.made("pixels", {"size": SIZE, "mode": "RGB", **({"format": form} if form else {})}, "samples")
        self.made("hierarchy", {"space": "target", "family": "manual", "params": {"rank": "kind"}}, "samples")

    def command(self, stage: str, options: dict, output: str, inputs: tuple[str, ...]) -> list[str]:
        given = [word for name in inputs for word in (f"--{name}", str(self.folder / name))]
        return [stage, *given, "--options", json.dumps(options), "--output", str(self.folder / output)]

    def made(self, stage: str, options: dict, *inputs: str) -> None:
        words = [sys.executable, "-m", "granularity", *self.command(stage, options, stage, inputs)]
        subprocess.run(words, env=self.environment, check=True, stderr=subprocess.DEVNULL)

    def __call__(self) -> float:
        """Seconds to the first step of a new pretraining."""
        self.turns += 1
        options = {"recipe": RECIPE, "model": MODEL, "runs": [RUN]}
        words = self.command("pretrain", options, f"pretrain-{self.turns}", ("samples", "pixels", "hierarchy"))
        began = time.time()
        ended = subprocess.run(
            [sys.executable, "-c", UNTIL_STEP, *words, "--device", "cpu"],
            env=self.environment,
            stdout=subprocess.PIPE,
            check=True,
        )
        (line,) = [line for line in ended.stdout.decode().splitlines() if line.startswith("first step")]
        return float(line.split()[-1]) - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--against", default=BEFORE, metavar="COMMIT")
    given = parser.parse_args()
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", given.against], stdout=subprocess.PIPE, check=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(folder / "before", filter="data")
        pictures(folder / "data", given.images)
        peer = Side(folder / "before" / "workflow", folder / "peer", folder / "data")
        ours = {form: Side(ROOT / "workflow", folder / form, folder / "data", form) for form in ("raw", "jpeg")}
        taken: dict[str, list[float]] = {side: [] for side in ("peer", *ours)}
        for _ in range(given.turns):
            for side, start in {"peer": peer, **ours}.items():
                taken[side].append(start())
    seconds = {side: statistics.median(one) for side, one in taken.items()}
    rows = []
    for form in ours:
        rows.append(
            {
                "work": f"start of a job to its first step, {given.images} images of {SIZE} px, {form}",
                "ours": round(seconds[form], 2),
                "peer": round(seconds["peer"], 2),
                "ratio": round(seconds["peer"] / seconds[form], 2),
                "goal": GOALS.get(given.images),
            }
        )
    print(f"load {os.getloadavg()[0]:.1f}; the peer is commit {given.against}")
    for row in rows:
        print(f"{row['work']:70} {row['ours']:7.2f} s {row['peer']:8.2f} s {row['ratio']:6.1f} x  goal {row['goal']}")
    for row in rows:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
