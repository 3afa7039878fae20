"""Images per second of a training, against the step of timm's own training script on the same network and images.

    python benchmarks/train_step.py                # small networks on a CPU, the paper's on a GPU
    python benchmarks/train_step.py --seconds 60   # of each side and row

Ours is :func:`granularity.learning.trainings.train` as the stages call it: the order of images, augmentation, forward
and backward passes, the optimiser, with images that are resident on the device. The peer is what `train.py` of timm
does in a step (forward under autocast, loss, backward, optimiser), on images that are ready: it loads and augments
nothing. Both run in turns, in one process; the median of the turns counts. The last row compares our training on images
that are read and decoded meanwhile with the same on images in memory.

Prints a table, and one JSON object per row: `work`, `ours` and `peer` (images per second), `ratio` (ours to the peer's)
and `goal` (the least of it).
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from granularity.learning.dataset import Data
from granularity.learning.feed import readers
from granularity.learning.network import build
from granularity.learning.options import Model, Recipe
from granularity.learning.trainings import train
from granularity.machine.device import torch_device
from granularity.store.artifacts import Artifact
from support import tasks
from support.photographs import photograph

GOAL, FROM_JPEG_GOAL = 1.0, 0.95
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
CLASSES, BATCHES, DISTINCT = 100, 4, 64


def photographs(folder: Path, images: int, side: int, form: str, device: torch.device) -> Data:
    """Images as a training finds them in stage `pixels`: squares in memory, or rectangles as JPEG."""
    if not (folder / "samples").exists():
        (folder / "data").mkdir(parents=True)
        files = []
        for number in range(DISTINCT):
            file = io.BytesIO()
            photograph(number, side * 4 // 3, side).save(file, "JPEG", quality=95)
            files.append({"bytes": file.getvalue(), "path": None})
        for split, count in {"train": images, "test": DISTINCT}.items():
            kinds = [f"kind {i % 2}" for i in range(count)]
            rows = pa.table({"image": [files[i % DISTINCT] for i in range(count)], "kind": kinds})
            pq.write_table(rows, folder / "data" / f"{split}.parquet", row_group_size=1000)
        source = {"source": "parquet", "root": str(folder / "data"), "ranks": ["kind"], "target": "kind"}
        tasks.run("samples", folder / "samples", source)
    if not (folder / form).exists():
        options = {"size": side, "mode": "RGB", "format": form}
        tasks.run("pixels", folder / form, options, samples=folder / "samples", threads=len(os.sched_getaffinity(0)))
    return Data(Artifact.open(folder / "samples"), Artifact.open(folder / form), device)


class Labels:
    """Cross-entropy on labels by chance."""

    def __init__(self, images: int, device: torch.device):
        self.labels = (torch.arange(images) % CLASSES).to(device)

    def loss(self, outputs: torch.Tensor, picked: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(outputs, self.labels[picked.to(self.labels.device)])


def network(name: str, arguments: dict | None, device: torch.device) -> torch.nn.Module:
    return build(Model(name=name, args=arguments, stem="timm"), 3, CLASSES, 0).to(device)


def ours(data, name, arguments, side, crop, batch, micro, precision, compiled, device):
    """A function that trains for some epochs; returns seconds per step."""
    labels = Labels(len(data.train), device)
    options = {"batch_size": batch, "micro_batch": micro, "precision": precision, "compile": compiled}
    recipe = Recipe(**options, epochs=epochs(device), lr=0.01, warmup_epochs=0, augment={"flip": True, "crop": crop})
    model = network(name, arguments, device)

    def turn() -> float:
        began: list[float] = []
        hook = register_optimizer_step_post_hook(lambda *_: began or began.append(seconds(device)))  # after the first
        train(model, data, labels, recipe, 0, None)
        hook.remove()
        return (seconds(device) - began[0]) / (recipe.epochs * (len(data.train) // batch) - 1)

    return turn


def timms(name, arguments, side, crop, batch, micro, precision, compiled, device):
    """The same of timm's training script, with its defaults for speed: channels last, foreach or fused by torch."""
    import timm.optim

    model = timm.create_model(name, num_classes=CLASSES, **(arguments or {})).to(
        device, memory_format=torch.channels_last
    )
    optimizer = timm.optim.create_optimizer_v2(model, "sgd", lr=0.01, momentum=0.9, weight_decay=5e-4)
    forward = torch.compile(model) if compiled else model
    steps = epochs(device) * BATCHES - 1
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
        for _ in range(steps):
            step()
        return (seconds(device) - began) / steps

    return turn


def epochs(device: torch.device) -> int:
    return 5 if device.type == "cuda" else 1


def seconds(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="at least, of each side of a row")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--turns", type=int, default=3, help="at least, of each side of a row")
    parser.add_argument("--rows", type=int, help="the first rows alone")
    given = parser.parse_args()
    device = torch_device(given.device, int(os.environ.get("OMP_NUM_THREADS", len(os.sched_getaffinity(0)))))
    on_gpu = device.type == "cuda"
    rows = []
    print(f"{torch.__version__} on {torch.cuda.get_device_name() if on_gpu else 'a CPU'}", end="; ")
    print(f"{torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as name:
        for row in (ON_GPU if on_gpu else ON_CPU)[: given.rows]:
            batch, data = row[4], resident(Path(name), row, device)
            turns = {"ours": ours(data, *row, device), "peer": timms(*row, device)}
            rows.append(compared(described(row), turns, batch, GOAL if on_gpu else None, given))
            if on_gpu:
                torch.cuda.empty_cache()
        row = (ON_GPU if on_gpu else ON_CPU)[0]
        batch, data = row[4], resident(Path(name), row, device)
        read = photographs(Path(name, str(row[2])), len(data.train), row[2], "jpeg", device)
        turns = {"ours": ours(read, *row, device), "peer": ours(data, *row, device)}
        work = f"{described(row)}: from JPEG by {readers(device)} readers, against images in memory"
        rows.append(compared(work, turns, batch, FROM_JPEG_GOAL if on_gpu else None, given))
    for row in rows:
        print(json.dumps(row))


def resident(folder: Path, row: tuple, device: torch.device) -> Data:
    side, largest = row[2], max(batch for *_, batch, _, _, _ in (ON_GPU if device.type == "cuda" else ON_CPU))
    return photographs(folder / str(side), BATCHES * largest, side, "raw", device)


def described(row: tuple) -> str:
    name, _, _, crop, batch, micro, precision, compiled = row
    work = f"{name}, {crop} px, batch {batch}{f' of {micro}' if micro else ''}, {precision}"
    return work + (", compiled" if compiled else "")


def compared(work: str, turns: dict, batch: int, goal: float | None, given: argparse.Namespace) -> dict:
    """Both sides in turns; a row of the table, which is printed."""
    taken: dict[str, list[float]] = {side: [] for side in turns}
    began = time.perf_counter()
    while time.perf_counter() < began + 2 * given.seconds or len(taken["peer"]) < given.turns:
        for side, turn in turns.items():
            taken[side].append(turn())
    speed = {side: round(batch / statistics.median(one), 1) for side, one in taken.items()}
    row = {"work": work, **speed, "ratio": round(speed["ours"] / speed["peer"], 3), "goal": goal}
    print(f"{work:90} {speed['ours']:9.1f} {speed['peer']:9.1f} images/s  {row['ratio']:.3f} x", flush=True)
    return row


if __name__ == "__main__":
    sys.exit(main())
