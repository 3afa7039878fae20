"""The claims about images, on runs whose verdicts are known."""

import pytest

from granularity.claims import statistics
from granularity.claims.claim import FAILS, HOLDS, NOT_SIGNIFICANT, NOT_TESTED, REPORTED, verdicts
from granularity.stages.verdicts.studies import _granularity
from support.arm_tables import joined, tables

STUDIES = _granularity.SEVERAL
# error of each arm: (family, granularity) -> mean
PAPERS_WAY = {
    ("manual", 11): 5.2,
    ("manual", 273): 4.8,
    ("manual", 1103): 4.77,
    ("manual", 4884): 4.9,
    ("random", 22): 6.6,
    ("random", 352): 6.1,
    ("kmeans_superclass", 22): 5.1,
    ("kmeans_superclass", 351): 5.2,  # a cluster was empty
    ("rebalanced", 320): 5.25,
    ("kmeans", 22): 5.5,
    ("kmeans", 352): 5.4,
}
INAT = {"source": "inaturalist", "architecture": "resnet34"}
LEVELS = {("wordnet", 38): 7.5, ("wordnet", 519): 7.0, ("wordnet", 2281): 6.6, ("wordnet", 21843): 6.5}
RANKS = {("manual", 13): 5.4, ("manual", 273): 4.8, ("manual", 1103): 4.7}
CLASSES = {("manual", 1000): 23.28, ("kmeans_superclass", 2000): 23.4, ("random_superclass", 2000): 23.2}
BOTH = RANKS | {("manual", 11): 5.2, ("random", 22): 5.9}


def judged(study, found):
    """A study's claims, and their one verdict."""
    claims = list(STUDIES[f"granularity_{study}"].judge(found))
    return claims, *verdicts(claims).values()


def of_id(found, id):
    return [claim for claim in found if claim.id == id]


# ---------------------------------------------------------------- the rule


def test_the_papers_way_holds_and_every_judged_row_says_why_its_band_is_there():
    found = STUDIES["granularity_t5"].judge(tables(PAPERS_WAY, **INAT))
    assert verdicts(found) == dict.fromkeys(("V1", "V2", "V3", "V4", "V5", "V6", "V7"), HOLDS)
    assert all(claim.source and claim.reason for claim in found if claim.verdict != REPORTED)
    mean, contradictions, each = of_id(found, "V1")
    assert sum(mean.values) / 6 == pytest.approx((-0.4 - 0.43 - 0.3) / 3) and mean.seeds is None
    assert mean.interval[0] < sum(mean.values) / 6 < mean.interval[1] < 0
    assert list(contradictions.values) == [0] and each.values == pytest.approx([-0.4, -0.43, -0.3])
    assert each.published == pytest.approx([-0.15, -0.42, -0.46, -0.43, -0.41])
    assert mean.interval == statistics.interval(*statistics.mean_of(mean.values), 8)  # all spaces with a meaning
    both = STUDIES["granularity_t5"].judge(joined(tables(PAPERS_WAY, "train-300"), tables(PAPERS_WAY, "train-900")))
    assert [claim.comparisons for claim in of_id(both, "V1") if claim.judged == "interval"] == [16, 16]
    assert [claim.comparisons for claim in of_id(both, "V3") if claim.judged == "interval"] == [6, 6]  # and one pass
    odd = tables(PAPERS_WAY | {("manual", 273): 5.233}, **INAT)
    more = joined(odd, *(tables(PAPERS_WAY, f"train-{images}") for images in range(5)))
    counts = [of_id(STUDIES["granularity_t5"].judge(one), "V1")[1].values for one in (odd, more)]
    assert counts == [[1], [0]]  # one rank contradicts it, unless the interval is corrected for six conditions
    left, right = of_id(found, "V2")
    assert sum(left.values) / 6 == pytest.approx(-0.43) and sum(right.values) / 6 == pytest.approx(-0.13)
    assert left.comparisons == 4  # two ends, and two ranks in between of which the best is taken
    (even, *_) = of_id(found, "V6")  # one pair, between G = 22 and 351
    assert 0.05 < sum(even.values) / 6 < 0.06 and even.published == pytest.approx([0.0237], abs=1e-3)
    (gain,) = of_id(found, "V7")
    assert gain.values == pytest.approx([100 * 0.43 / 5.2]) and gain.published == pytest.approx([8.76], abs=0.01)


@pytest.mark.parametrize(
    ("id", "changed", "verdict"),
    [
        ("V1", dict.fromkeys([("manual", 273), ("manual", 1103), ("manual", 4884)], 5.2), NOT_SIGNIFICANT),
        ("V1", dict.fromkeys([("manual", 273), ("manual", 1103), ("manual", 4884)], 5.3), FAILS),
        ("V1", {("manual", 4884): 5.3}, FAILS),  # better on average, but one rank is worse
        ("V1", {("manual", 13): 5.4}, HOLDS),  # hardly finer than 11, and not judged
        ("V2", {("manual", 4884): 4.77}, NOT_SIGNIFICANT),
        ("V2", {("manual", 1103): 5.0, ("manual", 273): 5.1}, FAILS),  # the finest is the best
        ("V3", {("random", 352): 5.0}, FAILS),
        ("V3", {("random_instance", 500_000): 5.2}, HOLDS),
        ("V4", {("kmeans", 22): 5.0}, FAILS),
        ("V5", {("kmeans", 352): 4.7}, FAILS),
        ("V6", {("rebalanced", 320): 5.5}, FAILS),
        ("V6", {("rebalanced", 320): 5.294}, NOT_SIGNIFICANT),
        ("V7", {("manual", 1103): 4.2}, FAILS),
    ],
)
def test_a_claim_that_is_not_so_fails_or_is_not_significant(id, changed, verdict):
    assert verdicts(STUDIES["granularity_t5"].judge(tables(PAPERS_WAY | changed, **INAT)))[id] == verdict


def test_what_cannot_be_decided_says_why():
    few = STUDIES["granularity_t5"].judge(tables(PAPERS_WAY, backbones=1))
    assert set(verdicts(few).values()) == {NOT_TESTED}
    assert of_id(few, "V1")[0].why.startswith("no interval")
    some = {key: PAPERS_WAY[key] for key in PAPERS_WAY if key[0] == "manual" or key == ("kmeans", 22)}
    found = STUDIES["granularity_t5"].judge(tables(some))
    assert verdicts(found) == {"V1": HOLDS, "V2": HOLDS} | dict.fromkeys(("V3", "V4", "V5", "V6", "V7"), NOT_TESTED)
    for id, why in (
        ("V3", "no label space of random IDs"),
        ("V4", "both were run with as many classes 0 times, 2 are needed"),
        ("V5", "no human rank finer than the target with k-means clusters"),
        ("V6", "another data set"),
        ("V7", "another data set"),
    ):
        assert of_id(found, id)[0].why.startswith(why)


def test_without_a_baseline_or_results_nothing_is_tested_and_every_claim_says_so():
    found = STUDIES["granularity_t5"].judge(tables({("manual", 273): 4.8, ("random", 22): 5.0}))
    assert set(verdicts(found).values()) == {NOT_TESTED} and len(verdicts(found)) == 7
    assert of_id(found, "V1")[0].why.startswith("no baseline") and of_id(found, "V1")[0].values == []
    none = {name: table.iloc[:0] for name, table in tables({("manual", 11): 5.0}).items()}
    claims = [one for study in STUDIES.values() for one in study.judge(none)]
    assert set(verdicts(claims)) == {f"V{number}" for number in range(1, 14)}
    assert {claim.verdict for claim in claims} == {NOT_TESTED} and all(claim.why for claim in claims)


def test_networks_without_a_baseline_join_those_of_their_architecture():
    """But not finetunings from an earlier epoch of the pretraining."""
    base = tables({key: PAPERS_WAY[key] for key in PAPERS_WAY if key[0] == "manual"}, network="ranks")
    ids = tables({("random", 22): 6.0}, network="ids")
    again = tables({("random", 22): 5.0}, network="again")  # another recipe on the same label space
    other = tables({("random", 44): 6.0}, network="other", architecture="another")
    early = tables({("random", 22): 1.0}, network="ids", transfer="early", from_epoch=3)
    joint, alone, _ = of_id(STUDIES["granularity_t5"].judge(joined(base, ids, other, early, again)), "V3")
    assert sum(joint.values) / 6 == pytest.approx(0.8) and joint.verdict == HOLDS
    assert alone.verdict == NOT_TESTED and alone.why.startswith("no baseline")


# ---------------------------------------------------------------- the other tables


def imagenet(errors, images=1_281_167):
    return tables(errors, source="imagenet", classes=1000, images=images)


def test_labels_finer_than_the_images_allow_do_not_help():
    (mean, _, each), found = judged("t9", imagenet(CLASSES))
    assert found == HOLDS and each.values == pytest.approx([0.12, -0.08]) and sum(mean.values) / 6 > 0
    assert sorted(each.published) == pytest.approx([0.12] * 4 + [0.19, 0.2, 0.21, 0.37, 0.5])
    assert judged("t9", imagenet(CLASSES | {("kmeans_superclass", 4000): 23.1}))[1] == FAILS
    for made, why in (
        (tables(CLASSES, classes=1000), "another data set"),
        (imagenet(CLASSES, images=100_000), "another data set"),  # of which a hundred images per class are another one
        (imagenet({("manual", 1000): 23.0}), "no label space of labels within the target's classes"),
        (imagenet({("kmeans_superclass", 2000): 23.0}), "no baseline"),
    ):
        claims, found = judged("t9", made)
        assert found == NOT_TESTED and claims[0].why.startswith(why)


def living(errors, full=True, **more):
    return tables(errors, source="imagenet21k" if full else "parquet", classes=2, **more)


def test_leaves_help_more_than_coarse_levels_each_at_its_best():
    base, single = {("manual", 2): 7.9}, {"backbones": 1, "runs": 1}
    twice = joined(living(base | LEVELS, transfer="a"), living({key: 9.0 for key in base | LEVELS}, transfer="b"))
    (leaves, ends), found = judged("t2", twice)
    assert found == HOLDS and sum(leaves.values) / 6 == pytest.approx(-1.4) and sum(ends.values) / 6 == pytest.approx(1)
    assert leaves.published == pytest.approx([-1.34]) and ends.published == pytest.approx([0.99])
    assert judged("t2", living(base | LEVELS | {("wordnet", 38): 6.4}))[1] == FAILS
    ranks = {("manual", size): error for (_, size), error in LEVELS.items()}
    assert judged("t2", living(base | ranks))[1] == HOLDS
    # Of the paper's own data one run of each arm is enough, and takes a margin.
    assert judged("t2", living(base | LEVELS, **single))[1] == HOLDS
    assert judged("t2", living({("manual", 2): 7.4} | LEVELS, **single))[1] == FAILS
    assert judged("t2", living(base | LEVELS, False, **single))[1] == NOT_TESTED
    for made, why in (
        (living({("manual", 2): 7.9, ("wordnet", 38): 7.0}), "1 WordNet levels or human ranks, needs 2"),
        (living(LEVELS), "no baseline"),
    ):
        claims, found = judged("t2", made)
        assert found == NOT_TESTED and claims[0].why.startswith(why)


def there(errors, transfer, **more):
    return tables(errors, "data-there", pretrained_on="train-all", transfer=transfer, **more)


def moved(errors, slope):
    return {key: 20 + slope * (error - 6.5) for key, error in errors.items()}


def test_accuracy_elsewhere_falls_from_level_to_level_and_more_for_probes():
    tuned, probed = there(moved(LEVELS, 5), "r5"), there(moved(LEVELS, 9), "r6", head_alone=True)
    worse = there(moved(LEVELS, 50), "r5_lr-1")  # another learning rate, worse for every level
    claims, found = judged("t3", joined(tuned, probed, worse))
    assert found == HOLDS and [sum(one.values) / len(one.values) for one in claims] == pytest.approx([5, 0, 9, 0, 4])
    assert [one.published for one in claims] == [pytest.approx([value]) for value in (9.76, 0, 24.1, 0, 14.34)]
    leaf = {("wordnet", 21843): LEVELS["wordnet", 21843]}
    ends = there(moved(leaf, 5), "r5", network="ends")
    levels = there(moved({key: LEVELS[key] for key in LEVELS if key not in leaf}, 5), "r5", network="levels")
    assert next(iter(STUDIES["granularity_t3"].judge(joined(levels, ends)))).values == pytest.approx(claims[0].values)
    inverted = there(moved(LEVELS, 5) | {("wordnet", 2281): 20 - 0.1}, "r5")
    assert judged("t3", joined(inverted, probed))[1] == FAILS
    slightly = there(moved(LEVELS, 5) | {("wordnet", 2281): 20 - 0.001}, "r5")
    assert judged("t3", joined(slightly, probed))[1] == HOLDS
    assert judged("t3", joined(tuned, there(moved(LEVELS, 3), "r6", head_alone=True)))[1] == FAILS
    claims, found = judged("t3", tables(LEVELS))
    assert found == NOT_TESTED and claims[0].quantity.startswith("no transfer to another data set")
    assert claims[0].why == "0 WordNet levels or human ranks finetuned on another data set, needs 2"
    claims, found = judged("t3", tuned)
    assert found == HOLDS and {claim.verdict for claim in claims[2:]} == {NOT_TESTED}  # finetuned, and not probed


def test_two_passes_are_better_than_one():
    (claim,), found = judged("one_pass", tables({("manual", 11): 5.2}, one_pass=5.9))
    assert found == HOLDS and sum(claim.values) / 6 == pytest.approx(0.7)
    assert judged("one_pass", tables({("manual", 11): 5.2}, one_pass=5.2))[1] == NOT_SIGNIFICANT
    assert judged("one_pass", tables({("manual", 11): 5.2}, one_pass=5.1))[1] == FAILS
    single = {"backbones": 1, "runs": 1}
    for made, verdict in (
        (living({("manual", 2): 7.9}, one_pass=8.25, **single), HOLDS),
        (living({("manual", 2): 7.9}, one_pass=7.95, **single), FAILS),
        (tables({("manual", 11): 5.2}, **single), NOT_TESTED),
        (tables({("manual", 273): 5.2}), NOT_TESTED),
    ):
        assert judged("one_pass", made)[1] == verdict


def epochs(early=0.1, late=0.03, source="inaturalist", **more):
    ranks = RANKS | {("manual", 11): 5.2}  # a baseline, whose one pass is no arm of these

    def moved_by(difference, **columns):
        errors = {key: error + difference for key, error in ranks.items()}
        return tables(errors, source=source, one_pass=5.9, **columns, **more)

    kept = [moved_by(early, from_epoch=50, transfer="50"), moved_by(late, from_epoch=70, transfer="70")]
    return joined(moved_by(0), *kept)


def test_an_earlier_epoch_is_as_good_and_a_much_earlier_one_worse():
    claims, found = judged("t6", epochs())
    fifty, _, _, seventy, _, _ = claims
    assert (
        found == HOLDS
        and sum(fifty.values) / 6 == pytest.approx(0.1)
        and sum(seventy.values) / 6 == pytest.approx(0.03)
    )
    assert judged("t6", epochs(early=-0.1))[1] == judged("t6", epochs(late=0.2))[1] == FAILS
    assert judged("t6", epochs(late=0.05))[1] == NOT_SIGNIFICANT
    half = epochs(source="parquet", epochs=180)  # epochs 50 and 70 of 180 are others
    assert {claim.verdict for claim in STUDIES["granularity_t6"].judge(half)} == {NOT_TESTED}
    (fifty, *_, seventy), found = judged("t6", epochs(source="parquet"))
    assert (fifty.verdict, seventy.verdict, found) == (HOLDS, NOT_TESTED, HOLDS) and "another data set" in seventy.why
    claims, found = judged("t6", tables(RANKS))
    assert found == NOT_TESTED and claims[0].why.startswith("no human rank finetuned from epoch 50")


def test_it_holds_on_another_architecture():
    one = tables(BOTH, network="one", architecture="resnet34")
    other = {"network": "two", "architecture": "resnet50"}
    claims, found = judged("t7", joined(one, tables(BOTH | {("manual", 13): 5.1}, **other)))
    assert found == FAILS and "resnet50" in claims[-1].quantity  # rank 13 of the first is worse than the baseline
    ranks = {("manual", 13): 5.1}
    both = joined(tables(BOTH | ranks, network="one", architecture="resnet34"), tables(BOTH | ranks, **other))
    assert judged("t7", both)[1] == HOLDS
    for changed in ({("random", 22): 5.1}, dict.fromkeys(RANKS, 5.3)):
        assert judged("t7", joined(one, tables(BOTH | changed, **other)))[1] == FAILS
    claims, found = judged("t7", one)
    assert found == NOT_TESTED and claims[0].why == "baselines of 1 architectures, needs 2"
    assert judged("t7", tables(BOTH | ranks, source="inaturalist", **other))[1] == HOLDS
