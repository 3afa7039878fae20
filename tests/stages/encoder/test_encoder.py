"""The encoder trained here: what its captions say, what it depends on, and the same bytes after a kill."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import numpy as np
import pytest

from granularity.base.errors import GranularityError
from granularity.data.images import Images
from granularity.learning import clip
from granularity.stages.encoder import stage as encoder
from granularity.store.artifacts import Artifact
from granularity.store.hashing import digest_of
from support import tasks
from support.encoders import TINY, options, train


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    """40 training and 20 validation digits."""
    return tasks.run(
        "samples", tmp_path_factory.mktemp("encoder") / "samples", {"validation": 20, "train_size": 40}
    ).path


@pytest.fixture(scope="module")
def trained(table) -> Path:
    return train(options(), table, table.parent / "encoder").path


def digest(folder: Path) -> str:
    return Artifact.open(folder).digest


@pytest.mark.parametrize(
    ("granularity", "rank", "captions"),
    [
        ("coarse", "loops", ["no closed loop", "one closed loop", "two closed loops"]),
        ("fine", "digit", ["eight", "five", "four", "nine", "one", "seven", "six", "three", "two", "zero"]),
    ],
)
def test_captions_name_the_rank_asked_for(tmp_path, table, monkeypatch, granularity, rank, captions):
    seen = []
    original = encoder.open_clip.get_tokenizer

    def spy(name):
        tokenizer = original(name)
        return lambda texts: seen.append(list(texts)) or tokenizer(texts)

    monkeypatch.setattr(encoder.open_clip, "get_tokenizer", spy)
    train(options(granularity=granularity, template="<{}>"), table, tmp_path / "encoder")
    summary = Artifact.open(tmp_path / "encoder", "encoder").summary
    assert summary["caption_rank"] == rank
    assert summary["captions"] == [f"<{name}>" for name in captions]
    frame = Artifact.open(table).table("samples.parquet")
    assert seen == [[f"<{name}>" for name in frame.loc[frame["split"] == part, rank]] for part in ("train", "val")]


def test_training_lowers_the_contrastive_loss(tmp_path, digits):
    train(options(epochs=15, batch_size=20), digits, tmp_path / "encoder")
    history = Artifact.open(tmp_path / "encoder").table("history.parquet")
    assert history["epoch"].tolist() == list(range(1, 16))
    assert history["train_loss"].iloc[-1] < history["train_loss"].iloc[0] - 0.2
    assert np.isfinite(history["val_loss"]).all()


def test_the_validation_loss_is_over_no_more_images_than_are_trained_on(tmp_path, monkeypatch):
    """And over the same ones in every epoch, and nothing else is decoded; the weights do not depend on them."""
    few = tasks.run("samples", tmp_path / "few", {"validation": 200, "train_size": 40}).path
    decoded, seen = [], []
    load, forward = Images.load, encoder.open_clip.ClipLoss.forward
    monkeypatch.setattr(Images, "load", lambda self, index: decoded.append(index) or load(self, index))

    def spy(self, images, texts, scale):
        if not images.requires_grad:
            seen.append(len(images))
        return forward(self, images, texts, scale)

    monkeypatch.setattr(encoder.open_clip.ClipLoss, "forward", spy)
    made = train(options(epochs=3), few, tmp_path / "encoder")
    assert seen == [10] * 4 * 3  # four batches per epoch
    split = Artifact.open(few).table("samples.parquet")["split"]
    assert [split[index] for index in decoded] == ["train"] * 40 + ["val"] * 40
    assert decoded[40:] == sorted(set(decoded[40:]))
    monkeypatch.setattr(encoder, "_validation", lambda frame, most, seed: np.flatnonzero(frame["split"] == "val")[:7])
    other = train(options(epochs=3), few, tmp_path.with_name(f"{tmp_path.name}-other") / "encoder")  # another store
    assert digest_of(other.path / clip.WEIGHTS) == digest_of(made.path / clip.WEIGHTS)


def test_validation_captions_do_not_reach_the_weights(tmp_path, table, trained, make_samples):
    frame = Artifact.open(table).table("samples.parquet")
    wrong = frame["digit"].astype("str").where(frame["split"] == "train", "nonsense")
    columns = {name: frame[name].to_numpy() for name in ("sample_id", "file", "row", "offset", "bytes", "sha256")}
    ranks = {"loops": frame["loops"].tolist(), "digit": wrong.tolist()}
    other = make_samples(
        tmp_path / "other", frame["split"].tolist(), ranks, "loops", root=str(table.resolve()), columns=columns
    )
    train(options(), other, tmp_path / "encoder")
    assert digest_of(tmp_path / "encoder" / clip.WEIGHTS) == digest_of(trained / clip.WEIGHTS)
    losses = [
        Artifact.open(folder).table("history.parquet")["val_loss"][0] for folder in (tmp_path / "encoder", trained)
    ]
    assert losses[0] != losses[1]


def test_an_encoder_depends_on_its_seed_alone(tmp_path, table, trained):
    for seed in (0, 1):
        train(options(), table, tmp_path / str(seed), seed)
    assert digest(tmp_path / "0") == digest(trained)
    assert digest(tmp_path / "1") != digest(trained)


@pytest.mark.parametrize("step", [2, 6])
def test_encoder_training_resumes_to_the_same_bytes(tmp_path, table, kill_at, checkpoint_always, step):
    """Killed in its first or second epoch of four steps; also with the random patches of a larger model's training."""
    architecture = json.loads(Path(TINY).read_text())
    architecture["vision_cfg"]["patch_dropout"] = 0.5
    (tmp_path / "dropping.json").write_text(json.dumps(architecture))
    params = options(str(tmp_path / "dropping.json"), epochs=2)
    train(params, table, tmp_path / "undisturbed")
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        original, count = encoder.open_clip.ClipLoss.forward, []

        def forward(self, *args, **kwargs):
            count.append(None)
            if len(count) == step + (step > 4) * 2:  # two validation batches after the first epoch
                raise kill_at.Killed
            return original(self, *args, **kwargs)

        patch.setattr(encoder.open_clip.ClipLoss, "forward", forward)
        with pytest.raises(kill_at.Killed):
            train(params, table, tmp_path / "resumed")
    train(params, table, tmp_path / "resumed")
    assert digest(tmp_path / "resumed") == digest(tmp_path / "undisturbed")


def test_more_pairs_a_step_than_images_is_refused(tmp_path, table):
    with pytest.raises(GranularityError, match="batch_size = 41: there are only 40 training images"):
        train(options(batch_size=41), table, tmp_path / "encoder")
