"""Steps of the theory worlds beside those of another checkout: CPU time of a step and of the measures, in turns.

    git worktree add ../before COMMIT
    python benchmarks/theory_beside.py ../before [--turns 3]

Two processes, one per checkout, set up the same arms in the groups that their engines make of them, and take turns, so
that a busy machine slows both. The least CPU time of all turns counts. Prints a line per arm and phase: milliseconds of
a run's step and of its measures (theirs, ours, ours / theirs), and how many runs are in a program; and one JSON object
per arm and phase: `work`, `ours` and `peer` (milliseconds of a step), `ratio` (theirs / ours), `goal`.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ARMS = {  # steps that a turn takes of each
    ("feature_contamination", "8 labels (fine)"): 40,
    ("feature_contamination", "2 labels (coarse), cross-entropy"): 40,
    ("feature_contamination", "ReLU"): 60,
    ("feature_contamination", "shells, GELU"): 15,
    ("feature_contamination", "regression yz from yz, ReLU"): 20,
    ("neural_collapse", "default, sigma2 2"): 60,
    ("neural_collapse", "theorem, d 4096"): 40,
    ("mask_reconstruction", "masked, stable teacher"): 15,
    ("mask_reconstruction", "supervised from scratch"): 20,
    ("mask_reconstruction", "supervised, fixed blocks"): 20,
    ("label_granularity", "A coarse"): 10,
    ("label_granularity", "B fine"): 6,
    ("feature_emergence", "small"): 15,
}


def work() -> None:
    """One checkout's process: a line `world|arm|steps` in, a line of JSON out."""
    import torch

    from granularity.base import extensions
    from granularity.stages.theory import engine

    torch.set_num_threads(1)
    getattr(engine, "_keep_memory", lambda: None)()
    train, device = engine.train, torch.device("cpu")
    found: dict[str, list[tuple[float, float]]] = {}
    steps = 0

    def timed(runs, state, step, measure, **more):
        only = {key: more[key] for key in ("prepare", "phase") if key in more}
        train(runs, state, step, lambda *_: {}, steps=1, **only)
        count = min(more["steps"], steps)
        start = time.process_time()
        rows = train(runs, state, step, lambda *_: {}, steps=count - 1, **only)
        middle = time.process_time()
        measure(state, 0, True)
        each = 1e3 / len(runs)
        ends = (middle - start) * each / count, (time.process_time() - middle) * each
        found.setdefault(re.sub(r" [\d.e-]+$", "", more.get("phase", "train")), []).append(ends)
        return rows

    engine.train = timed
    for line in sys.stdin:
        name, arm, asked = line.rstrip("\n").split("|")
        steps, world = int(asked), extensions.find("world", name)
        found.clear()
        chosen = next(item for item in world.SIZES["quick"] if item.name == arm)
        with torch.no_grad(), engine._exact():
            group = engine.groups([chosen], device)[0]
            world.simulate(group, device)
        mean = {phase: [sum(part) / len(ends) for part in zip(*ends, strict=True)] for phase, ends in found.items()}
        print(json.dumps({"runs": len(group), "phases": mean}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("other", type=Path, help="the other checkout")
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    both = [
        subprocess.Popen(
            [sys.executable, Path(__file__).resolve(), "--work"],
            env=os.environ | {"PYTHONPATH": str(place.resolve() / "workflow"), "OMP_NUM_THREADS": "1"},
            cwd=place,
            **pipes,
        )
        for place in (options.other, Path(__file__).resolve().parents[1])
    ]
    rows = []
    for (world, arm), steps in ARMS.items():
        least: dict[tuple[int, str], list[float]] = {}
        runs = [0, 0]
        for _ in range(options.turns):
            for which, process in enumerate(both):
                process.stdin.write(f"{world}|{arm}|{steps}\n")
                process.stdin.flush()
                said = json.loads(process.stdout.readline())
                runs[which] = said["runs"]
                for phase, ends in said["phases"].items():
                    before = least.get((which, phase), ends)
                    least[which, phase] = [min(pair) for pair in zip(before, ends, strict=True)]
        for phase in (phase for which, phase in least if which == 0):
            what, times = f"{world}, {arm}, {phase}", list(zip(least[0, phase], least[1, phase], strict=True))
            words = "".join(f"{a:9.3f} {b:9.3f} {b / a:5.2f}" for a, b in times)
            print(what.ljust(70), words, f"  {runs[0]} and {runs[1]} runs", flush=True)
            peer, ours = times[0]
            rows.append({"work": what, "ours": ours, "peer": peer, "ratio": peer / ours, "goal": None})
    for process in both:
        process.stdin.close()
    for row in rows:
        print(json.dumps(row))


if __name__ == "__main__":
    work() if sys.argv[1:] == ["--work"] else main()
