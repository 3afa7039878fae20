"""What is measured: captured semantics, lotteries and purity of kernels; accuracies a test set and a view."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from granularity.stages.theory.engine import State
from granularity.stages.theory.worlds.mask_reconstruction.settings import Settings

WORKING, LOST = 0.9, 0.5  # accuracies on its single-view samples: a view works above, is lost below


class Evaluation:
    """The data, test sets and initial kernels of a group of runs, and the measures taken on them.

    Args:
        w: initial kernels (B, R, d); they decide the lotteries
            M_j = {r: <w_r(0), v_j> >= Lambda_j(0) (1 - 1/(2 log k))}.
        data: training samples; tests: "multi" and "single" view ones.
        encode: ``(x, w, q, width) -> H`` (B, N, R).
    """

    def __init__(self, cfg: Settings, w: Tensor, data: State, tests: dict[str, State], encode: Callable):
        self.cfg, self.data, self.tests, self.encode = cfg, data, tests, encode
        first = w[:, :, : 2 * cfg.k]
        self.lottery = first >= first.amax(1, keepdim=True) * (1 - 0.5 / math.log(cfg.k))

    # ------------------------------------------------------------ kernels

    def kernels(self, w: Tensor) -> dict[str, Tensor]:
        """Measures (B,) of the kernels w (B, R, d): strengths in units of the width, counts, shares."""
        cfg, M = self.cfg, self.lottery
        corr = w[:, :, : 2 * cfg.k]  # (B, R, 2k)
        most, winner = corr.max(1)
        most = most.clamp_min(0) / cfg.width
        above = corr >= cfg.width
        held = above.sum(2)
        # winners: their two largest correlations
        theirs = corr.gather(1, winner.unsqueeze(2).expand(-1, -1, 2 * cfg.k))
        top = theirs.topk(2, dim=2).values
        psi = (corr.clamp_min(0).square() * M).sum(1).view(-1, cfg.k, 2)
        pairs = above.view(*above.shape[:2], cfg.k, 2).all(3).any(2)
        return {
            "lambda_min": most.amin(1),
            "lambda_median": most.quantile(0.5, dim=1),
            "lambda_max": most.amax(1),
            "captured": (most >= 1).sum(1).float(),
            "lottery_size": M.sum(1).float().mean(1),
            "in_two_lotteries": (M.sum(2) >= 2).sum(1).float(),
            "winner_in_lottery": M.gather(1, winner.unsqueeze(1)).float().mean((1, 2)),
            "pure_winners": (top[:, :, 1] < cfg.width).sum(1).float(),
            "second_over_first": (top[:, :, 1] / top[:, :, 0]).quantile(0.5, dim=1),
            "kernels_above": (held >= 1).sum(1).float(),
            "fused": (held >= 2).sum(1).float(),
            "fused_within_class": pairs.sum(1).float(),
            "outside_crossings": (above & ~M).any(1).sum(1).float(),
            "psi_balance": (psi.amin(2) / psi.amax(2)).mean(1),
        }

    # ------------------------------------------------------------ classifiers

    def decide(self, w: Tensor, u: Tensor, x: Tensor) -> Tensor:
        """Decisions (B, N): classes, or their groups where u has fewer rows than classes.

        Two labels per class are merged by summing their probabilities.
        """
        F = self.encode(x, w, self.cfg.q, self.cfg.width) @ u.transpose(1, 2)
        if u.shape[1] > self.cfg.k:
            F = F.unflatten(2, (self.cfg.k, -1)).logsumexp(3)
        return F.argmax(2)

    def classifier(self, w: Tensor, u: Tensor, y: Tensor, end: bool) -> dict[str, Tensor]:
        """Accuracies (B,) on the training samples with labels (their classes), and on both test sets.

        At the end also: accuracy on single-view samples whose strong view is l of class i; how many views of
        a class work, how many semantics work or are lost, and the signs of u in the lotteries (F.3.1).
        """
        cfg, merge = self.cfg, max(1, self.cfg.k // u.shape[1])
        count = y.shape[1]
        right = {"train": self.decide(w, u, self.data["x"][:, :count]) == self.data["y"][:, :count] // merge}
        for name, test in self.tests.items():
            right[name] = self.decide(w, u, test["x"]) == test["y"] // merge
        found = {f"{name}_accuracy": hit.float().mean(1) for name, hit in right.items()}
        single = self.tests["single"]
        strong = 2 * single["y"] + 1 - single["weak"]
        member = torch.nn.functional.one_hot(strong, 2 * cfg.k).float()  # (B, N, 2k)
        views = (member * right["single"].unsqueeze(2)).sum(1) / member.sum(1)
        works = views > WORKING
        found |= {
            "views_per_class": works.sum(1) / cfg.k,
            "lost_views": (views < LOST).sum(1).float(),
            "two_valued": (works | (views < LOST)).float().mean(1),
        }
        nothing = torch.full_like(found["train_accuracy"], math.nan)
        kernels = self.kernels(w)
        found |= {name: kernels[name] for name in ("lambda_min", "lambda_median", "lambda_max", "fused")}
        for i in range(cfg.k):
            for view in range(2):
                found[f"view_accuracy_{i}_{view}"] = views[:, 2 * i + view] if end else nothing
        signs = self.signs(u) if end and u.shape[1] == cfg.k else dict.fromkeys(SIGNS, nothing)
        return found | signs

    def signs(self, u: Tensor) -> dict[str, Tensor]:
        """Signs of u (B, k, R) for kernels in lotteries of the class, of another class, and of none."""
        own = self.lottery.unflatten(2, (self.cfg.k, 2)).any(3).transpose(1, 2)  # (B, k, R)
        anywhere = own.any(1, keepdim=True)
        other, none = anywhere & ~own, (~anywhere).expand_as(own)

        def share(which: Tensor, where: Tensor) -> Tensor:
            return (which & where).sum((1, 2)) / where.sum((1, 2))

        size = u.abs()
        outside = (size * none).sum((1, 2)) / none.sum((1, 2))
        inside = (size * own).sum((1, 2)) / own.sum((1, 2))
        return dict(zip(SIGNS, (share(u > 0, own), share(u < 0, other), outside / inside), strict=True))


SIGNS = ("u_positive_in_own", "u_negative_in_other", "u_outside_over_own")
