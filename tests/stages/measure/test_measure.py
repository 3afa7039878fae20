"""The stage: every network there is, a measure of one's own, and the same bytes after a kill."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.base.kernels import POOLS
from granularity.learning.runs import Run
from granularity.learning.training import evaluation
from granularity.stages.measure.stage import sorted_out
from granularity.store.artifact import Artifact
from support import tasks, writing

RUNS = [Run("manual-digit", seed, None, f"0000000{seed}").name for seed in (0, 1)]
FINETUNED = Run("manual-digit", 0, 3, "0000000f").name
MODEL = {"args": {"layers": [1, 1, 1, 1], "channels": [4, 8, 8, 8]}}
RECIPE = {"batch_size": 30, "epochs": 2, "lr": 0.1, "warmup_epochs": 0.5}
TOY = """
EXTENDS = "measure"
from granularity.base.section import Section

class Options(Section):
    power: float = 1.0

def measure(view, options, seed):
    for split in view.splits:
        features = view.features(split).double().numpy()
        yield split, "norm", (features**2).sum(1).mean() ** options.power
        yield split, "mean/feature", features.mean(0)
"""


THREADED = """
EXTENDS = "measure"
import numpy as np
from granularity.base.section import Section as Options

def measure(view, options, seed):
    import torch

    many = np.random.default_rng(seed).standard_normal((1000, 200))
    yield "val", "left", np.linalg.svd(many)[0][:, 0]
    yield "val", "sum", torch.tensor(many, dtype=torch.float32).sum().item()
"""


@pytest.fixture(scope="module")
def chain(digits, digits_pixels, make_array) -> dict[str, Path]:
    """Two pretrainings on the digits, of which one was finetuned and kept, and their pixels as the embedding."""
    folder = digits.parent / "measure"
    space = {"space": "manual-digit", "family": "manual", "params": {"rank": "digit"}}
    tasks.run("hierarchy", folder / "space", space, samples=digits)
    images = {"samples": digits, "pixels": digits_pixels}
    options = {"recipe": RECIPE, "model": MODEL, "runs": RUNS, "keep": [1]}
    tasks.run("pretrain", folder / "pretrain", options, hierarchy=folder / "space", **images)
    options = {"recipe": RECIPE, "runs": [FINETUNED], "keep": True}
    tasks.run("finetune", folder / "finetune", options, pretrain=folder / "pretrain", **images)
    embed = make_array(folder / "embed", "embed", digits, vectors_of(digits))
    return images | {"embed": embed, "pretrain": folder / "pretrain", "finetune": folder / "finetune"}


@pytest.fixture
def toy(tmp_path_factory):
    """A measure from a file outside the package."""
    file = tmp_path_factory.mktemp("extension") / "toy.py"
    file.write_text(TOY)
    extensions.load([file])
    yield extensions.find("measure", "toy")
    extensions.load([])


def test_the_environment_of_a_command_decides_no_bytes(tmp_path, chain):
    """As where it is copied from `snakemake -np`: Snakemake sets the threads of BLAS and OpenMP for its jobs."""
    file, found, threads = tmp_path / "threaded.py", set(), "2"
    file.write_text(THREADED)
    words = [f"--{role}={chain[role]}" for role in ("samples", "pixels", "embed")]
    words += ["--options", json.dumps({"name": "threaded", "of": ["embedding"], "runs": []}), f"--extension={file}"]
    odd = {"OMP_THREAD_LIMIT": "1", "OMP_DYNAMIC": "TRUE", "OMP_MAX_ACTIVE_LEVELS": "0"}
    for number, own in enumerate((dict.fromkeys(POOLS, "1"), dict.fromkeys(POOLS, threads) | odd)):
        output = tmp_path / str(number) / "made"
        command = [sys.executable, "-m", "granularity", "measure", *words, "--threads", threads, "-o", output]
        subprocess.run(command, check=True, env=os.environ | own)
        found.add(Artifact.open(output).digest)
    assert len(found) == 1


def vectors_of(samples: Path) -> np.ndarray:
    frame = Artifact.open(samples).table("samples.parquet")
    return load_digits().data[frame["sample_id"].str[-4:].astype(int)].astype(np.float32)


def measured(chain, output: Path, measure: str = "probe", without: tuple[str, ...] = (), **over) -> Artifact:
    options = {"name": measure, "runs": RUNS[:1], **over}
    if measure == "probe":
        options |= {"options": {"l2": [1e-2, 1.0], "neighbours": 5}}
    inputs = {role: path for role, path in chain.items() if role not in without}
    return tasks.run("measure", output, options, **inputs)


def values_of(made: Artifact) -> pd.DataFrame:
    """Values and what is known of their runs."""
    runs = made.table("runs.parquet")
    assert not runs["run"].duplicated().any()
    return made.table("values.parquet").merge(runs, on="run", validate="many_to_one")


# ---------------------------------------------------------------- which networks


EVERY = ["backbones", "checkpoints", "untrained", "finetuned", "embedding"]


@pytest.mark.parametrize(
    ("of", "found"),
    [
        (None, {("embedding", None), ("00000000", 2)}),
        (["backbones"], {("00000000", 2)}),
        (["checkpoints"], {("00000000", 1)}),
        (["untrained", "backbones"], {("00000000", 0), ("00000000", 2)}),
        (["finetuned"], {("0000000f", 2)}),
        (EVERY, {("embedding", None), ("00000000", 0), ("00000000", 1), ("00000000", 2), ("0000000f", 2)}),
    ],
)
def test_what_is_measured_is_what_was_asked_for(tmp_path, chain, toy, of, found):
    values = values_of(measured(chain, tmp_path / "out", "toy", of=of))
    epochs = values["epoch"].astype(object).where(values["epoch"].notna(), None)
    assert set(zip(values["run"], epochs, strict=True)) == found


def test_a_finetuned_network_sees_the_crop_that_it_was_finetuned_with(tmp_path, chain):
    options = {"recipe": RECIPE | {"augment": {"crop": 5}}, "runs": [FINETUNED], "keep": True}
    inputs = {role: chain[role] for role in ("samples", "pixels", "pretrain")}
    tuned = tasks.run("finetune", tmp_path / "finetune", options, **inputs)
    made = measured(chain | {"finetune": tmp_path / "finetune"}, tmp_path / "out", "accuracy", of=["finetuned"])
    (error,) = values_of(made).query("key == 'error'")["value"]
    assert error == tuned.table("runs.parquet")["val_error"].item()


def test_an_embedding_is_measured_where_there_is_one(tmp_path, chain, toy):
    made = measured(chain, tmp_path / "out", "toy", without=("embed", "finetune"))
    assert values_of(made)["run"].unique().tolist() == ["00000000"]
    with pytest.raises(GranularityError, match="of: embedding: the given runs have no such networks"):
        measured(chain, tmp_path / "none", "toy", without=("embed",), of=["embedding"])


def test_runs_say_what_a_network_is(tmp_path, chain, toy):
    made = measured(chain, tmp_path / "out", "toy", of=EVERY, runs=RUNS)
    runs = made.table("runs.parquet").set_index("run")
    assert runs.loc["embedding", "family"] == "encoder"
    assert runs.loc["embedding"].isna().sum() == 5
    assert runs.loc["00000001", ["space", "family", "granularity", "pretrain_seed"]].tolist() == [
        "manual-digit",
        "manual",
        10,
        1,
    ]
    assert runs.loc["0000000f", ["pretrain_seed", "finetune_seed"]].tolist() == [0, 3]
    assert runs["transfer"].notna().tolist() == [run == "0000000f" for run in runs.index]
    assert made.summary == {"networks": 8, "runs": 4}


def test_robustness_is_the_probe_on_images_that_are_shifted(tmp_path, chain):
    l2 = [1e-2, 1.0]
    made = measured(chain, tmp_path / "out", "robustness", of=["backbones"], options={"l2": l2}, without=("embed",))
    probe = values_of(measured(chain, tmp_path / "probe", of=["backbones"])).set_index("key")["value"]
    found = values_of(made).set_index("key")["value"]
    assert found["digit/none"] == probe["digit/linear"]
    assert found["digit/grey"] == found["digit/none"]  # digits have one channel
    with pytest.raises(ValidationError, match="of: robustness cannot measure the embedding"):
        measured(chain, tmp_path / "none", "robustness", of=["embedding"])


# ---------------------------------------------------------------- a measure of one's own


def test_a_measure_of_ones_own_sees_every_network(tmp_path, chain, toy):
    made = measured(chain, tmp_path / "out", "toy", of=EVERY, splits=["train", "val"], options={"power": 0.5})
    values = values_of(made).set_index(["run", "epoch", "split"])["value"]
    frame = Artifact.open(chain["samples"]).table("samples.parquet")
    for split in ("train", "val"):
        vectors = vectors_of(chain["samples"])[(frame["split"] == split).to_numpy()].astype(np.float64)
        assert values["embedding", :, split].item() == pytest.approx(np.sqrt((vectors**2).sum(1).mean()))
        kept = made.array(f"arrays/embedding/{split}/mean/feature.npy")
        np.testing.assert_allclose(kept, vectors.mean(0))
    networks = values[values.index.get_level_values("run") != "embedding"]
    assert networks.nunique() == len(networks) == 2 * 4  # no two networks are alike
    assert made.array(f"arrays/{RUNS[0]}@1/val/mean/feature.npy").shape == (8,)
    assert made.params["options"] == {"power": 0.5}
    assert set(made.table("values.parquet")["measure"]) == {"toy"}


def test_a_killed_job_goes_on_with_the_network_it_was_at(tmp_path, chain, toy, kill_at):
    undisturbed = measured(chain, tmp_path / "elsewhere" / "a", "toy", of=EVERY)
    kill_at(toy, "measure", 3)
    with pytest.raises(kill_at.Killed):
        measured(chain, tmp_path / "b", "toy", of=EVERY)
    assert not (tmp_path / "b").exists()
    calls = kill_at(toy, "measure", None)
    assert measured(chain, tmp_path / "b", "toy", of=EVERY).digest == undisturbed.digest
    assert len(calls) == 3
    assert writing.names(tmp_path) == ["b"]


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([("val", "x", 1.0), ("val", "x", 2.0)], "gives 'x' of the split 'val' twice"),
        ([("val", "x", "high")], "'x' is str, neither a number nor an array"),
        ([("val", "x", None)], "'x' is NoneType, neither a number nor an array"),
        ([("val", "x", np.array(["a"]))], "'x' is ndarray, neither a number nor an array"),
        ([("val", "../x", 1.0)], "'val/../x' must be a split and a key"),
        ([("val", "", 1.0)], "'val/' must be a split and a key"),
        (pd.DataFrame({"key": ["x"], "value": [1]}), r"its table has no column \['split'\]"),
    ],
)
def test_what_is_no_value_is_refused(found, message):
    with pytest.raises(GranularityError, match=message):
        sorted_out(found, "toy")


# ---------------------------------------------------------------- the probe


def test_the_probe_measures_networks_and_the_embedding(tmp_path, chain):
    values = values_of(measured(chain, tmp_path / "out"))
    assert values.groupby("space").size().to_dict() == {"embedding": 6, "manual-digit": 6}
    assert set(values["key"]) == {f"{rank}/{what}" for rank in ("loops", "digit") for what in ("linear", "knn", "l2")}
    chosen = values["key"].str.endswith("/l2")
    assert set(values["value"][chosen]) <= {1e-2, 1.0}
    assert set(values["split"][chosen]) == {"train"}
    assert values["value"][~chosen].between(0, 100).all()
    vectors = vectors_of(chain["samples"])
    frame = Artifact.open(chain["samples"]).table("samples.parquet")
    train, val = ((frame["split"] == name).to_numpy() for name in ("train", "val"))
    labels = frame["digit"].to_numpy(dtype=str)
    found = values[values["space"] == "embedding"].set_index("key")["value"]
    mean, std = vectors[train].mean(0), vectors[train].std(0)
    scaled = (vectors - mean) / np.where(std > 0, std, 1)
    theirs = LogisticRegression(C=1 / (found["digit/l2"] * train.sum()), tol=1e-8, max_iter=5000)
    expected = 100 * np.mean(theirs.fit(scaled[train], labels[train]).predict(scaled[val]) != labels[val])
    assert found["digit/linear"] == pytest.approx(expected, abs=100 / 60 + 1e-9)  # one image may lie on a border


def test_features_that_are_not_finite_are_named(tmp_path, chain, monkeypatch):
    original = evaluation.features

    def diverged(*given):
        found = original(*given)
        found[7, 3] = np.nan
        return found

    monkeypatch.setattr(evaluation, "features", diverged)
    with pytest.raises(
        GranularityError, match=r"00000000 after epoch 2: the features of the image '.*' are not finite"
    ):
        measured(chain, tmp_path / "out", of=["backbones"])


# ---------------------------------------------------------------- accuracy


def test_accuracy_is_what_the_trainings_recorded(tmp_path, chain):
    of = ["backbones", "untrained", "finetuned", "embedding"]
    values = values_of(measured(chain, tmp_path / "out", "accuracy", of=of, splits=["train", "val"]))
    errors = values[values["key"] == "error"].set_index(["run", "epoch", "split"])["value"]
    for stage, run in (("pretrain", "00000000"), ("finetune", "0000000f")):
        recorded = Artifact.open(chain[stage]).table("runs.parquet").set_index("run_id")["val_error"]
        assert errors[run, 2, "val"] == recorded[run]
        assert errors[run, 2, "train"] != recorded[run]
    assert errors["00000000", 0, "train"] > errors["00000000", 2, "train"]
    assert "embedding" not in set(values["run"])
