"""Masked pretraining: its loss against an explicit one, the same bytes after a kill, and a head that is replaced."""

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
from support.trainings import CPU, STEPS, equal, finetuning, pretraining, recipe, weights_of

NETWORK = Model(args={"layers": [1, 1, 1, 0], "channels": [8, 8, 8, 8]})  # 2 x 2 positions of 8 px
SMALL = {"name": "mask", "options": {"mask_patch_size": 2, "encoder_stride": 4}}


def test_the_loss_is_that_of_an_explicit_convolution_on_the_masked_pixels(digits, digits_pixels):
    data = Data(Artifact.open(digits), Artifact.open(digits_pixels), CPU)
    objective = mask.make(None, data, recipe(), mask.Options(**SMALL["options"]))
    network, images = build(NETWORK, 1, objective.outputs, 3), data.images(data.train[:12])
    objective.attach(network)
    torch.manual_seed(5)
    found = objective.loss(network.train()(images), torch.arange(12))

    torch.manual_seed(5)
    hidden = np.zeros((12, 8, 8), dtype=bool)
    for image, numbers in enumerate(torch.rand(12, 16).numpy()):
        for patch in np.argsort(numbers)[:10]:  # 0.6 of 16, rounded up
            hidden[image, patch // 4 * 2 : patch // 4 * 2 + 2, patch % 4 * 2 : patch % 4 * 2 + 2] = True
    seen = torch.where(torch.from_numpy(hidden)[:, None], 0.0, images)
    maps = build(NETWORK, 1, 16, 3).train().forward_features(seen)
    answers = F.conv2d(maps, network.fc.weight[:, :, None, None], network.fc.bias).detach().numpy()
    predicted = answers.reshape(12, 4, 4, 2, 2).transpose(0, 3, 1, 4, 2).reshape(12, 8, 8)
    assert found.item() == pytest.approx(np.abs(predicted - images[:, 0].numpy())[hidden].mean(), rel=1e-5)
    found.backward()
    assert all(weights.grad is not None for weights in network.parameters())


def test_what_is_masked_is_learnt_and_finetuning_replaces_the_decoder(tmp_path, pretrain_on, finetune_on):
    runs, options = [pretraining("mask", seed) for seed in (0, 1)], recipe(epochs=15, warmup_epochs=1)
    made = pretrain_on(tmp_path / "pre", runs, options, NETWORK, objective=SMALL)
    table = made.table("runs.parquet")
    assert (table["family"] == "mask").all() and table[["granularity", "val_error"]].isna().all(axis=None)
    assert (table["val_loss"] < 0.8 * table["val_loss_of_zeros"]).all()
    assert table["val_loss_of_zeros"].nunique() == 1  # the same masks
    assert made.summary["stack"] == 1 and len(made.table("classes.parquet")) == 0
    alone = pretrain_on(tmp_path / "alone", runs[1:], options, NETWORK, objective=SMALL)
    assert equal(weights_of(alone), weights_of(made, 1))
    tuned = finetune_on(tmp_path / "fine", [finetuning("mask")], parents=[made.path], keep=True)
    for one, outputs in ((Backbones([made.path]), 16), (Backbones([tuned.path], "finetune"), 3)):
        assert one.load(one.runs.iloc[0], 1).fc.out_features == outputs


def test_a_killed_pretraining_masks_the_same_patches(tmp_path, pretrain_on, kill_at, checkpoint_always):
    given = [pretraining("mask")], recipe(augment={"flip": True, "pad": 1}, micro_batch=15), NETWORK
    undisturbed = pretrain_on(tmp_path / "elsewhere" / "undisturbed", *given, objective=SMALL)
    kill_at(dataset, "augment", 3)
    with pytest.raises(kill_at.Killed):
        pretrain_on(tmp_path / "resumed", *given, objective=SMALL)
    calls = kill_at(dataset, "augment", None)
    resumed = pretrain_on(tmp_path / "resumed", *given, objective=SMALL)
    assert len(calls) == STEPS - 2 and resumed.digest == undisturbed.digest


def test_what_cannot_be_masked_is_one_line_before_a_step(tmp_path, pretrain_on, kill_at):
    calls = kill_at(dataset, "augment", None)
    given = {"model": NETWORK, "objective": {"name": "mask", "options": {"encoder_stride": 8}}}
    words = "^objective.options.encoder_stride: 8 must be 4, because images of 8 px have a last feature map of 2 x 2"
    with pytest.raises(GranularityError, match=words):
        pretrain_on(tmp_path / "out", [pretraining("mask")], **given)
    assert not calls and not (tmp_path / "out").exists()
