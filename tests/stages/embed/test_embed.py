"""The embedding: unit rows, the same bytes however they are made, and clear refusals."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from granularity.base.errors import GranularityError
from granularity.data.images import Images
from granularity.learning.clip_options import Encoder
from granularity.learning.data import feed
from granularity.learning.encoders import open_clip as clip
from granularity.stages.embed import stage as embed
from granularity.store.artifact import Artifact
from support import tasks
from support.encoders import TINY, options, train


@pytest.fixture(autouse=True)
def no_readers(monkeypatch):
    """Images are read by this process, in which the tests count and disturb it."""
    monkeypatch.setenv("GRANULARITY_READERS", "0")


def make(params: Encoder, table: Path, trained: Path | None, output: Path, threads=1, chunk=embed.CHUNK, **over):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embed, "CHUNK", chunk)
        return tasks.run("embed", output, params, threads=threads, samples=table, encoder=trained, **over)


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    """40 training and 20 validation digits."""
    folder = tmp_path_factory.mktemp("embed") / "samples"
    tasks.run("samples", folder, {"validation": 20, "train_size": 40})
    return folder


@pytest.fixture(scope="module")
def trained(table) -> Path:
    train(options(), table, table.parent / "encoder")
    return table.parent / "encoder"


@pytest.fixture(scope="module")
def embedding(table, trained) -> Path:
    make(options(), table, trained, table.parent / "embedding")
    return table.parent / "embedding"


def vectors_of(folder: Path) -> np.ndarray:
    return Artifact.open(folder, "embed").array("embedding.npy")


def digest(folder: Path) -> str:
    return Artifact.open(folder).digest


@pytest.mark.parametrize(("threads", "chunk"), [(1, 1), (2, 3), (4, 100), (8, 100)])
def test_bytes_do_not_depend_on_threads_or_chunks(tmp_path, table, trained, embedding, threads, chunk):
    assert make(options(), table, trained, tmp_path / "again", threads, chunk).digest == digest(embedding)


def test_bytes_are_those_of_open_clips_own_transform_and_forward(table, trained, embedding):
    """By its own functions, one batch after another, padded."""
    import open_clip
    import torch

    model, _, transform = open_clip.create_model_and_transforms(f"local-dir:{trained}")
    images = Images(Artifact.open(table))
    found = []
    with torch.inference_mode():
        for start in range(0, 60, 8):
            batch = torch.zeros(8, 3, 8, 8)
            for row, index in enumerate(range(start, min(start + 8, 60))):
                batch[row] = transform(images.load(index))
            found.append(model.eval().encode_image(batch, normalize=True)[: min(8, 60 - start)])
    np.testing.assert_array_equal(vectors_of(embedding), torch.cat(found).numpy())


@pytest.mark.parametrize("rows", [[41], [59, 2, 3, 5, 8, 13, 21, 34, 55]])
def test_an_embedding_does_not_depend_on_its_neighbours(tmp_path, table, trained, embedding, make_samples, rows):
    frame = Artifact.open(table).table("samples.parquet")
    some = frame.iloc[rows]
    ranks = {rank: some[rank].tolist() for rank in ("loops", "digit")}
    columns = {name: some[name].to_numpy() for name in ("sample_id", "file", "row", "offset", "bytes", "sha256")}
    few = make_samples(
        tmp_path / "few", some["split"].tolist(), ranks, "loops", root=str(table.resolve()), columns=columns
    )
    make(options(), few, trained, tmp_path / "embedding")
    np.testing.assert_array_equal(vectors_of(tmp_path / "embedding"), vectors_of(embedding)[some.index])


def test_embedding_resumes_where_it_was_killed(tmp_path, table, trained, embedding, kill_at):
    kill_at(Images, "load", 30)
    with pytest.raises(kill_at.Killed):
        make(options(), table, trained, tmp_path / "again", chunk=1)
    assert not (tmp_path / "again").exists()
    calls = kill_at(Images, "load", None)
    make(options(), table, trained, tmp_path / "again", chunk=1)
    assert sorted(index for _, index in calls) == list(range(24, 60))  # three batches of eight were finished
    assert digest(tmp_path / "again") == digest(embedding)


def test_threads_are_no_part_of_what_decides_the_bytes(tmp_path, table, trained, kill_at):
    """What one number of processes has made, the store serves to all others."""
    made = []
    for threads, loaded in ((1, 60), (2, 0)):
        calls = kill_at(Images, "load", None)
        made.append(make(options(), table, trained, tmp_path / "made" / str(threads), threads, anew=False))
        assert len(calls) == loaded and made[-1].params["device"] == "cpu"
        assert "root" not in made[-1].params  # the samples hold the images' hashes
    assert made[0].folder == made[1].folder


def test_a_broken_image_and_a_lack_of_memory_are_named_by_any_process(tmp_path, table, trained, monkeypatch, capsys):
    def broken(images, index, mode="RGB"):
        raise GranularityError(f"image {index} is broken")

    monkeypatch.setattr(feed, "MEMINFO", tmp_path / "meminfo")
    feed.MEMINFO.write_text(f"MemTotal: 1 kB\nMemAvailable: {2 * feed.WORKER_BYTES >> 10} kB\n")
    monkeypatch.setattr(Images, "load", broken)
    with pytest.raises(GranularityError, match="image 0 is broken"):
        make(options(), table, trained, tmp_path / "made", threads=4)
    assert "memory: enough for only 2 of 4 processes" in capsys.readouterr().err


def test_a_checkpoint_file_or_a_local_folder_is_the_same_encoder(tmp_path, table, trained, embedding):
    file = options(pretrained=str(trained / clip.WEIGHTS))
    folder = options(model=f"local-dir:{trained}", pretrained=None)
    for number, params in enumerate((file, folder)):
        assert make(params, table, None, tmp_path / str(number)).digest == digest(embedding)


def test_a_non_finite_embedding_names_the_image(tmp_path, table, trained):
    weights = load_file(trained / clip.WEIGHTS)
    weights["visual.proj"][0, 0] = float("nan")
    save_file(weights, tmp_path / "nan.safetensors")
    first = Artifact.open(table).table("samples.parquet")["sample_id"][0]
    with pytest.raises(GranularityError, match=f"the embedding of {first} is not finite"):
        make(options(pretrained=str(tmp_path / "nan.safetensors")), table, None, tmp_path / "out")


def test_bfloat16_agrees_to_two_digits_and_its_rows_have_unit_length(tmp_path, table, trained, embedding):
    half = options().model_copy(update={"precision": "bfloat16"})
    made = make(half, table, trained, tmp_path / "half")
    found, exact = vectors_of(tmp_path / "half"), vectors_of(embedding)
    assert found.dtype == np.float32 and not np.array_equal(found, exact)
    np.testing.assert_allclose(np.linalg.norm(found.astype(np.float64), axis=1), 1, atol=1e-6)
    assert (found * exact).sum(1).min() > 0.99
    assert (made.params["precision"], Artifact.open(embedding).params["precision"]) == ("bfloat16", "float32")


@pytest.fixture(scope="module")
def pixels(table) -> Path:
    tasks.run("pixels", table.parent / "pixels", {"size": 8, "mode": "L"}, samples=table)
    return table.parent / "pixels"


def from_pixels(table: Path, trained: Path, pixels: Path | None, output: Path) -> Artifact:
    params = options().model_copy(update={"images": "pixels"})
    return tasks.run("embed", output, params, samples=table, encoder=trained, pixels=pixels)


def test_pixels_that_are_the_originals_give_their_embedding(tmp_path, table, trained, embedding, pixels, kill_at):
    """The digits are squares of eight grey pixels; no original is opened."""
    calls = kill_at(Images, "load", None)
    made = from_pixels(table, trained, pixels, tmp_path / "made")
    assert calls == [] and set(made.manifest["inputs"]) == {"samples", "pixels", "encoder"}
    assert digest(tmp_path / "made") == digest(embedding)


def test_pixels_that_are_missing_too_few_or_too_many_are_refused(tmp_path, table, trained, pixels, make_array):
    few = make_array(tmp_path / "few", "pixels", table, np.zeros((59, 8, 8, 1), np.uint8))
    with pytest.raises(GranularityError, match="few: 59 images, but the sample table has 60"):
        from_pixels(table, trained, few, tmp_path / "made")
    with pytest.raises(GranularityError, match="images is 'pixels', which needs --pixels"):
        from_pixels(table, trained, None, tmp_path / "made")
    with pytest.raises(GranularityError, match="images is 'originals', which takes no --pixels"):
        tasks.run("embed", tmp_path / "made", options(), samples=table, encoder=trained, pixels=pixels)
    assert not (tmp_path / "made").exists()


def refused(params: Encoder, table: Path) -> str:
    """The message of the one clear error; what open_clip says about other things is left out."""
    with pytest.raises(GranularityError) as caught:
        make(params, table, None, table.parent / "refused")
    assert not (table.parent / "refused").exists()
    return str(caught.value)


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub at an address where nobody listens, and an empty cache."""
    from huggingface_hub import constants

    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")  # so that what the code sets is undone afterwards
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return constants


@pytest.mark.parametrize("offline", [True, False], ids=["HF_HUB_OFFLINE=1", "unreachable"])
@pytest.mark.parametrize(("model", "pretrained"), [("hf-hub:nobody/no-such", None), ("RN50-quickgelu", "openai")])
def test_a_hub_that_cannot_be_reached_is_a_clear_error(hub, monkeypatch, table, offline, model, pretrained):
    if offline:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        monkeypatch.setattr(hub, "HF_HUB_OFFLINE", True)
    message = refused(options(model, pretrained), table)
    assert model in message
    assert "not in the local cache and the hub cannot be reached" in message
    assert "local-dir:" in message  # and what to do about it


@pytest.fixture
def cached(hub, monkeypatch, trained, tmp_path):
    """A model of the hub in the local cache, in two revisions: main, and the tag v1."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(hub, "HF_HUB_OFFLINE", True)
    repository = tmp_path / "cache" / "models--org--tiny"
    for revision, commit in (("main", "a" * 40), ("v1", "b" * 40)):
        place = repository / "snapshots" / commit
        place.mkdir(parents=True)
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs" / revision).write_text(commit)
        for name in (clip.CONFIG, clip.WEIGHTS):
            (place / name).symlink_to(trained / name)
        if revision == "v1":
            weights = load_file(trained / clip.WEIGHTS)
            (place / clip.WEIGHTS).unlink()
            save_file({key: value * 1.01 for key, value in weights.items()}, place / clip.WEIGHTS)
    return repository


def test_a_revision_of_the_hub_is_loaded_and_recorded(cached, table, tmp_path):
    """Without one, the commit that main names today."""
    made = {}
    for name, revision in (("main", ""), ("tag", "@v1"), ("commit", f"@{'b' * 40}")):
        artifact = make(options(f"hf-hub:org/tiny{revision}", None), table, None, tmp_path / name)
        made[name] = artifact.params["revision"], artifact.params["weights_sha256"]
    assert made["tag"] == made["commit"] != made["main"]
    assert made["main"][0] == "a" * 40 and made["tag"][0] == "b" * 40
    message = refused(options("hf-hub:org/tiny@v2", None), table)
    assert "org/tiny@v2" in message and "not in the local cache" in message


@pytest.mark.parametrize("weights", ["tag", "file"])
def test_weights_of_another_activation_are_refused(tmp_path, table, trained, monkeypatch, weights):
    """Through open_clip's own table, and through the configuration that lies beside a checkpoint."""
    import open_clip

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    places = {}
    for name in ("tiny", "tiny-quickgelu"):
        places[name] = tmp_path / f"{name}.json"
        places[name].write_text(json.dumps(json.loads(Path(TINY).read_text()) | {"quick_gelu": "quick" in name}))
        clip.architecture(str(places[name]))
        monkeypatch.setitem(
            open_clip.pretrained._PRETRAINED, name, {"t": {"file": str(trained / clip.WEIGHTS), "quick_gelu": True}}
        )
    pretrained = "t"
    if weights == "file":
        pretrained = str(tmp_path / clip.WEIGHTS)
        (tmp_path / clip.WEIGHTS).symlink_to(trained / clip.WEIGHTS)
        said = json.loads((trained / clip.CONFIG).read_text())
        said["model_cfg"]["quick_gelu"] = True
        (tmp_path / clip.CONFIG).write_text(json.dumps(said))
    quick = make(options(str(places["tiny-quickgelu"]), pretrained), table, None, tmp_path / "quick")
    assert quick.params["preprocessing"]["activations"] == ["QuickGELU"]
    message = refused(options(str(places["tiny"]), pretrained), table)
    assert "trained with QuickGELU; write model: tiny-quickgelu" in message and "\n" not in message
