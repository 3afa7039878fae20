"""What batching gives the theory worlds: groups of runs in one tensor program against the same code one run at a time.

    python benchmarks/theory.py [WORLD ...] [--groups 3] [--size quick] [--device auto]

For each world, the largest groups of a size that the engine chose to batch, in CPU seconds on one thread, or in seconds
on a GPU; and how many runs the engine left alone. Of a world that it leaves alone, ALONE runs are batched all the same
("forced"), which is what says whether it is right. Runs are alike in a group, so only the first ALONE of them are timed
one at a time. Feature contamination's step against the published script's is in
benchmarks/theory_contamination.py.

Prints each measurement twice, as a line of a table and as a JSON object: `work`, `ours` and `peer` (runs per second),
`ratio` and `goal`.
"""

import argparse
import json
import time

import torch

from granularity.base import extensions
from granularity.stages.theory import engine

ALONE, GOAL = 4, 1.0


def seconds(world, groups, device) -> float:
    on_gpu = device.type == "cuda"
    clock = time.perf_counter if on_gpu else time.process_time
    started = clock()
    for group in groups:
        world.simulate(group, device)
    if on_gpu:
        torch.cuda.synchronize(device)
    return clock() - started


def by_force(world, size, device) -> list:
    """Groups of up to ALONE runs of one setting, however much work they are."""
    found = {}
    for (run,) in engine.groups(world.SIZES[size], device):
        found.setdefault(run.settings.name, []).append(run)
    return [runs[:ALONE] for runs in found.values() if len(runs) > 1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("worlds", nargs="*", default=extensions.names("world"), metavar="WORLD")
    parser.add_argument("--groups", type=int, default=3, help="batched groups timed for each world")
    parser.add_argument("--size", choices=("quick", "paper"), default="quick")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    options = parser.parse_args()
    torch.set_num_threads(1)
    device = engine.pick_device(options.device)
    for name in options.worlds:
        world = extensions.find("world", name)
        groups = engine.groups(world.SIZES[options.size], device)
        alone = sum(len(group) == 1 for group in groups)
        print(f"{name}: {sum(map(len, groups))} runs in {len(groups)} groups, {alone} of one run")
        with torch.no_grad(), engine._exact():
            batched = [g for g in groups if len(g) > 1]
            forced = "" if batched else ", forced"
            for group in sorted(batched or by_force(world, options.size, device), key=len, reverse=True)[
                : options.groups
            ]:
                together = len(group) / seconds(world, [group], device)
                some = [[run] for run in group[:ALONE]]
                apart = len(some) / seconds(world, some, device)
                work = f"{name}, {options.size}, {group[0].settings.name}, {len(group)} runs{forced}, {device.type}"
                row = {"work": work, "ours": round(together, 3), "peer": round(apart, 3)}
                row |= {"ratio": round(together / apart, 2), "goal": None if forced else GOAL}
                print(f"  {work:80.80} {together:8.3f} runs/s {apart:8.3f} alone {together / apart:6.1f} x")
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
