"""A study: one configuration for each draw and each combination of the values of its axes."""

import json

import pandas as pd
import pytest

from granularity.base.errors import GranularityError
from granularity.config import files
from granularity.config.cells import cells
from granularity.stages.gather import predictions

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


MISTAKES = [
    ({"images": {"few": {"seeds.draws": 2}}}, {}, "axes.seeds.draws: belongs to the study as a whole"),
    ({"images": {"few": {"pretrain.lrr": 2}}}, {}, "axes: cell images-few: pretrain.lrr = 2: unknown key"),
    ({"pretrain.lrr": [1]}, {}, "axes: cell lrr-1: pretrain.lrr = 1: unknown key"),
    ({"pretrain.lr": [0.1, 0.1]}, {}, "axes.pretrain.lr: a value is given twice: [0.1, 0.1]"),
    ({"conditions.3.train_size": [40]}, {}, "axes.conditions.3.train_size: there is no such key"),
    ({"name": ["a", "b"]}, {}, "axes.name: belongs to the study as a whole"),
    ({"seeds.base": [1, 2]}, {"draws": 2}, "axes.seeds.base: seeds.draws = 2 sets base seeds itself"),
    ({"pretrain.batch_size": [4000]}, {}, "axes: cell batch_size-4000: pretrain.batch_size: 4000 is more than the 300"),
    ({"report.title": ["a b", "a-b"]}, {}, "axes: two cells would be named title-a-b"),
]


def test_predictions_of_what_is_not_planned_are_refused(tmp_path):
    file = tmp_path / "said.yaml"

    def refused(**one):
        file.write_text(json.dumps({"question": "?", "predictions": {"p": {"low": 0, "high": 1} | one}}))
        with pytest.raises(GranularityError) as caught:
            files.validate(SMALL | {"axes": {"pretrain.lr": [0.1, 0.3]}, "predictions": str(file)})
        return caught.value.args[0]

    assert "said.yaml: predictions.p.arm" in refused()
    assert "p: there is no arm 'random-7'; there are resnet18/target" in refused(arm="random-7")
    assert "p: no axis pretrain.lr has the value 0.2" in refused(arm="random-10", where={"pretrain.lr": 0.2})
    assert "predictions.p.lo = 1: unknown key; did you mean 'low'?" in refused(arm="random-10", lo=1)
    assert "p: transfer: must be one of target, not 'head'" in refused(arm="random-10", transfer="head")
    assert "predictions.p.low: 2.0 is not below high = 1.0" in refused(arm="random-10", low=2)
    assert "p: measure: 'prob' is not measured; measures are probe" in refused(
        arm="random-10", measure="prob/loops/knn"
    )


def test_a_prediction_may_not_compare_errors_on_two_targets(tmp_path):
    file = tmp_path / "said.yaml"
    merged = {"label_spaces": {"manual": ["digit"]}, "conditions": [{"train_size": 300, "merged": ["manual-digit"]}]}
    elsewhere = {"name": "elsewhere", "data": {"samples": {"source": "digits"}, "train_size": 300}}
    study = SMALL | merged | {"seeds": {"draws": 2}, "predictions": str(file)}
    study["transfers"] = [{"name": "own"}, elsewhere]
    arm = {"arm": "resnet18_merged/manual-digit", "against": "manual-digit", "low": 0, "high": 1}

    def validated(transfer):
        file.write_text(json.dumps({"question": "?", "predictions": {"p": arm | {"transfer": transfer}}}))
        return files.validate(study)

    assert len(cells(validated("own"))) == 2
    with pytest.raises(GranularityError, match="'elsewhere' does not finetune resnet18_merged, whose error is on ano"):
        validated("elsewhere")


def test_a_prediction_is_judged_on_its_transfer():
    rows = [("finetune", "own", "target", 9.0), ("finetune", "own", "a", 7.0), ("finetune", "other", "target", 50.0)]
    rows += [("finetune", "other", "a", 45.0), ("pretrain", None, "a", 7.5)]
    runs = pd.DataFrame(rows, columns=["stage", "transfer", "space", "value"]).assign(
        measure="val_error", network="net"
    )
    runs = pd.concat([runs.assign(draw=draw) for draw in (0, 1)], ignore_index=True)
    asked = {"arm": "a", "low": -10, "high": 0}
    said = {"question": "?", "predictions": {name: asked | {"transfer": name} for name in ("own", "other")}}
    found = predictions.judged(predictions.Predictions.model_validate(said), runs, ["net"])
    assert found["difference"].tolist() == [-2, -5]


@pytest.mark.parametrize(("axes", "seeds", "words"), MISTAKES, ids=[str(axes) for axes, _, _ in MISTAKES])
def test_what_makes_no_cells_is_one_line(axes, seeds, words):
    with pytest.raises(GranularityError) as caught:
        made(axes=axes, seeds=seeds)
    assert caught.value.args[0].startswith(words)
