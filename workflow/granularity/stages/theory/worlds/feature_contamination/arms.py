"""World 4's arms: what is trained at each size."""

from __future__ import annotations

from typing import Any

from granularity.stages.theory.worlds.feature_contamination import swept

RELU, LINEAR = "ReLU", "identity"
CENTRED, PROJECTED = "ReLU, centred background", "ReLU, core gradient only"
QUARTER, LEAKY, AGAIN = "ReLU, background mean 0.25", "leaky ReLU", "ReLU, again"
FULL, SLOW, LONG = "ReLU, all 256 coordinates", "ReLU, lr 0.1", "ReLU, lr 0.1, long"
LETTER, MOMENTUM, SCRIPT = "lr 0.001, N = 1000", "lr 0.001, momentum 0.9, N = 1000", "authors' script"
WIDE = {48: "ReLU, 48 background", 64: "ReLU, 64 background", 96: "ReLU, 96 background"}
WIDE_LINEAR = {n: name.replace("ReLU", LINEAR) for n, name in WIDE.items()}
ACTIVATIONS = {"relu": "ReLU", "gelu": "GELU", "sigmoid": "sigmoid", "tanh": "tanh"}
SHELLS = {key: f"shells, {name}" for key, name in ACTIVATIONS.items()}
SHELLS_CENTRED = {key: f"shells, {ACTIVATIONS[key]}, centred background" for key in ("relu", "gelu")}
SHELLS_FIXED = {key: f"shells, {name}, 1000 fixed samples" for key, name in ACTIVATIONS.items()}
TARGETS = {"z": "z from z", "z_given_yz": "z from yz", "yz": "yz from yz"}
REGRESSION = {
    (target, phi): f"regression {words}, {'ReLU' if phi == 'relu' else LINEAR}"
    for target, words in TARGETS.items()
    for phi in ("relu", "identity")
}
SMALL = {phi: f"regression yz from yz, {name}, small start" for phi, name in (("relu", RELU), (LINEAR, LINEAR))}
LABELS = {1: "2 labels (coarse)", 2: "4 labels", 4: "8 labels (fine)"}
LONGER = {g: f"{name}, decay 0.0001, 6000 steps" for g, name in LABELS.items() if g != 2}
LABELS_LINEAR = {g: f"{name}, identity" for g, name in LABELS.items() if g != 2}
SOFTMAX = {g: f"{name}, cross-entropy" for g, name in LABELS.items()}
RANDOM_SOFTMAX = "8 labels, random IDs in classes, cross-entropy"
RANDOM, OF_BACKGROUND = "8 labels, random IDs in classes", "8 labels, by background"

KEPT = {"ood": "U[-1, 0]", "worst": "-1"}


def _arms(paper: bool) -> list[dict[str, Any]]:
    some = 5 if paper else 3
    five: dict[str, Any] = {"seeds": 5}
    arms: list[dict[str, Any]] = [
        {"name": RELU, **five, "neurons": 10},
        {"name": LINEAR, **five, "activation": "identity"},
        {"name": CENTRED, **five, "bg_low": -0.5},
        {"name": PROJECTED, **five, "project": True},
        {"name": QUARTER, **five, "bg_low": -0.25},
        {"name": LEAKY, **five, "activation": "leaky_relu"},
        {"name": AGAIN, "seeds": 1, "neurons": 10},
        {"name": FULL, **five, "coordinates": "full"},
        {"name": SLOW, **five, "lr": 0.1, "steps": 5000},
    ]
    for n in WIDE:
        arms.append({"name": WIDE[n], **five, "d_bg": n})
        arms.append({"name": WIDE_LINEAR[n], **five, "d_bg": n, "activation": "identity"})
    letter = {"lr": 1e-3, "batch": 1000}
    arms.append({"name": LETTER, **letter, "steps": 100_000 if paper else 20_000, "seeds": 3 if paper else 1})
    script = {**letter, "momentum": 0.9, "seeds": 5 if paper else 1}
    default = {"coordinates": "full", "init": "framework"}
    arms.append({"name": SCRIPT, **script, **default, "data": "fixed", "steps": 20_000 if paper else 3000})
    if paper:
        arms.append({"name": MOMENTUM, **script, "steps": 20_000})
        arms.append({"name": LONG, **five, "lr": 0.1, "steps": 20_000, "batch": 1000})
    shells = {"task": "shells", **default, **letter, "optimiser": "adamw", "steps": 2000}
    for phi, name in SHELLS.items():
        arms.append({"name": name, **shells, "activation": phi, "seeds": some})
    for phi, name in SHELLS_CENTRED.items():
        arms.append({"name": name, **shells, "activation": phi, "bg_low": -0.5, "seeds": some})
    fixed = {"data": "fixed", "steps": 20_000 if paper else 2000, "seeds": 3 if paper else 1}
    for phi, name in SHELLS_FIXED.items():
        arms.append({"name": name, **(shells | fixed), "activation": phi})
    regression = {"task": "regression", "lr": 0.01, "momentum": 0.9, "batch": 1000, "steps": 2000}
    for (target, phi), name in REGRESSION.items():
        arms.append({"name": name, **regression, "target": target, "activation": phi, "seeds": some})
    for phi, name in SMALL.items() if paper else ():
        arms.append({"name": name, **regression, "activation": phi, "init_scale": 0.1, "seeds": some})
    labels = {"task": "granularity", "steps": 3000, **five}
    for g, name in LABELS.items():
        arms.append({"name": name, **labels, "g": g})
    for g, name in LONGER.items():
        arms.append({"name": name, **labels, "g": g, "decay": 1e-4, "steps": 6000, "seeds": some})
    for g, name in LABELS_LINEAR.items():
        arms.append({"name": name, **labels, "g": g, "activation": "identity"})
    arms.append({"name": RANDOM, **labels, "g": 4, "labels": "random"})
    arms.append({"name": OF_BACKGROUND, **labels, "g": 4, "labels": "background"})
    for g, name in SOFTMAX.items():
        arms.append({"name": name, **labels, "g": g, "objective": "softmax"})
    arms.append({"name": RANDOM_SOFTMAX, **labels, "g": 4, "labels": "random", "objective": "softmax"})
    arms += swept.arms(labels, 10 if paper else 3, more=paper)
    return arms


ARMS = {"quick": _arms(False), "paper": _arms(True)}
