"""World 2, first model: a mixture of Gaussians under coarse labels (Appendix B; docs/theory/neural_collapse.md).

The label is c mod G, so G = clusters/2 merges pairs (c, c + G). Raw inputs have MSDR 1 + sigma^2 for every d, because
E||mu_i - mu_j||^2 = 2 sigma^2 d and tr S = d; what training adds is MSDR at the end over MSDR at step 0.
"""

import math

import torch
from torch import Tensor

from granularity.stages.theory import engine, nets
from granularity.stages.theory.engine import State, Trial
from granularity.stages.theory.worlds.neural_collapse import measures
from granularity.stages.theory.worlds.neural_collapse.settings import Settings

RECORDED = (0, 1, 2, 5, 10, 20, 50, 100, 200, 300, 500, 700)
OF_INPUTS = ("input_msdr", "input_msdr_similar", "input_msdr_dissimilar", "input_natural_accuracy")


def draw_means(cfg: Settings, generator: torch.Generator) -> Tensor:
    """Draw cluster means (K, d), one draw for all sigma^2; with tau^2, half of the pairs are similar (Section B.1)."""
    device, pairs = generator.device, cfg.clusters // 2
    z = torch.randn(cfg.clusters, cfg.d_in, generator=generator, device=device)
    mean = math.sqrt(cfg.sigma2) * z
    if cfg.tau2 is not None:
        centre = torch.randn(pairs, cfg.d_in, generator=generator, device=device)
        near = similar(cfg, device)
        mean[near] = math.sqrt(cfg.sigma2) * centre[near % pairs] + math.sqrt(cfg.tau2) * z[near]
    return mean


def similar(cfg: Settings, device: torch.device | str = "cpu") -> Tensor:
    """Return the clusters (K/2,) of the pairs that tau^2 makes similar."""
    c = torch.arange(cfg.clusters, device=device)
    return c[c % (cfg.clusters // 2) < cfg.clusters // 4]


def draw_samples(cfg: Settings, mean: Tensor, generator: torch.Generator) -> Tensor:
    """Draw (N, d): `per_cluster` samples N(mu_c, I) of each cluster, in the order of clusters."""
    noise = torch.randn(cfg.clusters * cfg.per_cluster, cfg.d_in, generator=generator, device=generator.device)
    return noise + mean.repeat_interleave(cfg.per_cluster, 0)


def clusters_of(cfg: Settings, device: torch.device | str = "cpu") -> Tensor:
    """Return (N,) int64: the cluster of each sample."""
    return torch.arange(cfg.clusters, device=device).repeat_interleave(cfg.per_cluster)


def draw_labels(cfg: Settings, generator: torch.Generator) -> Tensor:
    """Draw the given labels (N,) int64 before training: c mod G, or c + clusters * (a random part)."""
    c = clusters_of(cfg, generator.device)
    if cfg.labels <= cfg.clusters:
        return c % cfg.labels
    part = torch.randint(cfg.labels // cfg.clusters, c.shape, generator=generator, device=generator.device)
    return c + cfg.clusters * part


def draw_weights(cfg: Settings, generator: torch.Generator) -> State:
    """Draw initial w (h, d), a (G, h), and with standard scaling b (h,), c (G,)."""
    device, h, d, G = generator.device, cfg.hidden, cfg.d_in, cfg.labels

    def uniform(fan_in: int, *shape: int) -> Tensor:
        return cfg.init * (2 * torch.rand(*shape, generator=generator, device=device) - 1) / math.sqrt(fan_in)

    if cfg.scaling == "mean-field":
        w = cfg.init * torch.randn(h, d, generator=generator, device=device) / math.sqrt(d)
        return {"w": w, "a": cfg.init * torch.randn(G, h, generator=generator, device=device) / h}
    return {"w": uniform(d, h, d), "b": uniform(d, h), "a": uniform(h, G, h), "c": uniform(h, G)}


def rates(cfg: Settings) -> dict[str, float]:
    """Return the step size of each parameter."""
    if cfg.scaling == "mean-field":
        return {"w": cfg.lr * cfg.hidden, "a": cfg.lr / cfg.hidden}
    return dict.fromkeys(("w", "b", "a", "c"), cfg.lr)


def forward(net: State, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return outputs (B, N, G), features (B, N, h) and pre-activations (B, N, h) for x (B, N, d)."""
    return nets.two_layer(x, net["w"], net["a"], nets.RELU, net.get("b"), net.get("c"))


def update(net: State, x: Tensor, y: Tensor, rate: dict[str, Tensor], decay: Tensor) -> tuple[State, dict[str, Tensor]]:
    """Do one step of gradient descent; return new parameters, and loss and training accuracy (B,) of the old ones.

    Takes w (B, h, d), a (B, G, h), and b (B, h), c (B, G) or neither; x (B, N, d), y (B, N) int64; rate, decay (B,).
    """
    f, h, u = forward(net, x)
    loss, residual = nets.softmax_residual(f, y)
    accuracy = (f.argmax(2) == y).to(f.dtype).mean(1)
    down = nets.two_layer_gradient(x, nets.RELU.slope(u), h, net["a"], residual)
    new = {}
    for name, value in net.items():
        axes = (-1, *[1] * (value.dim() - 1))
        new[name] = nets.descend(value, down[name], rate[name].view(axes), decay.view(axes))
    return new, {"loss": loss, "accuracy": accuracy}


def simulate(runs: list[Trial], device: torch.device) -> list[dict]:
    """Train a group of runs (see `engine`)."""
    cfg, settings = runs[0].settings, [run.settings for run in runs]

    def streams(purpose: str) -> list[torch.Generator]:
        return [run.generator(purpose, device) for run in runs]

    mean = list(map(draw_means, settings, streams("means")))
    x, held_out = (engine.stacked(draw_samples, settings, mean, streams(use)) for use in ("data", "held-out data"))
    y = engine.stacked(draw_labels, settings, streams("labels"))
    net = engine.collated(map(draw_weights, settings, streams("init")))
    rate = {name: torch.tensor([rates(setting)[name] for setting in settings], device=device) for name in net}
    decay = engine.column(runs, "decay", device)
    natural = measures.one_hot(clusters_of(cfg, device), cfg.clusters).expand(len(runs), -1, -1)
    members, near = measures.one_hot(y, cfg.labels), similar(cfg, device)
    far = torch.tensor([c for c in range(cfg.clusters) if c not in near.tolist()], device=device)
    unknown = torch.full((len(runs),), math.nan)

    def step(state: State, t: int) -> tuple[State, dict[str, Tensor]]:
        new, info = update({name: state[name] for name in net}, state["x"], state["y"], rate, decay)
        return state | new, info

    def on(h: Tensor) -> dict[str, Tensor]:
        distance = measures.class_distances(h, natural)
        values = measures.structure(distance)
        if cfg.tau2 is not None:
            values["msdr_similar"] = measures.group_msdr(distance, near)
            values["msdr_dissimilar"] = measures.group_msdr(distance, far)
        return values

    def measure(state: State, t: int, end: bool) -> dict[str, Tensor]:
        _, h, _ = forward(state, state["x"])
        values = on(h) | {"nc1": measures.nc1(h, members), "nc2": measures.nc2(h, members)}
        if cfg.labels > cfg.clusters:
            f1, f2 = measures.split_ratios(measures.class_distances(h, members), cfg.clusters)
            values |= {"split_f1": f1, "split_f2": f2}
        if end or t == 0:
            f, test, _ = forward(state, held_out)
            learnable = min(cfg.labels, cfg.clusters)  # a random part cannot be known
            values["natural_accuracy"] = measures.nearest_mean_accuracy(h, test, natural)
            values["held_out_accuracy"] = (f.argmax(2) % learnable == state["y"] % learnable).double().mean(1)
        if t == 0:
            values |= dict.fromkeys(OF_INPUTS, unknown)
            values |= {f"input_{name}": value for name, value in on(state["x"]).items() if name.startswith("msdr")}
            values["input_natural_accuracy"] = measures.nearest_mean_accuracy(state["x"], held_out, natural)
        return values

    return engine.train(runs, net | {"x": x, "y": y}, step, measure, steps=cfg.updates, record=RECORDED)[0]
