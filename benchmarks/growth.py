"""Seconds and memory of stages by the number of images: both should grow with it, and no faster.

Images of 8 px are made on the spot. Each stage is a process of its own on all cores, as Snakemake starts it. A row has
the seconds or the bytes of memory that an image more takes, between two numbers of images. Time is compared with the
step before it, memory with 2 KB.
"""

import io
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from common import CORES, ROOT, row, script

COUNTS, MEMORY, CLASSES = (10_000, 100_000, 1_000_000), 2048, 100
CLUSTERS = {"clustering": "whole-100"}
MODEL = ROOT / "config" / "encoders" / "digits-tiny.json"
SPACE = {"space": "kmeans-100", "family": "kmeans", "params": {"clusterings": ["whole-100"]}}
# In a small process between: what a process has at most includes its parent's memory at the time of the fork.
MEASURE = """
import os, sys, time
began = time.perf_counter()
_, status, used = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ), 0)
print(time.perf_counter() - began, used.ru_maxrss * 1024)
sys.exit(status != 0)
"""


def parquet(folder: Path, count: int) -> None:
    """A data set of `count` images of noise, all different, and a hundredth of it to validate."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for split, images in {"train": count, "test": count // 100}.items():
        rows = []
        for pixels in rng.integers(0, 256, (images, 8, 8, 3), np.uint8):
            file = io.BytesIO()
            Image.fromarray(pixels).save(file, "PNG", compress_level=0)
            rows.append({"bytes": file.getvalue(), "path": None})
        kinds, leaves = (
            [f"{rank} {i % many}" for i in range(images)] for rank, many in (("kind", 2), ("leaf", CLASSES))
        )
        pq.write_table(pa.table({"image": rows, "kind": kinds, "leaf": leaves}), folder / f"{split}.parquet")


def measured(words: list) -> tuple[float, float]:
    """Seconds of a command of ours, and the memory in bytes of its largest process at its largest."""
    seconds, memory = script(MEASURE, sys.executable, "-m", "granularity", *words).splitlines()[-1].split()
    return float(seconds), float(memory)


def stages(folder: Path) -> Iterator[tuple[str, list]]:
    import open_clip
    import torch

    open_clip.add_model_config(MODEL)
    torch.manual_seed(0)
    weights = folder / "weights.pt"
    torch.save(open_clip.create_model(MODEL.stem).state_dict(), weights)
    made = folder / "results" / "growth" / "images"
    options = {
        "samples": {"source": "parquet", "root": str(folder / "data"), "ranks": ["kind", "leaf"], "target": "kind"},
        "pixels": {"size": 8, "mode": "RGB"},
        "embed": {"model": str(MODEL), "pretrained": str(weights), "batch_size": 256},
        "cluster": CLUSTERS,
        "hierarchy": SPACE,
    }
    inputs = {
        "pixels": ["samples"],
        "embed": ["samples"],
        "cluster": ["samples", "embed"],
        "hierarchy": ["samples", "cluster"],
    }
    for name, given in options.items():
        words = [word for role in inputs.get(name, ()) for word in (f"--{role}", made / role)]
        yield name, [name, *words, "--options", json.dumps(given), "--threads", CORES, "--output", made / name]
    yield "explore", ["explore", made.parent]


def rows(quick: bool, device: str) -> Iterator[dict]:
    before: dict[str, tuple[float, float]] = {}
    slopes: dict[str, float] = {}
    counts = (1000, 2000, 4000) if quick else COUNTS
    for last, count in zip((0, *counts), counts, strict=False):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            parquet(folder / "data", count)
            for stage, words in stages(folder):
                seconds, memory = measured(words)
                print(f"{stage} {count:,}: {seconds:.1f} s, {memory / 2**20:.0f} MiB", file=sys.stderr)
                if last:
                    images = count - last
                    slope, each = (seconds - before[stage][0]) / images, (memory - before[stage][1]) / images
                    span = f"{last:,} to {count:,} images"
                    what = f"memory of {stage}, {span} (bytes an image; the goal)"
                    yield row(what, each, MEMORY, each / MEMORY, 1, at_most=True)
                    if stage in slopes:
                        what = f"time of {stage}, {span} (seconds an image; up to {last:,})"
                        yield row(what, slope, slopes[stage], slope / slopes[stage], 1.2, at_most=True)
                    slopes[stage] = slope
                before[stage] = seconds, memory
