"""World 3's inputs: hidden patterns of a dictionary, their labels at several granularities, normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from granularity.stages.theory import nets
from granularity.stages.theory.engine import Trial
from granularity.stages.theory.worlds.feature_emergence import spaces
from granularity.stages.theory.worlds.feature_emergence.settings import Settings

P_O = 0.5  # share of structureless inputs in the parity mixture; else background patterns would depend on it
CODES = 50  # vectors per class of the hidden rule
CEILING = 84.375  # per cent: the best threshold on s errs on 10 of the 32 patterns, in half the inputs


@dataclass
class Split:
    """x (B, n, p) normalised; y (B, n) the rule's +-1; signs (B, n, C) +-1 of each output."""

    x: Tensor
    y: Tensor
    signs: Tensor


@dataclass
class Data:
    """The data that a group of runs learns from. `u` (B, p): the unit direction of the truth.

    `basis` (B, d, d): the dictionary in its first D columns, completed; only in input coordinates.
    `parity` (B, C) +-1: the rule's class of each label. `facts`: measures (B,) of the training inputs.
    """

    train: Split
    validation: Split
    test: Split
    u: Tensor
    basis: Tensor | None
    parity: Tensor
    facts: dict[str, Tensor]


def draw_patterns(
    cfg: Settings, count: int, relevant: Tensor, codes: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Hidden patterns phi~ (count, D) in {0, 1}, float, and the rule's labels y (count,) in +-1.

    Parity, structured: half the inputs are fair coins (D0), in the others (D1) the relevant patterns are all
    zero or all one; background patterns are fair coins in both, the rate p_o / (2 - 2 p_o) at p_o = 1/2.

    Args:
        relevant: (k,) int64, the set A.
        codes: (2 * CODES, k) of the hidden rule, the first half of class +1.
    """
    device = generator.device

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, device=device)

    phi = (uniform(count, cfg.D) < 0.5).float()
    mine = phi[:, relevant]
    if cfg.rule == "parity":
        if cfg.structured:
            same = (uniform(count, 1) < 0.5).float().expand_as(mine)
            mine = torch.where(uniform(count, 1) < P_O, mine, same)
        y = mine.sum(1) % 2 * 2 - 1
    elif cfg.rule == "interval":
        if cfg.structured:
            mine = (uniform(count, cfg.k) < 2 / 3).float()
        y = (mine.sum(1) >= 2 * cfg.k // 3).float() * 2 - 1
    else:
        which = torch.randint(2 * CODES, (count,), generator=generator, device=device)
        mine, y = codes[which], (which < CODES).float() * 2 - 1
    phi[:, relevant] = mine
    return phi, y


def draw(
    cfg: Settings, count: int, relevant: Tensor, codes: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """As :func:`draw_patterns`, by rejection with the exact share of class -1 where one is set."""
    if cfg.negative_share is None:
        return draw_patterns(cfg, count, relevant, codes, generator)
    negative = round(cfg.negative_share * count)
    wanted = {-1: negative, 1: count - negative}
    kept: dict[int, list[Tensor]] = {-1: [], 1: []}
    while any(sum(map(len, kept[v])) < wanted[v] for v in kept):
        phi, y = draw_patterns(cfg, count, relevant, codes, generator)
        for v in kept:
            kept[v].append(phi[y == v])
    phi = torch.cat([torch.cat(kept[v])[: wanted[v]] for v in (-1, 1)])
    y = torch.cat([torch.full((wanted[v],), float(v), device=phi.device) for v in (-1, 1)])
    order = torch.randperm(count, generator=generator, device=generator.device)
    return phi[order], y[order]


def draw_labels(cfg: Settings, mine: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Labels of one granularity, as signs (n, C) of one output each, and the rule's class (C,) of each label.

    Args:
        mine: (n, k) relevant patterns.
        y: (n,) the rule's labels.
    """
    s, device = mine.sum(1).long(), mine.device
    if cfg.labels == "rule":
        return y.unsqueeze(1), torch.ones(1, device=device)
    counts = torch.arange(6, device=device)
    if cfg.labels == "count":
        label, parity = s, counts % 2
    elif cfg.labels == "halves":
        label, parity = s % 2 + 2 * (s >= 3), torch.arange(4, device=device) % 2
    elif cfg.labels == "pattern":
        label = (mine.long() * 2 ** torch.arange(5, device=device)).sum(1)
        bits = torch.arange(32, device=device).unsqueeze(1) // 2 ** torch.arange(5, device=device) % 2
        parity = bits.sum(1) % 2
    elif cfg.labels == "table":
        table = torch.tensor(cfg.table, device=device)
        patterns = torch.tensor(spaces.PATTERNS, device=device)
        parity = torch.zeros(cfg.outputs, dtype=torch.int64, device=device).scatter_(0, table, patterns.sum(1) % 2)
        other = torch.randint(2, mine.shape, generator=generator, device=device)
        other[:, -1] = (s + other[:, :-1].sum(1)) % 2  # of the same parity
        redrawn = torch.rand(s.shape, generator=generator, device=device) < cfg.shuffled
        shown = torch.where(redrawn.unsqueeze(1), other, mine.long())
        label = table[(shown * 2 ** torch.arange(5, device=device)).sum(1)]
    else:
        label = s % 2 + 2 * torch.randint(3, s.shape, generator=generator, device=device)
        parity = counts % 2
    onehot = label.unsqueeze(1) == torch.arange(cfg.outputs, device=device)
    return onehot.float() * 2 - 1, parity.float() * 2 - 1


def _facts(cfg: Settings, phi: Tensor, y: Tensor, mine: Tensor, x: Tensor) -> dict[str, float]:
    """What the data model promises, of the training inputs of one run; z: in standard errors."""
    n = len(y)
    gamma = (mine * y.unsqueeze(1)).mean(0) - y.mean() * mine.mean(0)
    error = (y.unsqueeze(1) * (mine - mine.mean(0))).std(0) / n**0.5
    positive = (y > 0).float().mean().item()
    return {
        "marginal_z": ((phi.mean(0) - 0.5).abs() * 2 * n**0.5).max().item(),
        "label_z": abs(y.mean().item()) * n**0.5,
        "gamma_min": gamma.min().item(),
        "gamma_max": gamma.max().item(),
        "gamma_z": (gamma.abs() / error.clamp_min(1e-9)).max().item(),
        "norm2": x.square().sum(1).mean().item(),
        "majority": 100 * max(positive, 1 - positive),
    }


def prepare(runs: Sequence[Trial], device: torch.device) -> Data:
    """Draw every run's dictionary, relevant set and inputs. Validation and test sets are fresh draws."""
    drawn = [_prepare(run, device) for run in runs]

    def split(i: int) -> Split:
        return Split(*(torch.stack([one[i][j] for one in drawn]) for j in range(3)))

    basis = None if drawn[0][4] is None else torch.stack([one[4] for one in drawn])
    facts = {key: torch.tensor([one[6][key] for one in drawn], device=device) for key in drawn[0][6]}
    u, parity = (torch.stack([one[i] for one in drawn]) for i in (3, 5))
    return Data(split(0), split(1), split(2), u, basis, parity, facts)


def _prepare(run: Trial, device: torch.device) -> tuple:
    cfg = run.settings
    source = run.generator("dictionary", device)
    relevant = torch.randperm(cfg.D, generator=source, device=device)[: cfg.k]
    codes = torch.randint(2, (2 * CODES, cfg.k), generator=source, device=device).float()
    basis = nets.orthonormal(cfg.d, cfg.d, source).T.contiguous() if cfg.coordinates == "inputs" else None
    splits, mean, sigma = [], None, 0.0
    facts: dict[str, float] = {}
    for purpose, count in (("train data", cfg.n), ("validation data", cfg.test), ("test data", cfg.test)):
        phi, y = draw(cfg, count, relevant, codes, run.generator(purpose, device))
        mine = phi[:, relevant]
        signs, parity = draw_labels(cfg, mine, y, run.generator(f"labels of {purpose}", device))
        if mean is None:
            fair = cfg.rule == "parity" and cfg.negative_share is None
            mean = torch.full_like(phi[0], 0.5) if fair else phi.mean(0)
            sigma = cfg.sigma if fair else phi.var(0, unbiased=False).sum().sqrt().item()
        x = (phi - mean) / sigma
        if basis is not None:
            x = x @ basis[:, : cfg.D].T
        if not splits:
            facts = _facts(cfg, phi, y, mine, x)
        splits.append((x, y, signs))
    u = torch.zeros(cfg.D, device=device)
    u[relevant] = codes[:CODES].mean(0) - codes[CODES:].mean(0) if cfg.rule == "hidden" else 1.0
    u = u / u.norm()
    return *splits, u if basis is None else basis[:, : cfg.D] @ u, basis, parity, facts
