"""The claims of Table 5, on runs whose verdicts are known."""

import pandas as pd
import pytest

from granularity.claims.claim import FAILS, HOLDS, NOT_TESTED, REPORTED, verdicts
from granularity.stages.verdicts.studies.granularity_t5 import judge

# error of each arm: (family, granularity) -> mean
PAPERS_WAY = {
    ("manual", 11): 5.2,
    ("manual", 273): 4.8,
    ("manual", 1103): 4.77,
    ("random", 22): 6.6,
    ("random", 352): 6.1,
    ("kmeans_superclass", 22): 5.1,
    ("kmeans_superclass", 351): 5.2,  # a cluster was empty
    ("kmeans", 22): 5.5,
    ("kmeans", 352): 5.4,
}


def tables(errors, condition="train-all", source="digits", runs=3, backbones=2, spread=0.01, **more):
    rows = [
        {
            "condition": condition,
            "network": "net",
            "transfer": "target",
            "parent": f"{condition} {family} {size} {backbone}",
            "space": "target" if (family, size) == ("manual", 11) else f"{family}-{size}",
            "family": family,
            "granularity": size,
            "pretrain_seed": backbone,
            "val_error": mean + spread * (run - (runs - 1) / 2),
            **more,
        }
        for (family, size), mean in errors.items()
        for backbone in range(backbones)
        for run in range(runs)
    ]
    about = {"condition": condition, "source": source, "target": "kind", "classes": 11, "train_images": 500_000}
    pretrained = pd.DataFrame([{"condition": condition, "run_id": row["parent"]} for row in rows]).drop_duplicates()
    found = {"finetune/runs.parquet": pd.DataFrame(rows), "pretrain/runs.parquet": pretrained}
    return {"samples": pd.DataFrame([about]), **found}


def joined(*several):
    return {name: pd.concat([one[name] for one in several], ignore_index=True) for name in several[0]}


def of(found, id):
    return [claim for claim in found if claim.id == id]


def test_the_papers_own_numbers_hold():
    found = list(judge(tables(PAPERS_WAY, source="inaturalist")))
    assert verdicts(found) == dict.fromkeys(("V1", "V3", "V4", "V7"), HOLDS)
    assert all(claim.source and claim.reason for claim in found if claim.verdict != REPORTED)
    fine, interval = of(found, "V1")
    assert fine.values == pytest.approx([-0.4, -0.43]) and fine.seeds == 12
    assert fine.published == pytest.approx([-0.42, -0.46, -0.43])
    assert -0.43 < interval.values[0] < -0.4
    (random,) = of(found, "V3")
    assert random.values == pytest.approx([1.4, 0.9]) and min(random.published) == pytest.approx(0.85)
    reversed_, differences = of(found, "V4")
    assert list(reversed_.values) == [0] and reversed_.published == [0]
    assert differences.values == pytest.approx([-0.4, -0.2]) and len(differences.published) == 6
    (gain,) = of(found, "V7")
    assert gain.values == pytest.approx([100 * 0.43 / 5.2]) and gain.published == pytest.approx([8.76], abs=0.01)


@pytest.mark.parametrize(
    ("id", "changed"),
    [
        ("V1", {("manual", 273): 5.2}),  # as good as the baseline is not better
        ("V1", {("manual", 273): 5.199, ("manual", 1103): 5.198}),  # better, by less than its interval
        ("V3", {("random", 352): 5.0}),
        ("V4", {("kmeans_superclass", 22): 5.6, ("kmeans_superclass", 351): 5.4}),
    ],
)
def test_a_claim_that_is_not_so_fails(id, changed):
    assert verdicts(judge(tables(PAPERS_WAY | changed)))[id] == FAILS


def test_one_reversal_is_within_the_noise():
    assert verdicts(judge(tables(PAPERS_WAY | {("kmeans", 22): 5.0})))["V4"] == HOLDS


def test_what_cannot_be_decided_says_why():
    few = list(judge(tables(PAPERS_WAY, backbones=1)))
    assert set(verdicts(few).values()) == {NOT_TESTED}
    assert "manual-273: 3 runs on 1 backbones, needs 6 on 2" in of(few, "V1")[0].why
    some = {key: PAPERS_WAY[key] for key in PAPERS_WAY if key[0] == "manual" or key == ("kmeans", 22)}
    found = list(judge(tables(some)))
    assert verdicts(found) == {"V1": HOLDS, "V3": NOT_TESTED, "V4": NOT_TESTED, "V7": NOT_TESTED}
    assert of(found, "V3")[0].why == "no label space of random IDs"
    assert of(found, "V4")[0].why == "both were run with as many classes 0 times, 2 are needed"
    assert "another data set" in of(found, "V7")[0].why
    best = of(list(judge(tables(PAPERS_WAY, spread=0))), "V1")[1]
    assert (best.verdict, best.why) == (NOT_TESTED, "no spread between runs")


def test_every_condition_is_judged_by_itself():
    both = joined(tables(PAPERS_WAY, "train-300"), tables(PAPERS_WAY | {("random", 22): 5.0}, "train-900"))
    (one, other) = of(list(judge(both)), "V3")
    assert (one.verdict, other.verdict) == (HOLDS, FAILS) and other.quantity.startswith("train-900: ")


def test_networks_are_judged_apart_and_only_on_the_images_they_were_pretrained_on():
    ours, other = tables(PAPERS_WAY), tables(PAPERS_WAY | {("random", 22): 5.0}, network="other")
    elsewhere = tables(PAPERS_WAY | {("random", 22): 1.0}, "another-data-set", transfer="there")
    elsewhere["pretrain/runs.parquet"] = elsewhere["pretrain/runs.parquet"].iloc[:0]
    other["samples"] = other["samples"].iloc[:0]
    found = of(list(judge(joined(ours, other, elsewhere))), "V3")
    assert [claim.quantity.partition(":")[0] for claim in found] == ["train-all, net", "train-all, other"]
    assert [claim.verdict for claim in found] == [HOLDS, FAILS]
