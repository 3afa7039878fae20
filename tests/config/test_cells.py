"""A study: one configuration for each draw and each combination of the values of its axes."""

import json

import pandas as pd
import pytest

from granularity.base.errors import GranularityError
from granularity.config import files
from granularity.config.cells import COLUMNS, cells
from granularity.plan.graph import plans
from granularity.stages.gather import predictions, tables
from granularity.stages.report.comparisons import DIFFERENCE

AXES = {"pretrain.lr": [0.1, 0.3], "conditions.0.train_size": [300, 600]}
SMALL = {"name": "s", "conditions": [{"train_size": 300}], "label_spaces": {"random": [10]}}


def made(**values):
    return cells(files.validate(SMALL | values))


def test_axes_are_crossed_and_draws_have_base_seeds_of_their_own():
    found = made(axes=AXES, seeds={"draws": 2, "base": 7})
    assert [one.name for one in found][:3] == [
        "lr-0.1_train_size-300_draw-0",
        "lr-0.1_train_size-300_draw-1",
        "lr-0.1_train_size-600_draw-0",
    ]
    assert len(found) == 8
    last = found[-1]
    assert last.config.name == f"s/{last.name}" and last.config.seeds.base == 8
    assert last.values == {"pretrain.lr": 0.3, "conditions.0.train_size": 600, "draw": 1}
    assert (last.config.pretrain.lr, last.config.conditions[0].train_size) == (0.3, 600)
    assert last.config.finetune.lr == 0.3  # which is as pretrain, but for what it says itself


def test_a_value_of_an_axis_may_set_several_keys():
    few = {"conditions.0.train_size": 200, "pretrain.batch_size": 20}
    found = made(axes={"images": {"few": few, "many": {}}, "pretrain.lr": [0.1, 0.3]})
    assert [one.name for one in found] == [f"images-{one}_lr-{lr}" for one in ("few", "many") for lr in (0.1, 0.3)]
    assert found[0].values == {"images": "few", "pretrain.lr": 0.1, "draw": 0}
    assert (found[0].config.conditions[0].train_size, found[0].config.pretrain.batch_size) == (200, 20)
    assert found[2].config.conditions[0].train_size == 300


def test_no_axis_is_called_as_a_column_of_the_studys_tables():
    assert {*tables.DTYPES, *tables.OF_ONE, *DIFFERENCE} <= {*COLUMNS}


def test_power_is_of_draws_in_a_study_of_draws():
    power = {"arm": "manual-digit", "smallest": 0.5, "spread": 0.4}
    one = {"conditions": [{"train_size": 300, "primary": [power]}], "label_spaces": {"manual": ["digit"]}}
    for backbones, enough in ((1, 9), (32, 3)):
        for cell in made(**one, seeds={"draws": enough, "pretrain": backbones}):
            assert cell.config.conditions[0].primary[0].smallest is None
        with pytest.raises(GranularityError, match=rf"at least {enough} draws with {backbones} .*, not {enough - 1};"):
            made(**one, seeds={"draws": enough - 1, "pretrain": backbones})


MISTAKES = [
    ({"images": {"few": {"seeds.draws": 2}}}, {}, "axes.seeds.draws: belongs to the study as a whole"),
    ({"images": {"few": {"pretrain.lrr": 2}}}, {}, "axes: cell images-few: pretrain.lrr = 2: unknown key"),
    ({"networks.0.keep": [[1]]}, {}, "axes.networks.0.keep: `networks` is no list; write the list into"),
    ({"pretrain.lrr": [1]}, {}, "axes: cell lrr-1: pretrain.lrr = 1: unknown key"),
    ({"pretrain.lr": [0.1, 0.1]}, {}, "axes.pretrain.lr: a value is given twice: [0.1, 0.1]"),
    ({"conditions.3.train_size": [40]}, {}, "axes.conditions.3.train_size: there is no such key"),
    ({"name": ["a", "b"]}, {}, "axes.name: belongs to the study as a whole"),
    ({"seeds.base": [1, 2]}, {"draws": 2}, "axes.seeds.base: seeds.draws = 2 sets base seeds itself"),
    ({"pretrain.batch_size": [4000]}, {}, "axes: cell batch_size-4000: pretrain.batch_size: 4000 is more than the 300"),
    ({"report.title": ["a b", "a-b"]}, {}, "axes: two cells would be named title-a-b"),
    (
        {"pretrain.lr": [0.1, 0.3], "schedule": {"short": {"pretrain": {"lr": 0.05}}, "long": {}}},
        {},
        "axes.schedule: sets pretrain, and the axis pretrain.lr sets pretrain.lr",
    ),
    ({"network": {"a": {}, "b": {}}}, {}, "axes.network: is a column of the study's tables; choose another name"),
    ({"draw": {"a": {}, "b": {}}}, {}, "axes.draw: is a column of the study's tables"),
]


SPACES = {"manual": ["digit"], "random": [10]}
KINDS = {
    "label_spaces": SPACES,
    "conditions": [{"train_size": 900, "merged": ["manual-digit"]}, {"train_size": 300, "spaces": ["random-10"]}],
    "axes": {"pretrain.weight_decay": [0, 0.0005], "conditions.1.train_size": [300, 600]},
    "networks": [{"name": "plain"}, {"name": "masked", "objective": {"name": "mask"}}],
    "measures": [{"name": "probe"}, {"name": "apart", "measure": "probe", "splits": ["train", "other"]}],
    "samples": {"extra_splits": ["other"]},
}
AT_900, AT_300 = {"condition": "train-900"}, {"condition": "train-300"}
REFUSED = [
    ({}, "predictions.p.arm"),
    ({"arm": "random-7"}, "p: there is no arm 'random-7'; there are plain/target"),
    ({"arm": "random-10"}, "p: where: its arms are in several conditions, train-300, train-600, train-900; name one, "),
    ({"arm": "random-10", "where": {"conditions.1.train_size": 300}}, "several conditions, train-300, train-900; name"),
    ({"arm": "manual-digit", "where": AT_300}, "there is no arm 'manual-digit'; there are plain/target, plain/random-"),
    ({"arm": "plain_merged/random-10", "where": AT_900}, "there is no arm 'plain_merged/random-10'; there are plain/"),
    ({"arm": "masked/random-10", "where": AT_900}, "there is no arm 'masked/random-10'; there are plain/target"),
    ({"arm": "random-10", "where": {"pretrain.weight_decay": 0.2}}, "where: no cell has pretrain.weight_decay = 0.2; "),
    (
        {"arm": "random-10", "where": AT_300 | {"conditions.1.train_size": 600}},
        "where: no cell has conditions.1.train_size = 600; there are 300",
    ),
    ({"arm": "random-10", "lo": 1}, "predictions.p.lo = 1: unknown key; did you mean 'low'?"),
    ({"arm": "random-10", "where": AT_300, "transfer": "head"}, "p: transfer: must be one of target, not 'head'"),
    ({"arm": "random-10", "low": 2}, "predictions.p.low: 2.0 is not below high = 1.0"),
    (
        {"arm": "random-10", "where": AT_300, "measure": "prob/loops/knn"},
        "p: measure: 'prob' is not measured; measures are probe, apart",
    ),
    (
        {"arm": "random-10", "where": AT_300, "measure": "apart/loops/knn"},
        "p: measure: measure 'apart' on one split or on 'val' too, not on train, other",
    ),
    ({"arm": "random-10", "where": AT_300 | {"conditions.1.train_size": 300, "pretrain.weight_decay": 0}}, None),
    ({"arm": "plain_merged/manual-digit", "where": AT_900}, None),
    ({"arm": "masked/mask", "where": AT_300}, None),
]


@pytest.mark.parametrize(("said", "words"), REFUSED, ids=[str(said) for said, _ in REFUSED])
def test_predictions_of_what_is_not_planned_are_refused(said, words, tmp_path):
    file = tmp_path / "said.yaml"
    file.write_text(json.dumps({"question": "?", "predictions": {"p": {"low": 0, "high": 1} | said}}))
    study = files.validate(SMALL | KINDS | {"predictions": str(file)})
    if words is None:
        assert plans(study)
        return
    with pytest.raises(GranularityError) as caught:
        plans(study)
    assert words in caught.value.args[0]


def test_a_prediction_may_not_compare_errors_on_two_targets(tmp_path):
    file = tmp_path / "said.yaml"
    merged = {"label_spaces": {"manual": ["digit"]}, "conditions": [{"train_size": 300, "merged": ["manual-digit"]}]}
    elsewhere = {"name": "elsewhere", "data": {"samples": {"source": "digits"}, "train_size": 300}}
    study = SMALL | merged | {"seeds": {"draws": 2}, "predictions": str(file)}
    study["transfers"] = [{"name": "own"}, elsewhere]
    arm = {"arm": "resnet18_merged/manual-digit", "against": "manual-digit", "low": 0, "high": 1}

    def planned(transfer):
        file.write_text(json.dumps({"question": "?", "predictions": {"p": arm | {"transfer": transfer}}}))
        return plans(files.validate(study))

    assert len(planned("own")) == 3
    with pytest.raises(GranularityError, match="'elsewhere' does not finetune resnet18_merged, whose error is on ano"):
        planned("elsewhere")


RATES = [("train-900", 0.0, 5.0, 0.0), ("train-900", 0.0005, 5.0, 2.0), ("train-300", 0.0, 20.0, 13.0)]


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ({"pretrain.weight_decay": 0, "condition": "train-900"}, -5.0),
        ({"pretrain.weight_decay": 0.0005}, -3.0),
        ({"condition": "train-300", "pretrain.weight_decay": "0.0"}, -7.0),
        ({"condition": "train-300", "pretrain.weight_decay": 0.0005}, None),  # which was not run
        ({}, "p: where: its arms are in several conditions, train-300, train-900; name one"),
        ({"pretrain.weight_decay": 1}, "p: where: no cell has pretrain.weight_decay = 1; there are 0.0, 0.0005"),
    ],
)
def test_a_prediction_is_judged_on_its_cells_and_condition(where, found):
    rows = [
        row
        for condition, decay, *two in RATES
        for row in ((condition, decay, "target", two[0]), (condition, decay, "a", two[1]))
    ]
    runs = pd.DataFrame(rows, columns=["condition", "pretrain.weight_decay", "space", "value"])
    runs = pd.concat([runs.assign(draw=draw) for draw in (0, 1)], ignore_index=True)
    runs = runs.assign(measure="val_error", network="net", stage="pretrain")
    said = {"question": "?", "predictions": {"p": {"arm": "a", "low": -10, "high": 0, "where": where}}}

    def judged():
        return predictions.judged(predictions.Predictions.model_validate(said), runs, ["net"]).loc[0]

    if isinstance(found, str):
        with pytest.raises(GranularityError, match=found):
            judged()
    else:
        assert judged()["difference"] == found if found else not judged()["draws"]


def test_arms_of_a_prediction_are_compared_within_their_cells():
    rows = [("few", "target", 10.0), ("many", "target", 20.0), ("many", "a", 20.1)]  # `a` was not made of few
    runs = pd.DataFrame(rows, columns=["size", "space", "value"]).assign(
        measure="val_error", network="net", stage="pretrain", condition="train-300"
    )
    runs = pd.concat([runs.assign(draw=draw) for draw in (0, 1)], ignore_index=True)
    said = {"question": "?", "predictions": {"p": {"arm": "a", "low": 0, "high": 1}}}
    found = predictions.judged(predictions.Predictions.model_validate(said), runs, ["net"]).loc[0]
    assert found["difference"] == pytest.approx(0.1) and found["draws"] == 2


def test_a_prediction_is_judged_on_its_transfer():
    rows = [("finetune", "own", "target", 9.0), ("finetune", "own", "a", 7.0), ("finetune", "other", "target", 50.0)]
    rows += [("finetune", "other", "a", 45.0), ("pretrain", None, "a", 7.5)]
    runs = pd.DataFrame(rows, columns=["stage", "transfer", "space", "value"]).assign(
        measure="val_error", network="net", condition="train-300"
    )
    runs = pd.concat([runs.assign(draw=draw) for draw in (0, 1)], ignore_index=True)
    asked = {"arm": "a", "low": -10, "high": 0}
    said = {"question": "?", "predictions": {name: asked | {"transfer": name} for name in ("own", "other")}}
    found = predictions.judged(predictions.Predictions.model_validate(said), runs, ["net"])
    assert found["difference"].tolist() == [-2, -5]


def test_a_prediction_is_of_cells_that_finetune_or_of_cells_that_do_not(tmp_path):
    rows = [("tuned", "finetune", "target", 9.0), ("tuned", "finetune", "a", 7.0), ("tuned", "pretrain", "a", 30.0)]
    rows += [("alone", "pretrain", "target", 10.0), ("alone", "pretrain", "a", 6.0)]
    runs = pd.DataFrame(rows, columns=["cell", "stage", "space", "value"]).assign(
        measure="val_error", network="net", condition="train-300"
    )
    runs = pd.concat([runs.assign(draw=draw) for draw in (0, 1)], ignore_index=True)
    asked = {name: {"arm": "a", "low": -10, "high": 0, "where": {"cell": name}} for name in ("tuned", "alone")}
    said = predictions.Predictions.model_validate({"question": "?", "predictions": asked})
    assert predictions.judged(said, runs, ["net"])["difference"].tolist() == [-2, -4]

    file, ways = tmp_path / "said.yaml", {"tuned": [{"name": "whole"}], "alone": [{"name": "whole", "of": []}]}
    study = {"label_spaces": {"random": [4]}, "conditions": [{"train_size": 300}], "predictions": str(file)}
    study["axes"] = {"cell": {name: {"transfers": of} for name, of in ways.items()}}
    for more in ({"where": {"cell": "alone"}}, {"measure": "probe/loops/linear"}, {}):  # a measure is of pretraining
        asked = {"p": {"arm": "random-4", "low": 0, "high": 1} | more}
        file.write_text(json.dumps({"question": "?", "predictions": asked}))
        if more:
            assert plans(files.validate(SMALL | study))
    with pytest.raises(GranularityError, match="p: where: resnet18 is finetuned in some of these cells only"):
        plans(files.validate(SMALL | study))


@pytest.mark.parametrize(("axes", "seeds", "words"), MISTAKES, ids=[str(axes) for axes, _, _ in MISTAKES])
def test_what_makes_no_cells_is_one_line(axes, seeds, words):
    with pytest.raises(GranularityError) as caught:
        made(axes=axes, seeds=seeds)
    assert caught.value.args[0].startswith(words)
