"""Evaluation: scores against scikit-learn and by hand; errors computed without the package's own evaluation."""

from pathlib import Path

import numpy as np
import pytest
import torch

from granularity.learning.data.dataset import Data
from granularity.learning.networks.network import build
from granularity.learning.options import Augment
from granularity.learning.training.evaluation import (
    features,
    predict,
    predicted_classes,
)
from granularity.store.artifact import Artifact
from support import tasks
from support.trainings import CPU, MODEL, finetuning, pretraining, recipe, weights_of


@pytest.fixture
def shifted(tmp_path, make_samples, make_array) -> Data:
    """Images of three splits, one of which training never sees."""
    split = ["train"] * 8 + ["val"] * 5 + ["shifted"] * 7
    samples = make_samples(tmp_path / "samples", split, {"kind": [*"abababab", *"abcab", *"bababca"]}, "kind")
    values = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 1), dtype=np.uint8)
    pixels = make_array(tmp_path / "pixels", "pixels", samples, values)
    return Data(Artifact.open(samples), Artifact.open(pixels), CPU)


def test_any_split_is_evaluated(shifted):
    assert [shifted.rows(name).tolist() for name in ("train", "shifted", "nowhere")] == [
        list(range(8)),
        list(range(13, 20)),
        [],
    ]
    assert shifted.target[shifted.rows("shifted")].tolist() == [1, 0, 1, 0, 1, -1, 0]
    network = build(MODEL, 1, 5, 0).eval()
    for name in ("train", "val", "shifted"):
        rows = shifted.rows(name)
        with torch.no_grad():
            outputs = network(shifted.images(rows))
        assert torch.equal(predict(network, shifted, rows, Augment()), outputs)
        assert predicted_classes(network, shifted, rows, Augment()).tolist() == outputs.argmax(1).tolist()
        pooled = features(network, shifted, rows, Augment())
        assert pooled.shape == (len(rows), 8)
        torch.testing.assert_close(network.fc(pooled), outputs)


# ---------------------------------------------------------------- errors are counted as they should be


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


@pytest.mark.parametrize("row", [0, 2, 3, 4], ids=["target", "manual-digit", "random-200", "wordnet-1"])
def test_the_error_of_a_space_is_that_of_the_predicted_parents(pretrained, digits, digits_pixels, spaces, row):
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
