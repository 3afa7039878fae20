"""Memory and time of every stage on two sizes of a data set, and so what an image adds to what a job needs.

    python benchmarks/resources.py [SMALL LARGE]

Pictures are 32 x 32 colour noise, the embedding has 768 dimensions, the network is the default's. Each stage is a
process of its own, as in a job; its memory is the `peak_memory_mb` of the manifest. The stages' records hold these
numbers rounded up (`needs`). Takes about ten minutes and 2 GB of memory with 20,000 and 100,000 images.
"""

from __future__ import annotations

import io
import json
import multiprocessing
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from granularity.stages import STAGES
from granularity.store.artifacts import Artifact
from support import writing

DIMENSION, CLASSES, VALIDATION = 768, 100, 0.1
RECIPE = {"batch_size": 100, "epochs": 1, "warmup_epochs": 0}


def data_set(folder: Path, images: int) -> None:
    """Few distinct pictures, many times: what they show does not matter here."""
    rng = np.random.default_rng(0)
    pictures = []
    for _ in range(64):
        file = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(file, "PNG")
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


def measure(folder: Path, images: int) -> dict[str, tuple[float, float]]:
    """Stage -> (MB, seconds)."""
    (folder / "data").mkdir(parents=True)
    apart(data_set, folder / "data", images)
    source = {"source": "parquet", "root": str(folder / "data"), "ranks": ["coarse", "fine"], "target": "coarse"}

    def run(stage: str, options: dict, *inputs: str) -> None:
        given = [word for name in inputs for word in (f"--{name}", str(folder / name))]
        device = ["--device", "cpu"] if STAGES[stage].needs.gpu else []
        command = [sys.executable, "-m", "granularity", stage, *given, "--options", json.dumps(options), *device]
        command += ["--output", str(folder / stage)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    run("samples", source)
    run("pixels", {"size": 32, "mode": "RGB"}, "samples")
    apart(embedding, folder / "embed", folder / "samples", images)
    run("cluster", {"clustering": "whole-100", "iterations": 2, "restarts": 1}, "samples", "embed")
    space = {"space": "kmeans-100", "family": "kmeans", "params": {"clusterings": ["whole-100"]}}
    run("hierarchy", space, "samples", "cluster", "embed")
    once, again = ["kmeans-100-p0-00000000"], ["kmeans-100-p0-f0-00000000"]
    run("pretrain", {"recipe": RECIPE, "runs": once}, "samples", "pixels", "hierarchy")
    run("finetune", {"recipe": RECIPE, "runs": again}, "samples", "pixels", "pretrain")
    probe = {"name": "probe", "options": {"l2": [1.0]}, "runs": once}
    run("measure", probe, "samples", "pixels", "embed", "pretrain")
    stages = ("samples", "pixels", "cluster", "hierarchy", "pretrain", "finetune", "measure")
    costs = {stage: Artifact.peek(folder / stage).manifest["cost"] for stage in stages}
    return {stage: (cost["peak_memory_mb"], cost["wall_seconds"]) for stage, cost in costs.items()}


def main() -> None:
    small, large = map(int, sys.argv[1:3]) if len(sys.argv) > 2 else (20_000, 100_000)
    with tempfile.TemporaryDirectory() as folder:
        first, second = (measure(Path(folder, str(images)), images) for images in (small, large))
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
