"""Objectives: cross-entropy of one label per image and of several; a teacher's embeddings instead of labels."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.learning.data.dataset import Data, LabelSets
from granularity.learning.networks.backbones import Backbones
from granularity.learning.networks.network import build
from granularity.learning.options import Augment, Objective
from granularity.learning.training.classification import cross_entropy
from granularity.learning.training.evaluation import predict
from granularity.learning.training.objectives import chosen
from granularity.store.artifact import Artifact
from support import tasks
from support.trainings import CPU, MODEL, finetuning, label_space, pretraining, recipe, weights_of


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


def test_what_an_objective_needs_is_named(tmp_path, pretrain_on):
    with pytest.raises(GranularityError, match="the objective needs --embed; give it"):
        pretrain_on(tmp_path / "out", [pretraining("distil")], objective=distil())


def test_a_network_of_ones_own_that_lacks_a_method_is_one_line(tmp_path, pretrain_on):
    (tmp_path / "mine.py").write_text(
        'EXTENDS = "network"\n\ndef build(model, channels, seed):\n    import torch\n    return torch.nn.Flatten()\n'
    )
    extensions.load([tmp_path / "mine.py"])
    with pytest.raises(GranularityError, match=r"model.name = mine: build\(\) must return a network with"):
        pretrain_on(tmp_path / "out", [pretraining("target")], model={"name": "mine"})
    extensions.load([])


# ---------------------------------------------------------------- labels


SETS = [[0, 2], [1], [0, 1, 2, 4], [3], [2, 3]]  # of five images, among five classes

ALL = LabelSets(np.concatenate(SETS).astype(np.int32), np.cumsum([0, *map(len, SETS)]))


def explicit(sets: list[list[int]], classes: int) -> torch.Tensor:
    return torch.tensor([[float(c in labels) for c in range(classes)] for labels in sets])


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
    value = cross_entropy(ours, labels, picked, loss)
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
    assert float(cross_entropy(outputs, labels, picked, loss)) == pytest.approx(-float(chosen.mean()), rel=1e-6)


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
    values = {"recipe": options, "model": MODEL, "runs": [pretraining("wordnet-2").name]}
    made = tasks.run("pretrain", tmp_path / "made", values, samples=samples, pixels=pixels, hierarchy=[space])
    losses = made.table("history.parquet")["train_loss"]
    assert losses.iloc[0] > 6  # two or three labels per image are true, each at about sigmoid(-4)
    assert losses.iloc[-1] < 0.15
    data = Data(Artifact.open(samples), Artifact.open(pixels), CPU)
    network = build(MODEL, 3, 4, 99)
    network.load_state_dict(weights_of(made))
    outputs = predict(network.eval(), data, data.val, options.augment)
    assert ((outputs > 0).numpy() == np.column_stack([on[80:], np.full(40, True)])).mean() > 0.98
    first = np.array([0, 1, 2, 0])[outputs.argmax(1)]
    assert made.table("runs.parquet")["val_error"][0] == pytest.approx(100 * np.mean(first != on[80:].argmax(1)))


def two_levels(digits, folder, back: bool = False):
    """Each image's number of loops (labels 0 to 2) and its digit (3 to 12); codes of both; `back`: two have changed."""
    frame = Artifact.open(digits).table("samples.parquet").query("split == 'train'")
    codes = np.column_stack([np.unique(frame[rank].astype(str), return_inverse=True)[1] for rank in ("loops", "digit")])
    sets = codes + np.array([0, 3])
    if back:
        sets[0] = [4, 5]
    loops = sorted(frame["loops"].astype(str).unique())
    return label_space(folder / "levels", digits, sets.tolist(), [*loops, *[None] * 10]), torch.from_numpy(codes)


def weighted(*weights: float) -> dict:
    return {"name": "levels", "options": {"weights": [*weights]}}


def test_each_level_has_a_softmax_and_a_weight(tmp_path, digits, digits_pixels):
    space, codes = two_levels(digits, tmp_path)
    data = Data(Artifact.open(digits), Artifact.open(digits_pixels), CPU)
    module, options = chosen(Objective.model_validate(weighted(1, 0.5)))
    outputs, picked = torch.randn(4, 13, generator=torch.manual_seed(0)), torch.tensor([5, 0, 3, 5])
    parts = F.cross_entropy(outputs[:, :3], codes[picked, 0]), F.cross_entropy(outputs[:, 3:], codes[picked, 1])
    found = module.make(Artifact.open(space), data, recipe(), options).loss(outputs, picked)
    torch.testing.assert_close(found, parts[0] + 0.5 * parts[1])


def test_levels_are_learnt_and_the_heaviest_answers(tmp_path, digits, digits_pixels):
    def train(*weights, back=False):
        folder = tmp_path / f"{weights} {back}"
        space, _ = two_levels(digits, folder, back)
        values = {"recipe": recipe(epochs=4), "model": MODEL, "runs": [pretraining("levels").name]}
        values["objective"] = weighted(*weights)
        return tasks.run("pretrain", folder / "made", values, samples=digits, pixels=digits_pixels, hierarchy=[space])

    for weights, low, high in (((1, 0.2), 0, 40), ((1, 1), 100, 100)):  # digits have no target class here
        made = train(*weights)
        assert low <= made.table("runs.parquet")["val_error"][0] <= high
        assert made.table("history.parquet")["train_loss"].is_monotonic_decreasing
    for weights, back, words in (((1,), False, "1 weights; an image of .* has 2 labels"), ((1, 1), True, "no levels")):
        with pytest.raises(GranularityError, match=words):
            train(*weights, back=back)
