"""CPU seconds of a finished run beside those of another commit, as their results say.

snakemake                                                       # here: the default run
git worktree add ../before COMMIT && make -C ../before run      # one after the other, on a quiet machine
python benchmarks/run.py default_run:ours=results/digits,peer=../before/results/digits
"""

import glob
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from common import row


def seconds(results: str) -> Counter[str]:
    """CPU seconds of each stage whose results lie below a folder."""
    found: Counter[str] = Counter()
    for file in glob.glob(f"{results}/**/manifest.json", recursive=True):  # follows links, as names of results are
        manifest = json.loads(Path(file).read_bytes())
        found[manifest["kind"]] += manifest["cost"]["cpu_seconds"]
    if not found:
        raise SystemExit(f"{results}: holds no results")
    return found


def rows(quick: bool, device: str, ours: str, peer: str) -> Iterator[dict]:
    here, there = seconds(ours), seconds(peer)
    for stage in (*here, None):
        a, b = (found[stage] if stage else found.total() for found in (here, there))
        if min(a, b) >= 1:
            yield row(f"a run, {stage or 'all stages'} (CPU seconds; the other commit)", a, b, b / a)
