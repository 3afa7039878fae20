"""Arms in lockstep against a job each: CPU seconds of training several networks on photographs that are kept as JPEG.

    python benchmarks/lockstep.py [--arms 2] [--images 2000] [--turns 2]

Ours is one job, whose processes (one per arm) read each image once for all; the peer is one job per arm, all at
the same time, so as many processes. Networks as small as these leave most of the work to reading, which is where a
GPU leaves it. The time of jobs of one epoch is taken from that of jobs of five.

Prints a table, and one JSON object per row: `work`, `ours` and `peer` (CPU seconds), `ratio` (how many times less
time than the peer) and `goal`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from first_step import SIZE, Side, pictures

ROOT = Path(__file__).parents[1]
RECIPE = {"batch_size": 100, "warmup_epochs": 0, "stack": 1, "augment": {"crop": 32, "scale": [0.2, 1], "flip": True}}
MODEL = {"args": {"layers": [1, 1, 0, 0], "channels": [8, 8, 8, 8]}}


class Arms(Side):
    """Photographs as JPEG, with random label spaces, and trainings on them."""

    def __init__(self, folder: Path, data: Path, arms: int):
        super().__init__(ROOT / "workflow", folder, data, "jpeg")
        self.spaces = [f"random-{10 + arm}" for arm in range(arms)]
        for arm, space in enumerate(self.spaces):
            options = {"space": space, "family": "random", "params": {"classes": 10 + arm}}
            words = self.command("hierarchy", options, space, ("samples",))
            subprocess.run([sys.executable, "-m", "granularity", *words], env=self.environment, check=True)

    def train(self, jobs: list[list[str]], epochs: int) -> tuple[float, float]:
        """CPU and wall seconds of jobs at the same time, each of which trains some arms in lockstep."""
        self.turns += 1
        began, used = time.perf_counter(), _cpu()
        running = []
        for number, spaces in enumerate(jobs):
            runs = [f"{space}-p0-{self.turns:04d}{number:02d}{arm:02d}" for arm, space in enumerate(spaces)]
            options = {"recipe": RECIPE | {"epochs": epochs}, "model": MODEL, "runs": runs, "arms": len(spaces)}
            words = self.command("pretrain", options, f"pretrain-{self.turns}-{number}", ("samples", "pixels"))
            given = [word for space in spaces for word in ("--hierarchy", str(self.folder / space))]
            words += [*given, "--device", "cpu", "--threads", str(len(spaces))]
            command = [sys.executable, "-m", "granularity", *words]
            running.append(subprocess.Popen(command, env=self.environment))
        if any([one.wait() for one in running]):
            raise SystemExit("a training failed")
        return _cpu() - used, time.perf_counter() - began


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--arms", type=int, default=2)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=2)
    given = parser.parse_args()
    os.environ["GRANULARITY_READERS"] = "0"  # each process reads for itself: as many as there are arms, on both sides
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pictures(folder / "data", given.images)
        arms = Arms(folder / "made", folder / "data", given.arms)
        sides = {"ours": [arms.spaces], "peer": [[space] for space in arms.spaces]}
        cpu, wall = ({side: [] for side in sides} for _ in range(2))
        for _ in range(given.turns):
            for side, jobs in sides.items():
                (short, soon), (long, late) = arms.train(jobs, 1), arms.train(jobs, 5)
                cpu[side].append(long - short)
                wall[side].append(late - soon)
    seconds = {side: statistics.median(values) for side, values in cpu.items()}
    row = {
        "work": f"{given.arms} arms, {given.images} images of {SIZE} px, 4 epochs, resized crops of 32 px, a job each",
        "ours": round(seconds["ours"], 1),
        "peer": round(seconds["peer"], 1),
        "ratio": round(seconds["peer"] / seconds["ours"], 2),
        "goal": None,
    }
    clocks = ", ".join(f"{side} {statistics.median(values):.1f} s of wall clock" for side, values in wall.items())
    print(f"load {os.getloadavg()[0]:.1f}; {clocks}")
    print(f"{row['work']}: {row['ours']} against {row['peer']} CPU seconds, {row['ratio']} x")
    print(json.dumps(row))


if __name__ == "__main__":
    main()
