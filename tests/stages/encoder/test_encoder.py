"""The encoder trained here: what its captions say, what it depends on, and the same bytes after a kill."""

import json
from pathlib import Path

import numpy as np
import pytest

from granularity.base.errors import GranularityError
from granularity.learning.encoders import open_clip as clip
from granularity.stages.encoder import stage as encoder
from granularity.store.artifact import Artifact
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
    of_images = [[f"<{name}>" for name in frame.loc[frame["split"] == part, rank]] for part in ("train", "val")]
    assert seen[1:] == of_images  # the first is of the lengths


def test_training_lowers_the_contrastive_loss(tmp_path, digits):
    train(options(epochs=15, batch_size=20), digits, tmp_path / "encoder")
    history = Artifact.open(tmp_path / "encoder").table("history.parquet")
    assert history["epoch"].tolist() == list(range(1, 16))
    assert history["train_loss"].iloc[-1] < history["train_loss"].iloc[0] - 0.2
    assert np.isfinite(history["val_loss"]).all()


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


def test_encoder_training_resumes_to_the_same_bytes(tmp_path, table, kill_at, checkpoint_always):
    """Killed in its second epoch of four steps; also with the random patches of a larger model's training."""
    architecture = json.loads(Path(TINY).read_text())
    architecture["vision_cfg"]["patch_dropout"] = 0.5
    (tmp_path / "dropping.json").write_text(json.dumps(architecture))
    params = options(str(tmp_path / "dropping.json"), epochs=2)
    train(params, table, tmp_path / "undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        original, count = encoder.open_clip.ClipLoss.forward, []

        def forward(self, *args, **kwargs):
            count.append(None)
            if len(count) == 8:  # four steps, two validation batches, two steps
                raise kill_at.Killed
            return original(self, *args, **kwargs)

        patch.setattr(encoder.open_clip.ClipLoss, "forward", forward)
        with pytest.raises(kill_at.Killed):
            train(params, table, tmp_path / "resumed")
    train(params, table, tmp_path / "resumed")
    assert digest(tmp_path / "resumed") == digest(tmp_path / "undisturbed")


def test_captions_that_are_alike_as_far_as_they_are_read_are_refused(tmp_path, table):
    template = " ".join(["a very"] * 8) + " {}"
    with pytest.raises(GranularityError, match=r"reads 16 tokens .* alike so far; shorten the names or the template"):
        train(options(template=template), table, tmp_path / "encoder")


def test_more_pairs_a_step_than_images_is_refused(tmp_path, table):
    with pytest.raises(GranularityError, match="batch_size = 41: there are only 40 training images"):
        train(options(batch_size=41), table, tmp_path / "encoder")
