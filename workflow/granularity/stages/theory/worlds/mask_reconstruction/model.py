"""Why mask reconstruction helps: every class has two views, labels need one of them, masks teach both.

A sample X = (x_1..x_P) of class y shows the semantics v_{y,1}, v_{y,2} and, weaker, some of other classes;
a *single-view* sample shows one of its own two only faintly. Orthonormal semantics v_{i,l}, without loss of
generality the first 2k basis vectors: v_{i,l} is coordinate 2i + l. Kernels w_r in R^d, r < k m, and

    h_r(X) = sum_p s(<w_r, x_p>),   s(z) = 0;  z^q/(q a^(q-1)) on [0, a];  z - (1 - 1/q) a above

Mask reconstruction (expected over masks that keep a patch with probability theta; decoder 1/theta fixed;
teacher tau w, no gradient through it):

    Phi_r = sum_p s(tau <w_r, x_p>) - sum_p s(<w_r, x_p>)
    L     = 1/2 sum_r Phi_r^2 + 1/2 (1/theta - 1) sum_r sum_p s(<w_r, x_p>)^2
    -dL/dw_r = sum_p [Phi_r - (1/theta - 1) s(<w_r, x_p>)] s'(<w_r, x_p>) x_p
    tau_t = 1 + kappa (1 - theta)/(C_p theta) + tau_extra/(t + 1)                  (paper: kappa = 1)

Fine-tuning and the supervised baseline: F_i = sum_r u_{i,r} h_r, cross-entropy, steps eta_2 on u (from 0) and
eta_1 on w. With "block", u = beta within a class's own kernels and fixed.

Indices: B run, n sample, p patch, r kernel, i class, l view, j semantic 2i + l. Sources: Definition 3.1
(data), Section 3 and Appendix B (network, loss, teacher, fine-tuning), Lemma 1 (baseline).

What is not the paper's: minibatches, uniform strengths, q = 8, C_p = 1, kappa = 0.3 where said, and a stop of
mask reconstruction when every semantic is captured, which needs to know the semantics.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from granularity.stages.theory import engine, nets
from granularity.stages.theory.engine import State, Trial
from granularity.stages.theory.worlds.mask_reconstruction.measures import Evaluation
from granularity.stages.theory.worlds.mask_reconstruction.settings import Settings

MAIN, DISTRACTOR, WEAK = (1.0, 1.3), (0.2, 0.4), 1.5  # strengths S of views; weak: rho to 1.5 rho
RECORDED = (0, 25, 50, 100, 150, 200, 300, 400, 500, 600, 700, 800, 1000, 1250)
RECORDED_SUPERVISED = (50, 100, 200, 400, 800)


# ---------------------------------------------------------------- data


def draw_samples(cfg: Settings, count: int, generator: torch.Generator, mu: float | None = None) -> State:
    """Draw from D (Definition 3.1).

    Args:
        count: N, how many.
        generator: decides everything, and where (its device) the samples lie.
        mu: share of single-view samples, instead of the setting's.

    Returns:
        "x" (N, P, d) float32; "y" (N,) int64; "weak" (N,) int64, the weak view of a single-view sample, -1
        for multi-view ones; "strength" (N, 2), S of the own views; "shows" (N, P) int64, the semantic of a
        patch, -1 for background; "z" (N, P), its strength in that patch, S/C_p. Distractors that find no
        room are dropped, at random.
    """
    k, P, C, device = cfg.k, cfg.patches, cfg.copies, generator.device

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, device=device)

    y = torch.randint(k, (count,), generator=generator, device=device)
    single = uniform(count) < (cfg.mu if mu is None else mu)
    view = torch.randint(2, (count,), generator=generator, device=device)
    weak = torch.where(single, view, torch.full_like(view, -1))
    owner = torch.arange(2 * k, device=device) // 2
    own = owner == y.unsqueeze(1)
    present = own | (uniform(count, 2 * k) < cfg.distractors / k)
    faint = own & (torch.arange(2 * k, device=device) % 2 == weak.unsqueeze(1))
    u = uniform(count, 2 * k)
    main, other = (low + (high - low) * u for low, high in (MAIN, DISTRACTOR))
    strength = torch.where(own, main, other)
    strength = torch.where(faint, cfg.rho * (1 + (WEAK - 1) * u), strength)
    # own views first, then distractors in random order, then what is not shown
    order = (uniform(count, 2 * k) - 2.0 * own + 2.0 * ~present).argsort(1)
    slots = P // C
    order = torch.nn.functional.pad(order[:, :slots], (0, max(0, slots - 2 * k)))
    taken = torch.arange(slots, device=device) < present.sum(1, keepdim=True)
    shows = torch.where(taken, order, torch.full_like(order, -1)).repeat_interleave(C, 1)
    shows = torch.nn.functional.pad(shows, (0, P - C * slots), value=-1)
    feature = shows >= 0
    z = strength.gather(1, shows.clamp_min(0)) / C * feature
    x = torch.randn(count, P, cfg.d, generator=generator, device=device)
    x *= torch.where(feature, cfg.feature_noise, cfg.background_noise).unsqueeze(2)
    x[:, :, : 2 * k] += cfg.gamma * uniform(count, P, 2 * k)
    x.scatter_add_(2, shows.clamp_min(0).unsqueeze(2), z.unsqueeze(2))
    own_strength = strength.gather(1, 2 * y.unsqueeze(1) + torch.arange(2, device=device))
    return {"x": x, "y": y, "weak": weak, "strength": own_strength, "shows": shows, "z": z}


def pretraining_labels(cfg: Settings, y: Tensor, strength: Tensor, generator: torch.Generator) -> Tensor:
    """Labels (N,) int64 of the supervised pretraining, in 0..granularity-1, for y (N,) and strength (N, 2).

    `class`: neighbouring classes merged. `view`: 2y + the stronger view. `random`: 2y + a fixed random bit.
    """
    if cfg.labels == "class":
        return y // (cfg.k // cfg.granularity)
    if cfg.labels == "view":
        return 2 * y + (strength[:, 1] > strength[:, 0])
    return 2 * y + torch.randint(2, y.shape, generator=generator, device=y.device)


# ---------------------------------------------------------------- network


def power(t: Tensor, n: int) -> Tensor:
    """t^n for a whole n >= 1, by squaring: much faster than pow."""
    result = None
    while n:
        if n & 1:
            result = t if result is None else result * t
        n >>= 1
        if n:
            t = t * t
    return result


def smoothed(z: Tensor, q: int, width: float) -> tuple[Tensor, Tensor]:
    """Smoothed ReLU and its slope: `nets.smoothed_relu`, with fewer passes over memory."""
    t = (z / width).clamp_(0, 1)
    slope = power(t, q - 1)
    return t.mul_(slope).mul_(width / q).add_((z - width).clamp_min_(0)), slope


def products(x: Tensor, w: Tensor) -> Tensor:
    """<w_r, x_np> (B, N, P, R) of x (B, N, P, d) and w (B, R, d)."""
    B, N, P, _ = x.shape
    return torch.bmm(x.flatten(1, 2), w.transpose(1, 2)).view(B, N, P, -1)


def pieces(x: Tensor, kernels: int) -> int:
    """How many samples of x (B, N, P, d) are worked on at once: on a CPU, activations of as many fit into its cache."""
    return x.shape[1] if x.is_cuda else max(1, 2 * nets.PIECE // (x.shape[0] * x.shape[2] * kernels))


def encode(x: Tensor, w: Tensor, q: int, width: float) -> Tensor:
    """H(X) = (h_1..h_R), (B, N, R), of many samples."""
    some = pieces(x, w.shape[1])
    return torch.cat([smoothed(products(part, w), q, width)[0].sum(2) for part in x.split(some, 1)], 1)


def back(pull: Tensor, x: Tensor) -> Tensor:
    """mean_n sum_p pull_npr x_np: descent direction (B, R, d) of pull (B, N, P, R)."""
    return torch.bmm(pull.flatten(1, 2).transpose(1, 2), x.flatten(1, 2)) / x.shape[1]


# ---------------------------------------------------------------- losses and directions


def masked(
    x: Tensor, w: Tensor, theta: Tensor, q: int, width: float, tau: Tensor, teacher: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Mask reconstruction, expected over masks: mean loss (B,) and minus its gradient (B, R, d).

    Args:
        x: (B, N, P, d); w: (B, R, d).
        theta, tau: (B,).
        teacher: kernels (B, R, d) of the teacher instead of tau w.
    """
    lost = 1 / theta - 1
    z, some = products(x, w), pieces(x, w.shape[1])
    aheads = z if teacher is None else products(x, teacher)
    differences, dropped = [], []
    for part, ahead in zip(z.split(some, 1), aheads.split(some, 1), strict=True):
        h, slope = smoothed(part, q, width)
        if teacher is None:
            ahead = part * tau.view(-1, 1, 1, 1)
        phi = smoothed(ahead, q, width)[0].sum(2) - h.sum(2)
        differences.append(phi)
        dropped.append(h.square().sum((2, 3)))
        pull = h.mul_(-lost.view(-1, 1, 1, 1)).add_(phi.unsqueeze(2))
        torch.mul(pull, slope, out=part)  # in z's own place
    loss = (torch.cat(differences, 1).square().sum(2).mean(1) + lost * torch.cat(dropped, 1).mean(1)) / 2
    return loss, back(z, x)


def tuned(x: Tensor, y: Tensor, w: Tensor, u: Tensor, q: int, width: float) -> tuple[Tensor, Tensor, Tensor]:
    """Cross-entropy of F = u H: mean loss (B,), minus its gradients in w (B, R, d) and in u (B, C, R)."""
    z, sums = products(x, w), []
    for part in z.split(pieces(x, w.shape[1]), 1):
        h, slope = smoothed(part, q, width)
        sums.append(h.sum(2))
        part.copy_(slope)  # in z's own place
    h = torch.cat(sums, 1)
    loss, residual = nets.softmax_residual(h @ u.transpose(1, 2), y)
    return loss, back(z.mul_((residual @ u).unsqueeze(2)), x), residual.transpose(1, 2) @ h / x.shape[1]


def tau_at(t: int, lead: Tensor, extra: Tensor) -> Tensor:
    """tau_t (B,); the paper's has lead = (1 - theta)/(C_p theta) and extra = Theta(1)."""
    return 1 + lead + extra / (t + 1)


# ---------------------------------------------------------------- training


def simulate(runs: list[Trial], device: torch.device) -> list[dict]:
    """Pretrain a group of runs, then train heads and fine-tune as the setting says (see `engine`)."""
    torch.set_flush_denormal(True)  # s(z)^2 of tiny z is below 1e-38: as zero it is three times as fast
    try:
        return Training(runs, device).rows()
    finally:
        torch.set_flush_denormal(False)


class Training:
    """One group of runs on its data; a method a phase."""

    def __init__(self, runs: list[Trial], device: torch.device):
        self.runs, self.device, self.cfg = runs, device, runs[0].settings
        cfg = self.cfg

        def draw(purpose: str, count: int, mu: float | None = None) -> State:
            drawn = [draw_samples(r.settings, count, r.generator(purpose, device), mu) for r in runs]
            return {name: torch.stack([one[name] for one in drawn]) for name in drawn[0]}

        self.data = draw("data", cfg.samples)
        tests = {"multi": draw("multi-view test", cfg.test_samples, 0.0)}
        tests["single"] = draw("single-view test", cfg.test_samples, 1.0)
        self.w = engine.stacked(
            lambda run: (
                run.settings.sigma_0
                * torch.randn(cfg.kernels, cfg.d, generator=run.generator("init", device), device=device)
            ),
            runs,
        )
        self.evaluation = Evaluation(cfg, self.w, self.data, tests, encode)

    def column(self, key: str, dims: int = 1) -> Tensor:
        return engine.column(self.runs, key, self.device, dims)

    def batches(self, phase: str, count: int | None = None) -> Callable[[], Tensor]:
        """Draws minibatches (B, batch) of sample numbers, each without replacement; or all, in order."""
        cfg, count = self.cfg, count or self.cfg.samples
        streams = [run.generator(f"{phase} batches", self.device) for run in self.runs]
        if cfg.batch >= count:
            everything = torch.arange(count, device=self.device).expand(len(self.runs), -1)
            return lambda: everything
        return lambda: engine.stacked(
            lambda stream: torch.randperm(count, generator=stream, device=self.device)[: cfg.batch], streams
        )

    def rows(self) -> list[dict]:
        cfg, rows, w = self.cfg, [], self.w
        if cfg.pretrain in ("masked", "average"):
            rows, w = self.reconstruct(w)
        elif cfg.pretrain == "labels":
            labels = engine.stacked(
                lambda run, y, strength: pretraining_labels(
                    run.settings, y, strength, run.generator("labels", self.device)
                ),
                self.runs,
                self.data["y"],
                self.data["strength"],
            )
            rows, w = self.finetune(w, "pretrain", cfg.pretrain_steps, labels, cfg.granularity)
        if cfg.probe_steps:
            rows += self.probe(w)
        if cfg.head == "block":
            return rows + self.block(w)
        if cfg.finetune_steps:
            rows += self.finetune(w, "finetune", cfg.finetune_steps, self.data["y"], cfg.k)[0]
        if cfg.few:
            y = self.data["y"][:, : cfg.few]
            rows += self.finetune(w, "few labels", cfg.finetune_steps, y, cfg.k)[0]
        return rows

    def reconstruct(self, w: Tensor) -> tuple[list[dict], Tensor]:
        """Mask reconstruction: rows of phase "pretrain", and the kernels."""
        cfg, next_batch = self.cfg, self.batches("pretrain")
        theta, lead, extra = (self.column(key) for key in ("theta", "lead", "tau_extra"))
        eta, keep = self.column("eta", 3), self.column("ema", 3)

        def step(state: State, t: int) -> tuple[State, dict[str, Tensor]]:
            x = engine.picked(self.data["x"], next_batch())
            w = state["w"]
            tau = tau_at(t, lead, extra)
            loss, direction = masked(x, w, theta, cfg.q, cfg.width, tau, state.get("teacher"))
            new = state | {"w": w + eta * direction}
            if "teacher" in state:
                new["teacher"] = keep * state["teacher"] + (1 - keep) * new["w"]
            captured = (w[:, :, : 2 * cfg.k].amax(1) >= cfg.width).all(1)
            return new, {"loss": loss, "captured": captured}

        state = {"w": w} | ({"teacher": w.clone()} if cfg.pretrain == "average" else {})
        rows, state = engine.train(
            self.runs,
            state,
            step,
            lambda state, t, end: self.evaluation.kernels(state["w"]),
            steps=cfg.pretrain_steps,
            record=RECORDED,
            stop_event="captured" if cfg.early_stop else None,
            phase="pretrain",
        )
        return rows, state["w"]

    def finetune(self, w: Tensor, phase: str, steps: int, y: Tensor, labels: int) -> tuple[list[dict], Tensor]:
        """Train kernels and a head from 0 on the first samples, those that y (B, n) has labels for."""
        cfg, next_batch = self.cfg, self.batches(phase, y.shape[1])
        eta_1, eta_2 = self.column("eta_1", 3), self.column("eta_2", 3)

        def step(state: State, t: int) -> tuple[State, dict[str, Tensor]]:
            chosen = next_batch()
            x = engine.picked(self.data["x"], chosen)
            loss, dw, du = tuned(x, y.gather(1, chosen), state["w"], state["u"], cfg.q, cfg.width)
            return {"w": state["w"] + eta_1 * dw, "u": state["u"] + eta_2 * du}, {"loss": loss}

        u = torch.zeros(len(self.runs), labels, cfg.kernels, device=self.device)
        rows, state = self.supervised({"w": w, "u": u}, step, steps, phase, y)
        return rows, state["w"]

    def block(self, w: Tensor) -> list[dict]:
        """The baseline with a fixed head: class i owns kernels i m .. (i + 1) m - 1."""
        cfg, next_batch, y = self.cfg, self.batches("finetune"), self.data["y"]
        eta = self.column("block_eta", 3)
        own = torch.eye(cfg.k, device=self.device).repeat_interleave(cfg.m, 1)
        u = self.column("beta", 3) * own

        def step(state: State, t: int) -> tuple[State, dict[str, Tensor]]:
            chosen = next_batch()
            x = engine.picked(self.data["x"], chosen)
            loss, dw, _ = tuned(x, y.gather(1, chosen), state["w"], state["u"], cfg.q, cfg.width)
            return state | {"w": state["w"] + eta * dw}, {"loss": loss}

        return self.supervised({"w": w, "u": u}, step, cfg.finetune_steps, "finetune", y)[0]

    def probe(self, w: Tensor) -> list[dict]:
        """A linear head on the frozen encoder."""
        cfg, next_batch, y = self.cfg, self.batches("probe"), self.data["y"]
        eta, features = self.column("probe_eta", 3), encode(self.data["x"], w, cfg.q, cfg.width)

        def step(state: State, t: int) -> tuple[State, dict[str, Tensor]]:
            chosen = next_batch()
            h = engine.picked(features, chosen)
            loss, residual = nets.softmax_residual(h @ state["u"].transpose(1, 2), y.gather(1, chosen))
            return state | {"u": state["u"] + eta * (residual.transpose(1, 2) @ h) / h.shape[1]}, {"loss": loss}

        u = torch.zeros(len(self.runs), cfg.k, cfg.kernels, device=self.device)
        return self.supervised({"w": w, "u": u}, step, cfg.probe_steps, "probe", y, record=())[0]

    def supervised(
        self, state: State, step: Any, steps: int, phase: str, y: Tensor, record: Any = None
    ) -> tuple[list[dict], State]:
        return engine.train(
            self.runs,
            state,
            step,
            lambda state, t, end: self.evaluation.classifier(state["w"], state["u"], y, end),
            steps=steps,
            record=RECORDED_SUPERVISED if record is None else record,
            phase=phase,
        )


def literal_rho(k: int) -> float:
    """The paper's rho = k^-0.01, which is 0.977 for k = 10."""
    return math.exp(-0.01 * math.log(k))
