"""k-means: both engines beside `faiss.Kmeans`, scikit-learn, and, on a GPU, flash-kmeans.

    python benchmarks/kmeans.py [--quick] [--turns 2] [--parts whole groups gpu]

Clustered unit vectors of 768 dimensions, the same starts for all, who take turns; the best turn of each counts.
CPU seconds on one thread (so that a busy machine matters little); on a GPU seconds of wall clock.

- whole: 50,000 vectors, K = 1000, 20 iterations, and then the labels, of all. The OpenBLAS in FAISS's wheel (0.3.15)
  does not know the newer Intel servers and takes its slowest loops there, so this script tells it by OPENBLAS_CORETYPE
  (for all in it, FAISS's own k-means too) unless that is set; set to `Prescott` it is as it would be untold.
- groups: 1,000 groups of 1,300 vectors, each into 13, 4 restarts, 25 iterations at most. The peer is this project's
  method before there were engines, kept here for this row: one FAISS index per iteration, means by `np.add.at`. It is
  timed on the first 20 groups and counted for all.
- gpu: 1 M vectors, then 12.7 M where they fit, K = 1000 and 22,528, 5 iterations (1), beside flash-kmeans where that is
  installed. Its products of float32 are TF32; ours are not.

`--quick` takes smaller numbers, at which the whole has no goal, and ends within a minute on one core. Exits with 1 if
the objectives of the groups are not equal (to 1e-6); those of the whole are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

if "avx512f" in Path("/proc/cpuinfo").read_text():
    os.environ.setdefault("OPENBLAS_CORETYPE", "SkylakeX")  # before FAISS is imported

import faiss
import numpy as np
import torch
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from granularity.stages.cluster.engines import faiss as faiss_engine
from granularity.stages.cluster.engines import torch as torch_engine
from granularity.stages.cluster.groups import Group, canonical_order, means, squares
from granularity.stages.cluster.options import Cluster

DIMENSIONS = 768
ENGINES = {"faiss": faiss_engine, "torch": torch_engine}
apart = []  # works whose objectives were not equal


def vectors_of(groups: int, each: int, heaps: int, seed: int = 0) -> np.ndarray:
    """Unit vectors around `heaps` centres per group, which lie around one centre per group: float32."""
    rng = np.random.default_rng(seed)
    found = np.empty((groups * each, DIMENSIONS), dtype=np.float32)
    for part in np.split(found, groups):
        centres = rng.standard_normal((heaps, DIMENSIONS), dtype=np.float32) + rng.standard_normal(
            DIMENSIONS, dtype="f"
        )
        part[:] = centres[rng.integers(heaps, size=each)] + rng.standard_normal((each, DIMENSIONS), dtype=np.float32)
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return found


def objective(vectors: np.ndarray, labels: np.ndarray) -> float:
    centroids = means(vectors, labels, labels.max() + 1)
    return sum(float(part.sum(dtype=np.float64)) for part in squares(vectors, centroids, labels))


def ours(engine: str, vectors: np.ndarray, wanted: list[Group], options: Cluster) -> list[np.ndarray]:
    made, device = ENGINES[engine], ENGINES[engine].prepare("cpu", 1)
    found = made.cluster(made.load(vectors, device), wanted, options, device, (0, {}, {}), lambda *_: None)
    return [labels for _, labels in sorted(found, key=lambda one: one[0])]


def faiss_alone(vectors: np.ndarray, start: np.ndarray, iterations: int) -> np.ndarray:
    limits = {"min_points_per_centroid": 1, "max_points_per_centroid": len(vectors)}
    peer = faiss.Kmeans(vectors.shape[1], len(start), niter=iterations, **limits)
    peer.train(vectors, init_centroids=vectors[start])
    return peer.assign(vectors)[1]


def scikit_learn(vectors: np.ndarray, start: np.ndarray, iterations: int) -> np.ndarray:
    peer = KMeans(len(start), init=vectors[start], n_init=1, max_iter=iterations, tol=0, algorithm="lloyd")
    with threadpool_limits(1):
        return peer.fit(vectors).labels_


def before(vectors: np.ndarray, group: Group, options: Cluster) -> np.ndarray:
    """The method of this project before there were engines."""

    def made() -> faiss.Kmeans:
        limits = {"min_points_per_centroid": 1, "max_points_per_centroid": len(vectors)}
        return faiss.Kmeans(vectors.shape[1], group.clusters, niter=1, **limits)

    def mean(labels: np.ndarray) -> np.ndarray:
        sums = np.zeros((group.clusters, vectors.shape[1]))
        np.add.at(sums, labels, vectors)
        return (sums / np.maximum(np.bincount(labels, minlength=group.clusters), 1)[:, None]).astype(np.float32)

    best, lowest = None, np.inf
    for restart in range(options.restarts):
        centroids = vectors[group.start(restart)]
        for _ in range(options.iterations):
            step = made()
            step.train(vectors, init_centroids=centroids)
            moved = not np.array_equal(step.centroids, centroids)
            centroids = step.centroids.copy()
            if not moved:
                break
        search = made()
        search.centroids = centroids
        _, labels = search.assign(vectors)
        found = ((vectors - mean(labels)[labels]) ** 2).sum(dtype=np.float64)
        if found < lowest:
            best, lowest = labels, found
    labels = canonical_order(best)
    mean(labels)  # as it published them
    return labels


def in_turns(works: dict, turns: int) -> tuple[dict[str, float], dict]:
    """The fewest CPU seconds of each, and what they returned."""
    seconds, found = dict.fromkeys(works, np.inf), {}
    for _ in range(turns):
        for name, work in works.items():
            began = time.process_time()
            found[name] = work()
            seconds[name] = min(seconds[name], time.process_time() - began)
            print(f"  {name}: {seconds[name]:.2f} s", flush=True)
    return seconds, found


def row(work: str, ours: float, peer: float, goal: float | None) -> None:
    """Seconds of both."""
    ratio = round(peer / ours, 3)
    met = "" if goal is None else "  met" if ratio >= goal else "  missed"
    print(f"{work}: {ours:.2f} s, peer {peer:.2f} s, {ratio:.2f} (goal {goal}){met}")
    print(json.dumps({"work": work, "ours": round(ours, 3), "peer": round(peer, 3), "ratio": ratio, "goal": goal}))


def compare(work: str, objectives: dict[str, float], must: bool = True) -> None:
    spread = max(objectives.values()) / min(objectives.values()) - 1
    print(f"{work}: objectives {objectives}, apart by {spread:.1e}{'' if spread <= 1e-6 else ' (goal 1e-6, missed)'}")
    if must and spread > 1e-6:
        apart.append(work)


def whole(quick: bool, turns: int) -> None:
    count, clusters, iterations = (10_000, 300, 6) if quick else (50_000, 1000, 20)
    vectors = vectors_of(1, count, 2 * clusters)
    group, options = Group(np.arange(count), clusters, 0), Cluster(iterations=iterations, restarts=1)
    start = group.start(0)
    works = {name: lambda name=name: ours(name, vectors, [group], options)[0] for name in ENGINES}
    works |= {"faiss.Kmeans": lambda: faiss_alone(vectors, start, iterations)}
    works |= {"scikit-learn": lambda: scikit_learn(vectors, start, iterations)}
    seconds, labels = in_turns(works, turns)
    work = f"k-means, {count:,} x {DIMENSIONS}, K = {clusters}, {iterations} iterations"
    # A tie that rounding breaks otherwise changes all that follows; the peers are apart, too.
    compare(work, {name: objective(vectors, found) for name, found in labels.items()}, must=False)
    best = min("faiss.Kmeans", "scikit-learn", key=seconds.get)
    for name in ENGINES:
        row(f"{work}: engine {name}; peer {best}", seconds[name], seconds[best], None if quick else 1.0)


def in_groups(quick: bool, turns: int) -> None:
    many, few, each, clusters = 20 if quick else 1000, 5 if quick else 20, 1300, 13
    vectors = vectors_of(many, each, 26)
    wanted = [Group(np.arange(i * each, (i + 1) * each), clusters, i) for i in range(many)]
    options = Cluster(iterations=25, restarts=4)
    parts = [vectors[group.members] for group in wanted[:few]]
    works = {name: lambda name=name: ours(name, vectors, wanted, options) for name in ENGINES}
    works |= {"before": lambda: [before(part, group, options) for part, group in zip(parts, wanted, strict=False)]}
    seconds, labels = in_turns(works, turns)
    work = f"k-means in {many:,} groups of {each:,} x {DIMENSIONS}, each into {clusters}, 4 restarts"
    found = {name: sum(map(objective, parts, some[:few])) for name, some in labels.items()}
    compare(f"{work}, the first {few}", found)
    for name in ENGINES:
        row(f"{work}: engine {name}; peer: one index per iteration", seconds[name], seconds["before"] * many / few, 5.0)


def on_gpu(quick: bool, turns: int) -> None:
    if not torch.cuda.is_available():
        print("gpu: there is none; nothing was measured")
        return
    try:
        from flash_kmeans import batch_kmeans_Euclid as flash
    except ImportError:
        flash = None
        print("gpu: flash-kmeans is not installed; our seconds alone")
    torch_engine.prepare("cuda", 1)
    for count in (100_000,) if quick else (1_000_000, 12_700_000):
        if count * DIMENSIONS * 4 > 0.6 * torch.cuda.mem_get_info()[0]:
            print(f"gpu: {count:,} vectors do not fit")
            continue
        points = vectors_on_gpu(count)
        for clusters in (1000, 22_528):
            iterations = 5 if count <= 1_000_000 else 1
            seconds = gpu_seconds(points, clusters, iterations, flash, turns)
            work = (
                f"k-means on a GPU, {count:,} x {DIMENSIONS}, K = {clusters:,}, {iterations} iterations: engine torch"
            )
            if flash is None:
                print(f"{work}: {seconds['torch']:.2f} s")
            else:
                row(f"{work}; peer flash-kmeans", seconds["torch"], seconds["flash-kmeans"], 0.8)
        del points


def vectors_on_gpu(count: int) -> torch.Tensor:
    torch.manual_seed(0)
    points, centres = (torch.empty(n, DIMENSIONS, device="cuda") for n in (count, 30_000))
    centres.normal_()
    for part in points.split(100_000):
        part.normal_().add_(centres[torch.randint(len(centres), (len(part),), device="cuda")])
        part /= part.norm(dim=1, keepdim=True)
    return points


def gpu_seconds(points: torch.Tensor, clusters: int, iterations: int, flash: Any, turns: int) -> dict[str, float]:
    """The fewest seconds of each: its iterations, and one more pass for labels (of flash-kmeans one more iteration)."""
    group, options = Group(np.arange(len(points)), clusters, 0), Cluster(iterations=iterations, restarts=1)
    start = points[torch.from_numpy(group.start(0)).cuda()]
    once = (0, {}, {})
    works = {
        "torch": lambda: list(torch_engine.cluster(points, [group], options, points.device, once, lambda *_: None)),
        "flash-kmeans": lambda: flash(
            points[None], clusters, max_iters=iterations + 1, tol=-1.0, init_centroids=start[None].clone()
        ),
    }
    least = dict.fromkeys(works if flash is not None else ["torch"], np.inf)
    for _ in range(max(2, turns)):
        for name in least:
            torch.cuda.synchronize()
            began = time.perf_counter()
            works[name]()
            torch.cuda.synchronize()
            least[name] = min(least[name], time.perf_counter() - began)
    return least


def main() -> None:
    parts = {"whole": whole, "groups": in_groups, "gpu": on_gpu}
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--parts", nargs="+", choices=parts, default=list(parts))
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("OPENBLAS_CORETYPE:", os.environ.get("OPENBLAS_CORETYPE", "not set"))
    for part in options.parts:
        parts[part](options.quick, options.turns)
    if apart:
        raise SystemExit(f"objectives are not equal: {'; '.join(apart)}")


if __name__ == "__main__":
    main()
