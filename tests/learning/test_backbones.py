"""Networks and backbones: one seed is one backbone; what files say of themselves, initial weights, and other data."""

import shutil

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file

from granularity.base.errors import GranularityError
from granularity.learning.data.dataset import Data
from granularity.learning.networks.backbones import Backbones
from granularity.learning.networks.network import build
from granularity.learning.options import Init, Model, Recipe
from support import tasks
from support.trainings import MODEL, TINY, equal, finetuning, pretraining, recipe, weights_of, without_head

PLAIN = Model(name="resnet18", args=TINY, stem="timm")


def test_the_untrained_network_is_that_of_the_seed(tmp_path, pretrain_on):
    options = recipe(head_bias=-3)
    made = pretrain_on(tmp_path / "made", [pretraining("manual-digit", 1)], options)
    kept = pretrain_on(tmp_path / "kept", [pretraining("manual-digit", 1)], options, keep=[0])
    first, second = (
        backbones.load(backbones.runs.iloc[0], epoch=0).state_dict()
        for backbones in (Backbones([made.path]), Backbones([kept.path]))
    )
    assert equal(first, second)
    assert not equal(first, weights_of(made))


# ---------------------------------------------------------------- initial weights


@pytest.fixture
def published(tmp_path):
    """A file as timm publishes them, of another number of classes: its path and its tensors."""
    torch.manual_seed(3)
    network = timm.create_model("resnet18", in_chans=1, num_classes=7, **TINY)
    save_file(network.state_dict(), tmp_path / "published.safetensors")
    return tmp_path / "published.safetensors", network.state_dict()


def test_published_weights_are_a_start(tmp_path, pretrain_on, published):
    file, tensors = published
    made = pretrain_on(tmp_path / "made", [pretraining("target")], recipe(), PLAIN, init={"timm": str(file)}, keep=[0])
    start = made.tensors(f"backbones/{pretraining('target').name}@0.safetensors")
    assert equal(without_head(start), without_head(tensors))
    assert start["fc.weight"].shape == (3, 8)
    fresh = pretrain_on(tmp_path / "fresh", [pretraining("target")], recipe(), PLAIN, keep=[0])
    head = fresh.tensors(f"backbones/{pretraining('target').name}@0.safetensors")["fc.weight"]
    assert torch.equal(start["fc.weight"], head)  # the head is that of the seed
    assert len(made.params["init"]["sha256"]) == 64
    with pytest.raises(GranularityError, match="did not start from scratch; set keep"):
        again = pretrain_on(tmp_path / "again", [pretraining("target")], recipe(), PLAIN, init={"timm": str(file)})
        Backbones([again.path]).load(Backbones([again.path]).runs.iloc[0], epoch=0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tensors: tensors.pop("layer1.0.bn1.bias"), "has no tensor 'layer1.0.bn1.bias'"),
        (
            lambda tensors: tensors.update({"conv1.weight": torch.zeros(4, 3, 7, 7)}),
            r"'conv1.weight' is \(4, 3, 7, 7\)",
        ),
        (lambda tensors: tensors.update({"layer9.weight": torch.zeros(1)}), "'layer9.weight' does not exist"),
    ],
)
def test_weights_of_another_model_are_one_line(tmp_path, pretrain_on, published, change, words):
    file, tensors = published
    change(tensors)
    save_file(tensors, file)
    with pytest.raises(GranularityError, match=f"published.safetensors: {words}") as error:
        pretrain_on(tmp_path / "out", [pretraining("target")], recipe(), PLAIN, init=f"timm:{file}")
    assert "\n" not in str(error.value)


def test_a_backbone_of_another_configuration_is_a_start(tmp_path, pretrain_on, spaces):
    first = pretrain_on(tmp_path / "results" / "one", [pretraining("target")], recipe(epochs=2), keep=[1])
    name, run = pretraining("target").name, [pretraining("manual-digit")]
    given = {"start": first.path, "keep": [0]}
    end = pretrain_on(tmp_path / "end", run, **given, init={"run": name})
    middle = pretrain_on(tmp_path / "middle", run, **given, init={"run": f"{name}@1"})
    starts = [made.tensors(f"backbones/{run[0].name}@0.safetensors") for made in (end, middle)]
    assert equal(without_head(starts[0]), without_head(weights_of(first)))
    assert equal(without_head(starts[1]), without_head(first.tensors(f"backbones/{name}@1.safetensors")))
    assert end.manifest["inputs"]["init"]["digest"] == first.digest
    found = Init(results=tmp_path / "results", run=pretraining("target").id).folder()
    assert found == first.path
    with pytest.raises(GranularityError, match=r"contains no backbone of a run 'no-p0-00000000'; make it with"):
        Init(results=tmp_path / "results", run="no-p0-00000000").folder()
    shutil.copytree(first.path, tmp_path / "results" / "two")
    with pytest.raises(GranularityError, match=r"the run '.*' is in .*one, .*two; name one in results"):
        Init(results=tmp_path / "results", run=name).folder()


# ---------------------------------------------------------------- other data


@pytest.fixture
def letters(tmp_path, make_samples, make_array):
    """Another data set, brighter and of another side: 40 training and 20 validation images of two classes."""
    rng = np.random.default_rng(1)
    kinds = ["a", "b"] * 30
    samples = make_samples(tmp_path / "letters" / "samples", ["train"] * 40 + ["val"] * 20, {"kind": kinds}, "kind")
    values = rng.integers(100, 200, (60, 12, 12, 1), dtype=np.uint8)
    values[::2, :6] += 55
    return samples, make_array(tmp_path / "letters" / "pixels", "pixels", samples, values)


def test_a_backbone_is_transferred_onto_other_data(tmp_path, pretrained, letters, monkeypatch):
    samples, pixels = letters
    options = {"recipe": recipe(batch_size=10, epochs=12), "runs": [finetuning("manual-digit").name], "transfer": "new"}
    given = {"samples": samples, "pixels": pixels, "pretrain": [pretrained.path]}
    with pytest.raises(GranularityError, match="was made from a different 'samples'"):
        tasks.run("finetune", tmp_path / "refused", options, **given)
    seen = []
    original = Data.images
    monkeypatch.setattr(Data, "images", lambda self, rows: seen.append(self.moments) or original(self, rows))
    made = tasks.run("finetune", tmp_path / "made", {**options, "other_data": True}, **given)
    about = Backbones([pretrained.path]).about(Backbones([pretrained.path]).find("manual-digit", 0))
    assert {(float(mean[0]), float(std[0])) for mean, std in seen} == {(about["mean"][0], about["std"][0])}
    (row,) = made.table("runs.parquet").itertuples()
    assert (row.transfer, row.space) == ("new", "manual-digit")
    assert made.table("classes.parquet")["name"].tolist() == ["a", "b"]
    assert row.val_error < 30


def test_channels_that_do_not_fit_are_one_line(tmp_path, pretrained, make_samples, make_array):
    samples = make_samples(tmp_path / "samples", ["train"] * 4 + ["val"] * 2, {"kind": list("ababab")}, "kind")
    pixels = make_array(tmp_path / "pixels", "pixels", samples, np.zeros((6, 8, 8, 3), dtype=np.uint8))
    options = {
        "recipe": Recipe(batch_size=2, epochs=1, warmup_epochs=0),
        "runs": [finetuning("target").name],
        "other_data": True,
    }
    with pytest.raises(GranularityError, match="takes images of 1 channels, not 3"):
        tasks.run("finetune", tmp_path / "out", options, samples=samples, pixels=pixels, pretrain=[pretrained.path])


# ---------------------------------------------------------------- networks


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


@pytest.mark.parametrize("micro_batch", [None, 10])
def test_a_frozen_backbone_stays_as_it_is_and_its_head_learns(one, tmp_path, finetune_on, micro_batch):
    frozen = {"freeze_backbone": True, "micro_batch": micro_batch}
    before, network = one(**frozen, weight_decay=0.1)
    after = network.state_dict()
    assert equal(without_head(before), without_head(after))  # batch-norm statistics, too
    assert not torch.equal(before["fc.weight"], after["fc.weight"])
    assert [name for name, value in network.named_parameters() if value.grad is not None] == ["fc.weight", "fc.bias"]
    made = finetune_on(tmp_path / "out", [finetuning("manual-digit")], recipe(**frozen, epochs=12))
    history = made.table("history.parquet")["train_loss"]
    assert history.iloc[-1] < 0.95 * history.iloc[0]


ATTENTION = {"img_size": 8, "patch_size": 4, "depth": 1}


@pytest.mark.parametrize(
    ("name", "with_dropout", "without"),
    [
        ("resnet18", {**TINY, "drop_rate": 0.5}, TINY),
        (
            "vit_tiny_patch16_224",
            {**ATTENTION, "pos_drop_rate": 0.5, "proj_drop_rate": 0.5, "drop_path_rate": 0.5, "patch_drop_rate": 0.5},
            ATTENTION,
        ),
    ],
)
def test_a_recipe_can_do_without_the_networks_dropout(one, name, with_dropout, without):
    def trained(args: dict, **over) -> dict[str, torch.Tensor]:
        return one(Model(name=name, args=args, stem="timm"), epochs=1, lr=0.01, **over)[1].state_dict()

    plain = trained(without)
    assert equal(trained(with_dropout, dropout=False), plain)
    assert not equal(trained(with_dropout), plain)
