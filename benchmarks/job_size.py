"""What it costs to start a job: the same trainings in jobs of one run, one label space and one family.

    python benchmarks/job_size.py

Runs `snakemake finetune` three times on two label spaces of the first condition of the default run (38 trainings), with
everything before training done beforehand, and prints the wall time of each and its ratio to the last, from one machine
in one run. Results go to results/bench-job-size-LEVEL and are removed.
"""

import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

LEVELS = ("run", "space", "family")


def main() -> None:
    seconds = {}
    for level in LEVELS:
        name = f"bench-job-size-{level}"
        config = {
            "name": name,
            "conditions": [{"train_size": 300, "spaces": ["manual-digit"]}],
            "jobs": {"pretrain": level, "finetune": level, "measure": "condition"},
        }
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            json.dump(config, file)
            file.flush()
            command = ["--quiet", "all", "--configfile", file.name]
            subprocess.run(["snakemake", "hierarchy", *command], check=True, capture_output=True)
            started = time.perf_counter()
            subprocess.run(["snakemake", "finetune", *command], check=True, capture_output=True)
            seconds[level] = time.perf_counter() - started
        shutil.rmtree(Path("results", name))
    for level in LEVELS:
        print(f"jobs of one {level:7s} {seconds[level]:7.1f} s   {seconds[level] / seconds['family']:.2f} x")


if __name__ == "__main__":
    main()
