"""CPU time of a finished run, stage by stage, beside that of another commit: as their results say.

    snakemake                                                       # here: the default run
    git worktree add ../before COMMIT && make -C ../before run      # one after the other, on a quiet machine
    python benchmarks/default_run.py results/digits ../before/results/digits

Prints CPU seconds per stage, and one JSON object: `work`, `ours` and `peer` (CPU seconds of all stages), `ratio` (ours
to the peer's), `goal`: 350 s where the peer, commit 964ba71 with two backbones per arm, took 533.
"""

from __future__ import annotations

import argparse
import glob
import json
from collections import Counter
from pathlib import Path

GOAL = 350 / 533


def seconds(results: Path) -> Counter[str]:
    """CPU seconds of each stage whose results lie below a folder."""
    found: Counter[str] = Counter()
    for file in glob.glob(f"{results}/**/manifest.json", recursive=True):  # follows links, as names of results are
        manifest = json.loads(Path(file).read_bytes())
        found[manifest["kind"]] += manifest["cost"]["cpu_seconds"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ours", type=Path, help="folder of a finished run's results, such as results/digits")
    parser.add_argument("peer", type=Path, help="that of the other commit")
    args = parser.parse_args()
    ours, peer = seconds(args.ours), seconds(args.peer)
    if not ours or not peer:
        parser.error(f"{args.peer if ours else args.ours}: holds no results")
    for name, found in (("ours", ours), ("peer", peer)):
        stages = ", ".join(f"{stage} {spent:.0f}" for stage, spent in found.most_common() if spent >= 1)
        print(f"{name}: {found.total():.0f} s ({stages})")
    row = {"work": "default run, CPU seconds of all stages", "ours": ours.total(), "peer": peer.total()}
    print(json.dumps(row | {"ratio": ours.total() / peer.total(), "goal": GOAL}))


if __name__ == "__main__":
    main()
