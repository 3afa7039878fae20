"""Sums over the points of clusters, for many groups and restarts at once, on a CPU or a GPU; always in one order."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from granularity.stages.cluster.groups import ROWS, sums

FEW = 32  # clusters whose points are cheaper to add up by a matrix product
RUN = 256  # points that a thread of a GPU adds up


def batched_means(
    points: torch.Tensor, sizes: Sequence[int], labels: torch.Tensor, clusters: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Means float32 [B, R, K, D], 0 of clusters without points, and how many points they have, int64 [B, R, K]."""
    way = by_products if clusters <= FEW else by_sorting if labels.device.type == "cuda" else by_rows
    found, counts = way(points, sizes, labels, clusters)
    return (found / counts.clamp(min=1)[..., None]).float(), counts


def by_products(
    points: torch.Tensor, sizes: Sequence[int], labels: torch.Tensor, clusters: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums of few clusters, float64 [B, R, K, D], as float32 products with ones and zeros by the tile; and counts."""
    place, (b, restarts, n) = labels.device, labels.shape
    found = torch.zeros(b, restarts * clusters, points.shape[2], dtype=torch.float64, device=place)
    counts = torch.zeros(b, restarts, clusters, dtype=torch.int64, device=place)
    ends, numbers = torch.tensor(sizes, device=place)[:, None, None, None], torch.arange(clusters, device=place)
    step = max(1, ROWS // b)
    for at in range(0, n, step):
        tile = points[:, at : at + step].to(place)
        real = torch.arange(at, at + tile.shape[1], device=place) < ends
        members = (labels[:, :, None, at : at + step] == numbers[:, None]) & real  # [B, R, K, at most step]
        found += members.flatten(1, 2).float() @ tile
        counts += members.sum(3)
    return found.view(b, restarts, clusters, -1), counts


def by_rows(
    points: torch.Tensor, sizes: Sequence[int], labels: torch.Tensor, clusters: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same for any number of clusters, on a CPU."""
    counts = torch.zeros(*labels.shape[:2], clusters, dtype=torch.int64)
    found = torch.zeros(*counts.shape, points.shape[2], dtype=torch.float64)
    for b, size in enumerate(sizes):
        for r, own in enumerate(labels[b, :, :size]):
            found[b, r] = torch.from_numpy(sums(points[b, :size].numpy(), own.numpy(), clusters))
            counts[b, r] = torch.bincount(own, minlength=clusters)
    return found, counts


def by_sorting(
    points: torch.Tensor, sizes: Sequence[int], labels: torch.Tensor, clusters: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same on a GPU: points in the order of their clusters are added up in runs, and then the runs of each."""
    place, (b, restarts, n), d = labels.device, labels.shape, points.shape[2]
    numbers = torch.arange(b * clusters + 1, device=place)
    padding = torch.arange(n, device=place) >= torch.tensor(sizes, device=place)[:, None]
    found = torch.zeros(restarts, b * clusters, d, dtype=torch.float64, device=place)
    counts = torch.empty(restarts, b * clusters, dtype=torch.int64, device=place)
    for r in range(restarts):
        whose = (labels[:, r] + clusters * torch.arange(b, device=place)[:, None]).masked_fill(padding, b * clusters)
        whose, order = whose.flatten().sort(stable=True)
        begins = torch.searchsorted(whose, numbers)  # where each cluster begins, and where the last one ends
        counts[r] = begins.diff()
        for at in range(0, sum(sizes), ROWS):
            end = min(at + ROWS, sum(sizes))
            rows = points.flatten(0, 1)[order[at:end].to(points.device)].to(place).double()
            cuts = torch.cat([torch.arange(at, end, RUN, device=place), begins.clamp(at, end)]).sort().values
            runs = torch.segment_reduce(
                rows, "sum", lengths=torch.cat([cuts, cuts.new_tensor([end])]).diff(), initial=0
            )
            # Runs that begin at the end are of no length; they count for the last cluster, and add nothing.
            owners = whose[cuts.clamp(max=end - 1)]
            found[r] += torch.segment_reduce(runs, "sum", lengths=torch.searchsorted(owners, numbers).diff(), initial=0)
    shape = (restarts, b, clusters)
    return found.view(*shape, d).transpose(0, 1), counts.view(shape).transpose(0, 1)
