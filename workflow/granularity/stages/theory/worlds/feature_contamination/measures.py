"""World 4's training, and what is measured: risks in and out of distribution, learnt weights, who fires."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from granularity.stages.theory import engine, nets
from granularity.stages.theory.engine import Rows, State, Trial
from granularity.stages.theory.worlds.feature_contamination import model
from granularity.stages.theory.worlds.feature_contamination.model import PULLS

RECORDED = (0, 10, 20, 50, 100, 150, 200, 300, 400, 500, 700, 1000, 1500, 2000, 3000, 5000, 7000, 10000)
RECORDED += (14000, 20000, 30000, 50000, 70000, 100000)
SAMPLES = 4000  # of a test set
GRADIENT_SAMPLES = 256  # of those, for comparing gradients
# Test backgrounds, scale times U[0, 1] plus shift; None: the training background.
TESTS = {"id": None, "ood": (1.0, -1.0), "worst": (0.0, -1.0)}
TESTS |= {"half": (0.5, -0.5), "zero": (0.0, 0.0), "one": (0.0, 1.0)}
EARLY = ("id", "ood", "worst")  # measured at all recorded steps, the others at the end
ALIGNED = (0.9, 0.1)  # an aligned neuron is active on more of its positive class, on less of the other
MU = 0.5  # E z
SIGNAL = 0.25  # constant of Definition A.4, which the paper does not give
IDENTITIES = ("gradient_error", "equation_7_error")


def simulate(runs: list[Trial], device: torch.device) -> Rows:
    """Train a group of runs (see `engine`)."""
    cfg = runs[0].settings
    update, draw = model.updater(cfg, runs, device), model.batches(runs, device)
    lr, decay = (engine.column(runs, key, device, 2) for key in ("lr", "decay"))

    def step(state: State, t: int) -> tuple[State, State]:
        loss, minus = model.descent(cfg, state, draw())
        new = state | update(state, minus, t)
        if "pulls" in state:
            new["pulls"] = nets.descend(state["pulls"], minus["pulls"], lr, decay)
        return new, {"loss": loss}

    start, measure = model.initial(runs, device), Evaluation(runs, device).measure
    return engine.train(runs, start, step, measure, steps=cfg.steps, record=RECORDED)[0]


class Evaluation:
    """Test sets of a group of runs, one draw of which only the background is moved, and the measures on them."""

    def __init__(self, runs: list[Trial], device: torch.device):
        self.cfg, self.phi = runs[0].settings, model.ACTIVATIONS[runs[0].settings.activation]
        self.shift = engine.column(runs, "bg_low", device, 3)
        sources = [[run.generator(purpose, device) for purpose in ("evaluation", "evaluation labels")] for run in runs]
        self.set = engine.collated(model.draw_samples(self.cfg, SAMPLES, *streams) for streams in sources)

    def measure(self, state: State, t: int, end: bool) -> State:
        """All measures (B,) of one step; names as in the run table."""
        cfg, core = self.cfg, self.cfg.d_core
        P, z = model.projections(state), self.set["z"]
        missing, measured = torch.full((len(P),), math.nan), {}
        measures = self._weights(P, state)
        base = torch.bmm(z[:, :, :core], P[:, :, :core].transpose(1, 2))
        if "b" in state:
            base += state["b"].unsqueeze(1)
        uniform = torch.bmm(z[:, :, core:], P[:, :, core:].transpose(1, 2))
        total = P[:, :, core:].sum(2).unsqueeze(1)
        for name, moved in TESTS.items():
            due = end or name in EARLY
            scale, shift = (1.0, self.shift) if moved is None else moved
            u = torch.add(base, uniform, alpha=scale).add_(shift * total) if due else None
            measured = self._test(state, u) if due else dict.fromkeys(measured, missing)
            measures |= {f"{name}_{key}": value for key, value in measured.items()}
            if name == "id" and cfg.task in ("classification", "granularity"):
                measures |= self._firing(state, u)
        if cfg.task == "classification":
            due = end or t == 0
            measures |= self._identities(state) if due else dict.fromkeys(IDENTITIES, missing)
        measures["bg_label_correlation"] = self._correlation() if t == 0 else missing
        if "M" in state:
            error = (state["M"] @ state["M"].transpose(1, 2) - torch.eye(cfg.d0, device=P.device)).abs().amax((1, 2))
            measures["dictionary_error"] = error if t == 0 else missing
        return measures

    def _test(self, state: State, u: Tensor) -> State:
        """Risk (hinge, or the task's loss; mean squared error a coordinate), accuracy, mean y h."""
        f = torch.bmm(self.phi.value(u), state["a"].transpose(1, 2))
        if "c" in state:
            f += state["c"].unsqueeze(1)
        if self.cfg.task == "regression":
            return {"risk": ((f - self.set["target"]) ** 2).mean((1, 2))}
        extra, h = {}, f.squeeze(2)
        if self.cfg.task == "granularity":  # a class has the largest output of its labels
            extra["label_acc"] = (f.argmax(2) == self.set["label"]).float().mean(1)
            h = f[:, :, : self.cfg.g].amax(2) - f[:, :, self.cfg.g :].amax(2)
        yh = self.set["y"] * h
        loss = functional.softplus(-yh) if self.cfg.task == "shells" else (1 - yh).clamp_min(0)
        accuracy = ((yh > 0).float() + 0.5 * (yh == 0).float()).mean(1)
        return {"risk": loss.mean(1), "acc": accuracy, "margin": yh.mean(1)} | extra

    def _sign(self, state: State) -> Tensor:
        """(B, m): which class is a neuron's positive one."""
        a, g = state["a"], self.cfg.g
        return torch.sign(a[:, 0] if self.cfg.task != "granularity" else a[:, :g].sum(1) - a[:, g:].sum(1))

    def _weights(self, P: Tensor, state: State) -> State:
        core, background = P[:, :, : self.cfg.d_core], P[:, :, self.cfg.d_core :]
        bg = MU * background.sum(2)
        measures = {"core_norm": core.norm(dim=2).mean(1), "bg_norm": background.norm(dim=2).mean(1)}
        measures |= {"bg_sum": bg.mean(1), "bg_largest": background.abs().amax((1, 2))}
        if "pulls" in state:  # summed over the updates so far, each decayed as weights are since
            mean = (self.shift.flatten() + MU) * MU * self.cfg.d_bg
            pulls = dict(zip(PULLS, state["pulls"].unbind(1), strict=True))
            measures["bg_own"], measures["bg_rival"] = mean * pulls["own"], mean * pulls["rivals"]
            measures["overlap"] = pulls["rivals"] / pulls["own"]
            measures["sibling_rivals"] = pulls["sibling rivalry"] / pulls["rivalry"]
        if self.cfg.task in ("classification", "granularity"):
            sign = self._sign(state)
            mine = sign * MU * core.sum(2)
            measures["core_sum"] = mine.mean(1)
            measures["bg_sum_plus"] = (bg * (sign > 0)).sum(1) / (sign > 0).sum(1)
            measures["bg_sum_minus"] = (bg * (sign < 0)).sum(1) / (sign < 0).sum(1)
            enough = SIGNAL * math.sqrt(self.cfg.d0 / self.cfg.d)
            measures["signal_share"] = (mine + bg >= enough).float().mean(1)
        return measures

    def _firing(self, state: State, u: Tensor) -> State:
        """Shares of a class's samples on which a neuron is active (u > 0), in distribution."""
        plus = (self.set["y"] > 0).float()
        averages = torch.stack((plus, 1 - plus), 1)  # (B, 2, n), whose rows become means
        averages /= averages.sum(2, keepdim=True)
        on_plus, on_minus = torch.bmm(averages, torch.gt(u, 0, out=torch.empty_like(u))).unbind(1)
        sign = self._sign(state) > 0
        on_own, on_other = torch.where(sign, on_plus, on_minus), torch.where(sign, on_minus, on_plus)
        aligned = ((on_own > ALIGNED[0]) & (on_other < ALIGNED[1])).float().mean(1)
        measures = {"rate_pos": on_own.mean(1), "rate_neg": on_other.mean(1), "frac_aligned": aligned}
        for name, mean in zip(("plus", "minus"), torch.bmm(averages, u).unbind(1), strict=True):
            measures |= {f"neuron_{k}_{name}": mean[:, k] for k in range(self.cfg.neurons)}
        measures |= {f"neuron_{k}_sign": self._sign(state)[:, k] for k in range(self.cfg.neurons)}
        return measures

    def _correlation(self) -> Tensor:
        """Largest |corr(z_j, y)| sqrt(n) over background features j, n the test set's size."""
        z, y = self.set["z"][:, :, self.cfg.d_core :], self.set["y"].unsqueeze(2)
        z, y = z - z.mean(1, keepdim=True), y - y.mean(1, keepdim=True)
        corr = (z * y).sum(1) / (z.norm(dim=1) * y.norm(dim=1))
        return corr.abs().amax(1) * math.sqrt(SAMPLES)

    def _identities(self, state: State) -> State:
        """The gradient by hand against autograd, and Eq. 7 against it; errors over the largest entry.

        Eq. 7 with the margin gate: minus the gradient of neuron k along background feature j is
        |a_k| (mean over samples of (1[positive class] - 1[negative class]) gate phi'(u) z_j).
        """
        cfg = self.cfg.model_copy(update={"project": False})
        samples = {name: value[:, :GRADIENT_SAMPLES].clone() for name, value in self.set.items()}
        samples["z"][:, :, cfg.d_core :] += self.shift
        with torch.enable_grad():
            w = state["w"].clone().requires_grad_()
            x = samples["z"] @ state["M"] if "M" in state else samples["z"]
            f, _, u = nets.two_layer(x, w, state["a"], self.phi, state.get("b"), state.get("c"))
            h = f.squeeze(2)
            (gradient,) = torch.autograd.grad((1 - samples["y"] * h).clamp_min(0).mean(1).sum(), w)
        by_hand = model.descent(cfg, state, samples)[1]["w"]
        u, gate = u.detach(), (samples["y"] * h.detach() < 1).float().unsqueeze(2)
        active = gate * self.phi.slope(u)
        bg = samples["z"][:, :, cfg.d_core :]
        plus = (samples["y"] > 0).float().unsqueeze(2)
        parts = [torch.bmm((active * part).transpose(1, 2), bg) for part in (plus, 1 - plus)]
        positive = self._sign(state).unsqueeze(2) * (parts[0] - parts[1]) / GRADIENT_SAMPLES
        equation = state["a"].abs().transpose(1, 2) * positive
        along = (-gradient @ state["M"].transpose(1, 2) if "M" in state else -gradient)[:, :, cfg.d_core :]

        def error(a: Tensor, b: Tensor) -> Tensor:
            return (a - b).abs().amax((1, 2)) / b.abs().amax((1, 2)).clamp_min(1e-30)

        return dict(zip(IDENTITIES, (error(by_hand, -gradient), error(equation, along)), strict=True))
