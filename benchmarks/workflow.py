"""What planning costs: dry runs of the papers' experiments, beside Snakemake's of as many empty jobs.

Takes the papers' experiments with every seed (config/examples) in a temporary copy of the checkout with empty data
folders. The peer plans a file of one rule and as many jobs. Seconds are of wall clock, the least of three; the work
fails where a dry run takes more than 5 seconds.
"""

import re
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from common import in_turns, row

EXPERIMENTS = ("inat2021_resnet34", "imagenet1k_resnet50", "imagenet21k_vit_b16")
LIMIT = 5.0
BARE = """
rule all:
    input: [f"bare/{{i}}" for i in range({jobs})]
rule one:
    output: "bare/{{i}}"
    shell: "touch {{output}}"
"""


def rows(quick: bool, device: str, turns: int = 3) -> Iterator[dict]:
    from support.checkout import Checkout

    experiments, turns = (("smoke",), 1) if quick else (EXPERIMENTS, turns)
    with tempfile.TemporaryDirectory() as folder:
        checkout = Checkout(Path(folder), cold=True)
        for name in experiments:
            config = f"config/examples/{name}.yaml"
            for data in re.findall(r"^  (?:root|wordnet): (\S+)", checkout.path(config).read_text(), re.MULTILINE):
                if not Path(data).is_absolute():
                    checkout.path(data).mkdir(parents=True, exist_ok=True)
            planned = checkout.snakemake("-n", "--configfile", config)
            jobs = re.search(r"^total +(\d+)$", planned, re.MULTILINE)[1]
            checkout.path("bare.smk").write_text(BARE.format(jobs=jobs))
            bare = ["--snakefile", "bare.smk", "--workflow-profile", "none", "--cores", "1"]
            sides = {"ours": partial(checkout.snakemake, "-n", "--configfile", config)}
            sides["peer"] = partial(checkout.snakemake, "-n", *bare)
            took = in_turns(sides, turns, time.perf_counter)
            work = f"plan {name}, {jobs} jobs (seconds, at most {LIMIT:g}; bare Snakemake)"
            yield row(work, took["ours"], took["peer"], took["peer"] / took["ours"])
            if took["ours"] > LIMIT and not quick:
                raise SystemExit(f"the dry run of {name} took {took['ours']:.1f} s, more than {LIMIT:g} s")
