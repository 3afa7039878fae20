"""The plan of a configuration: what is asked for, and nothing else; lists of networks, transfers and measures."""

import hashlib

from granularity.config import files
from granularity.learning.runs import Run
from granularity.plan import commands
from granularity.plan.graph import Plan
from granularity.stages import STAGES

SMALL = {"conditions": [{"train_size": 300}], "label_spaces": {"random": [10], "kmeans": [10]}}
UNCLUSTERED = SMALL | {"label_spaces": SMALL["label_spaces"] | {"kmeans": []}}


def planned(over: dict | None = None, base: dict = SMALL) -> Plan:
    return Plan(files.validate(base | (over or {})))


def names(plan: Plan, stage: str, wildcard: str) -> set[str]:
    return {job.values[wildcard] for job in plan.jobs(stage)}


def test_results_of_two_jobs_never_lie_in_one_folder():
    plan = planned({"networks": [{"name": "a", "grid": {"lr": [0.1, 0.2]}}, {"name": "b"}]})
    folders = [plan.folder(job) for stage in STAGES for job in plan.jobs(stage)]
    assert len(set(folders)) == len(folders)


def test_an_embedding_reads_the_originals_or_the_pixels():
    originals, pixels = planned(), planned({"encoder": {"images": "pixels"}})
    (one,), (other,) = originals.jobs("embed"), pixels.jobs("embed")
    assert set(one.inputs) == {"samples", "encoder"} and set(other.inputs) == {"samples", "encoder", "pixels"}
    assert "--pixels" in commands.words(pixels, other) and "--pixels" not in commands.words(originals, one)
    assert originals.jobs("encoder")[0].options == pixels.jobs("encoder")[0].options  # trained on the originals


def test_an_embedding_is_planned_only_where_something_asks_for_it():
    assert planned().jobs("embed") and planned().jobs("encoder")
    plan = planned(base=UNCLUSTERED)
    assert not any(plan.jobs(stage) for stage in ("encoder", "embed", "cluster"))
    assert all("embed" not in job.inputs for job in plan.jobs("measure"))
    distilled = planned({"networks": [{"name": "student", "objective": "distil"}]}, UNCLUSTERED)
    assert distilled.jobs("embed")
    measured = planned({"measures": [{"name": "probe", "of": ["embedding"]}]}, UNCLUSTERED)
    assert measured.jobs("embed") and all("pretrain" not in job.inputs for job in measured.jobs("measure"))
    both = planned({"measures": [{"name": "probe"}, {"name": "filters"}]})
    embedded = {job.values["measure"] for job in both.jobs("measure") if "embed" in job.inputs}
    assert embedded == {"probe"}  # the other measures only networks


def test_networks_and_grids_are_networks_of_their_own():
    grid = {"lr": [0.1, 0.3], "weight_decay": [0.0, 0.001]}
    plan = planned(
        {"networks": [{"name": "wide", "model": {"args": {"stem_width": 8}}, "grid": grid}, {"name": "as_is"}]}
    )
    expected = {f"wide_lr-{lr}_weight_decay-{decay}" for lr in (0.1, 0.3) for decay in (0.0, 0.001)} | {"as_is"}
    assert names(plan, "pretrain", "network") == names(plan, "finetune", "network") == expected
    (job,) = plan.jobs("pretrain", network="wide_lr-0.3_weight_decay-0.001", unit="all")
    recipe, model = job.options["recipe"], job.options["model"]
    assert (recipe["lr"], recipe["weight_decay"], recipe["epochs"]) == (0.3, 0.001, 30)
    assert model["args"]["stem_width"] == 8 and model["args"]["layers"] == [1, 1, 1, 0]


def test_only_a_condition_that_trains_in_minutes_is_one_job():
    assert names(planned({}), "pretrain", "unit") == names(planned({}), "finetune", "unit") == {"all"}
    longer = planned({"pretrain": {"epochs": 3000}, "finetune": {"epochs": 30}})
    assert len(names(longer, "pretrain", "unit")) > 1 and names(longer, "finetune", "unit") == {"all"}
    own = {"samples": {"source": "folder", "root": "."}, "encoder": {"captions": {"template": "a {}"}}}
    unknown = planned({"conditions": [{"train_size": "all"}], **own})
    assert "all" not in names(unknown, "pretrain", "unit")


def test_a_network_may_be_trained_on_some_label_spaces_only():
    plan = planned({"networks": [{"name": "few", "spaces": ["random-10"]}]})
    (job,) = plan.jobs("pretrain", condition="train-300")
    assert {Run.parse(name).space for name in job.options["runs"]} == {"random-10"}
    distilled = planned({"networks": [{"name": "student", "objective": "distil"}]})
    (job,) = distilled.jobs("pretrain")
    assert not job.inputs.get("hierarchy") and [one.stage for one in job.inputs["embed"]] == ["embed"]


def test_an_option_that_is_added_changes_no_id():
    """Ids name results that people have: an option added to a section that is in them belongs in its `later`."""
    over = {  # what the default was when these ids were given out
        "seeds": {"pretrain": 2, "finetune": 6},
        "conditions": [{"train_size": 300}, {"train_size": 900, "spaces": ["manual-digit", "random-30", "kmeans-30"]}],
        "label_spaces": {
            "random": [10, 30, 100],
            "random_instance": True,
            "random_superclass": [10],
            "kmeans": [10, 30, 90],
            "kmeans_superclass": [3, 10, 30],
            "rebalanced": {"thresholds": [12, 4]},
        },
    }
    plan = Plan(files.validate(over))
    runs = sorted(run for stage in ("pretrain", "finetune") for job in plan.jobs(stage) for run in job.options["runs"])
    assert len(runs) == 286
    assert hashlib.sha256(repr(runs).encode()).hexdigest()[:12] == "70ae5c627ecf"


def test_a_condition_has_its_own_number_of_backbones():
    """More of them are more runs of the same ids; all of them are finetuned."""
    few, more = (
        planned({"conditions": [{"train_size": 300, "spaces": ["kmeans-10"], "backbones": count}]}) for count in (2, 5)
    )

    def runs(plan: Plan, stage: str) -> list[str]:
        return [run for job in plan.jobs(stage) for run in job.options["runs"]]

    for stage in ("pretrain", "finetune", "measure"):
        assert len(runs(few, stage)) == 4 and len(runs(more, stage)) == 10
        assert set(runs(few, stage)) < set(runs(more, stage))


def test_an_option_that_came_later_is_in_ids_where_it_is_used():
    def ids(**over) -> set[str]:
        return {run for job in planned(over).jobs("pretrain") for run in job.options["runs"]}

    plain = ids()
    assert ids(pretrain={"micro_batch": None, "augment": {"scale": None}}, pixels={"format": "raw"}) == plain
    assert not ids(pretrain={"micro_batch": 50}) & plain
    assert not ids(pretrain={"augment": {"crop": 8, "scale": [0.5, 1]}}) & ids(pretrain={"augment": {"crop": 8}})
    assert not ids(pixels={"format": "jpeg"}) & plain
    assert ids(encoder={"precision": "float32", "images": "originals"}) == plain
    for encoder in ({"precision": "bfloat16"}, {"images": "pixels"}):
        assert not {run for run in ids(encoder=encoder) & plain if "kmeans" in run}
