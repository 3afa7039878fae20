"""Stage `cluster` beside `faiss.Kmeans`: clustered unit vectors of 768 dimensions.

- whole: 50,000 vectors, K = 1000, 20 iterations, and then the labels, of all (on a GPU 1,000,000, K = 22,528, 5).
- groups: 200 groups of 1,300 vectors, each into 13, 4 restarts of 25 iterations at most; the peer takes one group after
  the other.

Ours is the stage as Snakemake starts it, the peer a script with FAISS's own threads: seconds of a clock on the wall,
with start, reading, checking and writing. Both draw their own starts, so objectives are equal but for chance: to 2 %,
or the work fails.
"""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import faiss
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from common import CORES, in_turns, jobs, rated, script, wall

DIMENSIONS = 768


def vectors_of(groups: int, each: int, heaps: int) -> np.ndarray:
    """Unit vectors around `heaps` centres per group, which lie around one centre per group: float32 [N, 768]."""
    rng = np.random.default_rng(0)
    found = np.empty((groups * each, DIMENSIONS), dtype=np.float32)
    for part in np.split(found, groups):
        centres = rng.standard_normal((heaps, DIMENSIONS), "f") + rng.standard_normal(DIMENSIONS, "f")
        for rows in np.array_split(np.arange(each), max(1, each // 100_000)):
            some = centres[rng.integers(heaps, size=len(rows))] + rng.standard_normal((len(rows), DIMENSIONS), "f")
            part[rows] = some / np.linalg.norm(some, axis=1, keepdims=True)
    return found


def inputs(folder: Path, vectors: np.ndarray, groups: int) -> dict[str, Path]:
    """A sample table with these groups as classes, and an embedding of it."""
    from support import writing

    folder.mkdir()
    kinds = np.repeat(np.arange(groups), len(vectors) // groups).astype(str)
    frame = pd.DataFrame({"sample_id": np.arange(len(vectors)).astype(str), "split": "train", "kind": kinds})
    with writing.create(folder / "samples", "samples", params={"ranks": ["kind"], "target": "kind"}) as out:
        out.table("samples.parquet", frame)
    with writing.create(folder / "embed", "embed") as out:
        out.array("embedding.npy", vectors)
    return {"samples": folder / "samples", "embed": folder / "embed"}


PEER = """
import sys
import faiss
import numpy as np
vectors, (groups, clusters, iterations, restarts, gpu) = np.load(sys.argv[1]), map(int, sys.argv[2:])
total = 0.0
for part in np.split(vectors, groups):
    limits = {"min_points_per_centroid": 1, "max_points_per_centroid": len(part), "gpu": bool(gpu)}
    peer = faiss.Kmeans(part.shape[1], clusters, niter=iterations, nredo=restarts, **limits)
    peer.train(part)
    total += float(peer.assign(part)[0].sum(dtype=np.float64))
print(total)
"""


def compared(folder: Path, groups: int, each: int, k: int, steps: int, starts: int, gpu: bool, turns: int) -> dict:
    """Least seconds of ours and of the peer."""
    vectors = vectors_of(groups, each, 2 * k)
    given, number, lowest = inputs(folder / "in", vectors, groups), iter(range(turns)), {}
    options = {"clustering": f"superclass-{k}", "iterations": steps, "restarts": starts}

    def ours() -> None:
        place = folder / f"turn-{next(number)}" / "cluster"  # a store of its own, so it is made anew
        words = ["--samples", given["samples"], "--embed", given["embed"], "--device", "cuda" if gpu else "cpu"]
        jobs([["cluster", *words, "--options", json.dumps(options), "--threads", CORES, "--output", place]])
        lowest["ours"] = pq.read_table(place / "clusters.parquet")["objective"].to_numpy().sum()

    def peer() -> None:
        lowest["peer"] = float(script(PEER, given["embed"] / "embedding.npy", groups, k, steps, starts, int(gpu)))

    seconds = in_turns({"ours": ours, "peer": peer}, turns, wall)
    if max(lowest.values()) > 1.02 * min(lowest.values()):
        raise SystemExit(f"objectives differ: {lowest}")
    return seconds


def rows(quick: bool, device: str, turns: int = 1) -> Iterator[dict]:
    gpu = device != "cpu" and hasattr(faiss, "get_num_gpus") and faiss.get_num_gpus() > 0
    count, k, steps = (1_000_000, 22_528, 5) if gpu else (5_000, 100, 5) if quick else (50_000, 1000, 20)
    many = 5 if quick else 200
    cases = {
        f"{count:,} x 768, K = {k:,}, {steps} iterations": (1, count, k, steps, 1),
        f"{many} groups of 1,300 x 768, each into 13, 4 restarts": (many, 1300, 13, 25, 4),
    }
    for (label, case), goal in zip(cases.items(), (1.0, 2.0), strict=True):
        with tempfile.TemporaryDirectory() as name:
            seconds = compared(Path(name), *case, gpu, turns)
        yield rated(f"k-means, {label}{', GPU' if gpu else ''} (per s; faiss.Kmeans)", seconds, 1, goal)
