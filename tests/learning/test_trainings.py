"""Trainings: the same bytes however a run was interrupted or grouped, and what is refused."""

import pytest
import torch

from granularity.base.errors import GranularityError
from granularity.base.seeds import seed_of
from granularity.learning.data import dataset
from granularity.learning.data.dataset import Data
from granularity.learning.networks.backbones import Backbones
from granularity.learning.networks.network import build
from granularity.learning.options import Augment, Model
from granularity.learning.training import classification, trainings
from granularity.learning.training.evaluation import predicted_classes
from granularity.store import place
from granularity.store.artifact import Artifact
from support import writing
from support.trainings import CPU, MODEL, STEPS, TINY, equal, finetuning, pretraining, recipe, weights_of, without_head

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


@pytest.mark.parametrize(("name", "step"), [("momentum", 2), *((name, 7) for name in KILLED)])
def test_a_killed_pretraining_resumes_to_the_same_bytes(tmp_path, pretrain_on, kill_at, checkpoint_always, name, step):
    options, model, space = KILLED[name]
    runs = [pretraining(space)]
    undisturbed = pretrain_on(tmp_path / "elsewhere" / "undisturbed", runs, options, model)
    kill_at(dataset, "augment", step)
    with pytest.raises(kill_at.Killed):
        pretrain_on(tmp_path / "resumed", runs, options, model)
    assert not (tmp_path / "resumed").exists()
    calls = kill_at(dataset, "augment", None)
    resumed = pretrain_on(tmp_path / "resumed", runs, options, model)
    assert [args[-1] for args in calls] == list(range(step - 1, STEPS))  # it went on, and did not start over
    assert equal(weights_of(resumed), weights_of(undisturbed))
    assert resumed.digest == undisturbed.digest
    assert writing.names(tmp_path) == ["resumed"]


def test_a_training_that_is_killed_before_it_is_saved_is_not_done_again(
    tmp_path, pretrain_on, kill_at, checkpoint_always
):
    runs = [pretraining("manual-digit")]
    kill_at(classification, "predicted_classes", 1)
    with pytest.raises(kill_at.Killed):
        pretrain_on(tmp_path / "out", runs)
    kill_at(classification, "predicted_classes", None)
    calls = kill_at(dataset, "augment", None)
    pretrain_on(tmp_path / "out", runs)
    assert [args[-1] for args in calls] == [STEPS - 1]  # the last checkpoint is before the last step


def test_checkpoints_of_another_recipe_are_not_continued(tmp_path, pretrain_on, kill_at, checkpoint_always):
    runs = [pretraining("target")]
    kill_at(dataset, "augment", 5)
    with pytest.raises(kill_at.Killed):
        pretrain_on(tmp_path / "made", runs, recipe(lr=0.3))
    calls = kill_at(dataset, "augment", None)
    pretrain_on(tmp_path / "made", runs, recipe(lr=0.1))
    assert len(calls) == STEPS


# ---------------------------------------------------------------- epochs whose weights are kept


def test_epochs_are_kept_and_change_nothing_else(tmp_path, pretrain_on):
    runs, options = [pretraining("target"), pretraining("manual-digit")], recipe(epochs=3)
    kept = pretrain_on(tmp_path / "kept", runs, options, keep=[2, 0, 3])
    plain = pretrain_on(tmp_path / "plain", runs, options)
    table = kept.table("checkpoints.parquet")
    assert table["epoch"].tolist() == [0, 2, 3] * 2
    name = runs[0].name
    files = [f"backbones/{name}@0.safetensors", f"backbones/{name}@2.safetensors", f"backbones/{name}.safetensors"]
    assert table["file"].tolist()[:3] == files
    for file in [*plain.table("runs.parquet")["backbone"], "runs.parquet", "history.parquet"]:
        assert (kept.path / file).read_bytes() == (plain.path / file).read_bytes()
    start, middle, end = (kept.tensors(file) for file in files)
    assert equal(start, build(MODEL, 1, 3, seed_of(0, "pretrain", 0)).state_dict())
    shorter = recipe(epochs=2, warmup_epochs=0.5, schedule="step", step_factor=1)  # the same first two epochs
    once = pretrain_on(tmp_path / "once", runs[:1], shorter)
    long = pretrain_on(tmp_path / "long", runs[:1], shorter.model_copy(update={"epochs": 3}), keep=[2])
    assert equal(weights_of(once), long.tensors(files[1]))
    assert not equal(middle, end)


@pytest.mark.parametrize("finished", [False, True])
def test_a_kept_epoch_that_is_lost_is_trained_again(tmp_path, pretrain_on, kill_at, checkpoint_always, finished):
    runs = [pretraining("manual-digit"), pretraining("target")]
    whole = pretrain_on(tmp_path / "elsewhere" / "whole", runs, keep=[1])
    kill_at(dataset, "augment", STEPS + 1 if finished else 7)
    with pytest.raises(kill_at.Killed):
        pretrain_on(tmp_path / "again", runs, keep=[1])
    of_first = {"run": runs[0].id, "epoch": 1}
    made = map(Artifact.peek, (tmp_path / place.STORE / "run").iterdir())
    (part,) = [one for one in made if of_first.items() <= one.manifest["options"].items()]
    file = part.folder / "weights.safetensors"
    file.chmod(0o644)
    file.write_bytes(file.read_bytes()[:-1])
    kill_at(dataset, "augment", None)
    assert pretrain_on(tmp_path / "again", runs, keep=[1]).digest == whole.digest


def test_finetuned_networks_are_kept_on_request(tmp_path, finetune_on, digits, digits_pixels):
    runs = [finetuning("manual-digit"), finetuning("target", 1)]
    kept, plain = finetune_on(tmp_path / "kept", runs, keep=True), finetune_on(tmp_path / "plain", runs)
    assert plain.table("predictions.parquet").equals(kept.table("predictions.parquet"))
    assert "weights" not in plain.table("runs.parquet")
    with pytest.raises(GranularityError, match="its networks were not kept; set keep: true"):
        Backbones([plain.path], "finetune")
    networks = Backbones([kept.path], "finetune")
    data = Data(Artifact.open(digits), Artifact.open(digits_pixels), CPU)
    for run in runs:
        row = networks.named(run.name)
        assert networks.targets(row) == data.target_names.tolist()
        found = predicted_classes(networks.load(row), networks.normalised(data, row), data.val, Augment())
        assert found.tolist() == kept.table("predictions.parquet")[run.id].tolist()


# ---------------------------------------------------------------- jobs, seeds, heads


def test_runs_in_one_job_or_in_separate_jobs_have_the_same_bytes(tmp_path, pretrain_on, pretrained):
    table = pretrained.table("runs.parquet")
    for i in (1, 2, 3, 4):  # in another order, too: the first run of a job is nothing special
        alone = pretrain_on(tmp_path / str(i), [pretraining(table["space"][i], int(table["pretrain_seed"][i]))])
        file = table["backbone"][i]
        assert (alone.path / file).read_bytes() == (pretrained.path / file).read_bytes()
        assert alone.table("runs.parquet").iloc[0].to_dict() == table.iloc[i].to_dict()


@pytest.fixture
def started(monkeypatch) -> list[dict[str, torch.Tensor]]:
    """The weights that each training starts from."""
    found, original = [], trainings.train

    def spy(model, *args):
        found.append({name: value.clone() for name, value in model.state_dict().items()})
        return original(model, *args)

    monkeypatch.setattr(trainings, "train", spy)
    return found


def test_finetuning_starts_from_the_pretrained_backbone_with_a_new_head(tmp_path, started, finetune_on, pretrained):
    seeds = [("manual-digit", 0), ("target", 0), ("target", 1), ("target", 0, 1)]
    finetune_on(tmp_path / "out", [finetuning(*one) for one in seeds])
    digit, target, other_backbone, other_seed = started
    parents = pretrained.table("runs.parquet")
    for state, (space, seed, *_) in zip(started, seeds, strict=True):
        row = parents.index[(parents["space"] == space) & (parents["pretrain_seed"] == seed)][0]
        assert equal(without_head(state), without_head(weights_of(pretrained, row)))
        assert state["fc.weight"].shape == (3, 8)
    assert not torch.equal(target["fc.weight"], weights_of(pretrained, 0)["fc.weight"])
    assert torch.equal(digit["fc.weight"], target["fc.weight"])  # one seed, one head: arms start alike
    assert not torch.equal(target["fc.weight"], other_seed["fc.weight"])
    assert not torch.equal(target["fc.weight"], other_backbone["fc.weight"])


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_loss_that_is_no_longer_finite_is_a_clear_error(tmp_path, pretrain_on, optimizer):
    with pytest.raises(GranularityError, match=r"the training loss is (nan|inf) in epoch \d: lower lr"):
        pretrain_on(tmp_path / "out", [pretraining("target")], recipe(lr=1e30, optimizer=optimizer))
    assert not (tmp_path / "out").exists()


def test_a_space_with_several_labels_has_no_softmax(tmp_path, pretrain_on):
    with pytest.raises(GranularityError, match=r"pretrain\.loss = softmax: .* in wordnet-1; set it to"):
        pretrain_on(tmp_path / "out", [pretraining("target"), pretraining("wordnet-1")], recipe(loss="softmax"))
