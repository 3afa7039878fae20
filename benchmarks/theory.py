"""What batching gives the theory worlds: groups of runs in one tensor program beside the same code one run at a time.

For each world, the largest group of its size `quick` that the engine chose to batch. Runs are alike in a group, so the
first four of them are timed one at a time. Mask reconstruction is left out: a group of its runs takes minutes.
"""

from collections.abc import Iterator

import torch
from common import clock_of, in_turns, rated

from granularity.base import extensions
from granularity.stages.theory import engine

WORLDS, ALONE = ("label_granularity", "neural_collapse", "feature_emergence", "feature_contamination"), 4


def rows(quick: bool, device: str, size: str = "quick") -> Iterator[dict]:
    device = torch.device(device)
    for name in WORLDS[1:2] if quick else WORLDS:
        world = extensions.find("world", name)
        with torch.no_grad(), engine._exact():
            group = max(engine.groups(world.SIZES[size], device), key=len)
            alone = group[:ALONE]
            sides = {"ours": lambda world=world, group=group: world.simulate(group, device)}
            sides["peer"] = lambda world=world, alone=alone: [world.simulate([run], device) for run in alone]
            seconds = in_turns(sides, 1, clock_of(device.type))
        work = f"theory: {name}, {group[0].settings.name}, {len(group)} runs, {device.type} (runs/s; one at a time)"
        seconds["ours"] *= len(alone) / len(group)
        yield rated(work, seconds, len(alone), 1.0 if len(group) > 1 else None)
