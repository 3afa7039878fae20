"""Mask reconstruction's arms: what is trained at each size."""

from __future__ import annotations

from typing import Any

from granularity.stages.theory.worlds.mask_reconstruction.model import literal_rho

STABLE, PAPER = "masked, stable teacher", "masked, the paper's teacher"
JOINT, BLOCK = "supervised from scratch", "supervised, fixed blocks"
LITERAL, ENDLESS = "fixed blocks, rho = k^-0.01", "the paper's teacher, no stop"
MUS = {0.0: "fixed blocks, mu = 0", 0.01: BLOCK, 0.1: "fixed blocks, mu = 0.1"}
AVERAGE, EXACT = "moving-average teacher", "identities"
LABELS = {
    "2 groups of classes": {"granularity": 2},
    "5 groups of classes": {"granularity": 5},
    "10 classes": {"granularity": 10},
    "20, class and random bit": {"granularity": 20, "labels": "random"},
    "20, class and stronger view": {"granularity": 20, "labels": "view"},
}
CROSSED = {label: f"labels: {label}" for label in LABELS}
CLASSES, RANDOM, VIEWS = (list(LABELS)[i] for i in (2, 3, 4))
LONGER = {label: f"labels: {label}, 5000 steps" for label in (CLASSES, RANDOM, VIEWS)}
MORE = {
    "50 kernels": {"m": 5, "sigma_0": 0.1, "eta_2": 10.0},
    "C_p = 2": {"m": 5, "sigma_0": 0.1, "eta_2": 10.0, "copies": 2, "patches": 28},
    "k = 20": {"k": 20, "samples": 2000, "test_samples": 2000},
}
GAIN, MASKS = "no masks, the teacher's gain", "masks, no gain"
# The baselines' own sizes, one key varied at a time; what is not varied is SCRATCH or BLOCKS.
SCRATCHES = {"sigma_0": (0.1, 0.12, 0.14), "m": (5, 10), "eta_1": (0.005, 0.08)}
BLOCKED = {"sigma_0": (0.08, 0.12, 0.14), "block_eta": (0.03, 0.3)}
MORE_SCRATCHES = {"m": (40,), "eta_2": (0.2, 5.0), "finetune_steps": (4000,)}
FREE, FIXED = "from scratch, {} = {:g}", "blocks, {} = {:g}"
WIDE = {"fixed blocks, m = 20": {"m": 20}, "fixed blocks, m = 40": {"m": 40}}

PAPER_TEACHER = {"kappa": 1.0, "eta": 0.03}
SCRATCH = {"pretrain": "none", "finetune_steps": 1000}
BLOCKS = {"pretrain": "none", "head": "block", "m": 5, "sigma_0": 0.1}


def _arms(seeds: int, more: bool) -> list[dict[str, Any]]:
    arms: list[dict[str, Any]] = [
        {"name": STABLE, "probe_steps": 400, "few": 100},
        {"name": PAPER, **PAPER_TEACHER},
        {"name": JOINT, **SCRATCH, "probe_steps": 400, "few": 100},
        {"name": BLOCK, **BLOCKS},
        {"name": LITERAL, **BLOCKS, "rho": literal_rho(10)},
        *({"name": name, **BLOCKS, "mu": mu} for mu, name in MUS.items() if name != BLOCK),
        {"name": ENDLESS, **PAPER_TEACHER, "early_stop": False, "pretrain_steps": 600, "finetune_steps": 0},
        {"name": AVERAGE, "pretrain": "average", "pretrain_steps": 600},
        {"name": GAIN, "theta": 1.0, "gain": 0.3},
        {"name": MASKS, "kappa": 0.0, "pretrain_steps": 600},
        *(
            {"name": CROSSED[label], "pretrain": "labels", "pretrain_steps": 1000, "probe_steps": 400, **what}
            for label, what in LABELS.items()
        ),
    ]
    sweeps = ((FREE, SCRATCH, SCRATCHES), (FIXED, BLOCKS, BLOCKED), (FREE, SCRATCH, MORE_SCRATCHES if more else {}))
    arms += [
        {"name": name.format(key, value), **base, key: value}
        for name, base, sweep in sweeps
        for key, values in sweep.items()
        for value in values
    ]
    if more:
        for label, name in LONGER.items():
            longer = {"pretrain": "labels", "pretrain_steps": 5000, "probe_steps": 400}
            arms.append({"name": name, **longer, **LABELS[label]})
        for name, what in MORE.items():
            arms.append({"name": f"{name}, masked, stable teacher", **what})
            arms.append({"name": f"{name}, masked, the paper's teacher", **PAPER_TEACHER, **what})
            arms.append({"name": f"{name}, supervised from scratch", **SCRATCH, **what})
            arms.append({"name": f"{name}, fixed blocks", **what, **BLOCKS})
        arms += [{"name": name, **BLOCKS, **what} for name, what in WIDE.items()]
    return [{"name": EXACT, "task": "identities", "seeds": 3}] + [arm | {"seeds": seeds} for arm in arms]


ARMS = {"quick": _arms(5, more=False), "paper": _arms(10, more=True)}
