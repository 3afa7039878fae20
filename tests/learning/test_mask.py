"""Masked pretraining: its loss against an explicit one, the same bytes after a kill, and a head that is replaced."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from granularity.base.errors import GranularityError
from granularity.learning.data import dataset
from granularity.learning.data.dataset import Data
from granularity.learning.networks.backbones import Backbones
from granularity.learning.networks.network import build
from granularity.learning.options import Model
from granularity.learning.training.objectives import mask
from granularity.store.artifact import Artifact
from support.trainings import CPU, STEPS, equal, finetuning, pretraining, recipe, weights_of, without_head

NETWORK = Model(args={"layers": [1, 1, 1, 0], "channels": [8, 8, 8, 8]})  # 2 x 2 positions of 8 px
SMALL = {"name": "mask", "options": {"mask_patch_size": 2, "encoder_stride": 4}}
OPTIONS = mask.Options(**SMALL["options"])


@pytest.fixture
def data(digits, digits_pixels) -> Data:
    return Data(Artifact.open(digits), Artifact.open(digits_pixels), CPU)


def test_the_loss_is_that_of_an_explicit_convolution_on_the_masked_pixels(data):
    objective = mask.make(None, data, recipe(), OPTIONS)
    network = build(NETWORK, 1, objective.outputs, 3)
    assert objective.outputs == 16
    objective.attach(network)
    images = data.images(data.train[:12])
    torch.manual_seed(5)
    found = objective.loss(network.train()(images), torch.arange(12))

    torch.manual_seed(5)
    order = torch.rand(12, 16).numpy()
    hidden = np.zeros((12, 8, 8), dtype=bool)
    for image, numbers in enumerate(order):
        for patch in np.argsort(numbers)[:10]:  # 0.6 of 16, rounded up
            hidden[image, patch // 4 * 2 : patch // 4 * 2 + 2, patch % 4 * 2 : patch % 4 * 2 + 2] = True
    seen = torch.where(torch.from_numpy(hidden)[:, None], 0.0, images)
    maps = build(NETWORK, 1, 16, 3).train().forward_features(seen)
    answers = F.conv2d(maps, network.fc.weight[:, :, None, None], network.fc.bias).detach().numpy()
    predicted = answers.reshape(12, 4, 4, 2, 2).transpose(0, 3, 1, 4, 2).reshape(12, 8, 8)
    expected = np.abs(predicted - images[:, 0].numpy())[hidden].mean()
    assert found.item() == pytest.approx(expected, rel=1e-5)
    found.backward()
    assert all(weights.grad is not None for weights in network.parameters())


def test_masks_are_whole_patches_spread_evenly_and_follow_the_generator():
    hidden = mask.masks(4000, 16, mask.Options(mask_ratio=0.3), torch.Generator().manual_seed(1))[:, 0].float()
    patches = hidden.unflatten(2, (4, 4)).unflatten(1, (4, 4)).mean((2, 4))
    assert set(patches.unique().tolist()) == {0, 1} and (patches.sum((1, 2)) == 5).all()
    assert (patches.mean(0) - 5 / 16).abs().max() < 4 * math.sqrt(5 / 16 * 11 / 16 / 4000)
    again, other = (mask.masks(4000, 16, mask.Options(), torch.Generator().manual_seed(s)) for s in (1, 2))
    assert not torch.equal(again, other)


def test_what_is_masked_is_learnt_and_finetuning_replaces_the_decoder(tmp_path, pretrain_on, finetune_on):
    runs, options = [pretraining("mask", seed) for seed in (0, 1)], recipe(epochs=15, warmup_epochs=1)
    made = pretrain_on(tmp_path / "pre", runs, options, NETWORK, objective=SMALL, keep=[0])
    table = made.table("runs.parquet")
    assert (table["family"] == "mask").all() and table[["granularity", "val_error"]].isna().all(axis=None)
    assert (table["val_loss"] < 0.8 * table["val_loss_of_zeros"]).all()
    assert table["val_loss_of_zeros"].nunique() == 1  # the same masks
    assert table["train_loss"].tolist() == pytest.approx(table["val_loss"].tolist(), rel=0.2)
    assert made.summary["stack"] == 1 and len(made.table("classes.parquet")) == 0
    alone = pretrain_on(tmp_path / "alone", runs[1:], options, NETWORK, objective=SMALL)
    assert equal(weights_of(alone), weights_of(made, 1))

    tuned = finetune_on(tmp_path / "fine", [finetuning("mask")], parents=[made.path], keep=True)
    assert 0 <= tuned.table("runs.parquet")["val_error"][0] <= 100
    backbones = Backbones([made.path])
    row = backbones.find("mask", 0)
    assert backbones.targets(row) is None and backbones.load(row, 1).fc.out_features == 16
    assert (
        Backbones([tuned.path], "finetune").load(Backbones([tuned.path], "finetune").runs.iloc[0], 1).fc.out_features
        == 3
    )
    untrained = pretrain_on(tmp_path / "labels", [pretraining("target")], model=NETWORK, keep=[0])
    starts = [one.tensors(one.table("checkpoints.parquet")["file"][0]) for one in (made, untrained)]
    assert equal(*map(without_head, starts))


@pytest.mark.parametrize("step", [2, 7], ids=["in the first epoch", "in the last"])
def test_a_killed_pretraining_masks_the_same_patches(tmp_path, pretrain_on, kill_at, checkpoint_always, step):
    given = [pretraining("mask")], recipe(augment={"flip": True, "pad": 1, "crop": 8}, micro_batch=15), NETWORK
    undisturbed = pretrain_on(tmp_path / "elsewhere" / "undisturbed", *given, objective=SMALL)
    kill_at(dataset, "augment", step)
    with pytest.raises(kill_at.Killed):
        pretrain_on(tmp_path / "resumed", *given, objective=SMALL)
    calls = kill_at(dataset, "augment", None)
    resumed = pretrain_on(tmp_path / "resumed", *given, objective=SMALL)
    assert len(calls) == STEPS - step + 1 and resumed.digest == undisturbed.digest


def test_what_cannot_be_masked_is_one_line_before_a_step(tmp_path, pretrain_on, kill_at):
    calls = kill_at(dataset, "augment", None)
    for options, words in (
        ({"mask_patch_size": 3}, "mask_patch_size: 3 does not divide the side of the images, 8 px"),
        ({"mask_patch_size": 8}, r"mask_ratio: 0.6 masks all patches \(1 of 8 px\); lower it or mask_patch_size"),
        ({"encoder_stride": 8}, "encoder_stride: 8 must be 4, as images of 8 px have a last feature map of 2 x 2"),
        ({"mask_ratio": 0}, "mask_ratio: Input should be greater than 0"),
    ):
        with pytest.raises(GranularityError, match=f"^objective.options.{words}"):
            given = {"name": "mask", "options": options}
            pretrain_on(tmp_path / "out", [pretraining("mask")], model=NETWORK, objective=given)
    assert not calls and not (tmp_path / "out").exists()
