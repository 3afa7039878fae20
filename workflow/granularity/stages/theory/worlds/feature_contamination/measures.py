"""What is measured of world 4's networks: risks in and out of distribution, learnt weights, who fires."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from granularity.stages.theory import nets
from granularity.stages.theory.engine import State, Trial

SAMPLES = 4000  # of a test set
GRADIENT_SAMPLES = 256  # of those, for comparing gradients
# Test backgrounds, scale times U[0, 1] plus shift; None: the training background.
TESTS: dict[str, tuple[float, float] | None] = {
    "id": None,
    "ood": (1.0, -1.0),
    "worst": (0.0, -1.0),
    "half": (0.5, -0.5),
    "zero": (0.0, 0.0),
    "one": (0.0, 1.0),
}
EARLY = ("id", "ood", "worst")  # measured at all recorded steps, the others at the end
ALIGNED = (0.9, 0.1)  # an aligned neuron is active on more of its positive class, on less of the other
MU = 0.5  # E z
PULLS = ("own", "rivals", "rivalry", "sibling rivalry")  # what pulls at background weights
SIGNAL = 0.25  # constant of Definition A.4, which the paper does not give


class Evaluation:
    """Test sets of a group of runs (fresh cores, `SAMPLES` each) and the measures taken on them.

    One draw of cores, classes and U[0, 1] serves all test sets: only the background is moved.
    """

    def __init__(
        self,
        runs: Sequence[Trial],
        draw: Callable,
        phi: nets.Activation,
        projections: Callable,
        descent: Callable,
        device: torch.device,
    ):
        self.cfg, self.phi, self.projections, self.descent = runs[0].settings, phi, projections, descent
        self.low = [float(run.settings.bg_low) for run in runs]
        drawn = [
            draw(
                self.cfg,
                SAMPLES,
                run.generator("evaluation", device),
                run.generator("evaluation labels", device),
            )
            for run in runs
        ]
        self.set = {name: torch.stack([one[name] for one in drawn]) for name in drawn[0]}
        self.shift = torch.tensor(self.low, device=device).view(-1, 1, 1)

    def measure(self, state: State, t: int, end: bool) -> dict[str, Tensor]:
        """All measures (B,) of one step; names as in the run table."""
        cfg, core = self.cfg, self.cfg.d_core
        P, z = self.projections(state), self.set["z"]
        missing = torch.full((len(P),), math.nan)
        found = self._weights(P, state)
        base = torch.bmm(z[:, :, :core], P[:, :, :core].transpose(1, 2))
        if "b" in state:
            base += state["b"].unsqueeze(1)
        uniform = torch.bmm(z[:, :, core:], P[:, :, core:].transpose(1, 2))
        total = P[:, :, core:].sum(2).unsqueeze(1)
        for name, moved in TESTS.items():
            wanted = end or name in EARLY
            scale, shift = (1.0, self.shift) if moved is None else moved
            u = torch.add(base, uniform, alpha=scale).add_(shift * total) if wanted else None
            measured = self._test(state, u) if wanted else {}
            for key in self._names():
                found[f"{name}_{key}"] = measured.get(key, missing)
            if name == "id" and cfg.task in ("classification", "granularity"):
                found |= self._firing(state, u)
        if cfg.task == "classification":
            wanted = end or t == 0
            found |= self._identities(state) if wanted else dict.fromkeys(IDENTITIES, missing)
        found["bg_label_correlation"] = self._correlation() if t == 0 else missing
        if "M" in state:
            error = (state["M"] @ state["M"].transpose(1, 2) - torch.eye(cfg.d0, device=P.device)).abs().amax((1, 2))
            found["dictionary_error"] = error if t == 0 else missing
        return found

    # ------------------------------------------------------------ risks

    def _names(self) -> tuple[str, ...]:
        if self.cfg.task == "regression":
            return ("risk",)
        return ("risk", "acc", "margin") + ("label_acc",) * (self.cfg.task == "granularity")

    def _test(self, state: State, u: Tensor) -> dict[str, Tensor]:
        """Risk (hinge, or the task's loss; mean squared error a coordinate), accuracy, mean y h."""
        f = torch.bmm(self.phi.value(u), state["a"].transpose(1, 2))
        if "c" in state:
            f += state["c"].unsqueeze(1)
        if self.cfg.task == "regression":
            return {"risk": ((f - self.set["target"]) ** 2).mean((1, 2))}
        found = {}
        if self.cfg.task == "granularity":  # a class has the largest output of its labels
            found["label_acc"] = (f.argmax(2) == self.set["label"]).float().mean(1)
            h = f[:, :, : self.cfg.g].amax(2) - f[:, :, self.cfg.g :].amax(2)
        else:
            h = f.squeeze(2)
        yh = self.set["y"] * h
        loss = functional.softplus(-yh) if self.cfg.task == "shells" else (1 - yh).clamp_min(0)
        accuracy = ((yh > 0).float() + 0.5 * (yh == 0).float()).mean(1)
        return found | {"risk": loss.mean(1), "acc": accuracy, "margin": yh.mean(1)}

    # ------------------------------------------------------------ weights and activity

    def _sign(self, state: State) -> Tensor:
        """(B, m): which class is a neuron's positive one."""
        a, g = state["a"], self.cfg.g
        return torch.sign(a[:, 0] if self.cfg.task != "granularity" else a[:, :g].sum(1) - a[:, g:].sum(1))

    def _weights(self, P: Tensor, state: State) -> dict[str, Tensor]:
        core, background = P[:, :, : self.cfg.d_core], P[:, :, self.cfg.d_core :]
        bg = MU * background.sum(2)
        found = {
            "core_norm": core.norm(dim=2).mean(1),
            "bg_norm": background.norm(dim=2).mean(1),
            "bg_sum": bg.mean(1),
            "bg_largest": background.abs().amax((1, 2)),
        }
        if "pulls" in state:  # summed over the updates so far, each decayed as weights are since
            mean = (self.shift.flatten() + MU) * MU * self.cfg.d_bg
            pulls = dict(zip(PULLS, state["pulls"].unbind(1), strict=True))
            found["bg_own"], found["bg_rival"] = mean * pulls["own"], mean * pulls["rivals"]
            found["overlap"] = pulls["rivals"] / pulls["own"]
            found["sibling_rivals"] = pulls["sibling rivalry"] / pulls["rivalry"]
        if self.cfg.task in ("classification", "granularity"):
            sign = self._sign(state)
            mine = sign * MU * core.sum(2)
            found["core_sum"] = mine.mean(1)
            found["bg_sum_plus"] = (bg * (sign > 0)).sum(1) / (sign > 0).sum(1)
            found["bg_sum_minus"] = (bg * (sign < 0)).sum(1) / (sign < 0).sum(1)
            enough = SIGNAL * math.sqrt(self.cfg.d0 / self.cfg.d)
            found["signal_share"] = (mine + bg >= enough).float().mean(1)
        return found

    def _firing(self, state: State, u: Tensor) -> dict[str, Tensor]:
        """Shares of a class's samples on which a neuron is active (u > 0), in distribution."""
        plus = (self.set["y"] > 0).float()
        each = torch.stack((plus, 1 - plus), 1)  # (B, 2, n), whose rows become means
        each /= each.sum(2, keepdim=True)
        on_plus, on_minus = torch.bmm(each, torch.gt(u, 0, out=torch.empty_like(u))).unbind(1)
        sign = self._sign(state) > 0
        own, other = torch.where(sign, on_plus, on_minus), torch.where(sign, on_minus, on_plus)
        aligned = ((own > ALIGNED[0]) & (other < ALIGNED[1])).float().mean(1)
        found = {"rate_pos": own.mean(1), "rate_neg": other.mean(1), "frac_aligned": aligned}
        for name, mean in zip(("plus", "minus"), torch.bmm(each, u).unbind(1), strict=True):
            found |= {f"neuron_{k}_{name}": mean[:, k] for k in range(self.cfg.neurons)}
        found |= {f"neuron_{k}_sign": self._sign(state)[:, k] for k in range(self.cfg.neurons)}
        return found

    # ------------------------------------------------------------ identities

    def _correlation(self) -> Tensor:
        """Largest |corr(z_j, y)| sqrt(n) over background features j, n the test set's size."""
        z, y = self.set["z"][:, :, self.cfg.d_core :], self.set["y"].unsqueeze(2)
        z, y = z - z.mean(1, keepdim=True), y - y.mean(1, keepdim=True)
        corr = (z * y).sum(1) / (z.norm(dim=1) * y.norm(dim=1))
        return corr.abs().amax(1) * math.sqrt(SAMPLES)

    def _identities(self, state: State) -> dict[str, Tensor]:
        """The gradient by hand against autograd, and Eq. 7 against it; errors over the largest entry.

        Eq. 7 with the margin gate: minus the gradient of neuron k along background feature j is
        |a_k| (mean over samples of (1[positive class] - 1[negative class]) gate phi'(u) z_j).
        """
        cfg = self.cfg.model_copy(update={"project": False})
        some = {name: value[:, :GRADIENT_SAMPLES].clone() for name, value in self.set.items()}
        some["z"][:, :, cfg.d_core :] += self.shift
        with torch.enable_grad():
            w = state["w"].clone().requires_grad_()
            x = some["z"] @ state["M"] if "M" in state else some["z"]
            f, _, u = nets.two_layer(x, w, state["a"], self.phi, state.get("b"), state.get("c"))
            h = f.squeeze(2)
            (wanted,) = torch.autograd.grad((1 - some["y"] * h).clamp_min(0).mean(1).sum(), w)
        found = self.descent(cfg, state, some)[1]["w"]
        u, gate = u.detach(), (some["y"] * h.detach() < 1).float().unsqueeze(2)
        active = gate * self.phi.slope(u)
        bg = some["z"][:, :, cfg.d_core :]
        plus = (some["y"] > 0).float().unsqueeze(2)
        parts = [torch.bmm((active * part).transpose(1, 2), bg) for part in (plus, 1 - plus)]
        positive = self._sign(state).unsqueeze(2) * (parts[0] - parts[1]) / GRADIENT_SAMPLES
        equation = state["a"].abs().transpose(1, 2) * positive
        along = (-wanted @ state["M"].transpose(1, 2) if "M" in state else -wanted)[:, :, cfg.d_core :]

        def error(a: Tensor, b: Tensor) -> Tensor:
            return (a - b).abs().amax((1, 2)) / b.abs().amax((1, 2)).clamp_min(1e-30)

        return dict(zip(IDENTITIES, (error(found, -wanted), error(equation, along)), strict=True))


IDENTITIES = ("gradient_error", "equation_7_error")
