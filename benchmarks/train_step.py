"""Images per second of a training, against the step of timm's own training script on the same network and images.

    python benchmarks/train_step.py                # small networks on a CPU, the paper's on a GPU
    python benchmarks/train_step.py --seconds 60   # of each side and row

Ours is :func:`granularity.learning.trainings.train` as the stages call it: the order of images, augmentation, forward
and backward passes, the optimiser, with images that are resident on the device. The peer is what `train.py` of timm
does in a step (forward under autocast, loss, backward, optimiser), on images that are ready: it loads and augments
nothing. Both run in turns, in one process; the median of the turns counts.

Prints a table, and one JSON object per row: `work`, `ours` and `peer` (images per second), `ratio` (ours to the peer's)
and `goal` (the least of it).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time

import numpy as np
import torch

from granularity.learning.network import build
from granularity.learning.options import Model, Recipe
from granularity.learning.trainings import train
from granularity.machine.device import torch_device

GOAL = 1.0
SMALL = {"layers": [2, 2, 2, 2], "channels": [16, 32, 64, 128], "stem_width": 16}
# network, side of the images, crop, batch, micro-batch, precision, compiled
ON_CPU = [
    ("resnet18", SMALL, 64, 56, 64, None, "float32", False),
    ("resnet18", SMALL, 64, 56, 64, 16, "float32", False),
    ("vit_tiny_patch16_224", {"img_size": 64, "patch_size": 8}, 72, 64, 32, None, "float32", False),
]
ON_GPU = [
    ("resnet50", None, 256, 224, 256, None, "bfloat16", False),
    ("resnet50", None, 256, 224, 256, None, "bfloat16", True),
    ("resnet50", None, 256, 224, 1024, 256, "bfloat16", False),
    ("vit_base_patch16_224", None, 256, 224, 256, None, "bfloat16", False),
    ("vit_base_patch16_224", None, 256, 224, 256, None, "bfloat16", True),
    ("resnet34", None, 256, 224, 256, None, "tf32", False),
]
CLASSES, STEPS = 100, 4


class Resident:
    """Images in the memory of the device, as a training finds them in stage `pixels`."""

    channels = 3

    def __init__(self, images: int, side: int, device: torch.device):
        generator = torch.Generator().manual_seed(0)
        self.pixels = torch.randint(256, (images, side, side, 3), dtype=torch.uint8, generator=generator).to(device)
        self.train, self.side, self.device = np.arange(images), side, device

    def images(self, rows: torch.Tensor) -> torch.Tensor:
        pixels = self.pixels[torch.as_tensor(rows).to(self.device)].permute(0, 3, 1, 2)
        return pixels.float().div(255).sub(0.5).div(0.25)


class Labels:
    """Cross-entropy on labels by chance."""

    def __init__(self, images: int, device: torch.device):
        self.labels = (torch.arange(images) % CLASSES).to(device)

    def loss(self, outputs: torch.Tensor, picked: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(outputs, self.labels[picked.to(self.labels.device)])


def network(name: str, arguments: dict | None, device: torch.device) -> torch.nn.Module:
    return build(Model(name=name, args=arguments, stem="timm"), 3, CLASSES, 0).to(device)


def ours(name, arguments, side, crop, batch, micro, precision, compiled, device):
    """A function that trains for so many steps; returns seconds per step."""
    data, labels = Resident(batch * STEPS, side, device), Labels(batch * STEPS, device)
    options = {"batch_size": batch, "micro_batch": micro, "precision": precision, "compile": compiled, "epochs": 1}
    recipe = Recipe(**options, lr=0.01, warmup_epochs=0, augment={"flip": True, "crop": crop})
    model = network(name, arguments, device)

    def turn() -> float:
        train(model, data, labels, recipe, 0, None)  # its start-up is not a step's
        began = seconds(device)
        train(model, data, labels, recipe.model_copy(update={"epochs": 3}), 0, None)
        return (seconds(device) - began) / (3 * STEPS)

    return turn


def timms(name, arguments, side, crop, batch, micro, precision, compiled, device):
    """The same of timm's training script, with its defaults for speed: channels last, foreach or fused by torch."""
    import timm.optim

    given = {key: value for key, value in (arguments or {}).items()}
    model = timm.create_model(name, num_classes=CLASSES, **given).to(device, memory_format=torch.channels_last)
    optimizer = timm.optim.create_optimizer_v2(model, "sgd", lr=0.01, momentum=0.9, weight_decay=5e-4)
    forward = torch.compile(model) if compiled else model
    images = torch.randn(batch, 3, crop, crop, device=device).to(memory_format=torch.channels_last)
    labels = torch.arange(batch, device=device) % CLASSES
    size = micro or batch
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    half = precision == "bfloat16"

    def step() -> None:
        optimizer.zero_grad()
        for start in range(0, batch, size):
            with torch.autocast(device.type, torch.bfloat16, enabled=half):
                loss = torch.nn.functional.cross_entropy(
                    forward(images[start : start + size]), labels[start : start + size]
                )
            (loss * (size / batch)).backward()
        optimizer.step()

    def turn() -> float:
        model.train()
        step()
        began = seconds(device)
        for _ in range(3 * STEPS):
            step()
        return (seconds(device) - began) / (3 * STEPS)

    return turn


def seconds(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=15.0, help="at least, of each side of a row")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    given = parser.parse_args()
    device = torch_device(given.device, len(os.sched_getaffinity(0)))
    rows = []
    print(f"{torch.__version__} on {torch.cuda.get_device_name() if device.type == 'cuda' else 'a CPU'}", end="; ")
    print(f"{torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}")
    for row in ON_GPU if device.type == "cuda" else ON_CPU:
        name, _, _, crop, batch, micro, precision, compiled = row
        work = f"{name}, {crop} px, batch {batch}{f' of {micro}' if micro else ''}, {precision}"
        work += ", compiled" if compiled else ""
        turns = {"ours": ours(*row, device), "peer": timms(*row, device)}
        taken: dict[str, list[float]] = {side: [] for side in turns}
        began = time.perf_counter()
        while time.perf_counter() < began + 2 * given.seconds or len(taken["peer"]) < 3:
            for side, turn in turns.items():
                taken[side].append(turn())
        speed = {side: round(batch / statistics.median(one), 1) for side, one in taken.items()}
        rows.append({"work": work, **speed, "ratio": round(speed["ours"] / speed["peer"], 3), "goal": GOAL})
        print(f"{work:60} {speed['ours']:9.1f} {speed['peer']:9.1f} images/s  {rows[-1]['ratio']:.3f} x", flush=True)
        turns.clear()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    for row in rows:
        print(json.dumps(row))


if __name__ == "__main__":
    sys.exit(main())
