"""What batching gives the theory worlds: groups of runs in one tensor program against the same code one run at a time.

    python benchmarks/theory.py [WORLD ...] [--groups 3]

For each world, the first groups of its quick size that the engine chose to batch, CPU seconds on one thread, from one
machine in one run; and how many runs the engine left alone, where batching was measured not to pay. Feature
contamination's step against the published script's is in benchmarks/theory_contamination.py.
"""

import argparse
import time

import torch

from granularity.base import extensions
from granularity.stages.theory import engine


def seconds(world, groups, device) -> float:
    started = time.process_time()
    for group in groups:
        world.simulate(group, device)
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("worlds", nargs="*", default=extensions.names("world"), metavar="WORLD")
    parser.add_argument("--groups", type=int, default=3, help="batched groups timed for each world")
    options = parser.parse_args()
    torch.set_num_threads(1)
    device = torch.device("cpu")
    for name in options.worlds:
        world = extensions.find("world", name)
        groups = engine.groups(world.SIZES["quick"], device)
        alone = sum(len(group) == 1 for group in groups)
        print(f"{name}: {sum(map(len, groups))} runs in {len(groups)} groups, {alone} of one run")
        with torch.no_grad(), engine._exact():
            for group in sorted((g for g in groups if len(g) > 1), key=len, reverse=True)[: options.groups]:
                together = seconds(world, [group], device)
                apart = seconds(world, [[run] for run in group], device)
                label = f"{group[0].settings.name}, {len(group)} runs"
                print(f"  {label:60.60} batched {together:7.2f} s   alone {apart:7.2f} s   {apart / together:5.1f} x")


if __name__ == "__main__":
    main()
