"""Recipes: what they refuse, clipping, schedules, and those of the paper."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pydantic
import pytest
import torch
import yaml

from granularity.config import files
from granularity.learning.loop import minimise
from granularity.learning.network import build
from granularity.learning.options import Finetune, Pretrain, Recipe
from granularity.learning.schedules import schedule, share_of_peak
from support.trainings import STEPS


def test_a_recipe_clips_the_gradient(one):
    before, network = one(clip_norm=1e-3, lr=0.1, momentum=0, weight_decay=0)
    moved = torch.cat([(value - before[name]).flatten() for name, value in network.named_parameters()]).norm().item()
    assert 0 < moved <= 1e-4 * STEPS * 1.01


@pytest.mark.parametrize("clip", [None, 0.5, 5.0, 100.0])
def test_a_gradient_is_clipped_to_a_norm_over_all_weights(clip):
    """On a . weights, the gradient is a: (3, 4, 0, 12), of norm 13, in two tensors."""
    network = torch.nn.Linear(3, 1)
    before = torch.cat([network.weight[0].detach(), network.bias.detach()])

    def gradients_at(step: int) -> torch.Tensor:
        loss = network.weight[0] @ torch.tensor([3.0, 4.0, 0.0]) + 12 * network.bias[0]
        loss.backward()
        return loss.detach()

    sgd = torch.optim.SGD(network.parameters(), lr=0.1)
    minimise(network, sgd, gradients_at, epochs=1, steps_per_epoch=1, warmup_epochs=0, seed=0, clip_norm=clip)
    moved = before - torch.cat([network.weight[0].detach(), network.bias.detach()])
    length = 0.1 * min(13, clip or 13)
    torch.testing.assert_close(moved, torch.tensor([3.0, 4.0, 0.0, 12.0]) / 13 * length, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"lr": 0.1, "final_lr": 0.2}, "final_lr: 0.2 is more than the peak, lr = 0.1"),
        ({"nesterov": True, "optimizer": "adamw"}, "nesterov: is for optimizer: sgd"),
        ({"nesterov": True, "momentum": 0}, "nesterov: is for optimizer: sgd"),
        ({"clip_norm": 0}, "greater than 0"),
        ({"step_factor": 1.5}, "less than or equal to 1"),
        ({"loss": "hinge"}, "'auto', 'softmax' or 'sigmoid'"),
        ({"optimizer_args": {"lr": 0.1}}, "optimizer_args.lr: is an option of its own"),
    ],
)
def test_a_recipe_that_contradicts_itself_is_refused(values, words):
    with pytest.raises(pydantic.ValidationError, match=words):
        Recipe(**values)


def test_processes_need_an_image_each():
    for kind in (Pretrain, Finetune):
        for key in ("processes", "arms"):
            with pytest.raises(pydantic.ValidationError, match=f"{key}: 3 cannot share a batch_size of 2"):
                kind(recipe={"batch_size": 2}, **{key: 3})


def test_pretraining_has_no_backbone_to_freeze():
    with pytest.raises(pydantic.ValidationError, match="freeze_backbone: there is no backbone yet"):
        Pretrain(recipe={"freeze_backbone": True})


PAPER = {
    "R1": (122, {0: 1.6 / 855, 854: 1.6, 122 * 90 - 1: 0.0}),
    "R2": (488, {3416: 0.4, 3416 + 41.5 * 488: 0.2}),
    "R3": (3111, {4999: 5e-4, 10_000: 1e-3, (10_000 + 90 * 3111) / 2: 5.05e-4, 90 * 3111 - 1: 1e-5}),
    "R4c": (3111, {0: 1e-3, 3 * 3111: 1e-3, 6.5 * 3111: 5.05e-4, 31109: 1e-5}),
    "R5": (2502, {249: 6e-2 * 250 / 501, 500: 6e-2, (500 + 8 * 2502) / 2: 3e-2}),
    "R6": (2502, {0: 0.9, 1250: 0.9, 1251: 0.9 * 0.97, 40 * 2502 - 1: 0.9 * 0.97**79}),
}


def recipes_of_the_paper() -> dict[str, dict]:
    """The YAML of docs/recipes.md, by the name in its first line."""
    text = (Path(__file__).parents[2] / "docs/recipes.md").read_text(encoding="utf-8")
    blocks = [block.split("```")[0] for block in text.split("```yaml\n")[1:]]
    return {block.split()[1].rstrip(":"): yaml.safe_load(block) for block in blocks if block.startswith("# R")}


def test_the_recipes_of_the_paper_are_valid_configurations(monkeypatch):
    root = Path(__file__).parents[2]
    monkeypatch.chdir(root)
    found = recipes_of_the_paper()
    assert list(found) == ["R1", "R2", "R3", "R4a", "R4b", "R4c", "R5", "R6"]
    common = {"conditions": [{"train_size": "all"}], "pixels": found["R1"]["pixels"]}
    for values in found.values():
        config = files.load(root / "config/config.yaml", overrides={**common, **values})
        assert [config.pretrain, config.finetune].count(Recipe()) == 1
    assert found["R4a"]["finetune"] == found["R3"]["pretrain"]
    same = {key: value for key, value in found["R4b"]["finetune"].items() if key != "freeze_backbone"}
    assert {**same, "epochs": 90} == found["R3"]["pretrain"]


def test_the_papers_vit_has_its_dropout(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
    values = recipes_of_the_paper()["R3"]
    config = files.load("config/config.yaml", overrides={**values, "conditions": [{"train_size": "all"}]})
    with torch.device("meta"):
        network = build(config.model, 3, 21843, 0, config.pretrain.head_bias)
    rates = [module.p for module in network.modules() if isinstance(module, torch.nn.Dropout)]
    assert rates.count(0.1) == 1 + 3 * 12  # after the embedding; in each block after attention and twice in the MLP
    assert sum(rates) == pytest.approx(3.7)
    assert network.head.weight.shape == (21843, 768)


@pytest.mark.parametrize("name", PAPER)
def test_the_recipes_of_the_paper_have_its_learning_rates(name):
    per_epoch, expected = PAPER[name]
    values = recipes_of_the_paper()[name]
    options = Recipe(**values.get("pretrain", values.get("finetune")))
    share = schedule(options, per_epoch)
    for step, rate in expected.items():
        found = options.lr * share(step, options.epochs * per_epoch, options.warmup_epochs * per_epoch)
        assert found == pytest.approx(rate, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize(("steps", "warmup"), [(100, 10), (100, 0), (12, 4.8), (5, 5), (4, 100), (1, 0)])
@pytest.mark.parametrize("shape", ["cosine", "linear"])
def test_the_schedule_warms_up_then_falls_to_zero(steps, warmup, shape):
    shares = [share_of_peak(step, steps, warmup, shape=shape) for step in range(steps)]
    assert all(0 < share <= 1 for share in shares)
    top = min(math.ceil(warmup), steps - 1)
    assert shares[: top + 1] == sorted(shares[: top + 1])
    assert shares[top:] == sorted(shares[top:], reverse=True)
    if steps == 100:
        assert max(shares) == 1
        assert shares[-1] < (0.001 if shape == "cosine" else 0.012)


@pytest.mark.parametrize("hold", [0, 30])
@pytest.mark.parametrize("final", [0, 0.2])
def test_the_schedule_has_its_closed_form(hold, final):
    steps, warmup = 110, 10
    step = np.arange(steps)
    along = np.clip((step - warmup - hold) / (steps - warmup - hold), 0, 1)
    for shape, left in (("cosine", np.cos(np.pi * along / 2) ** 2), ("linear", 1 - along)):
        expected = np.where(step < warmup, (step + 1) / 11, final + (1 - final) * left)
        found = [share_of_peak(i, steps, warmup, hold, shape, final) for i in range(steps)]
        np.testing.assert_allclose(found, expected, atol=1e-12)
    found = [share_of_peak(i, steps, warmup, hold, "step", final, 12.5, 0.5) for i in range(steps)]
    expected = np.maximum(final, 0.5 ** np.floor(np.clip(step - warmup - hold, 0, None) / 12.5))
    np.testing.assert_allclose(found, np.where(step < warmup, (step + 1) / 11, expected))
