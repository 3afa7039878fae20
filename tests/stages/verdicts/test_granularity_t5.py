"""The claims of Table 5, on runs whose verdicts are known."""

import math

import pytest

from granularity.claims.claim import FAILS, HOLDS, NOT_TESTED, REPORTED, verdicts
from granularity.stages.verdicts.studies.granularity_t5 import judge
from support.arm_tables import joined, tables

# error of each arm: (family, granularity) -> mean
PAPERS_WAY = {
    ("manual", 11): 5.2,
    ("manual", 273): 4.8,
    ("manual", 1103): 4.77,
    ("random", 22): 6.6,
    ("random", 352): 6.1,
    ("manual", 4884): 4.9,
    ("kmeans_superclass", 22): 5.1,
    ("kmeans_superclass", 351): 5.2,  # a cluster was empty
    ("rebalanced", 320): 5.25,
    ("kmeans", 22): 5.5,
    ("kmeans", 352): 5.4,
}


def of(found, id):
    return [claim for claim in found if claim.id == id]


def test_the_papers_own_numbers_hold():
    found = list(judge(tables(PAPERS_WAY, source="inaturalist")))
    assert verdicts(found) == dict.fromkeys(("V1", "V2", "V3", "V4", "V5", "V6", "V7"), HOLDS)
    assert all(claim.source and claim.reason for claim in found if claim.verdict != REPORTED)
    fine, interval = of(found, "V1")
    assert fine.values == pytest.approx([-0.4, -0.43, -0.3]) and fine.seeds == 18
    assert fine.published == pytest.approx([-0.42, -0.46, -0.43])
    assert -0.43 < interval.values[0] < -0.4
    (random,) = of(found, "V3")
    assert random.values == pytest.approx([1.4, 0.9]) and min(random.published) == pytest.approx(0.85)
    reversed_, differences = of(found, "V4")
    assert list(reversed_.values) == [0] and reversed_.published == [0]
    assert differences.values == pytest.approx([-0.4, -0.2]) and len(differences.published) == 6
    left, right = of(found, "V2")
    assert left.published == pytest.approx([9.57], abs=0.01) and right.published == pytest.approx([1.27], abs=0.01)
    assert left.values == pytest.approx([0.43 / math.sqrt(0.01**2 * 4 / 5)])  # six runs, four of them off by 0.01
    (human,) = of(found, "V5")
    assert human.values == pytest.approx([-0.4, -0.6]) and max(human.published) < 0 and len(human.published) == 8
    (even,) = of(found, "V6")
    assert even.values == pytest.approx([0.05]) and max(even.published) < 0.1
    (gain,) = of(found, "V7")
    assert gain.values == pytest.approx([100 * 0.43 / 5.2]) and gain.published == pytest.approx([8.76], abs=0.01)


@pytest.mark.parametrize(
    ("id", "changed"),
    [
        ("V1", {("manual", 273): 5.2}),  # as good as the baseline is not better
        (
            "V1",
            {("manual", 273): 5.199, ("manual", 1103): 5.198, ("manual", 4884): 5.2 - 1e-6},
        ),  # better, by less than its interval
        ("V2", {("manual", 4884): 4.785}),  # above the best, by less than two standard deviations
        ("V2", {("manual", 1103): 5.0, ("manual", 273): 5.1}),  # the finest is the best
        ("V3", {("random", 352): 5.0}),
        ("V3", {("random_instance", 500_000): 5.0}),
        ("V5", {("kmeans", 352): 4.7}),
        ("V6", {("rebalanced", 320): 5.31}),
        ("V4", {("kmeans_superclass", 22): 5.6, ("kmeans_superclass", 351): 5.4}),
    ],
)
def test_a_claim_that_is_not_so_fails(id, changed):
    assert verdicts(judge(tables(PAPERS_WAY | changed, source="inaturalist")))[id] == FAILS


def test_one_reversal_is_within_the_noise():
    assert verdicts(judge(tables(PAPERS_WAY | {("kmeans", 22): 5.0})))["V4"] == HOLDS


def test_what_cannot_be_decided_says_why():
    few = list(judge(tables(PAPERS_WAY, backbones=1)))
    assert set(verdicts(few).values()) == {NOT_TESTED}
    assert "manual-273: 3 runs on 1 backbones, needs 6 on 2" in of(few, "V1")[0].why
    assert of(few, "V2")[0].why == of(few, "V1")[0].why
    some = {key: PAPERS_WAY[key] for key in PAPERS_WAY if key[0] == "manual" or key == ("kmeans", 22)}
    found = list(judge(tables(some)))
    assert verdicts(found) == {"V1": HOLDS, "V2": HOLDS} | dict.fromkeys(("V3", "V4", "V5", "V6", "V7"), NOT_TESTED)
    assert of(found, "V5")[0].why.startswith("no human rank finer than the target with k-means clusters")
    assert of(found, "V6")[0].why.startswith("another data set")
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


def test_without_a_baseline_nothing_is_tested_and_every_claim_says_so():
    found = list(judge(tables({("manual", 273): 4.8, ("random", 22): 5.0})))
    assert set(verdicts(found).values()) == {NOT_TESTED} and len(verdicts(found)) == 7
    assert of(found, "V1")[0].why.startswith("no baseline") and of(found, "V1")[0].values == []
    nowhere = tables(PAPERS_WAY)
    nowhere["pretrain/runs.parquet"] = nowhere["pretrain/runs.parquet"].iloc[:0]
    assert set(verdicts(judge(nowhere)).values()) == {NOT_TESTED}


def test_networks_without_a_baseline_join_those_of_their_architecture():
    """But not finetunings from an earlier epoch of the pretraining."""
    base = tables({key: PAPERS_WAY[key] for key in PAPERS_WAY if key[0] == "manual"}, network="ranks")
    ids = tables({("random", 22): 6.0}, network="ids")
    again = tables({("random", 22): 5.0}, network="again")  # another recipe on the same label space
    other = tables({("random", 44): 6.0}, network="other", architecture="another")
    early = tables({("random", 22): 1.0}, network="ids", transfer="early", from_epoch=3)
    joint, alone, _ = of(list(judge(joined(base, ids, other, early, again))), "V3")
    assert joint.values == pytest.approx([0.8]) and joint.verdict == HOLDS
    assert alone.verdict == NOT_TESTED and alone.why.startswith("no baseline")
