"""Masked pretraining against training from scratch: verdicts of errors that are known."""

import math

import pandas as pd
import pytest

from granularity.claims.claim import FAILS, HOLDS, NOT_SIGNIFICANT, NOT_TESTED, REPORTED
from granularity.stages.verdicts.studies import mask_reconstruction_images as study

SCRATCH = [("once-16", 16, 40.0, "resnet18"), ("slow", 16, 45.0, "resnet18"), ("once-64", 64, 34.0, "resnet18")]
SCRATCH += [("other", 16, 10.0, "plain")]


def made(*errors: float, epochs: int = 16, **over) -> dict:
    """Tables of finetuned networks with these errors, one per seed; those from scratch differ by 0.1 a seed."""
    runs = [(f"m{seed}", "masked", "mask", 48, math.nan, "resnet18", seed) for seed in range(len(errors))]
    for name, length, error, kind in SCRATCH:
        runs += [(f"{name}{n}", name, "target", length, error + n / 10, kind, n) for n in range(len(errors))]
    columns = ["run_id", "network", "space", "epoch", "val_error", "architecture", "pretrain_seed"]
    pretrained = pd.DataFrame(runs, columns=columns).assign(condition="c")
    tuned = pretrained[: len(errors)].drop(columns="architecture").assign(parent=lambda one: one["run_id"])
    tuned = tuned.assign(val_error=errors, epoch=epochs, family="mask", transfer="classes", from_epoch=math.nan)
    found = {"pretrain": pretrained, "finetune": tuned.assign(**{"head_alone": False} | over)}
    tables = {f"{stage}/runs.parquet": table.drop(columns="epoch") for stage, table in found.items()}
    return tables | {f"{stage}/history.parquet": table[["run_id", "epoch"]] for stage, table in found.items()}


def judged(*errors: float, **over) -> dict:
    """M1 and M2 of them."""
    return {claim.id: claim for claim in study.judge(made(*errors, **over))}


def test_intervals_are_corrected_for_all_comparisons_of_a_claim():
    """Here of two ways to finetune."""
    tables = made(38.0, 38.2, 38.1)
    for kind in ("runs", "history"):
        table = tables[f"finetune/{kind}.parquet"]
        again = table.assign(run_id=table["run_id"] + "again", **{"transfer": "more"} if kind == "runs" else {})
        tables[f"finetune/{kind}.parquet"] = pd.concat([table, again])
    assert [one.comparisons for one in study.judge(tables) if one.id == "M1"] == [2, 2]


def test_the_papers_table_bears_its_claim():
    assert study.printed().verdict == HOLDS and study.printed().values == pytest.approx([-1.8])


def test_errors_are_held_against_the_best_from_scratch_of_as_many_epochs():
    made = judged(38.0, 38.2, 38.1)
    assert made["M1"].values == pytest.approx([-2.0, -1.9, -2.1]) and made["M1"].verdict == HOLDS
    assert made["M2"].values == pytest.approx([4.0, 4.1, 3.9]) and made["M2"].verdict == REPORTED
    assert judged(42.0, 42.2, 42.1)["M1"].verdict == FAILS and judged(38.0, 41.2)["M1"].verdict == NOT_SIGNIFICANT
    for how, why in (({"epochs": 20}, "from scratch for 20 epochs"), ({"head_alone": True}, "was finetuned")):
        assert judged(38.0, 38.2, **how)["M1"].verdict == NOT_TESTED and why in judged(38.0, 38.2, **how)["M1"].why
    assert "was finetuned" in judged(38.0, 38.2, condition="data-tiny")["M1"].why
