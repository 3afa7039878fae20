"""Label spaces of the digits, networks pretrained on them, and both stages of training as short calls."""

from pathlib import Path

import numpy as np
import pytest
import torch

from granularity.learning.data.dataset import Data
from granularity.learning.networks.network import build
from granularity.learning.options import Model, Recipe
from granularity.learning.runs import Run
from granularity.learning.training.classification import Classification
from granularity.learning.training.trainings import train
from granularity.store.artifact import Artifact
from support import tasks
from support.trainings import CPU, LOOPS, MODEL, label_space, made_space, pretraining, recipe


@pytest.fixture(scope="session")
def spaces(digits, tmp_path_factory) -> dict[str, Path]:
    """Four label spaces of the digits, by name; in `wordnet-1` images have several labels."""
    folder = tmp_path_factory.mktemp("spaces")
    definitions = {
        "target": ("manual", {"rank": "loops"}),
        "manual-digit": ("manual", {"rank": "digit"}),
        "random-200": ("random", {"classes": 200}),  # 120 images: many empty classes
    }
    for name, (family, params) in definitions.items():
        made_space(folder / name, digits, family, params)
    frame = Artifact.open(digits).table("samples.parquet")
    frame = frame[frame["split"] == "train"]
    digit = np.unique(frame["digit"].astype(str), return_inverse=True)[1].tolist()
    # Every image its digit, every third one label more; class 12 is empty.
    labels = [[label] + [10 + label % 2] * (i % 3 == 0) for i, label in enumerate(digit)]
    loops = dict(zip(digit, frame["loops"].astype(str), strict=True))
    parents = [*(loops[label] for label in range(10)), LOOPS[1], LOOPS[0], None]
    label_space(folder / "wordnet-1", digits, labels, parents)
    return {name: folder / name for name in [*definitions, "wordnet-1"]}


@pytest.fixture(scope="session")
def pretrain_on(digits, digits_pixels, spaces):
    """Pretrain runs on the digits into a folder; returns the artifact."""

    def go(output: Path, runs: list[Run], options: Recipe | None = None, model: Model = MODEL, **more) -> Artifact:
        inputs = {"hierarchy": [spaces[name] for name in dict.fromkeys(run.space for run in runs) if name in spaces]}
        inputs |= {role: more.pop(key) for key, role in (("embed", "embed"), ("start", "init")) if key in more}
        values = {"recipe": options or recipe(), "model": model, "runs": [run.name for run in runs], **more}
        return tasks.run("pretrain", output, values, samples=digits, pixels=digits_pixels, **inputs)

    return go


@pytest.fixture(scope="session")
def pretrained(pretrain_on, tmp_path_factory) -> Artifact:
    runs = [pretraining("target"), pretraining("target", 1)]
    runs += [pretraining("manual-digit"), pretraining("random-200"), pretraining("wordnet-1")]
    return pretrain_on(tmp_path_factory.mktemp("pretrained") / "all", runs)


@pytest.fixture(scope="session")
def finetune_on(digits, digits_pixels, pretrained):
    """Finetune runs on the digits into a folder; returns the artifact."""

    def go(output: Path, runs: list[Run], options: Recipe | None = None, parents=None, **more) -> Artifact:
        values = {"recipe": options or recipe(), "runs": [run.name for run in runs], **more}
        parents = parents or [pretrained.path]
        return tasks.run("finetune", output, values, samples=digits, pixels=digits_pixels, pretrain=parents)

    return go


@pytest.fixture
def odd(tmp_path, make_samples, make_array) -> tuple[Path, Path]:
    """30 training images of classes a and c; of 12 validation images, 8 are of class b, which training never sees."""
    split = ["train"] * 30 + ["val"] * 12
    kinds = ["a", "c"] * 15 + ["b"] * 8 + ["a"] * 4
    samples = make_samples(tmp_path / "samples", split, {"kind": kinds}, "kind")
    values = np.random.default_rng(0).integers(0, 256, (42, 8, 8, 1), dtype=np.uint8)
    pixels = make_array(tmp_path / "pixels", "pixels", samples, values)
    for name, family, params in (("target", "manual", {"rank": "kind"}), ("random-900", "random", {"classes": 900})):
        made_space(tmp_path / name, samples, family, params)
    return samples, pixels


@pytest.fixture
def one(digits, digits_pixels):
    """Train a network of the tests on the digits' target: one(recipe's values) -> weights before, network after."""
    data = Data(Artifact.open(digits), Artifact.open(digits_pixels), CPU)

    def go(model: Model = MODEL, **over) -> tuple[dict[str, torch.Tensor], torch.nn.Module]:
        network, options = build(model, 1, 3, 7), recipe(**over)
        before = {name: value.clone() for name, value in network.state_dict().items()}
        objective = Classification(data, data.torch_target(), options, np.arange(3))
        train(network, data, objective, options, 7, None)
        return before, network

    return go
