"""Training: the same bytes however a run was interrupted or grouped, and errors counted as they should be."""

from __future__ import annotations

import math
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pydantic
import pytest
import torch
import yaml

from granularity.base.errors import GranularityError
from granularity.config import files
from granularity.config.options import Augment, Model, Recipe
from granularity.learning import train as loop
from granularity.learning.dataset import Data, LabelSets, augment, centre_crop
from granularity.learning.loop import Batches, minimise, share_of_peak
from granularity.learning.network import build, new_head, optimizer
from granularity.learning.runs import Run
from granularity.stages import finetune, pretrain
from granularity.stages.hierarchy import stage as hierarchy
from granularity.store import artifacts
from granularity.store.artifacts import Artifact

TINY = {"layers": [1, 1, 1, 1], "channels": [4, 8, 8, 8]}
MODEL = Model(args=TINY)
CPU = torch.device("cpu")
STEPS = 8  # of a run: 120 images in batches of 30, two epochs


def recipe(**over) -> Recipe:
    return Recipe(**{"lr": 0.1, "batch_size": 30, "epochs": 2, "warmup_epochs": 0.5, **over})


def pretraining(space: str, seed: int = 0) -> Run:
    return Run(space, seed, None, f"{zlib.crc32(f'{space} {seed}'.encode()):08x}")


def finetuning(space: str, pretrain_seed: int = 0, seed: int = 0) -> Run:
    return Run(space, pretrain_seed, seed, f"{zlib.crc32(f'{space} {pretrain_seed} {seed}'.encode()):08x}")


def label_space(
    folder: Path, samples: Path, labels: list, parents: list[str | None], multi_label: bool | None = True, **columns
) -> Path:
    """A label space with labels of your own choosing: an integer an image, or a list of them."""
    table = Artifact.open(samples, "samples")
    frame = table.table("samples.parquet", ["sample_id", "split"])
    made = {"sample_id": frame.loc[frame["split"] == "train", "sample_id"].to_list(), "label": labels, **columns}
    properties = {"space": folder.name, "family": "wordnet", "granularity": len(parents)}
    properties |= {} if multi_label is None else {"multi_label": multi_label}
    with artifacts.create(
        folder, "label_space", "granularity.stages.hierarchy.stage", {"samples": table}, {"space": folder.name}
    ) as out:
        out.table("labels.parquet", pd.DataFrame(made))
        out.table("classes.parquet", pd.DataFrame({"label": range(len(parents)), "parent": parents}))
        out.json("properties.json", properties)
    return folder


LOOPS = ["no closed loop", "one closed loop", "two closed loops"]


@pytest.fixture(scope="module")
def spaces(digits) -> dict[str, Path]:
    folder = digits.parent / "label_spaces"
    definitions = {
        "target": ("manual", {"rank": "loops"}),
        "manual-digit": ("manual", {"rank": "digit"}),
        "random-200": ("random", {"classes": 200}),  # 120 images: many empty classes
    }
    for name, (family, params) in definitions.items():
        hierarchy.run(name, family, params, 0, digits, [], folder / name)
    frame = Artifact.open(digits).table("samples.parquet")
    frame = frame[frame["split"] == "train"]
    digit = np.unique(frame["digit"].astype(str), return_inverse=True)[1].tolist()
    # Every image its digit, every third one label more; class 12 is empty.
    labels = [[label] + [10 + label % 2] * (i % 3 == 0) for i, label in enumerate(digit)]
    loops = dict(zip(digit, frame["loops"].astype(str), strict=True))
    parents = [*(loops[label] for label in range(10)), LOOPS[1], LOOPS[0], None]
    label_space(folder / "wordnet-1", digits, labels, parents)
    return {name: folder / name for name in [*definitions, "wordnet-1"]}


@pytest.fixture(scope="module")
def pretrain_on(digits, digits_pixels, spaces):
    """Pretrain runs on the digits into a folder; returns the artifact."""

    def go(output: Path, runs: list[Run], options: Recipe | None = None, model: Model = MODEL) -> Artifact:
        label_spaces = [spaces[name] for name in dict.fromkeys(run.space for run in runs)]
        options = options or recipe()
        pretrain.run(options, model, runs, 0, digits, digits_pixels, label_spaces, output, "cpu")
        return Artifact.open(output, "pretrain")

    return go


@pytest.fixture(scope="module")
def pretrained(pretrain_on, digits) -> Artifact:
    runs = [pretraining("target"), pretraining("target", 1)]
    runs += [pretraining("manual-digit"), pretraining("random-200"), pretraining("wordnet-1")]
    return pretrain_on(digits.parent / "pretrain" / "all", runs)


@pytest.fixture(scope="module")
def finetune_on(digits, digits_pixels, pretrained):
    def go(output: Path, runs: list[Run], options: Recipe | None = None, parents=None) -> Artifact:
        parents = parents or [pretrained.path]
        finetune.run(options or recipe(), runs, 0, digits, digits_pixels, parents, output, "cpu")
        return Artifact.open(output, "finetune")

    return go


def weights_of(artifact: Artifact, row: int = 0) -> dict[str, torch.Tensor]:
    return artifact.tensors(artifact.table("runs.parquet")["backbone"][row])


def without_head(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in weights.items() if not name.startswith("fc.")}


def equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


# ---------------------------------------------------------------- killed and resumed

AUGMENTED = {"flip": True, "pad": 1, "crop": 7}
KILLED = {
    "momentum": (recipe(augment=AUGMENTED), MODEL, "manual-digit"),
    "adamw": (recipe(optimizer="adamw", lr=1e-3, augment=AUGMENTED), MODEL, "manual-digit"),
    "dropout": (recipe(momentum=0), Model(args={**TINY, "drop_rate": 0.5}), "manual-digit"),
    "several labels": (
        recipe(optimizer="adamw", lr=1e-3, head_bias=-10, clip_norm=1, schedule="linear", hold_epochs=0.3),
        MODEL,
        "wordnet-1",
    ),
}


@pytest.mark.parametrize("step", [2, 7], ids=["in the first epoch", "in the last"])
@pytest.mark.parametrize("name", KILLED)
def test_a_killed_pretraining_resumes_to_the_same_bytes(tmp_path, pretrain_on, kill_at, checkpoint_always, name, step):
    options, model, space = KILLED[name]
    runs = [pretraining(space)]
    undisturbed = pretrain_on(tmp_path / "undisturbed", runs, options, model)
    kill_at(loop, "augment", step)
    with pytest.raises(kill_at.Killed):
        pretrain_on(tmp_path / "resumed", runs, options, model)
    assert not (tmp_path / "resumed").exists()
    calls = kill_at(loop, "augment", None)
    resumed = pretrain_on(tmp_path / "resumed", runs, options, model)
    assert [args[-1] for args in calls] == list(range(step - 1, STEPS))  # it went on, and did not start over
    assert equal(weights_of(resumed), weights_of(undisturbed))
    assert resumed.digest == undisturbed.digest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["resumed", "undisturbed"]


def test_a_training_that_is_killed_before_it_is_saved_is_not_done_again(
    tmp_path, pretrain_on, kill_at, checkpoint_always
):
    runs = [pretraining("manual-digit")]
    kill_at(loop, "predict", 2)  # the first one tries the images
    with pytest.raises(kill_at.Killed):
        pretrain_on(tmp_path / "out", runs)
    kill_at(loop, "predict", None)
    calls = kill_at(loop, "augment", None)
    pretrain_on(tmp_path / "out", runs)
    assert [args[-1] for args in calls] == [STEPS - 1]  # the last checkpoint is before the last step


@pytest.mark.parametrize("options", [{}, {"freeze_backbone": True, "nesterov": True}], ids=["whole", "head"])
def test_a_killed_finetuning_resumes_to_the_same_bytes(tmp_path, finetune_on, kill_at, checkpoint_always, options):
    runs, options = [finetuning("manual-digit"), finetuning("wordnet-1")], recipe(**options)
    undisturbed = finetune_on(tmp_path / "undisturbed", runs, options)
    kill_at(loop, "augment", STEPS + 4)
    with pytest.raises(kill_at.Killed):
        finetune_on(tmp_path / "resumed", runs, options)
    calls = kill_at(loop, "augment", None)
    assert finetune_on(tmp_path / "resumed", runs, options).digest == undisturbed.digest
    assert [args[-1] for args in calls] == list(range(3, STEPS))  # the first run was not trained again


def test_checkpoints_of_another_recipe_are_not_continued(tmp_path, pretrain_on, kill_at, checkpoint_always):
    runs = [pretraining("target")]
    kill_at(loop, "augment", 5)
    with pytest.raises(kill_at.Killed):
        pretrain_on(tmp_path / "made", runs, recipe(lr=0.3))
    calls = kill_at(loop, "augment", None)
    pretrain_on(tmp_path / "made", runs, recipe(lr=0.1))
    assert len(calls) == STEPS


# ---------------------------------------------------------------- jobs, seeds, heads


def test_runs_in_one_job_or_in_separate_jobs_have_the_same_bytes(tmp_path, pretrain_on, pretrained):
    table = pretrained.table("runs.parquet")
    for i in (1, 2, 3, 4):  # in another order, too: the first run of a job is nothing special
        alone = pretrain_on(tmp_path / str(i), [pretraining(table["space"][i], int(table["pretrain_seed"][i]))])
        file = table["backbone"][i]
        assert (alone.path / file).read_bytes() == (pretrained.path / file).read_bytes()
        assert alone.table("runs.parquet").iloc[0].to_dict() == table.iloc[i].to_dict()


def test_finetunings_in_one_job_or_in_separate_jobs_are_the_same(tmp_path, finetune_on):
    runs = [finetuning("target"), finetuning("manual-digit"), finetuning("target", 1, 2)]
    together = finetune_on(tmp_path / "together", runs)
    last = finetune_on(tmp_path / "alone", runs[2:])
    columns = ["sample_id", runs[2].id]
    assert last.table("predictions.parquet").equals(together.table("predictions.parquet")[columns])
    assert last.table("runs.parquet").iloc[0].to_dict() == together.table("runs.parquet").iloc[2].to_dict()


def test_a_training_repeated_in_another_process_has_the_same_digest(tmp_path, pretrain_on):
    """Nothing in an artifact depends on the order of a hash table: written twenty times, it is one file."""
    runs = [pretraining("target")]
    digests = {pretrain_on(tmp_path / str(i), runs, recipe(epochs=1, batch_size=120)).digest for i in range(6)}
    assert len(digests) == 1


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


def test_runs_of_one_seed_see_their_images_in_one_order(tmp_path, monkeypatch, pretrain_on):
    orders = []
    original = Data.images
    monkeypatch.setattr(Data, "images", lambda self, rows: orders.append(list(map(int, rows))) or original(self, rows))
    for space in ("target", "manual-digit"):
        pretrain_on(tmp_path / space, [pretraining(space)])
    half = len(orders) // 2
    assert orders[:half] == orders[half:]
    assert orders[0] != orders[1]


def test_finetuning_starts_from_the_pretrained_backbone_with_a_new_head(tmp_path, monkeypatch, finetune_on, pretrained):
    started = []
    original = loop.train

    def spy(model, *args):
        started.append({name: value.clone() for name, value in model.state_dict().items()})
        return original(model, *args)

    monkeypatch.setattr(loop, "train", spy)
    finetune_on(
        tmp_path / "out",
        [finetuning("manual-digit"), finetuning("target"), finetuning("target", 1), finetuning("target", 0, 1)],
    )
    digit, target, other_backbone, other_seed = started
    parents = pretrained.table("runs.parquet")
    for state, (space, seed) in zip(
        started, [("manual-digit", 0), ("target", 0), ("target", 1), ("target", 0)], strict=True
    ):
        row = parents.index[(parents["space"] == space) & (parents["pretrain_seed"] == seed)][0]
        assert equal(without_head(state), without_head(weights_of(pretrained, row)))
        assert state["fc.weight"].shape == (3, 8)
    assert not torch.equal(target["fc.weight"], weights_of(pretrained, 0)["fc.weight"])
    assert torch.equal(digit["fc.weight"], target["fc.weight"])  # one seed, one head: arms start alike
    assert not torch.equal(target["fc.weight"], other_seed["fc.weight"])
    assert not torch.equal(target["fc.weight"], other_backbone["fc.weight"])


def test_a_new_head_depends_on_its_seed_alone():
    model = build(MODEL, 1, 7, 0)
    heads = []
    for seed in (1, 2, 1):
        torch.rand(seed)  # whatever was drawn before does not matter
        new_head(model, 4, seed)
        heads.append(model.fc.weight.clone())
    assert torch.equal(heads[0], heads[2])
    assert not torch.equal(heads[0], heads[1])


def test_training_learns(tmp_path, pretrain_on):
    made = pretrain_on(tmp_path / "out", [pretraining("target")], recipe(epochs=12, warmup_epochs=1))
    history = made.table("history.parquet")
    assert history["epoch"].tolist() == list(range(1, 13))
    assert history["train_loss"].iloc[-1] < 0.5 * history["train_loss"].iloc[0]
    assert made.table("runs.parquet")["val_error"][0] < 35  # always guessing the largest class: about half are wrong


def test_half_precision_keeps_whole_weights(tmp_path, pretrain_on):
    options = recipe(precision="bfloat16", epochs=1)
    once, again = (pretrain_on(tmp_path / name, [pretraining("target")], options) for name in ("once", "again"))
    assert once.digest == again.digest
    weights = weights_of(once)
    assert {value.dtype for name, value in weights.items() if "num_batches" not in name} == {torch.float32}
    assert not equal(weights, weights_of(pretrain_on(tmp_path / "whole", [pretraining("target")], recipe(epochs=1))))


# ---------------------------------------------------------------- errors, by hand


def by_hand(artifact: Artifact, row: int, digits: Path, pixels: Path) -> tuple[np.ndarray, np.ndarray]:
    """Outputs of a pretrained network on the validation images, computed without the package's loop."""
    frame = Artifact.open(digits).table("samples.parquet")
    values = Artifact.open(pixels).array("pixels.npy").astype(np.float64) / 255
    train = values[(frame["split"] == "train").to_numpy()]
    images = (values - train.mean()) / train.std()
    run = artifact.table("runs.parquet").iloc[row]
    network = build(MODEL, 1, int(run["granularity"]), 99)
    network.load_state_dict(weights_of(artifact, row))
    val = torch.tensor(images[(frame["split"] == "val").to_numpy()], dtype=torch.float32).permute(0, 3, 1, 2)
    with torch.no_grad():
        outputs = network.eval()(val).numpy()
    return outputs, frame.loc[frame["split"] == "val", "loops"].to_numpy(dtype=str)


def test_one_pass_error_is_that_of_the_predictions(pretrained, digits, digits_pixels):
    for row in (0, 1):
        outputs, truth = by_hand(pretrained, row, digits, digits_pixels)
        expected = 100 * np.mean(np.array(LOOPS)[outputs.argmax(1)] != truth)
        assert pretrained.table("runs.parquet")["val_error"][row] == pytest.approx(expected)


@pytest.mark.parametrize("row", [2, 3, 4], ids=["manual-digit", "random-200", "wordnet-1"])
def test_error_of_a_fine_space_is_that_of_the_predicted_parents(pretrained, digits, digits_pixels, spaces, row):
    outputs, truth = by_hand(pretrained, row, digits, digits_pixels)
    space = pretrained.table("runs.parquet")["space"][row]
    parents = Artifact.open(spaces[space]).table("classes.parquet")["parent"].to_numpy(dtype=object)
    expected = 100 * np.mean([parent != name for parent, name in zip(parents[outputs.argmax(1)], truth, strict=True)])
    assert pretrained.table("runs.parquet")["val_error"][row] == pytest.approx(expected)


def test_finetuning_error_is_that_of_its_predictions(tmp_path, finetune_on, digits):
    made = finetune_on(tmp_path / "out", [finetuning("target"), finetuning("random-200")])
    frame = Artifact.open(digits).table("samples.parquet")
    val = frame[frame["split"] == "val"]
    predictions = made.table("predictions.parquet")
    assert predictions["sample_id"].tolist() == val["sample_id"].tolist()
    names = np.array(sorted(set(frame["loops"])))
    for run in made.table("runs.parquet").itertuples():
        wrong = names[predictions[run.run_id]] != val["loops"].to_numpy(dtype=str)
        assert run.val_error == pytest.approx(100 * wrong.mean())


@pytest.fixture
def odd(tmp_path, make_samples, make_array):
    """30 training images of classes a and c; of 12 validation images, 8 are of class b, which training never sees."""
    split = ["train"] * 30 + ["val"] * 12
    kinds = ["a", "c"] * 15 + ["b"] * 8 + ["a"] * 4
    samples = make_samples(tmp_path / "samples", split, {"kind": kinds}, "kind")
    values = np.random.default_rng(0).integers(0, 256, (42, 8, 8, 1), dtype=np.uint8)
    pixels = make_array(tmp_path / "pixels", "pixels", samples, values)
    for name, family, params in (("target", "manual", {"rank": "kind"}), ("random-900", "random", {"classes": 900})):
        hierarchy.run(name, family, params, 0, samples, [], tmp_path / name)
    return samples, pixels


@pytest.mark.parametrize("space", ["target", "random-900"])
def test_a_validation_class_that_training_never_sees_is_always_wrong(tmp_path, odd, space):
    samples, pixels = odd
    options = recipe(batch_size=10, epochs=1)
    pretrain.run(options, MODEL, [pretraining(space)], 0, samples, pixels, [tmp_path / space], tmp_path / "pre", "cpu")
    finetune.run(options, [finetuning(space)], 0, samples, pixels, [tmp_path / "pre"], tmp_path / "fine", "cpu")
    data = Data(Artifact.open(samples), Artifact.open(pixels), CPU)
    assert data.target_names.tolist() == ["a", "c"]
    assert data.target[data.val].tolist() == [-1] * 8 + [0] * 4
    for kind in ("pre", "fine"):
        assert Artifact.open(tmp_path / kind).table("runs.parquet")["val_error"][0] >= 66.6
    assert set(Artifact.open(tmp_path / "fine").table("predictions.parquet").iloc[:, 1]) <= {0, 1}


def test_moments_are_those_of_the_training_images(odd):
    samples, pixels = map(Artifact.open, odd)
    images = Data(samples, pixels, CPU).images(np.arange(30)).double()
    assert images.shape == (30, 1, 8, 8)
    assert images.mean().item() == pytest.approx(0, abs=1e-6)
    assert images.std(correction=0).item() == pytest.approx(1, abs=1e-5)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_loss_that_is_no_longer_finite_is_a_clear_error(tmp_path, pretrain_on, optimizer):
    with pytest.raises(GranularityError, match=r"the training loss is (nan|inf) in epoch \d: lower lr"):
        pretrain_on(tmp_path / "out", [pretraining("target")], recipe(lr=1e30, optimizer=optimizer))
    assert not (tmp_path / "out").exists()


def test_a_batch_larger_than_the_data_is_a_clear_error(tmp_path, pretrain_on, finetune_on):
    message = "batch_size = 121: there are only 120 training images"
    with pytest.raises(GranularityError, match=message):
        pretrain_on(tmp_path / "pre", [pretraining("target")], recipe(batch_size=121))
    with pytest.raises(GranularityError, match=message):
        finetune_on(tmp_path / "fine", [finetuning("target")], recipe(batch_size=121))


def test_a_missing_label_space_or_backbone_is_named(tmp_path, digits, digits_pixels, spaces, finetune_on):
    with pytest.raises(GranularityError, match=r"label spaces \['manual-x'\], but only \['target'\] are given"):
        runs = [pretraining("manual-x")]
        pretrain.run(recipe(), MODEL, runs, 0, digits, digits_pixels, [spaces["target"]], tmp_path / "out", "cpu")
    with pytest.raises(GranularityError, match="0 pretrainings on 'target' with seed 9"):
        finetune_on(tmp_path / "out", [finetuning("target", 9)])


def test_labels_or_pixels_of_other_images_are_refused(tmp_path, odd, digits, digits_pixels, spaces):
    samples, pixels = odd
    with pytest.raises(GranularityError, match="target: was made from another 'samples' than"):
        pretrain.run(
            recipe(), MODEL, [pretraining("target")], 0, samples, pixels, [spaces["target"]], tmp_path / "out", "cpu"
        )
    with pytest.raises(GranularityError, match="180 images, but the sample table has 42"):
        Data(Artifact.open(samples), Artifact.open(digits_pixels), CPU)


def test_a_network_that_cannot_take_the_images_is_a_clear_error(tmp_path, pretrain_on):
    model = Model(name="vit_tiny_patch16_224", stem="timm", args=None)
    with pytest.raises(GranularityError, match="this network cannot take images of 8 px"):
        pretrain_on(tmp_path / "out", [pretraining("manual-digit")], recipe(), model)


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


# ---------------------------------------------------------------- several labels an image

SETS = [[0, 2], [1], [0, 1, 2, 4], [3], [2, 3]]  # of five images, among five classes
ALL = LabelSets(np.concatenate(SETS).astype(np.int32), np.cumsum([0, *map(len, SETS)]))


def explicit(sets: list[list[int]], classes: int) -> torch.Tensor:
    return torch.tensor([[float(c in labels) for c in range(classes)] for labels in sets])


@pytest.mark.parametrize("picked", [[0, 1, 2, 3, 4], [4, 0, 2], [3], [1, 1], []], ids=str)
def test_the_multi_hot_target_is_that_of_the_sets_picked(picked):
    found = ALL.multi_hot(torch.tensor(picked, dtype=torch.int64), 6, CPU)
    assert found.dtype == torch.float32
    assert torch.equal(found, explicit([SETS[i] for i in picked], 6).reshape(len(picked), 6))


@pytest.mark.parametrize(
    ("labels", "loss"),
    [(ALL, "auto"), (ALL, "sigmoid"), (torch.tensor([2, 0, 4, 1, 1]), "sigmoid")],
    ids=["auto", "sigmoid", "one label each"],
)
def test_sigmoid_cross_entropy_and_its_gradient_are_those_of_an_explicit_target(labels, loss):
    picked = torch.tensor([4, 0, 2])
    sets = SETS if labels is ALL else [[int(label)] for label in labels]
    truth = explicit([sets[i] for i in picked], 5)
    ours, theirs = (torch.randn(3, 5, generator=torch.manual_seed(0)).mul(4).requires_grad_() for _ in range(2))
    value = loop.cross_entropy(ours, labels, picked, loss)
    reference = torch.nn.functional.binary_cross_entropy_with_logits(theirs, truth, reduction="none").sum(1).mean()
    torch.testing.assert_close(value, reference)
    x, t = theirs.detach().double(), truth.double()
    assert value.item() == pytest.approx(((1 + x.exp()).log() - x * t).sum().item() / 3, rel=1e-6)
    value.backward(), reference.backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    torch.testing.assert_close(ours.grad.double(), (torch.sigmoid(x) - t) / 3)


@pytest.mark.parametrize("loss", ["auto", "softmax"])
def test_one_label_an_image_is_softmax_unless_told(loss):
    outputs, labels, picked = torch.randn(3, 5), torch.tensor([2, 0, 4, 1, 1]), torch.tensor([4, 0, 2])
    chosen = outputs.double().log_softmax(1)[torch.arange(3), labels[picked]]
    assert float(loop.cross_entropy(outputs, labels, picked, loss)) == pytest.approx(-float(chosen.mean()), rel=1e-6)


@pytest.fixture
def colours(tmp_path, make_samples, make_array):
    """Images in which some of three colours glow: a label for each, and label 3 for all; the target is the first."""
    rng = np.random.default_rng(0)
    on = rng.random((120, 3)) < 0.5
    on[~on.any(1), 0] = True
    first = [f"{row.argmax()}" for row in on]
    samples = make_samples(tmp_path / "samples", ["train"] * 80 + ["val"] * 40, {"first": first}, "first")
    values = rng.integers(0, 60, (120, 8, 8, 3), dtype=np.uint8) + 120 * on[:, None, None].astype(np.uint8)
    labels = [[*np.flatnonzero(row).tolist(), 3] for row in on[:80]]
    space = label_space(tmp_path / "wordnet-2", samples, labels, ["0", "1", "2", "0"])
    return samples, make_array(tmp_path / "pixels", "pixels", samples, values), space, on


def test_several_labels_are_learnt(tmp_path, colours):
    samples, pixels, space, on = colours
    options = recipe(lr=0.03, batch_size=20, epochs=30, warmup_epochs=2, schedule="linear", head_bias=-4)
    pretrain.run(options, MODEL, [pretraining("wordnet-2")], 0, samples, pixels, [space], tmp_path / "made", "cpu")
    made = Artifact.open(tmp_path / "made")
    losses = made.table("history.parquet")["train_loss"]
    assert losses.iloc[0] > 6  # two or three labels an image are true, each at about sigmoid(-4)
    assert losses.iloc[-1] < 0.15
    data = Data(Artifact.open(samples), Artifact.open(pixels), CPU)
    network = build(MODEL, 3, 4, 99)
    network.load_state_dict(weights_of(made))
    outputs = loop.predict(network.eval(), data, data.val, options)
    assert ((outputs > 0).numpy() == np.column_stack([on[80:], np.full(40, True)])).mean() > 0.98
    first = np.array([0, 1, 2, 0])[outputs.argmax(1)]
    assert made.table("runs.parquet")["val_error"][0] == pytest.approx(100 * np.mean(first != on[80:].argmax(1)))


def test_a_space_with_several_labels_has_no_softmax(tmp_path, pretrain_on):
    with pytest.raises(GranularityError, match=r"pretrain\.loss = softmax: .* in \['wordnet-1'\]; set it to"):
        pretrain_on(tmp_path / "out", [pretraining("target"), pretraining("wordnet-1")], recipe(loss="softmax"))


def test_sigmoid_is_trained_on_ordinary_spaces_and_in_finetuning(tmp_path, pretrain_on, finetune_on):
    options = recipe(loss="sigmoid", epochs=12)
    once, softmax = (
        pretrain_on(tmp_path / name, [pretraining("target")], value)
        for name, value in (("sigmoid", options), ("softmax", recipe(epochs=12)))
    )
    assert not equal(weights_of(once), weights_of(softmax))
    assert once.table("runs.parquet")["val_error"][0] < 35
    tuned = finetune_on(tmp_path / "fine", [finetuning("wordnet-1")], options)
    assert tuned.table("runs.parquet")["val_error"][0] < 35


SIX = [[0], [0, 1], [2], [1, 2], [0, 2], [1]]


@pytest.mark.parametrize(
    ("labels", "multi_label", "words"),
    [
        ([*SIX[:3], [1, 3], *SIX[4:]], True, "label 3 of 'image 3', but classes.parquet ends at 2"),
        ([*SIX[:5], [-1, 1]], True, "label -1 of 'image 5'"),
        ([*SIX[:2], [], *SIX[3:]], True, "'image 2' has no label"),
        ([*SIX[:2], None, *SIX[3:]], True, "'image 2' has no label"),
        ([*SIX[:4], [2, 0], [1]], True, "the labels of 'image 4' do not ascend"),
        ([*SIX[:5], [1, 1]], True, "the labels of 'image 5' do not ascend"),
        ([*SIX[:5], [None, 1]], True, "a label is null"),
        ([["a"]] * 6, True, "a label is (large_)?string; each must be an integer"),
        ([0, 1, 2, 3, 0, 1], False, "label 3 of 'image 3', but classes.parquet ends at 2"),
        ([0, 1, 2, -1, 0, 1], None, "label -1 of 'image 3'"),
        (SIX, False, "not of the type that multi_label"),
        (SIX, None, "not of the type that multi_label"),
        ([0, 1, 2, 0, 1, 2], True, "not of the type that multi_label"),
    ],
)
def test_labels_that_cannot_be_are_named(tmp_path, make_samples, make_array, labels, multi_label, words):
    samples = make_samples(tmp_path / "samples", ["train"] * 6, {"kind": list("aabbcc")}, "kind")
    pixels = make_array(tmp_path / "pixels", "pixels", samples, np.zeros((6, 8, 8, 1), dtype=np.uint8))
    space = label_space(tmp_path / "odd", samples, labels, ["a", "b", "c"], multi_label)
    data = Data(Artifact.open(samples), Artifact.open(pixels), CPU)
    with pytest.raises(GranularityError, match=words) as error:
        data.labels_of(Artifact.open(space), 3)
    assert "\n" not in str(error.value) and "labels.parquet" in str(error.value)


def test_labels_in_another_order_or_without_a_column_are_refused(tmp_path, make_samples, make_array):
    samples = make_samples(tmp_path / "samples", ["train"] * 6, {"kind": list("aabbcc")}, "kind")
    pixels = make_array(tmp_path / "pixels", "pixels", samples, np.zeros((6, 8, 8, 1), dtype=np.uint8))
    data = Data(Artifact.open(samples), Artifact.open(pixels), CPU)
    swapped = [f"image {i}" for i in (1, 0, 2, 3, 4, 5)]
    space = label_space(tmp_path / "swapped", samples, SIX, ["a", "b", "c"], sample_id=swapped)
    with pytest.raises(GranularityError, match=r"swapped: does not cover the training images .* row by row"):
        data.labels_of(Artifact.open(space), 3)
    good = Artifact.open(label_space(tmp_path / "good", samples, SIX, ["a", "b", "c"]))
    assert torch.equal(data.labels_of(good, 3).multi_hot(torch.arange(6), 3, CPU), explicit(SIX, 3))
    with artifacts.create(tmp_path / "bare", "label_space", "granularity.stages.hierarchy.stage", {}, {}) as out:
        out.table("labels.parquet", pd.DataFrame({"sample_id": swapped}))
    with pytest.raises(GranularityError, match=r"has no column \['label'\]; it has \['sample_id'\]"):
        data.labels_of(Artifact.open(tmp_path / "bare"), 3)


# ---------------------------------------------------------------- what a recipe says


def test_the_head_starts_at_the_bias_of_the_recipe(tmp_path, monkeypatch, pretrain_on, finetune_on):
    started = []
    original = loop.train
    monkeypatch.setattr(
        loop, "train", lambda model, *args: started.append(model.fc.bias.tolist()) or original(model, *args)
    )
    options = recipe(epochs=1, head_bias=-10)
    pretrain_on(tmp_path / "pre", [pretraining("wordnet-1")], options)
    finetune_on(tmp_path / "fine", [finetuning("target")], options)
    assert started == [[-10.0] * 13, [-10.0] * 3]
    plain, biased = build(MODEL, 1, 3, 5), build(MODEL, 1, 3, 5, 0.0)
    assert torch.equal(plain.fc.weight, biased.fc.weight) and biased.fc.bias.tolist() == [0.0] * 3
    assert plain.fc.bias.abs().min() > 0
    monkeypatch.setattr(biased, "get_classifier", lambda: torch.nn.Linear(8, 3, bias=False))
    with pytest.raises(GranularityError, match=r"head_bias = -10: the head of this network has no bias"):
        new_head(biased, 3, 0, -10)


@pytest.fixture
def one(digits, digits_pixels):
    """Train a network of the tests on the digits' target: one(recipe's values) -> weights before, network after."""
    data = Data(Artifact.open(digits), Artifact.open(digits_pixels), CPU)

    def go(model: Model = MODEL, **over) -> tuple[dict[str, torch.Tensor], torch.nn.Module]:
        network = build(model, 1, 3, 7)
        before = {name: value.clone() for name, value in network.state_dict().items()}
        loop.train(network, data, data.torch_target(), recipe(**over), 7, None)
        return before, network

    return go


def test_a_frozen_backbone_stays_as_it_is_and_its_head_learns(one, tmp_path, finetune_on):
    before, network = one(freeze_backbone=True, weight_decay=0.1)
    after = network.state_dict()
    assert equal(without_head(before), without_head(after))  # batch-norm statistics, too
    assert not torch.equal(before["fc.weight"], after["fc.weight"])
    assert [name for name, value in network.named_parameters() if value.grad is not None] == ["fc.weight", "fc.bias"]
    made = finetune_on(tmp_path / "out", [finetuning("manual-digit")], recipe(freeze_backbone=True, epochs=12))
    history = made.table("history.parquet")["train_loss"]
    assert history.iloc[-1] < 0.95 * history.iloc[0]


def test_a_recipe_clips_the_gradient(one):
    before, network = one(clip_norm=1e-3, lr=0.1, momentum=0, weight_decay=0)
    moved = torch.cat([(value - before[name]).flatten() for name, value in network.named_parameters()]).norm().item()
    assert 0 < moved <= 1e-4 * STEPS * 1.01


def test_pretraining_has_no_backbone_to_freeze(tmp_path, pretrain_on):
    with pytest.raises(GranularityError, match="freeze_backbone: there is no backbone yet"):
        pretrain_on(tmp_path / "out", [pretraining("target")], recipe(freeze_backbone=True))


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


@pytest.mark.parametrize("clip", [None, 0.5, 5.0, 100.0])
def test_a_gradient_is_clipped_to_a_norm_over_all_weights(clip):
    """On a . weights, the gradient is a: (3, 4, 0, 12), of norm 13, in two tensors."""
    network = torch.nn.Linear(3, 1)
    before = torch.cat([network.weight[0].detach(), network.bias.detach()])

    def loss_at(step: int) -> torch.Tensor:
        return network.weight[0] @ torch.tensor([3.0, 4.0, 0.0]) + 12 * network.bias[0]

    sgd = torch.optim.SGD(network.parameters(), lr=0.1)
    minimise(network, sgd, loss_at, epochs=1, steps_per_epoch=1, warmup_epochs=0, seed=0, clip_norm=clip)
    moved = before - torch.cat([network.weight[0].detach(), network.bias.detach()])
    length = 0.1 * min(13, clip or 13)
    torch.testing.assert_close(moved, torch.tensor([3.0, 4.0, 0.0, 12.0]) / 13 * length, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["sgd", "nesterov", "adam", "adamw"])
def test_two_steps_are_those_of_the_textbook(kind):
    """On w^2 / 2 from w = 2, with weight decay; sgd and adam add it to the gradient, adamw takes it off the weight."""
    lr, decay, mass = 0.1, 0.03, 0.9
    options = Recipe(
        optimizer="sgd" if kind == "nesterov" else kind, nesterov=kind == "nesterov", lr=lr, weight_decay=decay
    )
    network = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(network.weight, 2.0)
    chosen = optimizer(network, options)
    w, velocity, square = 2.0, 0.0, 0.0
    for step in (1, 2):
        chosen.zero_grad()
        (network.weight**2 / 2).sum().backward()
        chosen.step()
        gradient = w + (0 if kind == "adamw" else decay * w)
        if kind in ("sgd", "nesterov"):
            velocity = mass * velocity + gradient
            w -= lr * (gradient + mass * velocity if kind == "nesterov" else velocity)
        else:
            velocity, square = 0.9 * velocity + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
            rate = lr * velocity / (1 - 0.9**step) / (math.sqrt(square / (1 - 0.999**step)) + 1e-8)
            w -= rate + (lr * decay * w if kind == "adamw" else 0)
        assert network.weight.item() == pytest.approx(w, rel=1e-5)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"lr": 0.1, "final_lr": 0.2}, "final_lr: 0.2 is more than the peak, lr = 0.1"),
        ({"nesterov": True, "optimizer": "adamw"}, "nesterov: is for optimizer: sgd"),
        ({"nesterov": True, "momentum": 0}, "nesterov: is for optimizer: sgd"),
        ({"clip_norm": 0}, "greater than 0"),
        ({"step_factor": 1.5}, "less than or equal to 1"),
        ({"loss": "hinge"}, "'auto', 'softmax' or 'sigmoid'"),
    ],
)
def test_a_recipe_that_contradicts_itself_is_refused(values, words):
    with pytest.raises(pydantic.ValidationError, match=words):
        Recipe(**values)


# The paper's recipes, as docs/recipes.md gives them: name -> steps an epoch, then the learning rate at some steps.
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
    text = (Path(__file__).parents[1] / "docs/recipes.md").read_text(encoding="utf-8")
    blocks = [block.split("```")[0] for block in text.split("```yaml\n")[1:]]
    return {block.split()[1].rstrip(":"): yaml.safe_load(block) for block in blocks if block.startswith("# R")}


def test_the_recipes_of_the_paper_are_valid_configurations(monkeypatch):
    root = Path(__file__).parents[1]
    monkeypatch.chdir(root)
    found = recipes_of_the_paper()
    assert list(found) == ["R1", "R2", "R3", "R4a", "R4b", "R4c", "R5", "R6"]
    common = {"conditions": [{"train_size": "all"}], "pixels": found["R1"]["pixels"]}
    for values in found.values():
        config = files.load(root / "config/config.yaml", overrides={**common, **values})
        assert {config.pretrain, config.finetune} > {Recipe()}
    assert found["R4a"]["finetune"] == found["R3"]["pretrain"]
    same = {key: value for key, value in found["R4b"]["finetune"].items() if key != "freeze_backbone"}
    assert {**same, "epochs": 90} == found["R3"]["pretrain"]


def test_the_papers_vit_has_its_dropout(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[1])
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
    share = loop.schedule(options, per_epoch)
    for step, rate in expected.items():
        found = options.lr * share(step, options.epochs * per_epoch, options.warmup_epochs * per_epoch)
        assert found == pytest.approx(rate, rel=1e-3, abs=1e-6)


# ---------------------------------------------------------------- augmentation, batches, schedule

IMAGES = torch.arange(2 * 3 * 6 * 6, dtype=torch.float32).reshape(2, 3, 6, 6)


def test_without_augmentation_images_are_untouched():
    assert augment(IMAGES, Augment(), 0, 0) is IMAGES


@pytest.mark.parametrize(
    ("pad", "crop", "side"), [(0, None, 6), (2, None, 6), (0, 4, 4), (2, 9, 9), (1, 8, 8), (2, 1, 1)]
)
@pytest.mark.parametrize("flip", [False, True])
def test_pad_and_crop_give_windows_of_the_padded_image(pad, crop, side, flip):
    padded = torch.nn.functional.pad(IMAGES, [pad] * 4)
    found = augment(IMAGES, Augment(flip=flip, pad=pad, crop=crop), 0, 3)
    assert found.shape == (2, 3, side, side)
    for image, whole in zip(found, padded, strict=True):
        places = range(whole.shape[-1] - side + 1)
        windows = [whole[:, y : y + side, x : x + side] for y in places for x in places]
        mirrored = [window.flip(2) for window in windows] if flip else []
        assert any(torch.equal(image, window) for window in windows + mirrored)


def test_every_window_and_both_sides_are_drawn():
    one = torch.arange(9.0).reshape(1, 1, 3, 3).expand(4000, 1, 3, 3)
    found = augment(one, Augment(flip=True, crop=2), 0, 0).reshape(4000, 4)
    kinds, counts = torch.unique(found, dim=0, return_counts=True)
    assert len(kinds) == 2 * 4
    assert counts.min() > 400  # of 500


def test_flip_mirrors_left_to_right_about_half_of_the_images():
    many = torch.rand(1000, 2, 5, 5)
    found = augment(many, Augment(flip=True), 1, 2)
    same = torch.tensor([torch.equal(a, b) for a, b in zip(found, many, strict=True)])
    mirrored = torch.tensor([torch.equal(a, b.flip(2)) for a, b in zip(found, many, strict=True)])
    assert (same ^ mirrored).all()
    assert 400 < mirrored.sum() < 600


def test_augmentation_is_a_function_of_seed_and_step():
    options = Augment(flip=True, pad=2)
    many = torch.rand(50, 1, 6, 6)
    first = augment(many, options, 1, 2)
    torch.manual_seed(123)
    assert torch.equal(augment(many, options, 1, 2), first)
    assert not torch.equal(augment(many, options, 1, 3), first)
    assert not torch.equal(augment(many, options, 2, 2), first)


@pytest.mark.parametrize(("crop", "side", "start"), [(None, 6, 0), (4, 4, 1), (5, 5, 0), (9, 6, 0)])
def test_evaluation_sees_the_centre(crop, side, start):
    found = centre_crop(IMAGES, Augment(pad=2, crop=crop))
    assert torch.equal(found, IMAGES[:, :, start : start + side, start : start + side])


def test_an_epoch_holds_every_image_at_most_once_and_whole_batches_only():
    batches = Batches(23, 5, seed=0)
    assert batches.per_epoch == 4
    epochs = [torch.cat([batches(step) for step in range(4 * e, 4 * e + 4)]).tolist() for e in range(3)]
    assert all(len(epoch) == len(set(epoch)) == 20 for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert set(epochs[0]) | set(epochs[1]) | set(epochs[2]) == set(range(23))
    fresh = Batches(23, 5, seed=0)
    assert [fresh(step).tolist() for step in (7, 2)] == [batches(step).tolist() for step in (7, 2)]
    assert Batches(23, 5, seed=1)(0).tolist() != batches(0).tolist()


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
