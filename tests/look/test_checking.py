"""`granularity config check`: what fails without data is one line each; else what would be made, and from where."""

import contextlib
import itertools
import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from granularity import cli
from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.config import files
from granularity.look import costs
from granularity.plan import graph
from granularity.store.artifact import Artifact
from support import tiny_chain


def check(folder: Path, values: dict) -> str:
    file = folder / "mine.yaml"
    file.write_text(json.dumps(values))
    return CliRunner().invoke(cli.app, ["config", "check", "-f", str(file)], catch_exceptions=False).stdout


def network(**keys) -> dict:
    return {"networks": [{"name": "fine"}, {"name": "n", **keys}]}


LARGE = {"recipe": {"optimizer": "lion", "optimizer_args": {"beta": [0.9]}}}
POLICY = {"policy": "RandAugment", "policy_args": {"magnitude": 50}}


def embedded(model: str, pretrained: str) -> dict:
    return {"label_spaces": {"kmeans": [10]}, "encoder": {"model": model, "pretrained": pretrained}}


def masked(**options) -> dict:
    return network(objective={"name": "mask", "options": options})


MISTAKES = [
    ("model.name: there is no network 'tinynets'; did you mean tinynet_", {"model": {"name": "tinynets"}}),
    ("model.args: ResNet.__init__() got an unexpected keyword argument 'layrs'", {"model": {"args": {"layrs": [1]}}}),
    ("networks.1.model.stem: convnext_atto is not a ResNet", network(model={"name": "convnext_atto", "stem": "small"})),
    (
        "networks.1.model.name: this network cannot take images of 8 px",
        network(model={"name": "deit_tiny_patch16_224"}),
    ),
    (
        "pretrain.optimizer: adamx: there is no such optimiser; did you mean adamax",
        {"pretrain": {"optimizer": "adamx"}},
    ),
    ("pretrain.optimizer: adahessian: needs second derivatives", {"pretrain": {"optimizer": "adahessian"}}),
    ("networks.1.recipe.optimizer_args: Lion.__init__() got an unexpected keyword argument 'beta'", network(**LARGE)),
    ("finetune.augment.policy_args: index 50 is out of bounds", {"finetune": {"augment": POLICY}}),
    ("networks.1.recipe.loss: works only for labels", network(objective="distil", recipe={"loss": "softmax"})),
    ("networks.1.objective.options.mask_patch_size: 3 does not divide the side of", masked(mask_patch_size=3)),
    ("networks.1.objective.options.mask_ratio: 0.9 masks all patches (4 of 4 px)", masked(mask_ratio=0.9)),
    ("networks.1.objective.options.mask_ratio: Input should be greater than 0", masked(mask_ratio=0)),
    (
        "encoder.model: open_clip knows no such architecture",
        embedded("ViT-B-33", "openai"),
    ),
    (
        "encoder.pretrained: 'opanai' is neither a file nor",
        embedded("ViT-B-32", "opanai"),
    ),
]


@pytest.mark.parametrize(("words", "values"), MISTAKES, ids=[words[:40] for words, _ in MISTAKES])
def test_what_would_fail_in_a_job_is_one_line(words, values, tmp_path):
    with pytest.raises(GranularityError) as caught:
        check(tmp_path, values)
    (line,) = caught.value.args
    assert line.startswith(f"{tmp_path / 'mine.yaml'}: {words}")


def rows(text: str) -> list[list[str]]:
    """In all, there, to make."""
    lines = [line.split() for line in text.splitlines()]
    return [[word for word in words if word.isdigit()][:3] for words in lines if "resnet18" in words]


def test_the_plan_says_where_label_spaces_are_from_and_which_trainings_are_there(tiny_results):
    folder, _ = tiny_results
    with contextlib.chdir(folder):
        text = check(folder, tiny_chain.TINY)
        objective = {"name": "mask", "options": {"encoder_stride": 2}}  # of other code
        two = {"networks": [{"name": "resnet18", "keep": [0]}, {"name": "masked", "objective": objective}]}
        two["transfers"] = [{"name": "target", "keep": True}, {"name": "early", "of": ["resnet18"], "from_epoch": 0}]
        more = check(folder, {**tiny_chain.TINY, **two})
        again = CliRunner().invoke(cli.app, ["config", "check", "-f", str(folder / "mine.yaml")])
    for line in (
        f"train-60: 5 label spaces; conditions.0 ({folder / 'mine.yaml'})",
        "  target: samples.target (default)",
        f"  random-5: label_spaces.random ({folder / 'mine.yaml'})",
    ):
        assert line in text.replace("\n      ", " ").splitlines(), text
    assert all(there == count and missing == "0" for count, there, missing in rows(text)), text
    assert "nothing to run" in text
    assert all(there == "0" and missing == count for count, there, missing in rows(more)), more
    said = [line.split() for line in more.splitlines() if line.startswith(("pretrain ", "finetune ", "measure "))]
    assert len(said) == 3 and all(cost[2] == "about" for cost in said), more
    assert "timing" not in again.stderr and again.stdout == more  # each is tried once per machine
    assert all(len(line) <= 80 or str(folder) in line for line in more.splitlines())


@pytest.mark.parametrize("steps", [8, 12 * 8])
def test_a_training_of_networks_one_after_another_costs_a_step_for_each(steps, monkeypatch):
    ticks = itertools.count()
    monkeypatch.setattr(costs.Costs, "_clock", lambda self: float(next(ticks)))
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)])

    def work() -> None:
        for _ in range(steps):
            optimizer.step()

    cost = costs.Costs.__new__(costs.Costs)._timed(12, 500, work)
    assert cost.each * 12 * 500 == steps and cost.once * 12 == 1


def test_what_cells_share_costs_once():
    values = {"name": "c", "seeds": {"pretrain": 4}, "axes": {"finetune.lr": [0.03, 0.1]}}
    cells = [plan for plan in graph.plans(files.checked(values)) if not plan.cells]
    kept, made, counted = set(), set(), []
    for plan in cells:
        found = costs.Costs(plan, {})
        found._tried, found.start = lambda job: costs.Cost(1.0, 0.0), lambda stage: 0.0
        counted.append({stage.name: stage.seconds for stage in found.stages(kept, made)})
    first, second = counted
    assert first["pretrain"] > 0 and first["measure"] > 0 and second["pretrain"] == second["measure"] == 0
    assert first["finetune"] == second["finetune"] > 0


def test_a_label_file_is_held_against_the_samples_that_are_there(tiny_results, tmp_path):
    folder, _ = tiny_results
    file, unseen = tmp_path / "labels.csv", "images not checked; run `snakemake samples`, then check again"
    spaces = {**tiny_chain.TINY["label_spaces"], "file": [{"path": str(file), "of": "target", "name": "mine"}]}
    values = {**tiny_chain.TINY, "label_spaces": spaces}
    with contextlib.chdir(folder):
        samples = Artifact.open("results/tiny/train-60/samples").table("samples.parquet")
        train, val = (samples["sample_id"][samples["split"] == split].iloc[0] for split in ("train", "val"))
        file.write_text(f"sample_id,label\n{train},a\n")
        text = check(tmp_path, values)
        assert "mine: label_spaces.file" in text and unseen not in text
        file.write_text(f"sample_id,label\n{train},a\n{val},a\n")
        with pytest.raises(GranularityError) as caught:
            check(tmp_path, values)
        wrong = f"images not of the training split of this draw (delete their rows): 1, such as '{val}' (train-60)"
        assert caught.value.args == (f"{tmp_path / 'mine.yaml'}: label_spaces.file: {file}: {wrong}",)
        assert unseen in check(tmp_path, values | {"samples": {"validation": 31}})  # other samples than are there
        file.write_text(f"sample_id,label\n{val},\n")
        with pytest.raises(GranularityError, match="images without a label"):
            check(tmp_path, values | {"name": "new"})


def test_a_source_of_ones_own_may_bring_keys(tmp_path):
    (tmp_path / "something").touch()
    own = {"samples": {"source": "shifted", "root": str(tmp_path), "backgrounds": str(tmp_path)}}
    own |= {"encoder": {"captions": {"template": "a {}"}}, "extensions": ["studies/cifar10_shifts/shifted.py"]}
    text = check(tmp_path, {"name": "mine", **own})
    extensions.load([])
    assert "results/mine" in text and "trainings" in text
