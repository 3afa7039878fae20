"""Training of mask reconstruction, and its measures: captured semantics, lotteries, accuracies per set and view."""

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from granularity.stages.theory import engine, nets
from granularity.stages.theory.engine import Rows, State, Trial
from granularity.stages.theory.worlds.mask_reconstruction import model

RECORDED = (0, 25, 50, 100, 150, 200, 300, 400, 500, 600, 700, 800, 1000, 1250)
RECORDED_SUPERVISED = (50, 100, 200, 400, 800)
WORKING, LOST = 0.9, 0.5  # a view works above, is lost below this accuracy on its single-view samples
SIGNS = ("u_positive_in_own", "u_negative_in_other", "u_outside_over_own")


def simulate(runs: list[Trial], device: torch.device) -> Rows:
    """Pretrain a group of runs, then train heads and fine-tune as the setting asks (see `engine`)."""
    torch.set_flush_denormal(True)  # s(z)^2 of tiny z is below 1e-38; flushed to zero it is three times as fast
    try:
        return Training(runs, device).rows()
    finally:
        torch.set_flush_denormal(False)


class Training:
    """One group of runs on its data, with a phase per method, and its measures.

    The initial kernels decide the lotteries M_j = {r: <w_r(0), v_j> >= Lambda_j(0) (1 - 1/(2 log k))}.
    """

    def __init__(self, runs: list[Trial], device: torch.device):
        self.runs, self.device, self.cfg = runs, device, runs[0].settings
        self.column = partial(engine.column, runs, device=device)
        cfg = self.cfg

        def draw(purpose: str, count: int, mu: float | None = None) -> State:
            drawn = (model.draw_samples(run.settings, count, run.generator(purpose, device), mu) for run in runs)
            return engine.collated(drawn)

        def kernels(run: Trial) -> Tensor:
            source = run.generator("init", device)
            return run.settings.sigma_0 * torch.randn(cfg.kernels, cfg.d, generator=source, device=device)

        self.data = draw("data", cfg.samples)
        self.tests = {"multi": draw("multi-view test", cfg.test_samples, 0.0)}
        self.tests["single"] = draw("single-view test", cfg.test_samples, 1.0)
        self.w = engine.stacked(kernels, runs)
        first = self.w[:, :, : 2 * cfg.k]
        self.lottery = first >= first.amax(1, keepdim=True) * (1 - 0.5 / math.log(cfg.k))

    def batches(self, phase: str, count: int | None = None) -> Callable[[], Tensor]:
        """Return a function that draws minibatches (B, batch) of sample numbers without replacement, or all of them."""
        cfg, count = self.cfg, count or self.cfg.samples
        streams = [run.generator(f"{phase} batches", self.device) for run in self.runs]
        if cfg.batch >= count:
            everything = torch.arange(count, device=self.device).expand(len(self.runs), -1)
            return lambda: everything
        return lambda: engine.stacked(
            lambda stream: torch.randperm(count, generator=stream, device=self.device)[: cfg.batch], streams
        )

    def rows(self) -> Rows:
        cfg, rows, w, y = self.cfg, [], self.w, self.data["y"]
        if cfg.pretrain in ("masked", "average"):
            rows, w = self.reconstruct(w)
        elif cfg.pretrain == "labels":
            sources = [run.generator("labels", self.device) for run in self.runs]
            arguments = (y, self.data["strength"], sources)
            labels = engine.stacked(lambda *own: model.pretraining_labels(cfg, *own), *arguments)
            rows, w = self.finetune(w, "pretrain", cfg.pretrain_steps, labels, cfg.granularity)
        if cfg.probe_steps:
            rows += self.probe(w)
        if cfg.finetune_steps:
            rows += self.finetune(w, "finetune", cfg.finetune_steps, y, cfg.k)[0]
        if cfg.few:
            rows += self.finetune(w, "few labels", cfg.finetune_steps, y[:, : cfg.few], cfg.k)[0]
        return rows

    def reconstruct(self, w: Tensor) -> tuple[Rows, Tensor]:
        """Do mask reconstruction; return rows of phase "pretrain", and the kernels."""
        cfg, next_batch = self.cfg, self.batches("pretrain")
        theta, lead, extra = (self.column(key) for key in ("theta", "lead", "tau_extra"))
        eta, keep = self.column("eta", dims=3), self.column("ema", dims=3)

        def step(state: State, t: int) -> tuple[State, State]:
            x = engine.picked(self.data["x"], next_batch())
            w = state["w"]
            tau = model.tau_at(t, lead, extra, cfg.tau_root)
            loss, direction = model.masked(x, w, theta, cfg.q, cfg.width, tau, state.get("teacher"))
            new = state | {"w": w + eta * direction}
            if "teacher" in state:
                new["teacher"] = keep * state["teacher"] + (1 - keep) * new["w"]
            captured = (w[:, :, : 2 * cfg.k].amax(1) >= cfg.width).all(1)
            return new, {"loss": loss, "captured": captured}

        def measure(state: State, t: int, end: bool) -> State:
            return self.kernels(state["w"])

        state = {"w": w} | ({"teacher": w.clone()} if cfg.pretrain == "average" else {})
        steps, stop = cfg.pretrain_steps, "captured" if cfg.early_stop else None
        rows, state = engine.train(
            self.runs, state, step, measure, steps=steps, record=RECORDED, stop_event=stop, phase="pretrain"
        )
        return rows, state["w"]

    def finetune(self, w: Tensor, phase: str, steps: int, y: Tensor, labels: int) -> tuple[Rows, Tensor]:
        """Train kernels and a head from 0 on the first samples, those with labels in y (B, n).

        With the fixed head of `block`, class i owns kernels i m .. (i + 1) m - 1.
        """
        cfg, next_batch = self.cfg, self.batches(phase, y.shape[1])
        block = cfg.head == "block"
        rates = {"w": self.column("block_eta" if block else "eta_1"), "u": self.column("eta_2")}

        def direction(state: State, t: int) -> tuple[Tensor, State]:
            chosen = next_batch()
            x = engine.picked(self.data["x"], chosen)
            loss, dw, du = model.tuned(x, y.gather(1, chosen), state["w"], state["u"], cfg.q, cfg.width)
            return loss, {"w": dw} if block else {"w": dw, "u": du}

        u = torch.zeros(len(self.runs), labels, cfg.kernels, device=self.device)
        if block:
            u = self.column("beta", dims=3) * torch.eye(cfg.k, device=self.device).repeat_interleave(cfg.m, 1)
        step, record = engine.sgd(direction, rates), RECORDED_SUPERVISED
        rows, state = self.supervised({"w": w, "u": u}, step, steps, phase, y, record)
        return rows, state["w"]

    def probe(self, w: Tensor) -> Rows:
        """Train a linear head on the frozen encoder."""
        cfg, next_batch, y = self.cfg, self.batches("probe"), self.data["y"]
        eta, features = self.column("probe_eta", dims=3), model.encode(self.data["x"], w, cfg.q, cfg.width)

        def step(state: State, t: int) -> tuple[State, State]:
            chosen = next_batch()
            h = engine.picked(features, chosen)
            loss, residual = nets.softmax_residual(h @ state["u"].transpose(1, 2), y.gather(1, chosen))
            return state | {"u": state["u"] + eta * (residual.transpose(1, 2) @ h) / h.shape[1]}, {"loss": loss}

        u = torch.zeros(len(self.runs), cfg.k, cfg.kernels, device=self.device)
        return self.supervised({"w": w, "u": u}, step, cfg.probe_steps, "probe", y, ())[0]

    def supervised(
        self, state: State, step: Callable, steps: int, phase: str, y: Tensor, record: Sequence[int]
    ) -> tuple[Rows, State]:
        def measure(state: State, t: int, end: bool) -> State:
            return self.classifier(state["w"], state["u"], y, end)

        return engine.train(self.runs, state, step, measure, steps=steps, record=record, phase=phase)

    def kernels(self, w: Tensor) -> State:
        """Return measures (B,) of the kernels w (B, R, d): strengths in units of the width, counts, shares."""
        cfg, M = self.cfg, self.lottery
        corr = w[:, :, : 2 * cfg.k]  # (B, R, 2k)
        most, winner = corr.max(1)
        most, above = most.clamp_min(0) / cfg.width, corr >= cfg.width
        held = above.sum(2)
        top = corr.gather(1, winner.unsqueeze(2).expand(-1, -1, 2 * cfg.k)).topk(2, dim=2).values  # of winners
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

    def decide(self, w: Tensor, u: Tensor, x: Tensor) -> Tensor:
        """Return decisions (B, N): classes (summing their labels' probabilities), or groups if u has fewer rows."""
        F = model.encode(x, w, self.cfg.q, self.cfg.width) @ u.transpose(1, 2)
        if u.shape[1] > self.cfg.k:
            F = F.unflatten(2, (self.cfg.k, -1)).logsumexp(3)
        return F.argmax(2)

    def classifier(self, w: Tensor, u: Tensor, y: Tensor, end: bool) -> State:
        """Return accuracies (B,) on labelled training samples (their classes) and both test sets, and views that work.

        At the end also: accuracy on single-view samples whose strong view is l of class i; signs of u in the lotteries.
        """
        cfg, merge = self.cfg, max(1, self.cfg.k // u.shape[1])
        sets = {"train": {name: self.data[name][:, : y.shape[1]] for name in ("x", "y")}} | self.tests
        right = {name: self.decide(w, u, samples["x"]) == samples["y"] // merge for name, samples in sets.items()}
        measures = {f"{name}_accuracy": hit.float().mean(1) for name, hit in right.items()}
        single = self.tests["single"]
        strong = 2 * single["y"] + 1 - single["weak"]
        member = torch.nn.functional.one_hot(strong, 2 * cfg.k).float()  # (B, N, 2k)
        views = (member * right["single"].unsqueeze(2)).sum(1) / member.sum(1)
        works, lost = views > WORKING, views < LOST
        measures |= {"views_per_class": works.sum(1) / cfg.k, "lost_views": lost.sum(1).float()}
        measures |= {"two_valued": (works | lost).float().mean(1)}
        nothing = torch.full_like(measures["train_accuracy"], math.nan)
        kernels = self.kernels(w)
        measures |= {name: kernels[name] for name in ("lambda_min", "lambda_median", "lambda_max", "fused")}
        for j in range(2 * cfg.k):
            measures[f"view_accuracy_{j // 2}_{j % 2}"] = views[:, j] if end else nothing
        signs = self.signs(u) if end and u.shape[1] == cfg.k else dict.fromkeys(SIGNS, nothing)
        return measures | signs

    def signs(self, u: Tensor) -> State:
        """Summarise signs of u (B, k, R) for kernels in lotteries of the class, of another class, and of none."""
        of_class = self.lottery.unflatten(2, (self.cfg.k, 2)).any(3).transpose(1, 2)  # (B, k, R)
        anywhere = of_class.any(1, keepdim=True)
        of_other, none = anywhere & ~of_class, (~anywhere).expand_as(of_class)

        def mean(values: Tensor, where: Tensor) -> Tensor:
            return (values * where).sum((1, 2)) / where.sum((1, 2))

        sizes = mean(u.abs(), none) / mean(u.abs(), of_class)
        return dict(zip(SIGNS, (mean(u > 0, of_class), mean(u < 0, of_other), sizes), strict=True))
