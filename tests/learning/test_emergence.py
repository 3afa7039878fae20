"""Early gradients, balanced teachers and students (Shi, Wei and Liang 2022): cifar10_filters, cifar10_students."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from granularity.base import extensions
from granularity.store.artifact import Artifact
from support import tasks
from support.trainings import MODEL, pretraining, recipe

FILES = Path(__file__).parents[2] / "studies"


@pytest.fixture(autouse=True)
def known():
    extensions.load([next(FILES.glob(f"*/{name}.py")) for name in ("balanced", "students", "early_gradients")])
    yield
    extensions.load([])


@pytest.fixture
def measure(digits, digits_pixels):
    def go(output: Path, made: Artifact, name: str, of: str, **options) -> Artifact:
        run = Path(made.table("runs.parquet")["backbone"][0]).stem
        asked = {"name": name, "runs": [run], "of": [of], "options": options}
        return tasks.run("measure", output, asked, samples=digits, pixels=digits_pixels, pretrain=made.path)

    return go


def values_of(made: Artifact) -> dict[str, float]:
    return made.table("values.parquet").set_index("key")["value"].to_dict()


def test_early_gradients_are_those_of_the_training_itself(tmp_path, pretrain_on, measure):
    """At a constant rate, without momentum, a mean gradient is the way between two epochs of ten steps."""
    options = recipe(batch_size=12, epochs=3, warmup_epochs=0, momentum=0, weight_decay=0, augment={"pad": 1})
    options = options.model_copy(update={"schedule": "step", "step_factor": 1.0})
    made = pretrain_on(tmp_path / "pre", [pretraining("target")], options, keep=[0, 1, 2])
    asked = {"layers": ["conv1"], "recipe": options.model_dump(mode="json")}
    found = measure(tmp_path / "out", made, "early_gradients", "untrained", **asked)
    files = made.table("checkpoints.parquet").sort_values("epoch")["file"]
    at = [made.tensors(file)["conv1.weight"].double().flatten(1) for file in files]
    ways = [before - after for before, after in itertools.pairwise(at)] + [at[0] - at[-1]]
    pairs = [(0, 3), (1, 3), (2, 3), (0, 1), (0, 2), (1, 2)]
    expected = torch.stack([torch.cosine_similarity(ways[i], ways[j]) for i, j in pairs], 1)
    (file,) = (file for file in found.manifest["files"] if file.endswith("conv1/cosines.npy"))
    np.testing.assert_allclose(found.array(file), expected, atol=1e-4)
    assert values_of(found)["conv1/mean/1-3"] == pytest.approx(expected[:, 4].mean().item(), abs=1e-4)


def test_the_regulariser_is_the_papers_and_balances_the_teacher(tmp_path, digits, digits_pixels, pretrain_on, measure):
    balanced = extensions.find("objective", "balanced")
    logits = torch.randn(50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    p = np.exp(logits.numpy()) / np.exp(logits.numpy()).sum(1, keepdims=True)
    expected = (p.mean(0) * np.log(p.mean(0))).sum() - 0.5 * np.mean([(one * np.log(one)).sum() for one in p])
    assert balanced.regulariser(logits, 0.5).item() == pytest.approx(expected)
    found, asked = {}, {"alphas": [0.5], "alone": [0.5], "epochs": [1], "model": MODEL.model_dump(mode="json")}
    asked |= {"recipe": recipe(epochs=10).model_dump(mode="json"), "teachers": {"default": "gaussian"}}
    for weight in (0.0, 1.0):
        objective = {"name": "balanced", "options": {"weight": weight}}
        made = pretrain_on(tmp_path / f"{weight}", [pretraining("target")], recipe(epochs=15), objective=objective)
        found[weight] = values_of(measure(tmp_path / f"out{weight}", made, "students", "backbones", **asked))
    assert found[1.0]["gaussian/counts"] < found[0.0]["gaussian/counts"]
    one = found[1.0]
    assert one["gaussian/0.5/whole/10"] == pytest.approx(
        (one["gaussian/0.5/images/10"] + one["gaussian/0.5/others/10"]) / 2
    )
    assert one["gaussian/0/whole/10"] == one["gaussian/0/images/10"] > one["images/majority"]
    assert one["gaussian/0.5-alone/images/10"] != one["gaussian/0.5/images/10"]
