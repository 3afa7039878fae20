"""A training step of world feature_contamination beside that of a plain autograd script: CPU time, one thread.

The script is the paper's published one, written anew: an autograd MLP 256 - 256 - 1 with biases and a frozen readout of
+-1/m, hinge loss, momentum SGD with weight decay, one fixed batch of 1000 x 256, gone through forward and backward at
each step. The world computes the same in reduced coordinates, or (`full`) in those of the input itself.
"""

import time
from collections.abc import Callable, Iterator

import torch
from common import in_turns, rated

from granularity.stages.theory import engine, nets
from granularity.stages.theory.worlds import feature_contamination
from granularity.stages.theory.worlds.feature_contamination import model

D, M, N, FEATURES, STEPS = 256, 256, 1000, 64, 60
SETTINGS = {"lr": 1e-3, "momentum": 0.9, "decay": 1e-3, "batch": N, "d": D, "m": M}


def script() -> Callable[[], None]:
    """One step: forward, backward, optimiser."""
    source = torch.Generator().manual_seed(2024)
    found = model.draw_samples(feature_contamination.Settings(**SETTINGS), N, source, balanced=True)
    x, y = found["z"] @ nets.orthonormal(FEATURES, D, source), found["y"]
    net = torch.nn.Sequential(torch.nn.Linear(D, M), torch.nn.ReLU(), torch.nn.Linear(M, 1))
    with torch.no_grad():
        net[2].weight.copy_(torch.where(torch.arange(M) < M // 2, 1.0, -1.0).unsqueeze(0) / M)
    net[2].requires_grad_(False)
    optimiser = torch.optim.SGD(net[0].parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-3)

    def step() -> None:
        loss = (1 - y * net(x).squeeze(1)).clamp_min(0).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    return step


def world(**overrides: object) -> Callable[[], None]:
    """One step: batch, gradient by hand, update."""
    cfg = feature_contamination.Settings(**SETTINGS | overrides)
    runs, device = [engine.Trial(cfg, 0)], torch.device("cpu")
    state = model.initial(runs, device)
    draw, update, steps = model.batches(runs, device), model.updater(cfg, runs, device), iter(range(10**9))

    def step() -> None:
        with torch.no_grad():
            _, minus = model.descent(cfg, state, draw())
            state.update(update(state, minus, next(steps)))

    return step


def rows(quick: bool, device: str, turns: int = 7) -> Iterator[dict]:
    steps, turns = (2, 1) if quick else (STEPS, turns)
    sides = {"peer": script(), "reduced": world(data="fixed")}
    sides["full d = 256"] = world(coordinates="full", init="framework", data="fixed")
    repeated = {name: lambda step=step: [step() for _ in range(steps)] for name, step in sides.items()}
    in_turns(repeated, 1, time.process_time)  # to warm up
    seconds = in_turns(repeated, turns, time.process_time)
    for name, goal in (("full d = 256", 1.0), ("reduced", 3.0)):
        both = {"ours": seconds[name], "peer": seconds["peer"]}
        yield rated(f"feature contamination, {name}, fixed batch (steps/s; autograd script)", both, steps, goal)
