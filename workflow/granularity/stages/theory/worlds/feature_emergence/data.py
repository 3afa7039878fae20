"""World 3's inputs: hidden patterns of a dictionary, normalised, and their labels at several granularities."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from granularity.stages.theory import engine, nets
from granularity.stages.theory.engine import State, Trial
from granularity.stages.theory.worlds.feature_emergence import spaces
from granularity.stages.theory.worlds.feature_emergence.settings import Settings

P_O = 0.5  # share of structureless inputs in the parity mixture; at other shares background patterns would differ
CODES = 50  # vectors per class of the hidden rule
SPLITS = {"train": "train data", "val": "validation data", "test": "test data"}
CEILING = 84.375  # per cent: the best threshold on s errs on 10 of the 32 patterns, in half the inputs


def draw_patterns(
    cfg: Settings, count: int, relevant: Tensor, codes: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw hidden patterns phi~ (count, D) in {0, 1}, float, and the rule's labels y (count,) in +-1.

    Parity, structured: half the inputs are fair coins (D0); in the others (D1) the `relevant` patterns (k,) are all
    zero or all one. Background patterns are fair coins in both, the rate p_o / (2 - 2 p_o) at p_o = 1/2. The hidden
    rule has `codes` (2 * CODES, k), the first half of class +1.
    """
    device = generator.device
    uniform = partial(torch.rand, generator=generator, device=device)
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
    """As :func:`draw_patterns`, but with the exact share of class -1, by rejection, if one is set."""
    phi, y = draw_patterns(cfg, count, relevant, codes, generator)
    if cfg.negative_share is None:
        return phi, y
    negative = round(cfg.negative_share * count)
    while (y < 0).sum() < negative or (y > 0).sum() < count - negative:
        more = draw_patterns(cfg, count, relevant, codes, generator)
        phi, y = torch.cat([phi, more[0]]), torch.cat([y, more[1]])
    kept = torch.cat([(y < 0).nonzero()[:negative, 0], (y > 0).nonzero()[: count - negative, 0]])
    order = kept[torch.randperm(count, generator=generator, device=generator.device)]
    return phi[order], y[order]


def draw_labels(cfg: Settings, mine: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return signs (n, C), one per output, and the rule's class (C,) of each label, for patterns (n, k) and y (n,)."""
    s, device = mine.sum(1).long(), mine.device
    if cfg.labels == "rule":
        return y.unsqueeze(1), torch.ones(1, device=device)
    if cfg.labels == "random":
        label = s % 2 + 2 * torch.randint(3, s.shape, generator=generator, device=device)
        parity = torch.arange(6, device=device) % 2
    else:
        table = torch.tensor(cfg.table or spaces.TABLES[cfg.labels], device=device)
        patterns = torch.tensor(spaces.PATTERNS, device=device)
        parity = torch.zeros(cfg.outputs, dtype=torch.int64, device=device).scatter_(0, table, patterns.sum(1) % 2)
        substitute = torch.randint(2, mine.shape, generator=generator, device=device)
        substitute[:, -1] = (s + substitute[:, :-1].sum(1)) % 2  # of the same parity
        redrawn = torch.rand(s.shape, generator=generator, device=device) < cfg.shuffled
        shown = torch.where(redrawn.unsqueeze(1), substitute, mine.long())
        label = table[(shown * 2 ** torch.arange(5, device=device)).sum(1)]
    onehot = label.unsqueeze(1) == torch.arange(cfg.outputs, device=device)
    return onehot.float() * 2 - 1, parity.float() * 2 - 1


def dictionary(cfg: Settings, span: Tensor, generator: torch.Generator) -> Tensor:
    """Return M (d, D), unit columns with |<M_i, M_j>| <= mu / sqrt(d), in the span of orthonormal columns (d, D).

    Inner products are those of random unit columns, all shrunk by the same factor if the largest exceeds the bound.
    """
    if not cfg.coherence:
        return span
    drawn = torch.randn(cfg.d, cfg.D, generator=generator, dtype=torch.float64, device=span.device)
    drawn = torch.nn.functional.normalize(drawn, dim=0)
    inner = (drawn.T @ drawn).fill_diagonal_(0)
    inner *= (cfg.coherence / cfg.d**0.5 / inner.abs().max()).clamp(max=1)
    return span @ torch.linalg.cholesky(inner.fill_diagonal_(1)).T.to(span)


def _facts(cfg: Settings, phi: Tensor, y: Tensor, mine: Tensor, x: Tensor) -> dict[str, float]:
    """Return checks of the data model on one run's training inputs; z: in standard errors."""
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


def prepare(runs: Sequence[Trial], device: torch.device) -> tuple[State, State]:
    """Return every run's data, and measures (B,) of its training inputs.

    For each of `SPLITS`, fresh draws: normalised inputs "train x" (B, n, p), the rule's "train y" (B, n) and "train
    signs" (B, n, C) of each output, all +-1; "u" (B, p), the unit direction of the truth; "parity" (B, C) +-1, the
    rule's class of each label; in input coordinates "basis" (B, d, d), orthonormal, with the dictionary's span first.
    """
    data, facts = zip(*(_prepare(run, device) for run in runs), strict=True)
    return engine.collated(data), engine.collated(facts)


def _prepare(run: Trial, device: torch.device) -> tuple[State, State]:
    cfg = run.settings
    source = run.generator("dictionary", device)
    relevant = torch.randperm(cfg.D, generator=source, device=device)[: cfg.k]
    codes = torch.randint(2, (2 * CODES, cfg.k), generator=source, device=device).float()
    basis = nets.orthonormal(cfg.d, cfg.d, source).T.contiguous() if cfg.coordinates == "inputs" else None
    columns = None if basis is None else dictionary(cfg, basis[:, : cfg.D], run.generator("inner products", device))
    data: State = {}
    for name, purpose in SPLITS.items():
        phi, y = draw(cfg, cfg.n if name == "train" else cfg.test, relevant, codes, run.generator(purpose, device))
        mine = phi[:, relevant]
        signs, parity = draw_labels(cfg, mine, y, run.generator(f"labels of {purpose}", device))
        if name == "train":
            fair = cfg.rule == "parity" and cfg.negative_share is None
            mean = torch.full_like(phi[0], 0.5) if fair else phi.mean(0)
            noise2 = cfg.d * cfg.input_noise**2
            sigma = cfg.sigma if fair else (phi.var(0, unbiased=False).sum() + noise2).sqrt().item()
        x = (phi - mean) / sigma
        if columns is not None:
            x = x @ columns.T
        if cfg.input_noise:  # the paper prints zeta / sigma_zeta
            zeta = torch.randn(x.shape, generator=run.generator(f"noise of {purpose}", device), device=device)
            x += cfg.input_noise / sigma * zeta
        if name == "train":
            facts = _facts(cfg, phi, y, mine, x)
        data |= {f"{name} x": x, f"{name} y": y, f"{name} signs": signs}
    u = torch.zeros(cfg.D, device=device)
    u[relevant] = codes[:CODES].mean(0) - codes[CODES:].mean(0) if cfg.rule == "hidden" else 1.0
    u = u / u.norm()
    if columns is not None:
        data |= {"basis": basis}
        u = columns @ u
        u = u / u.norm() if cfg.general else u
    if cfg.general:
        inner = (columns.T @ columns).fill_diagonal_(0)
        facts["largest_inner"] = inner.abs().max().item() * cfg.d**0.5
    return data | {"u": u, "parity": parity}, {key: torch.tensor(value, device=device) for key, value in facts.items()}
