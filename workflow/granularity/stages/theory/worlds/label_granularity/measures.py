"""Measures of world 1's networks: responses and accuracies of heads, learnt weights, firing sets."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from granularity.stages.theory.engine import State, Trial

HELD_OUT, DISTURBED = 4, 8  # samples of each subclass in the test sets
# Disturbances of hard test sets: noise patches that show half the opposite common feature, or more noise.
DISTURBANCES: dict[str, dict[str, Any]] = {"1_distractor": {"distractors": 1}, "2_distractors": {"distractors": 2}}
DISTURBANCES |= {"4_distractors": {"distractors": 4}, "noise": {"sigma_z": 0.2}}
CHUNK = 2**26  # most numbers in a pre-activation tensor


def members(cls: Tensor, classes: int) -> Tensor:
    """Return (C, R) float: 1 if neuron r belongs to class c; `cls` (R,) int64."""
    return (torch.arange(classes, device=cls.device).unsqueeze(1) == cls).float()


def pruned_away(cls: Tensor, feature: Tensor, g: int) -> Tensor:
    """Return (R,) bool: neurons of v_y in all groups of superclass y except the first (the optional pruning)."""
    return (feature == cls // g) & (cls % g != 0)


class Evaluation:
    """Test sets of a group of runs (one draw per run; disturbed sets: one for all seeds), and measures on them.

    Superclass heads on fine responses F_{y,c} (B, 2g, N): their sum (as in the paper), their sum after pruning, and
    their maximum, which decides like the largest of all 2g outputs. A tie counts as half in accuracies.
    """

    def __init__(self, runs: Sequence[Trial], g: int, draw: Callable, forward: Callable, device: torch.device):
        self.runs, self.g, self.draw, self.forward, self.device = runs, g, draw, forward, device
        self.cfg = runs[0].settings
        self.sets = {kind: self._draw("held-out " + kind, HELD_OUT, hard=kind == "hard") for kind in ("normal", "hard")}

    def _draw(self, purpose: str, per_subclass: int, one_for_all: bool = False, **kind: Any) -> Tensor:
        sources = [Trial(run.settings, 0) if one_for_all else run for run in self.runs]
        streams = [(one.settings, per_subclass, one.generator(purpose, self.device)) for one in sources]
        return torch.stack([self.draw(*stream, **kind)[0] for stream in streams])

    def measure(self, state: State, t: int, end: bool) -> dict[str, Tensor]:
        """Return all measures (B,) of one step, named as in the run table."""
        responses = {kind: self._responses(state, x) for kind, x in self.sets.items()}
        found = {f"{kind}_{name}": value for kind, of in responses.items() for name, value in of.items()}
        found |= self._weights(state) | self._sets(state)
        if t == 0:
            found |= self._initial_sets(state)
        for name, disturbance in DISTURBANCES.items() if end else ():
            x = self._draw(f"disturbed {name}", DISTURBED, one_for_all=True, hard=True, **disturbance)
            for head, F in self._heads(state, x)[1].items():
                found[f"accuracy_{head}_{name}"] = self._accuracy(*self._own_other(F))
        return found

    def _heads(self, state: State, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return responses of the labels (B, C, N) and of each superclass head (B, 2, N)."""
        cls, feature, g = state["cls"], state["feature"], self.g
        onehot, sums = members(cls, 2 * g), members(cls // g, 2)
        pruned = sums * ~pruned_away(cls, feature, g)
        size = max(1, CHUNK // (len(cls) * x.shape[2] * x.shape[0]))
        parts = []
        for part in x.split(size, dim=1):
            F, h, _ = self.forward(state["w"], state["b"], part, onehot)
            parts.append((F, sums @ h, pruned @ h))
        F, summed, kept = (torch.cat(several, 2) for several in zip(*parts, strict=True))
        return F, {"sum": summed, "pruned": kept, "max": F.view(F.shape[0], 2, g, -1).amax(2)}

    def _truth(self, count: int) -> tuple[Tensor, Tensor]:
        each = torch.arange(2 * self.cfg.k, device=self.device).repeat_interleave(count // (2 * self.cfg.k))
        return each // self.cfg.k, each % self.cfg.k

    def _own_other(self, F: Tensor) -> tuple[Tensor, Tensor]:
        """Return F_y and F_y' (B, N) of a superclass head (B, 2, N)."""
        s = self._truth(F.shape[2])[0].expand(F.shape[0], 1, -1)
        return F.gather(1, s).squeeze(1), F.gather(1, 1 - s).squeeze(1)

    @staticmethod
    def _accuracy(own: Tensor, other: Tensor) -> Tensor:
        return ((own > other).float() + 0.5 * (own == other).float()).mean(1)

    def _responses(self, state: State, x: Tensor) -> dict[str, Tensor]:
        F, heads = self._heads(state, x)
        found = {}
        for head, values in heads.items():
            own, other = self._own_other(values)
            tail = "" if head == "sum" else f"_{head}"
            found |= {f"own{tail}": own.mean(1), f"other{tail}": other.mean(1)}
            found[f"accuracy{tail}"] = self._accuracy(own, other)
            if head == "sum":
                found |= {"own_sd": own.std(1), "other_sd": other.std(1)}
        s, c = self._truth(F.shape[2])
        label = (s * self.g + c % self.g).expand(F.shape[0], 1, -1)
        own = F.gather(1, label)
        rest = F.scatter(1, label, -math.inf).amax(1)
        siblings = heads["sum"].gather(1, s.expand_as(label)) - own
        found |= {"label": own.mean((1, 2)), "label_other": rest.mean(1), "label_other_max": rest.amax(1)}
        found["label_sibling"] = siblings.mean((1, 2)) / (self.g - 1 or math.nan)
        return found

    def _own(self, state: State) -> tuple[Tensor, Tensor]:
        """Return which features (R, 2 + 2k) are the common one, and the own subclasses', for a neuron's class."""
        cls, g, k = state["cls"].unsqueeze(1), self.g, self.cfg.k
        v = torch.arange(2 + 2 * k, device=self.device)
        s, c = (v - 2) // k, (v - 2) % k
        return v == cls // g, (v >= 2) & (s == cls // g) & (c % g == cls % g)

    def _weights(self, state: State) -> dict[str, Tensor]:
        """Return A(t): mean <w, v> over the neurons drawn above threshold for v = v_y, and for v = v_{y,c}."""
        found, w = {}, state["w"][:, :, : 2 + 2 * self.cfg.k]
        drawn = torch.arange(w.shape[2], device=self.device) == state["feature"].unsqueeze(1)
        for name, own in zip(("common_weight", "subclass_weight"), self._own(state), strict=True):
            chosen = (drawn & own).float()
            found[name] = (w * chosen).sum((1, 2)) / (chosen.sum() or math.nan)
        return found

    def firing(self, state: State) -> Tensor:
        """Return S^(t)(v): (B, R, 2 + 2k) bool, neurons that fire on some patch of the batch showing v."""
        B, R, _ = state["w"].shape
        v = torch.arange(2 + 2 * self.cfg.k, device=self.device)
        shows = (state["shows"].flatten(1).unsqueeze(2) == v).float()
        _, _, fires = self.forward(state["w"], state["b"], state["x"], members(state["cls"], 2 * self.g))
        return torch.bmm(fires.view(B, R, -1).float(), shows) > 0

    def _sets(self, state: State) -> dict[str, Tensor]:
        """Count neurons of a class that fire on its common feature, on its own subclasses, and on others."""
        fires, (common, sub) = self.firing(state), self._own(state)
        classes, drawn = 2 * self.g, len(self.cfg.slots()) if self.g == self.cfg.g else state["w"].shape[1]
        found = {"alive": fires.any(2).sum(1) / drawn, "common_firing": (fires & common).sum((1, 2)) / classes}
        found["subclass_firing"] = (fires & sub).sum((1, 2)) / (2 * self.cfg.k)
        found["wrong_firing"] = (fires & ~common & ~sub).sum((1, 2)) / classes
        return found | {"new_firing": (fires & ~state["could"]).sum((1, 2)).float()}

    def _initial_sets(self, state: State) -> dict[str, Tensor]:
        """Return |S(v)|, |S*(v)| per class and feature; the most features above threshold for one neuron (t = 0)."""
        cfg = self.cfg
        factor = (4 if self.g == 1 else 2) + 2 * cfg.c0
        ends = (math.sqrt(factor * (math.log(cfg.d) + sign / math.log(cfg.d) ** 5)) for sign in (-1, 1))
        low, high = (cfg.threshold or end for end in ends)
        w = state["w"][:, :, : 2 + 2 * cfg.k] / cfg.sigma_0
        above = w >= low
        alone = (w >= high) & (above.sum(2, keepdim=True) == 1)
        cells = 2 * self.g * (2 + 2 * cfg.k)
        found = {"initial_set": above.sum((1, 2)) / cells, "initial_set_star": alone.sum((1, 2)) / cells}
        return found | {"initial_features_a_neuron": above.sum(2).amax(1).float()}
