"""Collapse metrics and class distances (Sections 3 and 4), float64; `member` (B, N, K) is one-hot."""

import torch
from torch import Tensor


def one_hot(y: Tensor, classes: int) -> Tensor:
    """Convert (..., N) int64 to (..., N, K) float64."""
    return torch.nn.functional.one_hot(y, classes).double()


def class_means(features: Tensor, member: Tensor) -> tuple[Tensor, Tensor]:
    """Return class means (B, K, h), and each sample's deviation from its class mean (B, N, h), both float64."""
    features = features.double()
    mean = member.transpose(1, 2) @ features / member.sum(1).unsqueeze(2)
    return mean, features - member @ mean


def class_distances(features: Tensor, member: Tensor) -> Tensor:
    """Return D_ij (B, K, K): mean ||h_u - h_v||^2 for u in i, v in j, as ``tr S_i + tr S_j + ||mu_i - mu_j||^2``."""
    mean, off = class_means(features, member)
    trace = (member.transpose(1, 2) @ (off**2).sum(2, keepdim=True)).squeeze(2) / member.sum(1)
    gap = mean.unsqueeze(2) - mean.unsqueeze(1)
    return trace.unsqueeze(2) + trace.unsqueeze(1) + (gap**2).sum(3)


def nc1(features: Tensor, member: Tensor) -> Tensor:
    """Return NC1 = Tr(Sigma_W pinv(Sigma_B)) / K (B,), by the top K - 1 singular pairs of the centred means."""
    mean, off = class_means(features, member)
    classes, centred = member.shape[2], mean - mean.mean(1, keepdim=True)
    finite = torch.isfinite(centred).flatten(1).all(1)
    _, s, v = torch.linalg.svd(torch.where(finite.view(-1, 1, 1), centred, 0.0), full_matrices=False)
    kept = min(classes - 1, s.shape[1])
    s, v = s[:, :kept], v[:, :kept]
    weight = (member / member.sum(1, keepdim=True)).sum(2, keepdim=True) / classes  # 1 / (K n_c) for each sample
    spread = (weight * (off @ v.transpose(1, 2)) ** 2).sum(1)  # v^T Sigma_W v
    ratio = (spread / s**2).sum(1)  # Sigma_B = M^T M / K has eigenvalues s^2 / K; the K cancels with 1/K
    return torch.where(finite, ratio, torch.nan)


def nc2(features: Tensor, member: Tensor) -> Tensor:
    """Return NC2 (B,): distance of the normalised Gram matrix of centred means from that of a simplex ETF."""
    mean, _ = class_means(features, member)
    classes, centred = member.shape[2], mean - mean.mean(1, keepdim=True)
    gram = centred @ centred.transpose(1, 2)
    eye = torch.eye(classes, dtype=gram.dtype, device=gram.device)
    etf = (eye - 1 / classes) / (classes - 1) ** 0.5
    return (gram / gram.flatten(1).norm(dim=1).view(-1, 1, 1) - etf).flatten(1).norm(dim=1)


def _alike(label: Tensor) -> Tensor:
    """Return (K, K) bool: which pairs have equal labels; `label` (K,)."""
    return label.unsqueeze(0) == label.unsqueeze(1)


def _eye(distance: Tensor) -> Tensor:
    return torch.eye(distance.shape[1], dtype=torch.bool, device=distance.device)


def _merged(distance: Tensor) -> Tensor:
    """Return (K, K) bool: i != j that coarse labels c mod K/2 merge."""
    c = torch.arange(distance.shape[1], device=distance.device)
    return _alike(c % (len(c) // 2)) & ~_eye(distance)


def structure(distance: Tensor) -> dict[str, Tensor]:
    """Return d_within, d_sup, d_far, MSDR = R1, R2, R3 from the natural classes' D (B, K, K), paired (c, c + K/2)."""
    merged = _merged(distance)
    d_within = distance.diagonal(dim1=1, dim2=2).mean(1)
    d_sup, d_far = distance[:, merged].mean(1), distance[:, ~merged & ~_eye(distance)].mean(1)
    distances = {"d_within": d_within, "d_sup": d_sup, "d_far": d_far}
    return distances | {"msdr": d_sup / d_within, "r2": d_sup / d_far, "r3": d_within / d_far}


def group_msdr(distance: Tensor, classes: Tensor) -> Tensor:
    """Return MSDR (B,) within a group of natural classes; `classes` (K',) int64, closed under pairing."""
    part = distance[:, classes][:, :, classes]
    return part[:, _merged(distance)[classes][:, classes]].mean(1) / part.diagonal(dim1=1, dim2=2).mean(1)


def split_ratios(distance: Tensor, clusters: int) -> tuple[Tensor, Tensor]:
    """Return F1 = D_{c, c'} / D_cc and F2 = D_{c, c'} / other off-diagonals (B,); c' is another part of c's cluster.

    Distances (B, G, G) are those of the given labels, G a multiple of `clusters`; label c has cluster c mod clusters.
    """
    same = _alike(torch.arange(distance.shape[1], device=distance.device) % clusters)
    parts = distance[:, same & ~_eye(distance)].mean(1)
    return parts / distance.diagonal(dim1=1, dim2=2).mean(1), parts / distance[:, ~same].mean(1)


def nearest_mean_accuracy(train: Tensor, test: Tensor, member: Tensor) -> Tensor:
    """Return the share (B,) of test samples (B, N, h) whose nearest training mean is their class's in `member`."""
    mean, _ = class_means(train, member)
    score = test.double() @ mean.transpose(1, 2) - (mean**2).sum(2).unsqueeze(1) / 2
    return (score.argmax(2) == member.argmax(2)).double().mean(1)


def distance_ratios(h: Tensor, cluster: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Theorem 7.1: mean inter / mean intra distance, min inter / max intra, and the share of triples, each (B,).

    Inter: samples of the two clusters of one label, (0, 1) or (2, 3). Intra: two samples of one cluster. The share
    counts triples (1, 2 in a cluster, 3 in the other cluster of its label) with 1 nearer to 2 than to 3; by the theorem
    it is 1. h is (B, n, k) float64, cluster (n,) int64 in 0..3.
    """
    distance = torch.cdist(h, h, compute_mode="donot_use_mm_for_euclid_dist")
    same, label = _alike(cluster), _alike(cluster // 2)
    intra, inter = distance[:, same & ~_eye(h)], distance[:, label & ~same]
    shares = []
    for c in range(4):
        within, between = (distance[:, cluster == c][:, :, cluster == number] for number in (c, c ^ 1))
        nearer = (within.unsqueeze(3) < between.unsqueeze(2)).double().mean(3)  # (B, n/4, n/4) for samples 1 and 2
        shares.append(nearer[:, ~_eye(within)].mean(1))
    return inter.mean(1) / intra.mean(1), inter.amin(1) / intra.amax(1), torch.stack(shares).mean(0)
