"""Memory and time of every stage on two sizes of a data set, and so what an image adds to what a job needs.

    python benchmarks/resources.py                                         # 32 px, 20,000 and 100,000 images
    python benchmarks/resources.py --side 256 --images 2000 10000          # as JPEG, from photographs of 500 x 375

The embedding has 768 dimensions, the network is the default's; from 64 px on it sees crops of 32 px, as its size plays
no part here. Each stage is a command, as in a job; its memory is that of all its processes together, what they share
counted once (PSS), looked at five times a second. The stages' records hold these numbers rounded up (`needs`). Takes
about ten minutes and 2 GB of memory.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from granularity.stages import STAGES
from granularity.store.artifacts import Artifact
from support import writing
from support.photographs import photograph

DIMENSION, CLASSES, VALIDATION = 768, 100, 0.1


def data_set(folder: Path, images: int, side: int) -> None:
    """Few distinct pictures, many times: what they show does not matter here."""
    rng = np.random.default_rng(0)
    pictures = []
    for number in range(64):
        file = io.BytesIO()
        if side < 64:
            Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8)).save(file, "PNG")
        else:
            photograph(number, 500, 375).save(file, "JPEG", quality=95)
        pictures.append({"bytes": file.getvalue(), "path": None})
    names = [f"class {i}" for i in range(CLASSES)]
    for split, count in {"train": images - round(images * VALIDATION), "test": round(images * VALIDATION)}.items():
        fine = [names[i % CLASSES] for i in range(count)]
        coarse = [f"group {i % CLASSES % 5}" for i in range(count)]
        rows = [pictures[i % len(pictures)] for i in range(count)]
        pq.write_table(
            pa.table({"image": rows, "coarse": coarse, "fine": fine}), folder / f"{split}.parquet", row_group_size=1000
        )


def embedding(folder: Path, samples: Path, images: int) -> None:
    vectors = np.random.default_rng(0).standard_normal((images, DIMENSION), dtype=np.float32)
    with writing.create(folder, "embed", [STAGES["embed"].module], {"samples": Artifact.open(samples)}, {}) as out:
        out.array("embedding.npy", vectors)


def apart(function, *arguments) -> None:
    """Call a function in a process of its own: one that is started later counts the memory of the one it came from."""
    process = multiprocessing.get_context("spawn").Process(target=function, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == 0


def measure(folder: Path, images: int, side: int) -> dict[str, tuple[float, float]]:
    """Stage -> (MB, seconds)."""
    (folder / "data").mkdir(parents=True)
    apart(data_set, folder / "data", images, side)
    source = {"source": "parquet", "root": str(folder / "data"), "ranks": ["coarse", "fine"], "target": "coarse"}
    large = side >= 64
    recipe = {"batch_size": 100, "epochs": 1, "warmup_epochs": 0, "augment": {"crop": 32} if large else {}}
    found = {}

    def run(stage: str, options: dict, *inputs: str) -> None:
        given = [word for name in inputs for word in (f"--{name}", str(folder / name))]
        device = ["--device", "cpu"] if STAGES[stage].needs.gpu else []
        command = [sys.executable, "-m", "granularity", stage, *given, "--options", json.dumps(options), *device]
        found[stage] = watched([*command, "--output", str(folder / stage)])

    run("samples", source)
    run("pixels", {"size": side, "mode": "RGB", "format": "jpeg" if large else "raw"}, "samples")
    apart(embedding, folder / "embed", folder / "samples", images)
    run("cluster", {"clustering": "whole-100", "iterations": 2, "restarts": 1}, "samples", "embed")
    space = {"space": "kmeans-100", "family": "kmeans", "params": {"clusterings": ["whole-100"]}}
    run("hierarchy", space, "samples", "cluster", "embed")
    once, again = ["kmeans-100-p0-00000000"], ["kmeans-100-p0-f0-00000000"]
    run("pretrain", {"recipe": recipe, "runs": once}, "samples", "pixels", "hierarchy")
    run("finetune", {"recipe": recipe, "runs": again}, "samples", "pixels", "pretrain")
    probe = {"name": "probe", "options": {"l2": [1.0]}, "runs": once, "augment": recipe["augment"]}
    run("measure", probe, "samples", "pixels", "embed", "pretrain")
    return found


def watched(command: list[str]) -> tuple[float, float]:
    """The largest memory of a command and its children, in MB, and its seconds."""
    began, peak = time.perf_counter(), 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as started:
        while started.poll() is None:
            now = 0
            try:
                first = psutil.Process(started.pid)
                for process in (first, *first.children(recursive=True)):
                    now += process.memory_full_info().pss
            except psutil.Error:  # one has ended
                continue
            peak = max(peak, now)
            time.sleep(0.2)
    if started.returncode:
        sys.exit(f"failed: {' '.join(command)}")
    return peak / 1e6, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--images", type=int, nargs=2, default=(20_000, 100_000), metavar=("SMALL", "LARGE"))
    parser.add_argument("--side", type=int, default=32, help="of the images, in pixels")
    given = parser.parse_args()
    small, large = given.images
    with tempfile.TemporaryDirectory() as folder:
        first, second = (measure(Path(folder, str(images)), images, given.side) for images in (small, large))
    print(f"{'stage':10} {'MB':>8} {'MB':>8} {'KB/image':>9} {'s':>8} {'s':>8} {'ms/image':>9}")
    for stage in first:
        (memory, seconds), (more_memory, more_seconds) = first[stage], second[stage]
        slope = (more_memory - memory) * 1000 / (large - small)
        pace = (more_seconds - seconds) * 1000 / (large - small)
        print(
            f"{stage:10} {memory:8.0f} {more_memory:8.0f} {slope:9.2f} {seconds:8.1f} {more_seconds:8.1f} {pace:9.3f}"
        )


if __name__ == "__main__":
    main()
