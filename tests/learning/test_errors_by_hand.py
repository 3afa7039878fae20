"""Errors are counted as they should be: computed here without the package's own evaluation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from granularity.learning.dataset import Data
from granularity.learning.network import build
from granularity.store.artifacts import Artifact
from support import tasks
from support.trainings import CPU, LOOPS, MODEL, finetuning, pretraining, recipe, weights_of


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


@pytest.mark.parametrize("space", ["target", "random-900"])
def test_a_validation_class_that_training_never_sees_is_always_wrong(tmp_path, odd, space):
    samples, pixels = odd
    options = recipe(batch_size=10, epochs=1)
    given = {"samples": samples, "pixels": pixels}
    first = {"recipe": options, "model": MODEL, "runs": [pretraining(space).name]}
    tasks.run("pretrain", tmp_path / "pre", first, **given, hierarchy=[tmp_path / space])
    second = {"recipe": options, "runs": [finetuning(space).name]}
    tasks.run("finetune", tmp_path / "fine", second, **given, pretrain=[tmp_path / "pre"])
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
