"""Torch: the embedding stays on the device; many groups, and all restarts of each, are one batched matrix product.

A batch is the points of B groups, [B, n, D], and R restarts of their centroids, [B, R, K, D]; smaller groups are
padded. Products are float32, without TF32. No two threads ever add to one number, so a GPU repeats its bytes. Clusters
without a point are refilled as FAISS does it, draw for draw: from one start, the two engines differ by rounding, and so
in ties, and in what follows from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch

from granularity.machine.device import torch_device
from granularity.stages.cluster.groups import ROWS, Arrays, Group, Notes, Save, canonical_order
from granularity.stages.cluster.options import Cluster

EXTENDS = "engine"
# Numbers in the points of a batch of several groups, and in a tile of their products with centroids. They decide bytes.
BATCH = {"cpu": 2**22, "cuda": 2**28}
TILE = {"cpu": 2**21, "cuda": 2**28}
RUN = 256  # points that are added up in float32; their sums are added up in float64
RESIDENT = 0.7  # of a GPU's free memory; a larger embedding stays in main memory and crosses in every iteration


def prepare(device: str, threads: int) -> torch.device | None:
    """The GPU; None is the CPU."""
    found = torch_device(device, threads)
    return found if found.type == "cuda" else None


def load(vectors: np.ndarray, device: torch.device | None) -> torch.Tensor:
    """All vectors on the device, float32 [N, D]; in main memory where they would fill it."""
    fits = device is not None and vectors.nbytes < RESIDENT * torch.cuda.mem_get_info(device)[0]
    return torch.from_numpy(vectors).to(device if fits else "cpu")


def cluster(
    points: torch.Tensor,
    groups: Sequence[Group],
    options: Cluster,
    device: torch.device | None,
    begun: tuple[int, Arrays, Notes],
    save: Save,
) -> Iterator[tuple[int, np.ndarray]]:
    """See :mod:`granularity.stages.cluster.engines`."""
    place = device or torch.device("cpu")
    finished, arrays, notes = begun
    before = 0
    for numbers in _batches(groups, points.shape[1], BATCH[place.type]):
        if before >= finished:
            batch = [groups[number] for number in numbers]
            yield from zip(
                numbers, _best(batch, points, options, place, arrays, notes, partial(save, before)), strict=True
            )
            arrays, notes = {}, {}
            save(before + len(numbers), dict, {})
        before += len(numbers)


def _batches(groups: Sequence[Group], dimensions: int, most: int) -> list[list[int]]:
    """Numbers of the groups that go together: neighbours in size, so that little is padded."""
    batches: list[list[int]] = []
    for number in sorted(range(len(groups)), key=lambda number: -len(groups[number].members)):
        longest = len(groups[batches[-1][0]].members) if batches else 0
        if not batches or (len(batches[-1]) + 1) * longest * dimensions > most:
            batches.append([])
        batches[-1].append(number)
    return batches


def _best(
    groups: Sequence[Group],
    vectors: torch.Tensor,
    options: Cluster,
    place: torch.device,
    arrays: Arrays,
    notes: Notes,
    save: partial[None],
) -> list[np.ndarray]:
    """Labels of each group's restart with the lowest objective, int32 [n]."""
    sizes, clusters = [len(one.members) for one in groups], [one.clusters for one in groups]
    points = vectors[None]
    if sizes != [len(vectors)]:
        points = torch.zeros(len(groups), max(sizes), vectors.shape[1], device=place)
        for held, one in zip(points, groups, strict=True):
            held[: len(one.members)] = vectors[torch.from_numpy(one.members).to(vectors.device)]
    if "centroids" in arrays:
        centroids = torch.from_numpy(arrays["centroids"]).to(place)
    else:
        centroids = torch.zeros(len(groups), options.restarts, max(clusters), vectors.shape[1], device=place)
        for b, one in enumerate(groups):
            for r in range(options.restarts):
                chosen = torch.from_numpy(one.start(r)).to(points.device)
                centroids[b, r, : one.clusters] = points[b, chosen].to(place)
    live = notes.get("live", list(range(options.restarts)))  # restarts in which anything still moves
    for iteration in range(notes.get("iteration", 0), options.iterations):
        if not live:
            break
        moved = _iterate(points, sizes, clusters, centroids, live)
        live = [r for r, one in zip(live, moved, strict=True) if one]
        save(partial(_state, centroids), {"iteration": iteration + 1, "live": live})
    labels, found = _assign(points, sizes, clusters, centroids)
    return [
        canonical_order(labels[b, r, :size].cpu().numpy())
        for b, (size, r) in enumerate(zip(sizes, found.argmin(1).tolist(), strict=True))
    ]


def _state(centroids: torch.Tensor) -> Arrays:
    return {"centroids": centroids.cpu().numpy()}


def _iterate(
    points: torch.Tensor, sizes: Sequence[int], clusters: Sequence[int], centroids: torch.Tensor, live: Sequence[int]
) -> list[bool]:
    """One iteration of some restarts, in place; which of them have moved in any group."""
    old = centroids[:, live]
    labels = _nearest(points, clusters, old)
    new, counts = _means(points, sizes, labels, old.shape[2])
    apart = 1 + (1 - 2 * (torch.arange(new.shape[3], device=new.device) % 2)) / 1024  # as FAISS does
    for b, r in torch.nonzero(_empty(counts, clusters).any(2)).tolist():
        if sizes[b] == clusters[b]:  # a centroid for each point: there is nothing to split
            new[b, r] = old[b, r]
            continue
        for empty, split in _splits(counts[b, r, : clusters[b]].cpu().numpy(), sizes[b]):
            new[b, r, empty] = new[b, r, split] * apart
            new[b, r, split] *= 2 - apart
    centroids[:, live] = new
    return (new != old).flatten(2).any(2).any(0).tolist()


def _nearest(points: torch.Tensor, clusters: Sequence[int], centroids: torch.Tensor) -> torch.Tensor:
    """The nearest centroid of each point, the first of several: int64 [B, R, n]."""
    (b, n, _), (_, r, k, _) = points.shape, centroids.shape
    place = centroids.device
    half = centroids.square().sum(3) / 2
    for one, own in zip(half, clusters, strict=True):
        one[:, own:] = torch.inf  # padding
    labels = torch.empty(b, r, n, dtype=torch.int64, device=place)
    step = max(1, TILE[place.type] // (b * r * k))
    for at in range(0, n, step):
        tile = points[:, at : at + step].to(place)
        products = torch.baddbmm(half.view(b, 1, r * k), tile, centroids.flatten(1, 2).transpose(1, 2), alpha=-1)
        products = products.view(b, -1, r, k)
        # NumPy's is faster than torch's on a CPU.
        least = products.argmin(3) if place.type == "cuda" else torch.from_numpy(products.numpy().argmin(3))
        labels[:, :, at : at + step] = least.transpose(1, 2)
    return labels


def _means(
    points: torch.Tensor, sizes: Sequence[int], labels: torch.Tensor, clusters: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Means float32 [B, R, K, D], 0 of clusters without points, and how many points they have, int64 [B, R, K].

    Points in the order of their clusters are added up in runs, and then the runs of each cluster.
    """
    (b, restarts, n), end, place = labels.shape, sum(sizes), labels.device
    numbers, firsts = torch.arange(b * clusters + 1, device=place), torch.arange(0, end, RUN, device=place)
    padding = torch.arange(n, device=place) >= torch.tensor(sizes, device=place)[:, None]
    means = torch.empty(b, restarts, clusters, points.shape[2], device=place)
    counts = torch.empty(b, restarts, clusters, dtype=torch.int64, device=place)
    for r in range(restarts):
        whose = labels[:, r] + clusters * numbers[:b, None]
        whose, order = whose.masked_fill(padding, b * clusters).flatten().sort(stable=True)
        begins = torch.searchsorted(whose, numbers)
        found = begins.diff()  # points of each cluster
        cuts = torch.cat([firsts, begins[:-1]]).sort().values
        picked, offsets = (one.to(points.device) for one in (order[:end], cuts))
        runs = torch.nn.functional.embedding_bag(picked, points.flatten(0, 1), offsets, mode="sum").to(place)
        # A run of no length counts for the cluster that begins there, or for the last one, and adds nothing.
        owners = whose[cuts.clamp(max=end - 1)]
        lengths = torch.searchsorted(owners, numbers).diff()
        sums = torch.segment_reduce(runs.double(), "sum", lengths=lengths, axis=0, initial=0)
        means[:, r] = (sums / found.clamp(min=1)[:, None]).float().view(b, clusters, -1)
        counts[:, r] = found.view(b, clusters)
    return means, counts


def _splits(counts: np.ndarray, points: int) -> Iterator[tuple[int, int]]:
    """Each empty cluster, and the one that it takes half the points of: FAISS's rule, with its random numbers.

    Clusters take turns, and each time one is chosen with a chance of (count - 1) / (points - clusters).
    """
    counts, clusters = counts.astype(np.float32), len(counts)
    random, left = np.random.RandomState(1234), np.empty(0, dtype=np.float32)
    for empty in np.flatnonzero(counts == 0):
        chances = ((counts - 1.0) / np.float32(points - clusters)).astype(np.float32)
        turns, hits = 0, np.empty(0, dtype=np.int64)
        while not len(hits):
            if len(left) < clusters:
                more = random.randint(0, 2**32, max(clusters, 1024), dtype=np.uint32).astype(np.float32) / np.float32(
                    2**32
                )
                left = np.concatenate([left, more])
            hits = np.flatnonzero(left[:clusters] < chances)
            turns = hits[0] + 1 if len(hits) else clusters
            left = left[turns:]
        split = int(hits[0])
        counts[empty] = counts[split] / 2
        counts[split] -= counts[empty]
        yield int(empty), split


def _assign(
    points: torch.Tensor, sizes: Sequence[int], clusters: Sequence[int], centroids: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Labels int64 [B, R, n], once empty clusters have moved to the farthest points; objectives float64 [B, R]."""
    labels = _nearest(points, clusters, centroids)
    centres, counts = _means(points, sizes, labels, centroids.shape[2])
    empty = _empty(counts, clusters)
    if empty.any():
        moved = centroids.clone()
        for b, r in torch.nonzero(empty.any(2)).tolist():
            parts = _squares(points[b, : sizes[b]], centroids[b, r], labels[b, r])
            distances = torch.cat([part.sum(1) for part in parts])
            farthest = distances.argsort(descending=True, stable=True)[: empty[b, r].sum()]
            moved[b, r, empty[b, r]] = points[b, farthest.to(points.device)].to(moved.device)
        labels = _nearest(points, clusters, moved)
        centres, _ = _means(points, sizes, labels, centroids.shape[2])
    objectives = torch.zeros(labels.shape[:2], dtype=torch.float64, device=labels.device)
    for b, size in enumerate(sizes):
        for r in range(labels.shape[1] if labels.shape[1] > 1 else 0):  # one restart is the best
            for part in _squares(points[b, :size], centres[b, r], labels[b, r]):
                objectives[b, r] += part.sum(dtype=torch.float64)
    return labels, objectives


def _empty(counts: torch.Tensor, clusters: Sequence[int]) -> torch.Tensor:
    """Which centroids have no points and are no padding: bool [B, R, K]."""
    real = torch.arange(counts.shape[2], device=counts.device) < torch.tensor(clusters, device=counts.device)[:, None]
    return (counts == 0) & real[:, None]


def _squares(points: torch.Tensor, centroids: torch.Tensor, labels: torch.Tensor) -> Iterator[torch.Tensor]:
    """Squared differences of points and the centroids of their clusters, float32 [at most ROWS, D] at a time."""
    for at in range(0, len(points), ROWS):
        part = points[at : at + ROWS].to(centroids.device)
        yield (part - centroids[labels[at : at + len(part)]]).square_()
