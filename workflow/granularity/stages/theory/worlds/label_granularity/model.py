"""World 1: a two-layer ReLU network on patches, coarse or fine labels (docs/theory/label_granularity.md).

Indices: n sample, p patch, r neuron, j coordinate; s = 0 (+) or 1 (-) superclass, c subclass, g labels per superclass.
The dictionary is the standard basis (without loss of generality: the initialisation is rotation invariant): v_s is
coordinate s, v_{s,c} is coordinate 2 + s k + c. A *hard* image has no common patch. Each class has its own neurons:

    dw_r   = eta / (N P) sum_n (1{y_n = c} - softmax_c(X_n)) sum_p 1{<w_r, x_np> + b_r > 0} x_np
    b_r   -= beta ||dw_r||                                                      (coarse labels, g = 1)
    b_r   -= min(beta ||dw_r||, clip max_np <dw_r, x_np of the next batch>)     (finer; not below 0, unlike Eq. 93)
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from granularity.stages.theory import engine, nets
from granularity.stages.theory.engine import State, Trial
from granularity.stages.theory.worlds.label_granularity import fixed
from granularity.stages.theory.worlds.label_granularity.measures import Evaluation, members, pruned_away
from granularity.stages.theory.worlds.label_granularity.settings import Settings

RECORDED = (0, 1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 1500, 2000)
COARSE = {"g": 1, "labels": "class"}
SILENT = 8.0  # standard deviations of patch noise: a neuron this far below threshold never fires (p < 1e-15)
NEVER = -1e30  # the bias of such a neuron from then on


def draw_samples(
    cfg: Settings,
    per_subclass: int,
    generator: torch.Generator,
    *,
    hard: bool = False,
    sigma_z: float | None = None,
    distractors: int = 0,
) -> tuple[Tensor, Tensor]:
    """Draw `per_subclass` samples of each subclass, in the order of subclasses, on the generator's device.

    Each patch is common with probability s*/P; each other patch shows a subclass with that probability; the rest is
    noise. Samples without a common or a subclass patch are redrawn. `hard`: common patches become noise. `sigma_z`:
    replaces the setting's noise. `distractors`: noise patches that show half of the opposite common feature instead.
    Returns patches (N, P, d) float32, and the feature that each shows (N, P) int64, -1 for noise.
    """
    k, P, device = cfg.k, cfg.patches, generator.device
    s, c = subclasses(cfg, per_subclass, device)
    n = len(s)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, device=device)

    if cfg.equal_counts:  # the order of patches does not matter, because the network sums over them
        place = torch.arange(P, device=device).expand(n, P)
        common, sub = place < cfg.signal, (place >= cfg.signal) & (place < 2 * cfg.signal)
    else:
        rate = cfg.signal / P
        common, rest = uniform(n, P) < rate, uniform(n, P) < rate
        while (bad := ~(common.any(1) & (rest & ~common).any(1))).any():
            count = int(bad.sum())
            common[bad], rest[bad] = uniform(count, P) < rate, uniform(count, P) < rate
        sub = rest & ~common
    feature = torch.where(sub, (2 + s * k + c).unsqueeze(1), -1)
    if not hard:
        feature = torch.where(common, s.unsqueeze(1), feature)
    shows, other = feature >= 0, (1 - s).unsqueeze(1)
    alpha = math.sqrt(1 - cfg.iota) + uniform(n, P) * (math.sqrt(1 + cfg.iota) - math.sqrt(1 - cfg.iota))
    pulled = ~shows & ((~shows).cumsum(1) <= distractors)
    x = torch.randn(n, P, cfg.d, generator=generator, device=device)
    x *= cfg.sigma_z if sigma_z is None else sigma_z
    for slot in range(cfg.noise_features):  # one scatter per slot: no additions collide, so a GPU is deterministic too
        which = torch.randint(k + 1, (n, P), generator=generator, device=device)
        opposite = torch.where(which == 0, other, 1 + other * k + which)
        strength = cfg.gamma * uniform(n, P)
        where = torch.where(shows, feature, torch.where(pulled, other, opposite))
        first, half = (alpha, 0.5) if slot == 0 else (torch.zeros_like(alpha), 0.0)
        value = torch.where(shows, first, torch.where(pulled, half, strength))
        x.scatter_add_(2, where.unsqueeze(2), value.unsqueeze(2))
    return x, feature


def subclasses(cfg: Settings, per_subclass: int, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """Return superclass s and subclass c, (N,) int64 each, of a balanced set in the order of subclasses."""
    each = torch.arange(2 * cfg.k, device=device).repeat_interleave(per_subclass)
    return each // cfg.k, each % cfg.k


def draw_labels(cfg: Settings, generator: torch.Generator) -> Tensor:
    """Return training labels (N,) int64 in 0..2g-1; random labels are redrawn for every batch."""
    s, c = subclasses(cfg, cfg.per_subclass, generator.device)
    if cfg.labels == "class":
        return s * cfg.g + c % cfg.g
    within = cfg.labels == "random_within"
    drawn = torch.randint(cfg.g if within else cfg.classes, s.shape, generator=generator, device=generator.device)
    return s * cfg.g + drawn if within else drawn


def draw_weights(cfg: Settings, generator: torch.Generator) -> Tensor:
    """Return initial weights (R, d) float32, in the order of `Settings.slots`.

    In the Gaussian draw N(0, sigma_0^2 I), only neurons above the threshold ever fire or move: for practical d less
    than one per feature. So each slot draws one *given* that exactly its own feature is above threshold.
    """
    slots, level, device = cfg.slots(), cfg.level, generator.device
    u = torch.rand(len(slots), cfg.d, generator=generator, device=device, dtype=torch.float64).clamp_min(1e-16)
    if cfg.neurons == "gaussian":
        return (cfg.sigma_0 * torch.special.ndtri(u)).float()
    tail = 0.5 * math.erfc(level / math.sqrt(2))
    w = torch.special.ndtri(u * (1 - tail))
    feature = torch.tensor([feature for _, feature in slots], device=device).unsqueeze(1)
    w.scatter_(1, feature, -torch.special.ndtri(tail * u.gather(1, feature)))
    return (cfg.sigma_0 * w).float()


def forward(w: Tensor, b: Tensor, x: Tensor, classes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return responses of classes (B, C, N) and neurons (B, R, N), and which fire, for w (B, R, d), x (B, N, P, d)."""
    B, N, P, _ = x.shape
    z = torch.baddbmm(b.unsqueeze(2), w, x.flatten(1, 2).transpose(1, 2))
    fires = (z > 0).view(B, -1, N, P)
    h = z.relu_().view(B, -1, N, P).sum(3)
    return classes @ h, h, fires


def weight_step(fires: Tensor, residual: Tensor, x: Tensor, cls: Tensor, eta: Tensor) -> Tensor:
    """Return dw (B, R, d), from fires (B, R, N, P), residual 1{y_n = c} - softmax_c (B, C, N), and eta (B, 1, 1)."""
    B, R, N, P = fires.shape
    pull = (fires * residual[:, cls].unsqueeze(3)).view(B, R, N * P)
    return eta / (N * P) * torch.bmm(pull, x.flatten(1, 2))


def bias_step(dw: Tensor, beta: Tensor, x_next: Tensor | None = None, clip: Tensor | None = None) -> Tensor:
    """Return the decrease of each bias (B, R): beta ||dw||, for fine labels bounded by the next batch."""
    off = beta * dw.norm(dim=2)
    if x_next is not None:
        reach = torch.bmm(dw, x_next.flatten(1, 2).transpose(1, 2)).amax(2)
        off = torch.minimum(off, clip * reach).clamp_min(0)
    return off


def silent(w: Tensor, b: Tensor, most: float, sigma_z: Tensor, features: int) -> Tensor:
    """Return (B, R) neurons that no training patch can make fire; they never move, and may be dropped.

    The largest <w, x> is `most`, a patch's largest total strength of features, times the largest <w, v>, plus `SILENT`
    standard deviations of noise. (On test patches with raised noise one might fire, at the scale of sigma_0.)
    """
    return most * w[:, :, :features].amax(2).clamp_min(0) + SILENT * sigma_z * w.norm(dim=2) + b < 0


def simulate(runs: list[Trial], device: torch.device, loss: Callable = nets.softmax_residual) -> list[dict]:
    """Pretrain a group of runs on a loss, and finetune the merged networks if the setting asks for it (see `engine`).

    `loss` maps responses (B, N, C) and labels (B, N) to the loss (B,) and minus its gradient in them, times N.
    """
    cfg = runs[0].settings
    if cfg.features != "learnt":
        return fixed.simulate(runs, device, draw_samples, draw_labels)
    slots = torch.tensor(cfg.slots(), device=device)
    w = engine.stacked(lambda run: draw_weights(run.settings, run.generator("init", device)), runs)
    b = -engine.column(runs, "sigma_0", device, 2) * engine.column(runs, "level", device, 2).expand(-1, len(slots))
    net = {"w": w, "b": b.contiguous(), "cls": slots[:, 0], "feature": slots[:, 1]}
    rows, net = _train(runs, net, cfg.g, device, "train", loss)
    if cfg.finetune_steps:
        merged = net | {"cls": net["cls"] // cfg.g}
        keep = ~pruned_away(net["cls"], net["feature"], cfg.g)
        pruned = {name: one[..., keep, :] if name == "w" else one[..., keep] for name, one in merged.items()}
        for head, start in (("sum", merged), ("pruned", pruned)):
            rows += _train(runs, start, 1, device, f"finetune {head}", nets.softmax_residual)[0]
    return rows


def _train(
    runs: list[Trial], net: State, g: int, device: torch.device, phase: str, loss: Callable
) -> tuple[list[dict], State]:
    """Train networks (w, b, cls, feature) on g labels per superclass; any phase except "train" is coarse."""
    cfg, pretraining = runs[0].settings, phase == "train"
    data, names = ([run.generator(f"{phase} {what}", device) for run in runs] for what in ("data", "labels"))
    settings = [run.settings if pretraining else run.settings.model_copy(update=COARSE) for run in runs]
    eta = engine.column(runs, "eta" if pretraining else "finetune_eta", device, 3)
    beta, clip, sigma_z = (engine.column(runs, key, device, 2) for key in ("beta", "clip", "sigma_z"))
    most = max(max(math.sqrt(1 + s.iota), s.noise_features * s.gamma) for s in settings)
    evaluation = Evaluation(runs, g, draw_samples, forward, device)

    def draw() -> State:
        drawn = [draw_samples(s, s.per_subclass, gen) for s, gen in zip(settings, data, strict=True)]
        x, shows = map(torch.stack, zip(*drawn, strict=True))
        return {"x": x, "shows": shows, "y": engine.stacked(draw_labels, settings, names)}

    first = draw()

    def prepare(state: State, t: int) -> State:
        if t & (t - 1) and t % 32:
            return state
        quiet = silent(state["w"], state["b"], most, sigma_z, 2 + 2 * cfg.k)
        state = state | {"b": state["b"].masked_fill(quiet, NEVER)}  # so that a run does not depend on its batch
        keep = ~quiet.all(0)
        keep[0] = True
        if keep.all():
            return state
        state |= {name: state[name][:, keep] for name in ("w", "b", "could")}
        return state | {name: state[name][keep] for name in ("cls", "feature")}

    def step(state: State, t: int) -> tuple[State, dict[str, Tensor]]:
        cls = state["cls"]
        F, h, fires = forward(state["w"], state["b"], state["x"], members(cls, 2 * g))
        value, residual = loss(F.transpose(1, 2), state["y"])
        live = (h > 0).any(2).any(0).nonzero().squeeze(1)  # the others do not move
        dw = weight_step(fires[:, live], residual.transpose(1, 2), state["x"], cls[live], eta)
        following = first if cfg.fixed else draw()
        off = bias_step(dw, beta) if g == 1 else bias_step(dw, beta, following["x"], clip)
        # T0: coarse: some response reaches 1/d; fine: some softmax of the own class reaches 1/(1.5 g)
        own = 1 - residual.gather(2, state["y"].unsqueeze(2)).squeeze(2)
        event = (1 / cfg.d <= F).flatten(1).any(1) if g == 1 else (own >= 1 / (1.5 * g)).any(1)
        moved = {"w": state["w"].index_add(1, live, dw), "b": state["b"].index_add(1, live, -off)}
        return state | following | moved, {"loss": value, "T0": event}

    state = net | first
    state["could"] = evaluation.firing(state) | (state["w"][:, :, : 2 + 2 * cfg.k] > -state["b"].unsqueeze(2))
    rows, state = engine.train(
        runs,
        state,
        step,
        evaluation.measure,
        steps=cfg.steps if pretraining else cfg.finetune_steps,
        record=RECORDED if pretraining else (0,),
        stop_loss=cfg.stop_loss if pretraining else None,
        prepare=prepare,
        phase=phase,
    )
    return rows, {name: state[name] for name in net}
