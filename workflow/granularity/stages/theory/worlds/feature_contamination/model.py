"""World 4: features independent of the label are learnt (docs/theory/feature_contamination.md).

    -dL/dw_k = a_k/N sum_i y_i 1[y_i h_i < 1] phi'(u_ik) x_i - lambda w_k,              u_ik = <w_k, x_i>

Everything is computed in feature coordinates: z (N, d0) are a sample's coordinates, core first, and P = W M^T (m, d0)
the weights'. That is exact, since x lies in the dictionary's span. With `reduced` coordinates P itself is the state:
the rest of w_k never enters h and merely decays (exact in law for Gaussian weights with SGD, momentum and L2).

Further tasks: `regression` onto the core (the paper's stand-in for distillation), `shells` (core on spheres of radius
1, y = +1, and 2, y = -1) and, not the paper's, `granularity`: half of the core is common to a class, the other half is
split between its K subclasses and shows only on samples of its own. Training labels are 2g groups of subclasses; label
l has m/(2g) neurons and F_l = g/m sum_{k of l} phi(u_k), trained with max(0, 1 - F_l + max_{other} F). For g = 1 that
is the hinge loss of h = F_0 - F_1.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from granularity.stages.theory import engine, nets
from granularity.stages.theory.engine import State, Trial
from granularity.stages.theory.worlds.feature_contamination.settings import Settings

PULLS = ("own", "rivals", "rivalry", "sibling rivalry")  # what pulls at background weights, see `_pulls`
GELU = nets.Activation(functional.gelu, lambda z: torch.ops.aten.gelu_backward(torch.ones_like(z), z))
ACTIVATIONS = {"relu": nets.RELU, "identity": nets.IDENTITY, "leaky_relu": nets.leaky_relu(0.1)}
ACTIVATIONS |= {"gelu": GELU, "sigmoid": nets.SIGMOID, "tanh": nets.TANH}
# phi'(u) from phi(u), where that is cheaper than from u.
FROM_VALUE = {"sigmoid": lambda h: h * (1 - h), "tanh": lambda h: 1 - h * h}
ADAM_BETAS, ADAM_EPS = (0.9, 0.999), 1e-8


def draw_samples(
    cfg: Settings, n: int, data: torch.Generator, labels: torch.Generator | None = None, balanced: bool = False
) -> State:
    """Draw n samples, their background still on [0, 1]; `labels` decides random labels, `data` the rest.

    ``z`` (n, d0): signed coordinates, core first. ``y`` (n,): +-1; where balanced, +1 for the first half. Also
    ``target`` (n, d_core) for a regression; for granularity ``subclass`` and ``label`` (n,), of class + below g.
    """
    device, core = data.device, cfg.d_core
    y = torch.randint(2, (n,), generator=data, device=device) * -2.0 + 1
    if balanced:
        y = torch.where(torch.arange(n, device=device) < n // 2, 1.0, -1.0)
    z = torch.rand(n, cfg.d0, generator=data, device=device)
    sign = y.unsqueeze(1)
    samples = {"z": z, "y": y}
    if cfg.task == "shells":
        direction = torch.randn(n, core, generator=data, device=device)
        z[:, :core] = direction * ((1.5 - 0.5 * sign) / direction.norm(dim=1, keepdim=True))
        return samples
    if cfg.task == "regression":
        samples["target"] = z[:, :core] * sign if cfg.target == "yz" else z[:, :core].clone()
    elif cfg.task == "granularity":
        c = torch.randint(cfg.subclasses, (n,), generator=data, device=device)
        shows = torch.arange(core // 2, device=device) // (core // 2 // cfg.subclasses) == c.unsqueeze(1)
        z[:, core // 2 : core] *= shows
        samples |= {"subclass": c, "label": _labels(cfg, y, c, z[:, core:], labels)}
    if cfg.task != "regression" or cfg.target != "z":
        z[:, :core] *= sign
    return samples


def _labels(cfg: Settings, y: Tensor, c: Tensor, background: Tensor, source: torch.Generator | None) -> Tensor:
    first = (y < 0).long() * cfg.g
    if cfg.labels == "class":
        return first + c % cfg.g
    if cfg.labels == "random":
        return first + torch.randint(cfg.g, c.shape, generator=source, device=c.device)
    return first + background.view(len(c), cfg.g, -1).sum(2).argmax(1)


def draw_network(cfg: Settings, init: torch.Generator, dictionary: torch.Generator) -> State:
    """Initial parameters of one network: ``w`` (m, d or d0) and ``a`` (outputs, m); with biases ``b`` (m,) and ``c``
    (outputs,); in full coordinates the dictionary ``M`` (d0, d) with orthonormal rows."""
    device, m = init.device, cfg.m
    normal = partial(torch.randn, generator=init, device=device)

    def uniform(fan_in: int, *shape: int) -> Tensor:
        return (2 * torch.rand(*shape, generator=init, device=device) - 1) / math.sqrt(fan_in)

    framework = cfg.init == "framework"
    w = uniform(cfg.d, m, cfg.width) if framework else normal(m, cfg.width) / math.sqrt(cfg.d)
    net = {"w": w * cfg.init_scale}
    if framework:
        net |= {"b": uniform(cfg.d, m), "c": uniform(m, cfg.outputs)}
    if cfg.task == "granularity" and cfg.head == "shared":
        signs = torch.randint(2, (cfg.outputs, m), generator=init, device=device) * 2.0 - 1
        net["a"] = signs * math.sqrt(cfg.g / 2) / m
    elif cfg.task == "granularity":
        label = torch.arange(m, device=device) % cfg.outputs
        net["a"] = (torch.arange(cfg.outputs, device=device).unsqueeze(1) == label) * (cfg.g / m)
    elif "a" in cfg.trained:
        net["a"] = uniform(m, cfg.outputs, m) if framework else normal(cfg.outputs, m) / math.sqrt(m)
    else:  # the authors' script splits the neurons in halves, the paper draws their signs
        plus = torch.rand(m, generator=init, device=device) < 0.5
        plus = torch.arange(m, device=device) < m // 2 if framework else plus
        net["a"] = (plus * 2.0 - 1).unsqueeze(0) / m
    if cfg.coordinates == "full":
        net["M"] = nets.orthonormal(cfg.d0, cfg.d, dictionary)
    return net


def projections(state: State) -> Tensor:
    """P = W M^T, (B, m, d0)."""
    return torch.bmm(state["w"], state["M"].transpose(1, 2)) if "M" in state else state["w"]


def residuals(cfg: Settings, f: Tensor, batch: State) -> tuple[Tensor, Tensor]:
    """Mean loss (B,) and minus each sample's gradient in the outputs (B, N, outputs), not divided by N."""
    if cfg.task == "regression":
        error = batch["target"] - f
        return (error**2).sum(2).mean(1), 2 * error
    if cfg.objective == "softmax":
        loss, residual = nets.softmax_residual(f / batch["temperature"], batch["label"])
        return loss * batch["temperature"].flatten(), residual
    if cfg.task == "granularity":
        label = batch["label"].unsqueeze(2)
        output = f.gather(2, label)
        rival, which = f.scatter(2, label, -math.inf).max(2, keepdim=True)  # the largest other output
        margin = 1 - output + rival
        gate = (margin > 0).to(f.dtype)
        return margin.clamp_min(0).mean((1, 2)), torch.zeros_like(f).scatter(2, label, gate).scatter(2, which, -gate)
    h, y = f.squeeze(2), batch["y"]
    if cfg.task == "shells":
        return functional.softplus(-y * h).mean(1), (y * torch.sigmoid(-y * h)).unsqueeze(2)
    loss, residual = nets.hinge_residual(h, y)
    return loss, residual.unsqueeze(2)


def descent(cfg: Settings, state: State, batch: State) -> tuple[Tensor, State]:
    """Mean loss (B,) of a batch with the training background, and minus its gradient in w, b, a, c, without decay."""
    phi, z = ACTIVATIONS[cfg.activation], batch["z"]
    f, h, u = nets.two_layer(z, projections(state), state["a"], phi, state.get("b"), state.get("c"))
    loss, residual = residuals(cfg, f, batch)
    slope = FROM_VALUE[cfg.activation](h) if cfg.activation in FROM_VALUE else phi.slope(u)
    if cfg.outputs > 1:
        direction = nets.two_layer_gradient(z, slope, h, state["a"], residual, cfg.trained)
    else:  # a_k comes out of the sum over samples, which saves two tensors of the size of u
        pull, a = residual / z.shape[1], state["a"].transpose(1, 2)
        direction = {"w": a * torch.bmm(slope.transpose(1, 2), pull * z)}
        if "b" in cfg.trained:
            direction["b"] = (a * torch.bmm(slope.transpose(1, 2), pull)).squeeze(2)
        if "a" in cfg.trained:
            direction |= {"a": torch.bmm(pull.transpose(1, 2), h), "c": pull.sum(1)}
    if cfg.task == "granularity":
        if cfg.train_head:
            direction["a"] = direction["a"] * (cfg.g / cfg.m) ** 2
        direction["pulls"] = _pulls(cfg, state["a"], residual, slope, batch["label"])
    if cfg.project:
        direction["w"][:, :, cfg.d_core :] = 0
    if "M" in state:
        direction["w"] = torch.bmm(direction["w"], state["M"])
    return loss, direction


def _pulls(cfg: Settings, a: Tensor, residual: Tensor, gate: Tensor, label: Tensor) -> Tensor:
    """(B, 4), as `PULLS`: the own label's pull on background weights and the rivals', per unit of E z_j; the rivals'
    residual, and the part of it that is of labels of the same class.

    The weight of neuron k along background feature j grows by the mean over samples of z_j phi'(u_k) sum_c r_c a_ck, r
    the residual: positive for the own label, negative for rivals. The mean of z_j, independent of who fires, is a
    factor; what is left, averaged over neurons, splits into the two.
    """
    label = label.unsqueeze(2)
    active = residual * torch.bmm(gate, a.transpose(1, 2)) / a.shape[2]
    same = (torch.arange(cfg.outputs, device=a.device) < cfg.g) == (label < cfg.g)
    rivals = residual.scatter(2, label, 0.0)
    pulls = torch.stack((active.scatter(2, label, 0.0), rivals, rivals * same), 1).sum(3).mean(2)
    return torch.cat((active.gather(2, label).mean(1), -pulls), 1)


def updater(cfg: Settings, runs: list[Trial], device: torch.device) -> Callable[[State, State, int], State]:
    """SGD with heavy ball and coupled L2, or AdamW: ``(state, minus gradients, t) -> changed entries``."""
    beta1, beta2 = ADAM_BETAS
    scalars = [engine.column(runs, key, device) for key in ("lr", "momentum", "decay")]

    def update(state: State, minus: State, t: int) -> State:
        new = {}
        for name in cfg.trained:
            p = state[name]
            lr, momentum, decay = (scalar.view(-1, *[1] * (p.dim() - 1)) for scalar in scalars)
            if cfg.optimiser == "adamw":
                first = torch.lerp(state[f"{name}_first"], -minus[name], 1 - beta1)
                second = state[f"{name}_second"] * beta2 + (1 - beta2) * minus[name] ** 2
                scale = (second / (1 - beta2 ** (t + 1))).sqrt_().add_(ADAM_EPS)
                new[name] = p * (1 - lr * decay) - lr / (1 - beta1 ** (t + 1)) * first / scale
                new |= {f"{name}_first": first, f"{name}_second": second}
            elif cfg.momentum:
                velocity = momentum * state[f"{name}_velocity"] + decay * p - minus[name]
                new |= {name: p - lr * velocity, f"{name}_velocity": velocity}
            else:
                new[name] = nets.descend(p, minus[name], lr, decay)
        return new

    return update


def initial(runs: list[Trial], device: torch.device) -> State:
    """Networks of a group of runs, and beside them what the optimiser keeps, zero at first."""
    cfg = runs[0].settings
    state = engine.collated(
        draw_network(run.settings, run.generator("init", device), run.generator("dictionary", device)) for run in runs
    )
    if cfg.task == "granularity":
        state["pulls"] = torch.zeros(len(runs), len(PULLS), device=device)
    kinds = ("first", "second") if cfg.optimiser == "adamw" else ("velocity",) * (cfg.momentum > 0)
    return state | {f"{name}_{kind}": torch.zeros_like(state[name]) for name in cfg.trained for kind in kinds}


def batches(runs: list[Trial], device: torch.device) -> Callable[[], State]:
    """The training data of a group of runs: a function that gives the next batch."""
    cfg = runs[0].settings
    sources = [(run.generator("data", device), run.generator("labels", device)) for run in runs]
    low, temperature = (engine.column(runs, key, device, 3) for key in ("bg_low", "temperature"))

    def draw() -> State:
        batch = engine.collated(draw_samples(cfg, cfg.batch, *pair, balanced=cfg.data == "fixed") for pair in sources)
        batch["z"][:, :, cfg.d_core :] += low
        return batch | {"temperature": temperature}

    if cfg.data == "fresh":
        return draw
    fixed = draw()
    return lambda: fixed
