"""CPU time of a training step of world feature_contamination beside that of a plain autograd script, one thread.

    PYTHONPATH=workflow python benchmarks/theory_contamination.py

The script is the paper's published one, written anew: an autograd MLP 256 - 256 - 1 with biases and a frozen
readout of +-1/m, hinge loss, momentum SGD with weight decay, one fixed batch of 1000 x 256, gone through
forward and backward at each step. Both run in turns in one process; the ratio of their medians is what counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch

from granularity.stages.theory import engine, nets
from granularity.stages.theory.worlds import feature_contamination
from granularity.stages.theory.worlds.feature_contamination import model

D, M, N, FEATURES = 256, 256, 1000, 64
ROUNDS, STEPS = 7, 60
SETTINGS = {"lr": 1e-3, "momentum": 0.9, "decay": 1e-3, "batch": N, "d": D, "m": M}


def script_step() -> Callable[[int], None]:
    """One step of the script: forward, backward, optimiser."""
    source = torch.Generator().manual_seed(2024)
    cfg = feature_contamination.Settings(**SETTINGS)
    found = model.draw_samples(cfg, N, source, balanced=True)
    x, y = found["z"] @ nets.orthonormal(FEATURES, D, source), found["y"]
    net = torch.nn.Sequential(torch.nn.Linear(D, M), torch.nn.ReLU(), torch.nn.Linear(M, 1))
    with torch.no_grad():
        net[2].weight.copy_(torch.where(torch.arange(M) < M // 2, 1.0, -1.0).unsqueeze(0) / M)
    net[2].requires_grad_(False)
    optimiser = torch.optim.SGD(
        net[0].parameters(), lr=SETTINGS["lr"], momentum=SETTINGS["momentum"], weight_decay=SETTINGS["decay"]
    )

    def step(t: int) -> None:
        with torch.enable_grad():
            loss = (1 - y * net(x).squeeze(1)).clamp_min(0).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    return step


def world_step(features: int | None = None, **overrides: object) -> Callable[[int], None]:
    """One step of the world: batch, gradient by hand, update.

    Args:
        features: instead of 32 + 32; 256 makes the coordinates those of the input itself.
        overrides: of the settings.
    """
    size = {"d_core": features // 2, "d_bg": features // 2} if features else {}
    cfg = feature_contamination.Settings(**SETTINGS | size | overrides)
    runs, device = [engine.Trial(cfg, 0)], torch.device("cpu")
    held = {"state": model.initial(runs, device)}
    draw, update = model.batches(runs, device), model.updater(cfg, runs, device)

    def step(t: int) -> None:
        with torch.no_grad():
            _, minus = model.descent(cfg, held["state"], draw())
            held["state"] = held["state"] | update(held["state"], minus, t)

    return step


def compare() -> dict[str, float]:
    """Median CPU milliseconds per step, printed with ratios and returned by name."""
    torch.set_num_threads(1)
    full = {"coordinates": "full", "init": "framework", "data": "fixed"}
    programs = {
        "script: autograd, fixed 1000 x 256": script_step(),
        "world: x itself, fixed 1000 x 256": world_step(D, data="fixed"),
        "world: full d = 256, fixed 1000": world_step(**full),
        "world: full d = 256, fresh 1000": world_step(**full | {"data": "fresh"}),
        "world: reduced, fixed 1000": world_step(data="fixed"),
        "world: reduced, fresh 1000": world_step(),
        "world: reduced, fresh 256 (reference run)": world_step(batch=256),
    }
    times: dict[str, list[float]] = {name: [] for name in programs}
    for turn in range(ROUNDS + 1):  # the first is for warming up
        for name, step in programs.items():
            start = time.process_time()
            for t in range(STEPS):
                step(t)
            if turn:
                times[name].append((time.process_time() - start) / STEPS * 1e3)
    found = {name: float(np.median(values)) for name, values in times.items()}
    script = next(iter(found.values()))
    print(f"{'CPU ms per step, one thread':46}{'median':>8}{'least':>8}{'script / this':>15}")
    for name, value in found.items():
        print(f"{name:46}{value:8.2f}{min(times[name]):8.2f}{script / value:15.2f}")
    return found


def reference_run() -> float:
    """CPU seconds of one seed of the reference run, measures included."""
    arm = next(arm for arm in feature_contamination.SIZES["quick"] if arm.name == "ReLU")
    start = time.process_time()
    engine.run_table(feature_contamination, [arm.model_copy(update={"seeds": 1})], "cpu")
    spent = time.process_time() - start
    print(f"reference run, 1000 steps with all measures: {spent:.2f} s CPU")
    return spent


if __name__ == "__main__":
    compare()
    reference_run()
