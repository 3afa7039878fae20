"""Networks: one seed is one backbone, what a recipe asks of them, and what makes none is a clear error."""

from __future__ import annotations

import pytest
import torch

from granularity.base.errors import GranularityError
from granularity.learning.network import build, new_head
from granularity.learning.options import Model
from support.trainings import MODEL, TINY, equal, finetuning, recipe, without_head


@pytest.mark.parametrize(
    "model",
    [
        MODEL,
        Model(),
        Model(name="vit_tiny_patch16_224", stem="timm", args={"img_size": 8, "patch_size": 4, "depth": 1}),
    ],
)
def test_one_seed_is_one_backbone_whatever_the_head(model):
    few, many = build(model, 1, 3, 5).state_dict(), build(model, 1, 500, 5).state_dict()
    other = build(model, 1, 3, 6).state_dict()
    heads = {name for name in few if few[name].shape != many[name].shape}
    assert {name.split(".")[0] for name in heads} <= {"fc", "head"}
    assert equal(*({name: value for name, value in part.items() if name not in heads} for part in (few, many)))
    assert not equal(few, other)


def test_a_new_head_depends_on_its_seed_alone():
    model = build(MODEL, 1, 7, 0)
    heads = []
    for seed in (1, 2, 1):
        torch.rand(seed)  # whatever was drawn before does not matter
        new_head(model, 4, seed)
        heads.append(model.fc.weight.clone())
    assert torch.equal(heads[0], heads[2])
    assert not torch.equal(heads[0], heads[1])


@pytest.mark.parametrize(
    "model",
    [
        Model(name="resnet1818"),
        Model(args={"no_such_argument": 1}),
        Model(name="vit_tiny_patch16_224", args=None),
        Model(name="resnet18", stem="timm", args={"features_only": True}),
    ],
)
def test_a_network_that_cannot_be_built_is_a_clear_error(model):
    with pytest.raises(GranularityError, match=r"model\.(name|stem) = "):
        build(model, 1, 3, 0)


def test_a_frozen_backbone_stays_as_it_is_and_its_head_learns(one, tmp_path, finetune_on):
    before, network = one(freeze_backbone=True, weight_decay=0.1)
    after = network.state_dict()
    assert equal(without_head(before), without_head(after))  # batch-norm statistics, too
    assert not torch.equal(before["fc.weight"], after["fc.weight"])
    assert [name for name, value in network.named_parameters() if value.grad is not None] == ["fc.weight", "fc.bias"]
    made = finetune_on(tmp_path / "out", [finetuning("manual-digit")], recipe(freeze_backbone=True, epochs=12))
    history = made.table("history.parquet")["train_loss"]
    assert history.iloc[-1] < 0.95 * history.iloc[0]


@pytest.mark.parametrize(
    ("name", "with_dropout", "without"),
    [
        ("resnet18", {**TINY, "drop_rate": 0.5}, TINY),
        (
            "vit_tiny_patch16_224",
            {"img_size": 8, "patch_size": 4, "depth": 1, "pos_drop_rate": 0.5, "proj_drop_rate": 0.5},
            {"img_size": 8, "patch_size": 4, "depth": 1},
        ),
    ],
)
def test_a_recipe_can_do_without_the_networks_dropout(one, name, with_dropout, without):
    def trained(args: dict, **over) -> dict[str, torch.Tensor]:
        return one(Model(name=name, args=args, stem="timm"), epochs=1, lr=0.01, **over)[1].state_dict()

    plain = trained(without)
    assert equal(trained(with_dropout, dropout=False), plain)
    assert not equal(trained(with_dropout), plain)
