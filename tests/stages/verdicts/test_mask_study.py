"""Masked pretraining against training from scratch: verdicts of errors that are known."""

import math

import pandas as pd
import pytest

from granularity.claims.claim import FAILS, HOLDS, NOT_SIGNIFICANT, NOT_TESTED, REPORTED
from granularity.stages.verdicts.studies import mask_reconstruction_images as study

SCRATCH = {"once-16": (16, 40.0), "once-16-slow": (16, 45.0), "once-64": (64, 34.0), "other": (16, 10.0)}


def judged(errors: list[float], epochs: int = 16, head_alone: bool = False, elsewhere: str = "c") -> dict:
    """M1 and M2 of finetuned networks with these errors, one per seed; those from scratch differ by 0.1 a seed."""
    seeds = range(len(errors))
    runs = [("masked", "mask", "mask", 48, math.nan, seed, "resnet18") for seed in seeds]
    runs += [
        (name, "target", "manual", length, error + seed / 10, seed, "plain" if name == "other" else "resnet18")
        for name, (length, error) in SCRATCH.items()
        for seed in seeds
    ]
    columns = ["network", "space", "family", "epochs", "val_error", "pretrain_seed", "architecture"]
    pretrained = pd.DataFrame(runs, columns=columns).assign(condition="c")
    pretrained["run_id"] = pretrained["network"] + pretrained["pretrain_seed"].astype(str)
    tuned = pretrained[pretrained["space"] == "mask"].drop(columns="architecture")
    tuned = tuned.assign(parent=tuned["run_id"], run_id="f" + tuned["run_id"], val_error=errors, epochs=epochs)
    tuned = tuned.assign(head_alone=head_alone, from_epoch=math.nan, transfer="classes", condition=elsewhere)
    tables = {"samples": pd.DataFrame({"condition": ["c"]})}
    for stage, table in (("pretrain", pretrained), ("finetune", tuned)):
        history = [(one.run_id, epoch) for one in table.itertuples() for epoch in (1, one.epochs)]
        tables[f"{stage}/history.parquet"] = pd.DataFrame(history, columns=["run_id", "epoch"])
        tables[f"{stage}/runs.parquet"] = table.drop(columns="epochs")
    return {claim.id: claim for claim in study.judge(tables)}


def test_errors_are_held_against_the_best_from_scratch_of_as_many_epochs():
    made = judged([38.0, 38.2, 38.1])
    assert made["M1"].values == pytest.approx([-2.0, -1.9, -2.1]) and made["M1"].verdict == HOLDS
    assert made["M2"].values == pytest.approx([4.0, 4.1, 3.9]) and made["M2"].verdict == REPORTED
    assert judged([42.0, 42.2, 42.1])["M1"].verdict == FAILS
    assert judged([38.0, 41.2])["M1"].verdict == NOT_SIGNIFICANT


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"epochs": 20}, "no network from scratch for 20 epochs"),
        ({"head_alone": True}, "no network of the objective mask was finetuned"),
        ({"elsewhere": "data-tiny"}, "no network of the objective mask was finetuned"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_cannot_be_compared_is_not_tested(how, why):
    made = judged([38.0, 38.2, 38.1], **how)["M1"]
    assert made.verdict == NOT_TESTED and made.why == why
