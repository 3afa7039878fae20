"""World 1's arms: what is trained at each size."""

from __future__ import annotations

import math
from typing import Any

SCALES: dict[str, dict[str, Any]] = {
    "A": {"d": 64, "k": 8, "per_subclass": 4},
    "B": {"d": 128, "k": 16, "per_subclass": 4},
    "C": {"d": 256, "k": 32, "per_subclass": 2},
    "D": {"d": 512, "k": 64, "per_subclass": 2, "patches": 64},
    "E": {"d": 1024, "k": 128, "per_subclass": 2, "patches": 64},
    # A with the paper's own beta, sigma_z and gamma at d = 64
    "P": {"d": 64, "k": 8, "per_subclass": 4, "beta": math.log(64) ** -5, "gamma": math.log(64) ** -10}
    | {"sigma_z": math.log(64) ** -10 / 8},
}
RATIOS = {
    "A": 10,
    "B": 25,
    "C": 50,
    "D": 50,
    "E": 50,
    "P": 10,
}  # S4: fine over coarse hard response, at least
COARSE, FINE = "{} coarse", "{} fine"
LONG, LONG_FINE = "equal counts, coarse", "equal counts, fine"
EARLY, EARLY_FINE = "phase I, coarse", "phase I, fine"
SWEEP = {g: f"granularity {g}" for g in (1, 2, 4, 8)}
WITHIN, RANDOM = "random IDs within superclasses", "random IDs"
EQUAL_STEP = {g: f"granularity {g}, equal step" for g in (2, 4, 8)}  # of g = 1 it is SWEEP's
EQUAL_LOSS = {g: f"granularity {g}, equal loss" for g in (1, 2, 4, 8)}
SLOW_WITHIN, SLOW_RANDOM = f"{WITHIN}, equal step", f"{RANDOM}, equal step"
MORE_DATA = "random IDs within superclasses, 16 samples a subclass"
FINITE = {
    "coarse labels": {"eta": 0.2},
    "fine labels": {"g": 8, "eta": 1.6},
    "random IDs within superclasses": {"g": 8, "eta": 1.6, "labels": "random_within"},
    "random IDs": {"g": 8, "eta": 1.6, "labels": "random"},
    "random IDs, equal step": {"g": 8, "labels": "random"},
    MORE_DATA: {"g": 8, "eta": 1.6, "labels": "random_within", "per_subclass": 16, "steps": 150},
}
FINITE_ARMS = {what: f"finite data, {what}" for what in FINITE}
# The coarse baseline's own sizes, one key varied at a time from "A coarse".
BASELINE = {"sigma_0": (1e-4, 1e-2, 0.1), "n_act": (1, 6), "eta": (0.05, 0.8), "per_subclass": (16,)} | {
    "stop_loss": (0.1, 0.001)
}
VARIED = "coarse, {} = {:g}"
GAUSS, SLOW = "plain Gaussian draw, coarse", "fine, coarse step size"


def _arms(scales: dict[str, int], seeds: int) -> list[dict[str, Any]]:
    arms = []
    for scale, count in scales.items():
        size = SCALES[scale] | {"seeds": count}
        fine = {"g": size["k"], "eta": 0.2 * size["k"], "neurons": "five", "stop_loss": 0.03}
        arms.append({"name": COARSE.format(scale), **size, "stop_loss": 0.01})
        arms.append({"name": FINE.format(scale), **size, **fine, "finetune_steps": 150 * (scale == "A")})
    equal = {"equal_counts": True, "seeds": seeds}
    fine = {"g": 8, "eta": 1.6, "neurons": "five"}
    start = {"sigma_0": 1e-5, "eta": 5e-4, "steps": 15}
    arms += [{"name": EARLY, **equal, **start}, {"name": EARLY_FINE, **equal, **fine, **start}]
    arms += [{"name": LONG, **equal, "steps": 2000}, {"name": LONG_FINE, **equal, **fine, "steps": 200}]
    sweep = {"steps": 300, "seeds": seeds}
    arms += [{"name": name, **sweep, "g": g, "eta": 0.2 * g} for g, name in SWEEP.items()]
    arms.append({"name": WITHIN, **sweep, "g": 8, "eta": 1.6, "labels": "random_within"})
    arms.append({"name": RANDOM, **sweep, "g": 8, "eta": 1.6, "labels": "random"})
    arms += [{"name": name, **sweep, "g": g, "eta": 0.2} for g, name in EQUAL_STEP.items()]
    stop = {"seeds": seeds, "steps": 1000, "stop_loss": 0.1}
    arms += [{"name": name, **stop, "g": g, "eta": 0.2 * g} for g, name in EQUAL_LOSS.items()]
    arms.append({"name": SLOW_WITHIN, **sweep, "g": 8, "labels": "random_within"})
    arms.append({"name": SLOW_RANDOM, **sweep, "g": 8, "labels": "random"})
    arms += [{"name": name, **sweep, **FINITE[what], "fixed": True} for what, name in FINITE_ARMS.items()]
    baseline = {**SCALES["A"], "seeds": seeds, "steps": 2000, "stop_loss": 0.01}
    arms += [
        {"name": VARIED.format(key, value), **baseline, key: value}
        for key, values in BASELINE.items()
        for value in values
    ]
    arms.append({"name": GAUSS, "neurons": "gaussian", "threshold": 3.0, "stop_loss": 0.025, "seeds": seeds})
    arms.append({"name": SLOW, "seeds": seeds, **fine, "eta": 0.2, "steps": 1500})
    return arms


ARMS = {
    "quick": _arms({"A": 5, "B": 3, "C": 2}, seeds=3),
    "paper": _arms({"A": 10, "B": 10, "C": 10, "D": 3, "E": 3, "P": 5}, seeds=10),
}
