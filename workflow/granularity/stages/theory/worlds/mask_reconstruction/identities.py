"""The model's exact identities, measured with the training code: data, loss, gradients, growth law.

Phase "identities" has a row per seed, with one error per measure; phases "one sample, ..." hold the trajectory of a
kernel on a single noiseless sample. Everything except the data is in float64; it takes seconds.
"""

import itertools
import math

import numpy as np
import torch
from torch import Tensor

from granularity.stages.theory import engine
from granularity.stages.theory.engine import Rows, Trial
from granularity.stages.theory.worlds.mask_reconstruction import model, training
from granularity.stages.theory.worlds.mask_reconstruction.settings import Settings

DRAWN = 20_000
TINY = {"k": 4, "d": 16, "m": 3, "samples": 60, "test_samples": 40, "batch": 20, "distractors": 1.0}
TINY |= {"pretrain_steps": 5, "finetune_steps": 5, "probe_steps": 5, "early_stop": False}
# (kappa, semantics that the kernel holds, step size, steps)
ONE_SAMPLE = ((0.3, 1, 0.1, 1000), (0.3, 2, 0.1, 1000), (1.0, 1, 0.02, 400), (1.0, 2, 0.02, 400))


def simulate(runs: list[Trial], device: torch.device) -> Rows:
    """Train a group of runs, or measure the model's identities, and return the rows (see `engine`)."""
    if runs[0].settings.task == "identities":
        return [row for run in runs for row in identities(run)]
    return training.simulate(runs, device)


def identities(run: Trial) -> Rows:
    cfg, rows = run.settings, []
    measures = data(cfg, run.generator("identities data")) | activation(cfg)
    measures |= losses(cfg, run.generator("identities losses")) | growth(cfg, run.generator("identities growth"))
    for kappa, held, eta, steps in ONE_SAMPLE:
        weights = one_sample(cfg, kappa, held, eta, steps)
        phase = f"one sample, kappa {kappa:g}, {held} semantic{'s' * (held > 1)}"
        shown = range(0, steps + 1, steps // 40)
        rows += [engine.row(run, {"weight": float(weights[t])}, t, phase, event="") for t in shown]
        measures |= _fixed_point(cfg, kappa, held, eta, weights)
    same = []
    with torch.random.fork_rng():
        for seed in (1, 2):  # the global stream must not matter
            torch.manual_seed(seed)
            small = Trial(Settings(**TINY, name=cfg.name, base=cfg.base), run.seed)
            same.append(str(training.simulate([small], torch.device("cpu"))))
    measures["repeats_differ"] = float(same[0] != same[1])
    return [engine.row(run, measures, phase="identities"), *rows]


def data(cfg: Settings, generator: torch.Generator) -> dict[str, float]:
    """A1: return rates in standard errors, counts of violations, and noise relative to its nominal value."""
    k, C = cfg.k, cfg.copies
    drawn = model.draw_samples(cfg, DRAWN, generator)
    y, weak, shows, z = (drawn[name] for name in ("y", "weak", "shows", "z"))
    count = torch.stack([(shows == j).sum(1) for j in range(2 * k)], 1)  # patches per semantic
    total = torch.stack([(z * (shows == j)).sum(1) for j in range(2 * k)], 1)  # S
    of_class = torch.arange(2 * k) // 2 == y.unsqueeze(1)
    faint = of_class & (torch.arange(2 * k) % 2 == weak.unsqueeze(1))
    distractor = (count > 0) & ~of_class

    def errors(hits: Tensor | int, rate: float, trials: int) -> float:
        return abs(float(hits) - rate * trials) / math.sqrt(max(rate * (1 - rate) * trials, 1e-9))

    single = int((weak >= 0).sum())
    rates = [errors((y == i).sum(), 1 / k, DRAWN) for i in range(k)] + [errors(single, cfg.mu, DRAWN)]
    rates += [errors(distractor.sum(), cfg.distractors / k, DRAWN * (2 * k - 2))]
    rates += [errors((weak == 1).sum(), 0.5, single)] if single else []

    def outside(values: Tensor, low: float, high: float) -> int:
        return int(((values < low - 1e-5) | (values > high + 1e-5)).sum())

    wrong = outside(total[of_class & ~faint], *model.MAIN) + outside(total[distractor], *model.DISTRACTOR)
    wrong += outside(total[faint], cfg.rho, model.WEAK * cfg.rho)
    wrong += int(((count != C) & (count != 0)).sum()) + int((of_class & (count != C)).sum())
    wrong += int((faint.sum(1) != (weak >= 0)).sum()) + int(shows.shape[1] != cfg.patches)
    feature = shows >= 0
    rest = drawn["x"][:, :, 2 * k :]
    noise = [rest[feature].std() / cfg.feature_noise, rest[~feature].std() / cfg.background_noise]
    clean = model.draw_samples(cfg.model_copy(update={"noise": 0.0}), DRAWN // 10, generator)
    alpha = clean["x"] - torch.nn.functional.one_hot(clean["shows"].clamp_min(0), cfg.d) * clean["z"].unsqueeze(2)
    wrong += outside(alpha[:, :, : 2 * k], 0, cfg.gamma) + outside(alpha[:, :, 2 * k :], 0, 0)
    error = max(abs(float(ratio) - 1) for ratio in noise)
    return {"data_worst_rate": max(rates), "data_violations": float(wrong), "data_noise_error": error}


def activation(cfg: Settings) -> dict[str, float]:
    """A2: return jumps of the activation, and its error far above the threshold."""
    a, step = cfg.width, 1e-9
    points = torch.tensor([-step, step, a - step, a + step, 2 * a], dtype=torch.float64)
    value, slope = model.smoothed(points, cfg.q, a)
    jumps = [value[1] - value[0], slope[1] - slope[0], value[3] - value[2] - 2 * step, slope[3] - slope[2]]
    error = abs(float(value[4]) - (2 * a - (1 - 1 / cfg.q) * a))
    return {"activation_jump": max(abs(float(jump)) for jump in jumps), "activation_error": error}


def activated(z: Tensor, q: int, width: float) -> Tensor:
    """Return s(z) by its definition, for autograd."""
    power = z.clamp(0, width) * (z.clamp(0, width) / width) ** (q - 1) / q
    return torch.where(z < width, power, z - (1 - 1 / q) * width)


def averaged_loss(x: Tensor, w: Tensor, teacher: Tensor, theta: float, q: int, width: float) -> Tensor:
    """Return the mean over samples of the exact average over all 2^P masks; x (N, P, d), w and teacher (R, d)."""
    P = x.shape[1]
    target, h = activated(x @ teacher.T, q, width).sum(1), activated(x @ w.T, q, width)
    loss = torch.zeros((), dtype=x.dtype)
    for kept in itertools.product((0.0, 1.0), repeat=P):
        weight = math.prod(theta if keep else 1 - theta for keep in kept)
        shown = (h * torch.tensor(kept, dtype=x.dtype).view(1, P, 1)).sum(1)
        loss = loss + weight * (target - shown / theta).square().sum(1).mean() / 2
    return loss


def losses(cfg: Settings, generator: torch.Generator) -> dict[str, float]:
    """A3 to A5: compare the closed form with the average over masks, gradients with autograd; check first steps."""
    q, a, theta, tau = cfg.q, cfg.width, 0.3, 1.7
    x = torch.randn(4, 6, 8, generator=generator, dtype=torch.float64)
    w = 0.15 * torch.randn(5, 8, generator=generator, dtype=torch.float64)
    ones = torch.ones(1, dtype=torch.float64)
    loss, direction = model.masked(x[None], w[None], theta * ones, q, a, tau * ones)

    def gradient(teacher_moves: bool) -> Tensor:
        with torch.enable_grad():
            kernels = w.clone().requires_grad_()
            teacher = tau * (kernels if teacher_moves else kernels.detach())
            return torch.autograd.grad(averaged_loss(x, kernels, teacher, theta, q, a), kernels)[0]

    def relative(got: Tensor, expected: Tensor) -> float:
        return float((got - expected).norm() / expected.norm())

    exact = averaged_loss(x, w, tau * w, theta, q, a)
    still = model.masked(x[None], w[None], ones, q, a, model.tau_at(0, 0 * ones, 0 * ones))[1]
    y = torch.randint(cfg.k, (1, 4), generator=generator)
    u = torch.zeros(1, cfg.k, 5, dtype=torch.float64)
    _, dw, du = model.tuned(x[None], y, w[None], u, q, a)
    residual = torch.nn.functional.one_hot(y[0], cfg.k).double() - 1 / cfg.k
    outer = residual.T @ model.encode(x[None], w[None], q, a)[0] / 4
    return {
        "loss_error": relative(loss[0], exact),
        "gradient_error": relative(-direction[0], gradient(False)),
        "error_if_teacher_moved": relative(-direction[0], gradient(True)),
        "error_if_theta_dropped": relative(averaged_loss(x, w, tau * w, 1 - theta, q, a), exact),
        "step_without_masks": float(still.abs().max()),
        "first_kernel_step": float(dw.abs().max()),
        "first_head_step_error": relative(du[0], outer),
    }


def growth(cfg: Settings, generator: torch.Generator) -> dict[str, float]:
    """A6: compare a step of one kernel on one semantic, without noise, with the formula of Claim D.5."""
    quiet = cfg.model_copy(update={"noise": 0.0, "gamma": 0.0})
    drawn = model.draw_samples(quiet, 2000, generator)
    x = drawn["x"].double()[None]
    theta = torch.full((1,), cfg.theta, dtype=torch.float64)
    tau = 1 + cfg.kappa * (1 - cfg.theta) / (cfg.copies * cfg.theta)
    shown, C, q = drawn["shows"] == 0, cfg.copies, cfg.q
    z = (drawn["z"].double() * shown).amax(1)[shown.any(1)]  # strength in samples that show it
    often = float(shown.any(1).double().mean())  # Pr(v in V(X))
    weights = np.linspace(0.35, 0.98, 10) * cfg.width / (tau * float(z.max()))
    measured, formula = [], []
    for weight in weights:
        w = torch.zeros(1, 1, cfg.d, dtype=torch.float64)
        w[0, 0, 0] = weight
        _, direction = model.masked(x, w, theta, q, cfg.width, tau * torch.ones_like(theta))
        measured.append(cfg.eta * float(direction[0, 0, 0]))
        value, slope = model.smoothed(w[0, 0, :1], q, cfg.width)
        bracket = C * (C * (tau**q - 1) - (1 / cfg.theta - 1)) * float((z ** (2 * q)).mean())
        formula.append(cfg.eta * often * bracket * float(value * slope))
    error = float(np.abs(np.array(measured) / np.array(formula) - 1).max())
    return {"growth_error": error, "growth_exponent": float(np.polyfit(np.log(weights), np.log(measured), 1)[0])}


def one_sample(cfg: Settings, kappa: float, held: int, eta: float, steps: int) -> np.ndarray:
    """A7: return w/width (steps + 1,) of a kernel that starts at 1.05 on each of `held` semantics; z = 1."""
    x = torch.eye(held, dtype=torch.float64).view(1, 1, held, held)
    w = torch.full((1, 1, held), 1.05 * cfg.width, dtype=torch.float64)
    theta, none = torch.full((1,), 0.5, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    tau = model.tau_at(0, none + kappa, none)  # theta = 1/2, C_p = 1
    weights = [float(w[0, 0, 0] / cfg.width)]
    for _ in range(steps):
        w = w + eta * model.masked(x, w, theta, cfg.q, cfg.width, tau)[1]
        weights.append(float(w[0, 0, 0] / cfg.width))
    return np.array(weights)


def _fixed_point(cfg: Settings, kappa: float, held: int, eta: float, weights: np.ndarray) -> dict[str, float]:
    offset = 1 - 1 / cfg.q
    if kappa * held < 1:
        return {f"fixed_point_error_{held}": abs(weights[-1] / (offset / (1 - kappa * held)) - 1)}
    later = weights[len(weights) // 4 :]
    if held == 1:
        return {"linear_growth": float(np.mean(np.diff(later)) / (eta * offset))}
    steps, logs = np.arange(len(later)), np.log(later)
    r2, rate = np.corrcoef(steps, logs)[0, 1] ** 2, np.polyfit(steps, logs, 1)[0]
    return {"exponential_r2": float(r2), "exponential_rate": float(rate)}
