"""Objectives are found by name: a teacher's embeddings instead of labels, and one of the user's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.learning import dataset
from granularity.learning.backbones import Backbones
from granularity.learning.dataset import Data
from granularity.learning.evaluation import predict
from granularity.learning.options import Augment
from granularity.store.artifacts import Artifact
from support.trainings import CPU, equal, finetuning, pretraining, recipe, weights_of


@pytest.fixture(scope="module")
def teacher(tmp_path_factory, digits, make_array):
    """Unit vectors that depend on the digit alone, one direction each, for images of both splits."""
    frame = Artifact.open(digits).table("samples.parquet")
    code = np.unique(frame["digit"].astype(str), return_inverse=True)[1]
    values = np.eye(12, dtype=np.float32)[code]
    return make_array(tmp_path_factory.mktemp("teacher") / "embed", "embed", digits, values)


def distil(loss: str = "cosine") -> dict:
    return {"name": "distil", "options": {"loss": loss}}


@pytest.mark.parametrize("loss", ["cosine", "mse"])
def test_distillation_learns_the_embedding(tmp_path, pretrain_on, finetune_on, digits, digits_pixels, teacher, loss):
    run, options = pretraining("distil"), recipe(epochs=15, warmup_epochs=1)
    made = pretrain_on(tmp_path / "pre", [run], options, objective=distil(loss), embed=teacher)
    (row,) = made.table("runs.parquet").itertuples()
    assert (row.space, row.family) == ("distil", "distil")
    assert made.table("runs.parquet")[["granularity", "val_error"]].isna().all(axis=None)
    history = made.table("history.parquet")["train_loss"]
    assert history.iloc[-1] < 0.5 * history.iloc[0]
    assert len(made.table("classes.parquet")) == 0

    backbones = Backbones([made.path])
    found = backbones.find("distil", 0)
    assert backbones.targets(found) is None
    data = Data(Artifact.open(digits), Artifact.open(digits_pixels), CPU)
    outputs = predict(backbones.load(found, 1), data, data.val, Augment()).double()
    truth = torch.from_numpy(np.array(Artifact.open(teacher).array("embedding.npy")))[data.val].double()
    expected = 1 - F.cosine_similarity(outputs, truth) if loss == "cosine" else (outputs - truth).square().sum(1)
    assert row.val_loss == pytest.approx(expected.mean().item(), rel=1e-5)

    tuned = finetune_on(tmp_path / "fine", [finetuning("distil")], parents=[made.path]).table("runs.parquet")
    assert tuned["granularity"].isna().all() and 0 <= tuned["val_error"][0] <= 100


def test_a_killed_distillation_resumes_to_the_same_bytes(tmp_path, pretrain_on, teacher, kill_at, checkpoint_always):
    given = {"objective": distil(), "embed": teacher}
    whole = pretrain_on(tmp_path / "whole", [pretraining("distil")], **given)
    kill_at(dataset, "augment", 5)
    with pytest.raises(kill_at.Killed):
        pretrain_on(tmp_path / "again", [pretraining("distil")], **given)
    kill_at(dataset, "augment", None)
    assert pretrain_on(tmp_path / "again", [pretraining("distil")], **given).digest == whole.digest


def test_what_an_objective_cannot_do_is_one_line(tmp_path, pretrain_on, teacher):
    runs, given = [pretraining("distil")], {"embed": teacher}
    for objective, options, words in (
        ({"name": "distill"}, recipe(), "there is no objective 'distill'; there are labels, distil"),
        (distil("huber"), recipe(), r"objective.options.loss: Input should be 'cosine' or 'mse' \(objective distil\)"),
        ({"name": "labels", "options": {"k": 1}}, recipe(), r"objective.options.k: .* \(objective labels\)"),
        (distil(), recipe(loss="sigmoid"), "pretrain.loss = sigmoid: is for labels"),
    ):
        with pytest.raises(GranularityError, match=words):
            pretrain_on(tmp_path / "out", runs, options, objective=objective, **given)
    with pytest.raises(GranularityError, match="the objective needs --embed, which is not given"):
        pretrain_on(tmp_path / "out", runs, objective=distil())


SMOOTHED = '''
"""Cross-entropy with smoothed labels."""
from granularity.base.section import Section
from granularity.learning.objectives import labels

EXTENDS = "objective"
NEEDS = labels.NEEDS
describe, classes = labels.describe, labels.classes

class Options(Section):
    smoothing: float = 0.1

def make(source, data, recipe, options):
    import torch.nn.functional as F
    made = labels.make(source, data, recipe, None)
    known = data.labels_of(source, made.outputs)
    made.loss = lambda outputs, picked: F.cross_entropy(outputs, known[picked], label_smoothing=options.smoothing)
    return made
'''


@pytest.fixture
def own(tmp_path):
    """Load files of the user's own: own(name, text)."""

    def load(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(text)
        extensions.load([tmp_path / f"{name}.py"])

    yield load
    extensions.load([])


def test_an_objective_of_ones_own_is_one_file(tmp_path, pretrain_on, own):
    own("smoothed", SMOOTHED)
    runs = [pretraining("manual-digit")]
    plain = pretrain_on(tmp_path / "plain", runs)
    none = pretrain_on(tmp_path / "none", runs, objective={"name": "smoothed", "options": {"smoothing": 0}})
    much = pretrain_on(tmp_path / "much", runs, objective={"name": "smoothed", "options": {"smoothing": 0.5}})
    assert equal(weights_of(none), weights_of(plain))
    assert not equal(weights_of(much), weights_of(plain))


MINE = '''
"""Two linear layers."""
import torch

EXTENDS = "network"

class Mine(torch.nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.first, self.num_features = torch.nn.LazyLinear(width), width
        self.first(torch.zeros(1, channels * 64))
        self.head = torch.nn.Linear(width, 5)

    def forward_features(self, images):
        return torch.relu(self.first(images.flatten(1)))

    def forward_head(self, features, pre_logits=False):
        return features if pre_logits else self.head(features)

    def forward(self, images):
        return self.forward_head(self.forward_features(images))

    def get_classifier(self):
        return self.head

    def reset_classifier(self, classes):
        self.head = torch.nn.Linear(self.num_features, classes)

def build(model, channels, seed):
    return Mine(channels, **(model.args or {}))
'''


def test_a_network_of_ones_own_is_one_file(tmp_path, pretrain_on, finetune_on, own):
    own("mine", MINE)
    runs = [pretraining("target"), pretraining("manual-digit")]
    model = {"name": "mine", "args": {"width": 16}, "stem": "timm"}
    made = pretrain_on(tmp_path / "pre", runs, recipe(epochs=8, lr=0.05), model, keep=[0])
    starts = [made.tensors(f"backbones/{run.name}@0.safetensors") for run in runs]
    assert starts[0]["first.weight"].shape == (16, 64)
    assert torch.equal(starts[0]["first.weight"], starts[1]["first.weight"])  # whatever the head
    assert starts[0]["head.weight"].shape == (3, 16) and starts[1]["head.weight"].shape == (10, 16)
    assert made.table("runs.parquet")["val_error"].max() < 45
    tuned = finetune_on(tmp_path / "fine", [finetuning("target")], recipe(lr=0.05), [made.path])
    assert tuned.table("runs.parquet")["val_error"][0] < 45
    own("mine", MINE.replace("def get_classifier", "def head_of"))
    with pytest.raises(GranularityError, match=r"model.name = mine: what its build\(\) gives is no network with"):
        pretrain_on(tmp_path / "out", runs, model=model)
