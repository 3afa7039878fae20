"""Training: the same bytes however a run was interrupted or grouped, and errors counted as they should be."""

from __future__ import annotations

import math
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

from granularity.artifacts import Artifact
from granularity.config import Augment, Model, Recipe
from granularity.errors import GranularityError
from granularity.hierarchy import stage as hierarchy
from granularity.optimise import Batches, warmup_cosine
from granularity.runs import Run
from granularity.training import finetune, loop, pretrain
from granularity.training.data import Data, augment, centre_crop
from granularity.training.model import build, new_head

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
    return {name: folder / name for name in definitions}


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
    runs = [pretraining("target"), pretraining("target", 1), pretraining("manual-digit"), pretraining("random-200")]
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
    "momentum": (recipe(augment=AUGMENTED), MODEL),
    "adamw": (recipe(optimizer="adamw", lr=1e-3, augment=AUGMENTED), MODEL),
    "dropout": (recipe(momentum=0), Model(args={**TINY, "drop_rate": 0.5})),
}


@pytest.mark.parametrize("step", [2, 7], ids=["in the first epoch", "in the last"])
@pytest.mark.parametrize("name", KILLED)
def test_a_killed_pretraining_resumes_to_the_same_bytes(tmp_path, pretrain_on, kill_at, checkpoint_always, name, step):
    options, model = KILLED[name]
    runs = [pretraining("manual-digit")]
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


def test_a_killed_finetuning_resumes_to_the_same_bytes(tmp_path, finetune_on, kill_at, checkpoint_always):
    runs = [finetuning("manual-digit"), finetuning("target")]
    undisturbed = finetune_on(tmp_path / "undisturbed", runs)
    kill_at(loop, "augment", STEPS + 4)
    with pytest.raises(kill_at.Killed):
        finetune_on(tmp_path / "resumed", runs)
    calls = kill_at(loop, "augment", None)
    assert finetune_on(tmp_path / "resumed", runs).digest == undisturbed.digest
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
    for i in (1, 2, 3):  # in another order, too: the first run of a job is nothing special
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
        names = np.array(["no closed loop", "one closed loop", "two closed loops"])
        expected = 100 * np.mean(names[outputs.argmax(1)] != truth)
        assert pretrained.table("runs.parquet")["val_error"][row] == pytest.approx(expected)


@pytest.mark.parametrize("row", [2, 3], ids=["manual-digit", "random-200"])
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
    with pytest.raises(GranularityError, match="does not cover the training images"):
        pretrain.run(
            recipe(), MODEL, [pretraining("target")], 0, samples, pixels, [spaces["target"]], tmp_path / "out", "cpu"
        )
    with pytest.raises(GranularityError, match="180 images, but the sample table has 42"):
        Data(Artifact.open(samples), Artifact.open(digits_pixels), CPU)


@pytest.mark.parametrize(
    "model",
    [Model(name="resnet1818"), Model(args={"no_such_argument": 1}), Model(name="vit_tiny_patch16_224", args=None)],
)
def test_a_network_that_cannot_be_built_is_a_clear_error(model):
    with pytest.raises(GranularityError, match=r"model\.(name|stem) = "):
        build(model, 1, 3, 0)


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
def test_the_schedule_warms_up_then_falls_to_zero(steps, warmup):
    shares = [warmup_cosine(step, steps, warmup) for step in range(steps)]
    assert all(0 < share <= 1 for share in shares)
    top = min(math.ceil(warmup), steps - 1)
    assert shares[: top + 1] == sorted(shares[: top + 1])
    assert shares[top:] == sorted(shares[top:], reverse=True)
    if steps == 100:
        assert max(shares) == 1
        assert shares[-1] < 0.001
