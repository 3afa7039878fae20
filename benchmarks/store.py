"""What the store costs: its share of the CPU time of all commands of a run, and of a second run with every job forced.

Runs Snakemake in a temporary copy of the checkout, in which `granularity` is a script that runs the same command with a
timer of CPU time: whenever it rings, the time since then is counted for the room of the package (`stages`, `learning`,
`store`, ...) whose code is running or has called what runs. So keys, locks, verifying, hashing and publishing are the
store's; decoding and training are not.
"""

import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from common import row

PACKAGE = os.path.join("", "workflow", "granularity", "")
NOTES = "GRANULARITY_BENCHMARK"  # the folder in which each command notes what it took


def command() -> None:
    """One command of a rule, with the timer."""
    spent, last = Counter(), 0.0

    def ring(_, frame) -> None:
        nonlocal last
        now = time.process_time()
        while frame is not None and PACKAGE not in frame.f_code.co_filename:
            frame = frame.f_back
        room = frame.f_code.co_filename.split(PACKAGE)[-1].split(os.sep)[0] if frame else "start-up"
        spent[room] += now - last
        last = now

    signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, 0.005, 0.005)
    from granularity.cli import main

    try:
        main()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        spent["start-up"] += time.process_time() - last
        Path(os.environ[NOTES], f"{os.getpid()}-{time.time_ns()}.json").write_text(json.dumps(spent))


def rows(quick: bool, device: str, configfile: str = "") -> Iterator[dict]:
    from support.checkout import Checkout

    configfile = configfile or ("config/examples/smoke.yaml" if quick else "")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "checkout").mkdir()
        (folder / "bin").mkdir()
        checkout, script = Checkout(folder / "checkout", cold=True), folder / "bin" / "granularity"
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).resolve()}" "$@"\n')
        script.chmod(0o755)
        checkout.environment["PATH"] = f"{script.parent}{os.pathsep}{checkout.environment['PATH']}"
        options = ["--cores", "all", *(["--configfile", configfile] if configfile else [])]
        for label, more, goal in (("first run", [], 0.03), ("every job forced", ["--forceall"], None)):
            notes = folder / label
            notes.mkdir()
            checkout.environment[NOTES] = str(notes)
            checkout.snakemake(*more, *options)
            spent = sum((Counter(json.loads(file.read_text())) for file in notes.iterdir()), Counter())
            work = f"store, {label}, {len(list(notes.iterdir()))} commands (CPU seconds; of all)"
            yield row(work, spent["store"], spent.total(), spent["store"] / spent.total(), goal, at_most=True)


if __name__ == "__main__":
    sys.argv[0] = "granularity"
    command()
