"""The embedding: unit rows, the same bytes however they are made, and clear refusals."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import load_file, save_file

from granularity.base import interrupt
from granularity.base.errors import GranularityError
from granularity.data.images import Images
from granularity.learning import clip
from granularity.learning.clip_options import Encoder
from granularity.machine import pipeline
from granularity.stages.embed import stage as embed
from granularity.store.artifacts import Artifact
from support import tasks
from support.encoders import TINY, options, train


def make(
    params: Encoder,
    table: Path,
    trained: Path | None,
    output: Path,
    threads: int = 1,
    chunk: int = embed.CHUNK,
    anew: bool = True,
) -> Artifact:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embed, "CHUNK", chunk)
        return tasks.run("embed", output, params, threads=threads, anew=anew, samples=table, encoder=trained)


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


# ---------------------------------------------------------------- the embedding


def test_rows_have_unit_length(embedding):
    vectors = vectors_of(embedding)
    assert (vectors.shape, vectors.dtype) == ((60, 32), np.float32)
    np.testing.assert_allclose(np.linalg.norm(vectors.astype(np.float64), axis=1), 1, atol=1e-6)
    assert len(np.unique(vectors.round(4), axis=0)) > 50  # and they are not all one vector


@pytest.mark.parametrize(("threads", "chunk"), [(1, 1), (2, 1), (2, 3), (1, 100)])
def test_bytes_do_not_depend_on_threads_or_chunks(tmp_path, table, trained, embedding, threads, chunk):
    make(options(), table, trained, tmp_path / "again", threads, chunk)
    assert digest(tmp_path / "again") == digest(embedding)


@pytest.mark.parametrize("ahead", [0, 1, 9])
def test_bytes_do_not_depend_on_how_much_is_decoded_ahead(tmp_path, table, trained, embedding, monkeypatch, ahead):
    monkeypatch.setattr(pipeline, "AHEAD", ahead)
    make(options(), table, trained, tmp_path / "again", threads=1)
    assert digest(tmp_path / "again") == digest(embedding)


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


@pytest.mark.parametrize("rows", [[41], [41, 7, 30], [59, 2, 3, 5, 8, 13, 21, 34, 55]])
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


def test_embedding_saves_its_work_before_a_chunk_is_full(
    tmp_path, table, trained, embedding, kill_at, checkpoint_always
):
    kill_at(Images, "load", 30)
    with pytest.raises(kill_at.Killed):
        make(options(), table, trained, tmp_path / "again")
    calls = kill_at(Images, "load", None)
    make(options(), table, trained, tmp_path / "again")
    assert sorted(index for _, index in calls) == list(range(24, 60))
    assert digest(tmp_path / "again") == digest(embedding)


def test_a_signal_is_obeyed_after_the_batch(tmp_path, table, trained, embedding, kill_at, monkeypatch):
    load = Images.load

    def signalled(self, index):
        if index == 20:
            interrupt.request("SIGTERM", 143)
        return load(self, index)

    monkeypatch.setattr(Images, "load", signalled)
    with pytest.raises(interrupt.Stopped):
        make(options(), table, trained, tmp_path / "again")
    monkeypatch.setattr(Images, "load", load)
    calls = kill_at(Images, "load", None)
    make(options(), table, trained, tmp_path / "again")
    again = sorted(index for _, index in calls)
    assert again in [
        list(range(done, 60)) for done in (8, 16, 24)
    ]  # image 20 is decoded while one of these is embedded
    assert digest(tmp_path / "again") == digest(embedding)


def test_what_decides_the_bytes_is_recorded(tmp_path, table, trained, monkeypatch, kill_at):
    """Neither a store nor a cache serves anybody the sums of other threads."""
    monkeypatch.setenv("GRANULARITY_CACHE", str(tmp_path / "cache"))
    made = []
    for threads in (1, 2):
        calls = kill_at(Images, "load", None)
        made.append(make(options(), table, trained, tmp_path / "made" / str(threads), threads, anew=False))
        assert len(calls) == 60
        assert (made[-1].params["threads"], made[-1].params["device"]) == (threads, "cpu")
        assert made[-1].manifest["machine"]["threads"] == threads
        assert "root" not in made[-1].params  # the samples hold the images' hashes
    assert made[0].folder != made[1].folder
    # From the store that has it, and in another one from the cache, once it is there.
    for served in ("made/again", "elsewhere/served"):
        calls = kill_at(Images, "load", None)
        again = make(options(), table, trained, tmp_path / served, anew=False)
        assert calls == [] and again.manifest == made[0].manifest
    assert again.folder.is_relative_to(tmp_path / "elsewhere")


@pytest.mark.parametrize("kill", [None, 12])
def test_images_that_nobody_hashed_are_those_of_their_folder(
    tmp_path, table, trained, make_samples, kill_at, monkeypatch, kill
):
    """Two folders of the same names and sizes: neither a cache nor what was begun for one serves the other.

    Without hashes of its images, where they lie is a fact of a sample table.
    """
    monkeypatch.setenv("GRANULARITY_CACHE", str(tmp_path / "cache"))
    file = options(pretrained=str(trained / clip.WEIGHTS))
    one, other = (unhashed(tmp_path / name, make_samples, seed) for seed, name in enumerate(("one", "other")))
    assert [Artifact.open(folder).facts["root"] for folder in (one, other)] == [str(one.parent), str(other.parent)]
    assert digest(one) != digest(other)
    kill_at(Images, "load", kill)
    output = tmp_path / "made" / "embedding"
    with contextlib.nullcontext() if kill is None else pytest.raises(kill_at.Killed):
        make(file, one, None, output, chunk=1, anew=False)
    calls = kill_at(Images, "load", None)
    make(file, other, None, output, chunk=1, anew=False)
    assert len(calls) == 16
    monkeypatch.delenv("GRANULARITY_CACHE")
    make(file, other, None, tmp_path / "clean" / "embedding", chunk=1, anew=False)
    assert digest(output) == digest(tmp_path / "clean" / "embedding")


def test_an_image_that_cannot_be_read_costs_one_line_and_nothing_before_it(tmp_path, trained, make_samples, kill_at):
    """It lies in the second batch of two; when it is back, the first is not embedded again."""
    file = options(pretrained=str(trained / clip.WEIGHTS))
    table = unhashed(tmp_path / "images", make_samples, 0)
    make(file, table, None, tmp_path / "clean" / "embedding")
    image = tmp_path / "images" / "12.png"
    sound, about = image.read_bytes(), image.stat()
    image.write_bytes(sound[:30] + bytes(len(sound) - 30))
    os.utime(image, ns=(about.st_atime_ns, about.st_mtime_ns))
    with pytest.raises(GranularityError, match=r"12\.png: cannot be decoded as an image") as caught:
        make(file, table, None, tmp_path / "made" / "embedding")
    assert "\n" not in str(caught.value) and not (tmp_path / "made" / "embedding").exists()
    image.write_bytes(sound)
    os.utime(image, ns=(about.st_atime_ns, about.st_mtime_ns))
    calls = kill_at(Images, "load", None)
    make(file, table, None, tmp_path / "made" / "embedding")
    assert sorted(index for _, index in calls) == list(range(8, 16))
    assert digest(tmp_path / "made" / "embedding") == digest(tmp_path / "clean" / "embedding")


def unhashed(folder: Path, make_samples, seed: int) -> Path:
    """A table of 16 noisy images of equal sizes, without their hashes."""
    folder.mkdir()
    files = [f"{i}.png" for i in range(16)]
    for i, file in enumerate(files):
        noise = np.random.default_rng([seed, i]).integers(256, size=(8, 8), dtype=np.uint8)
        Image.fromarray(noise).save(folder / file, compress_level=0)
    sizes = [(folder / file).stat().st_size for file in files]
    columns = {"file": files, "bytes": sizes} | dict.fromkeys(("row", "offset", "sha256"))
    over = {"columns": columns, "root": str(folder), "checksums": "size"}
    return make_samples(folder / "samples", ["train", "val"] * 8, {"kind": ["a", "b"] * 8}, "kind", **over)


def test_another_checkpoint_at_the_same_path_starts_clean(tmp_path, table, trained, kill_at, monkeypatch):
    weights = load_file(trained / clip.WEIGHTS)
    file = tmp_path / "weights.safetensors"
    save_file(weights, file)
    kill_at(Images, "load", 30)
    with pytest.raises(kill_at.Killed):
        make(options(pretrained=str(file)), table, None, tmp_path / "embedding", chunk=1)
    monkeypatch.undo()
    save_file({name: value * 1.5 for name, value in weights.items()}, file)
    make(options(pretrained=str(file)), table, None, tmp_path / "embedding", chunk=1)
    make(options(pretrained=str(file)), table, None, tmp_path / "clean", chunk=1)
    assert digest(tmp_path / "embedding") == digest(tmp_path / "clean")


def test_a_checkpoint_file_or_a_local_folder_is_the_same_encoder(tmp_path, table, trained, embedding):
    file = options(pretrained=str(trained / clip.WEIGHTS))
    folder = options(model=f"local-dir:{trained}", pretrained=None)
    for number, params in enumerate((file, folder)):
        make(params, table, None, tmp_path / str(number))
        assert digest(tmp_path / str(number)) == digest(embedding)


def test_a_non_finite_embedding_names_the_image(tmp_path, table, trained):
    weights = load_file(trained / clip.WEIGHTS)
    weights["visual.proj"][0, 0] = float("nan")
    save_file(weights, tmp_path / "nan.safetensors")
    first = Artifact.open(table).table("samples.parquet")["sample_id"][0]
    with pytest.raises(GranularityError, match=f"the embedding of {first} is not finite"):
        make(options(pretrained=str(tmp_path / "nan.safetensors")), table, None, tmp_path / "out")


# ---------------------------------------------------------------- precision


def test_bfloat16_agrees_to_two_digits_and_its_rows_have_unit_length(tmp_path, table, trained, embedding):
    half = options().model_copy(update={"precision": "bfloat16"})
    made = make(half, table, trained, tmp_path / "half")
    found, exact = vectors_of(tmp_path / "half"), vectors_of(embedding)
    assert found.dtype == np.float32 and not np.array_equal(found, exact)
    np.testing.assert_allclose(np.linalg.norm(found.astype(np.float64), axis=1), 1, atol=1e-6)
    assert (found * exact).sum(1).min() > 0.99
    assert (made.params["precision"], Artifact.open(embedding).params["precision"]) == ("bfloat16", "float32")
    make(half, table, trained, tmp_path / "again", threads=1, chunk=1)
    assert digest(tmp_path / "again") == digest(tmp_path / "half")


# ---------------------------------------------------------------- from pixels


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


def test_colour_pixels_are_embedded_as_they_are(tmp_path, table, trained, make_array):
    values = np.random.default_rng(0).integers(256, size=(60, 8, 8, 3), dtype=np.uint8)
    colour = make_array(tmp_path / "pixels", "pixels", table, values)
    swapped = make_array(tmp_path / "swapped", "pixels", table, values[..., ::-1])
    found = [from_pixels(table, trained, one, tmp_path / one.name / "e") for one in (colour, swapped)]
    assert found[0].digest != found[1].digest


def test_pixels_that_are_missing_too_few_or_too_many_are_refused(tmp_path, table, trained, pixels, make_array):
    few = make_array(tmp_path / "few", "pixels", table, np.zeros((59, 8, 8, 1), np.uint8))
    with pytest.raises(GranularityError, match="few: 59 images, but the sample table has 60"):
        from_pixels(table, trained, few, tmp_path / "made")
    with pytest.raises(GranularityError, match="images is 'pixels', which wants --pixels"):
        from_pixels(table, trained, None, tmp_path / "made")
    with pytest.raises(GranularityError, match="images is 'originals', which takes no --pixels"):
        tasks.run("embed", tmp_path / "made", options(), samples=table, encoder=trained, pixels=pixels)
    assert not (tmp_path / "made").exists()


# ---------------------------------------------------------------- what cannot be loaded


def refused(params: Encoder, table: Path, stage=None) -> str:
    """The message of the one clear error; what open_clip says about other things is left out."""
    with pytest.raises(GranularityError) as caught:
        (stage or (lambda: make(params, table, None, table.parent / "refused")))()
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
@pytest.mark.parametrize(
    ("model", "pretrained"),
    [("hf-hub:nobody/no-such-model", None), ("RN50-quickgelu", "openai"), ("ViT-B-32", "laion2b_e16")],
)
def test_a_hub_that_cannot_be_reached_is_a_quick_clear_error(
    hub, monkeypatch, tmp_path, table, offline, model, pretrained
):
    if offline:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        monkeypatch.setattr(hub, "HF_HUB_OFFLINE", True)
    started = time.monotonic()
    message = refused(options(model, pretrained), table)
    assert time.monotonic() - started < 20
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


def test_weights_of_a_tag_have_a_revision_too(cached, table, tmp_path, monkeypatch):
    """By open_clip's own table, which names the repository of the hub."""
    import open_clip

    name = clip.architecture(TINY)
    monkeypatch.setitem(open_clip.pretrained._PRETRAINED, name, {"published": {"hf_hub": "org/tiny/"}})
    for tag, commit in (("published", "a"), ("published@v1", "b")):
        artifact = make(options(TINY, tag), table, None, tmp_path / commit)
        assert artifact.params["revision"] == commit * 40


def test_every_tag_of_open_clip_has_the_activation_of_its_weights_or_names_the_architecture_that_has():
    import open_clip

    refused = {}
    for model, tag in open_clip.list_pretrained():
        quick = open_clip.get_pretrained_cfg(model, tag).get("quick_gelu", False)
        try:
            clip.check_activation(model, tag)
        except GranularityError as error:
            refused[model, tag] = model = str(error).rpartition(" ")[2]
            assert "QuickGELU" in str(error) and tag in open_clip.list_pretrained_tags_by_model(model)
            clip.check_activation(model, tag)
        built = open_clip.get_model_config(model).get("quick_gelu", False)
        assert built == quick or model == "roberta-ViT-B-32", (model, tag)  # its entry says nothing, its file does
    assert len(refused) == 27 and refused["ViT-L-14", "openai"] == "ViT-L-14-quickgelu"
    assert {tag for _, tag in refused} >= {"openai", "metaclip_400m", "dfn5b", "yfcc15m", "laion400m_e32"}


@pytest.mark.parametrize("weights", ["tag", "file"])
def test_weights_of_another_activation_give_other_vectors_and_are_refused(
    tmp_path, table, trained, monkeypatch, weights
):
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
    with monkeypatch.context() as patch:  # as open_clip would, with a warning
        patch.setattr(clip, "_check_quick_gelu", lambda *args: None)
        wrong = make(options(str(places["tiny"]), pretrained), table, None, tmp_path / "wrong")
    assert wrong.params["preprocessing"]["activations"] == ["GELU"]
    assert (
        np.abs(vectors_of(tmp_path / "wrong") - vectors_of(tmp_path / "quick")).max() > 1e-4
    )  # of a barely trained tower


def test_how_images_were_prepared_is_recorded(embedding):
    said = Artifact.open(embedding).params["preprocessing"]
    assert said["activations"] == ["GELU"] and said["size"] == [8, 8]
    assert said["interpolation"] == "bicubic" and len(said["mean"]) == len(said["std"]) == 3


def test_weights_made_here_have_no_revision(embedding):
    assert "revision" not in Artifact.open(embedding).params


def test_an_unknown_tag_lists_the_known_ones(table):
    message = refused(options("RN50", "laion9b"), table)
    assert "laion9b" in message
    assert all(tag in message for tag in ("openai", "yfcc15m", "cc12m"))


def test_a_configuration_file_has_no_tags(table):
    assert "no file, and not a tag of digits-tiny" in refused(options(TINY, "openai"), table)


@pytest.mark.parametrize("offline", [True, False])
def test_a_broken_local_checkpoint_is_not_blamed_on_the_network(hub, monkeypatch, tmp_path, table, offline):
    if offline:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "broken.safetensors").write_bytes(b"not weights at all")
    message = refused(options(TINY, str(tmp_path / "broken.safetensors")), table)
    assert "broken.safetensors: is truncated or no safetensors file" in message
    assert "network" not in message


def test_weights_of_another_architecture_are_refused(tmp_path, table, trained):
    other = json.loads(Path(TINY).read_text())
    other["vision_cfg"]["width"] = 48
    (tmp_path / "other.json").write_text(json.dumps(other))
    message = refused(options(str(tmp_path / "other.json"), str(trained / clip.WEIGHTS)), table)
    assert "open_clip cannot load it" in message


@pytest.mark.parametrize("text", ["{", "[1]", "{}", '{"embed_dim": 8}'])
def test_a_broken_model_configuration_is_refused(tmp_path, table, text):
    file = tmp_path / f"broken-{len(text)}.json"
    file.write_text(text)
    for stage in (
        lambda: make(options(str(file), TINY), table, None, table.parent / "refused"),
        lambda: train(options(str(file)), table, table.parent / "refused"),
    ):
        assert str(file) in refused(None, table, stage)
    clip.architecture(TINY)  # and it does not spoil what is loaded after it


def test_an_unknown_architecture_is_refused(table):
    stage = lambda: train(options("ViT-Q-99"), table, table.parent / "refused")  # noqa: E731
    assert "ViT-Q-99" in refused(None, table, stage)
