"""Small networks trained side by side, as one network of grouped convolutions, against one after another.

    python benchmarks/stacks.py [--sizes 2 6 12 24] [--device auto]

Both are the trainings of stage `pretrain` (the order of images, augmentation, losses, the optimiser) on 300 images of
8 x 8 in batches of 100: the network of the default run, and a deeper one. Half of the networks have another seed, and
so other images. CPU time per network and step on one thread, or time on a GPU; the median of five turns each.

Prints a table, and one JSON object per row: `work`, `ours` and `peer` (steps of a network per second), `ratio`, `goal`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from granularity.learning.classification import Classification, on_target
from granularity.learning.dataset import Data
from granularity.learning.network import build
from granularity.learning.options import Model, Recipe
from granularity.learning.stacks import train_together
from granularity.learning.trainings import train
from granularity.machine.device import torch_device
from granularity.store.artifacts import Artifact
from support import tasks

NETWORKS = {
    "default": Model(),
    "deeper": Model(args={"layers": [1, 1, 1, 1], "channels": [16, 32, 64, 64], "stem_type": "deep", "stem_width": 8}),
}
GOALS = {("default", 12): 1.8}
TURNS = 5
RECIPE = Recipe(epochs=3, augment={"flip": False, "pad": 1})
STEPS = 9


def digits(folder: Path, device: torch.device) -> Data:
    tasks.run(
        "samples",
        folder / "samples",
        {"source": "digits", "ranks": ["loops", "digit"], "target": "loops", "train_size": 300},
    )
    tasks.run("pixels", folder / "pixels", {"size": 8, "mode": "L"}, samples=folder / "samples")
    return Data(Artifact.open(folder / "samples"), Artifact.open(folder / "pixels"), device)


class Work:
    """Trainings of so many networks of a model, from their initial weights on."""

    def __init__(self, data: Data, objective: Classification, model: Model):
        self.data, self.objective, self.model = data, objective, model

    def networks(self, count: int) -> list[torch.nn.Module]:
        return [build(self.model, 1, self.objective.outputs, seed).to(self.data.device) for seed in range(count)]

    def alone(self, count: int) -> None:
        for seed, network in enumerate(self.networks(count)):
            train(network, self.data, self.objective, RECIPE, seed % 2, None)

    def together(self, count: int) -> None:
        seeds = [seed % 2 for seed in range(count)]
        several = ([one] * count for one in (self.data, self.objective))
        train_together(self.networks(count), *several, RECIPE, seeds, None, lambda epoch: None)


def seconds(work: Callable[[int], None], count: int, device: torch.device) -> float:
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    began = clock()
    work(count)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[2, 6, 12, 24])
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    given = parser.parse_args()
    device = torch_device(given.device, 1)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        data = digits(Path(name), device)
        objective = on_target(data, RECIPE)
        for label, model in NETWORKS.items():
            work = Work(data, objective, model)
            seconds(work.alone, 1, device)
            for size in given.sizes:
                taken = [(seconds(work.together, size, device), seconds(work.alone, 2, device)) for _ in range(TURNS)]
                ours, peer = (statistics.median(one) for one in zip(*taken, strict=True))
                ours, peer = size * STEPS / ours, 2 * STEPS / peer
                what = f"{label} network on 8 x 8 digits, {size} side by side, {device.type}"
                goal = GOALS.get((label, size))
                rows.append(
                    {"work": what, "ours": round(ours, 1), "peer": round(peer, 1), "ratio": round(ours / peer, 2)}
                )
                rows[-1] |= {"goal": goal}
                print(f"{what:60} {ours:8.1f} {peer:8.1f} steps/s {ours / peer:6.2f} x  goal {goal}", flush=True)
    for row in rows:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
