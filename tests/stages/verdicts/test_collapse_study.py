"""The claims about collapse on images, on measures whose verdicts are known."""

import numpy as np
import pandas as pd
import pytest

from granularity.claims.claim import FAILS, HOLDS, NOT_TESTED, verdicts
from granularity.stages.verdicts.studies import neural_collapse_images as study

END = {  # measure, split, key: value on the networks of the target at the end
    ("accuracy", "train", "error"): 0.1,
    ("collapse", "train", "pair/nc1"): 0.05,
    ("collapse", "train", "pair/nc2"): 0.1,
    ("collapse", "train", "pair/class/r1"): 1.6,
    ("collapse", "train", "pair/class/r1_null"): 1.01,
    ("collapse", "train", "pair/class/r2"): 0.15,
    ("collapse", "train", "pair/between/r1"): 1.0,  # a rank between the target and the finest
    ("collapse", "train", "between/class/r1"): 1.0,
    ("cluster_probe", "train", "purity"): 93,
    ("cluster_probe", "val", "error"): 12.0,
    ("cluster_probe", "val", "error_of_labels"): 11.0,
    ("cluster_probe", "val", "error_of_majority"): 12.2,
}
OTHERS = {
    (1, ("collapse", "train", "pair/nc2")): 0.9,
    (10, ("collapse", "train", "pair/nc1")): 2.0,
    (0, ("cluster_probe", "val", "error")): 60.0,
}


def judged(**changed: float) -> dict[str, str]:
    """Verdicts where a key's value at the end is another one; None: it was not measured."""
    rows, runs = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        runs += [
            ("c", f"t{seed}", "net", "target", "manual", seed),
            ("c", f"m{seed}", "net", "manual-class", "manual", seed),
            ("c", f"k{seed}", "net", "manual-kind", "manual", seed),  # coarser than the target
        ]
        end = {
            key: changed.get(key[2].split("/")[-1] if key[0] != "accuracy" else "train", value)
            for key, value in END.items()
        }
        rows += [
            ("c", f"t{seed}", 30, *key, value * rng.uniform(0.99, 1.01))
            for key, value in end.items()
            if value is not None
        ]
        rows += [
            ("c", f"t{seed}", epoch, *key, value * rng.uniform(0.99, 1.01)) for (epoch, key), value in OTHERS.items()
        ]
        finer = 10.5 + rng.normal() / 100
        rows += [
            ("c", f"{run}{seed}", 30, "cluster_probe", "val", "error_of_labels", value)
            for run, value in (("m", finer), ("k", 90.0))
        ]
    named = pd.DataFrame(rows, columns=["condition", "run", "epoch", "measure", "split", "key", "value"])
    networks = pd.DataFrame(runs, columns=["condition", "run", "network", "space", "family", "pretrain_seed"])
    samples = pd.DataFrame({"condition": ["c"], "target": ["pair"]})
    return verdicts(
        study.judge({"samples": samples, "measure/values.parquet": named, "measure/runs.parquet": networks})
    )


def test_the_papers_findings_hold():
    assert judged() == dict.fromkeys(study.WORDS, HOLDS)


@pytest.mark.parametrize(
    ("changed", "failing"),
    [
        ({"nc1": 1.0}, {"A1-nc1"}),
        ({"r1": 1.0, "r1_null": 1.1}, {"A2-null", "A2-r1"}),
        ({"purity": 60.0}, {"A5"}),
        ({"error_of_majority": 20.0}, {"A6-majority"}),
        ({"error": 40.0}, {"A6-labels", "A6-ordinary"}),  # though networks on the coarsest labels err more
    ],
)
def test_what_is_not_so_fails(changed, failing):
    found = judged(**changed)
    assert {id for id, verdict in found.items() if verdict == FAILS} >= failing


@pytest.mark.parametrize("changed", [{"train": 8.0}, {"train": None}, {"r1": None}])
def test_networks_that_are_not_fitted_or_not_measured_are_not_judged(changed):
    assert set(judged(**changed).values()) == {NOT_TESTED}
