"""Encoders beyond open_clip: networks of timm, a file of the user's own, and embeddings of another program."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import timm
import torch
from safetensors.torch import load_file, save_file

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.data.images import Images
from granularity.learning.clip_options import Encoder
from granularity.learning.encoders import timm as timm_encoders
from granularity.store.artifact import Artifact
from support import tasks

ARGS = {"img_size": 16, "patch_size": 4, "embed_dim": 16, "depth": 1, "num_heads": 2}
DATA = {"input_size": (3, 16, 16), "mean": (0.2, 0.3, 0.4), "std": (0.5, 0.6, 0.7), "crop_pct": 0.9}


def tiny_vit(folder: Path) -> str:
    """A ViT with random weights, as timm writes it."""
    torch.manual_seed(3)
    network = timm.create_model("vit_tiny_patch16_224", num_classes=5, **ARGS)
    timm.models.save_for_hf(network, folder, safe_serialization="both", model_args=ARGS, data_config=DATA)
    return f"timm:local-dir:{folder}"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return tiny_vit(tmp_path_factory.mktemp("vit"))


def make(table: Path, output: Path, threads=1, **options) -> Artifact:
    return tasks.run("embed", output, Encoder(batch_size=32, **options), threads=threads, samples=table)


def refused(table: Path, **options) -> str:
    with pytest.raises(GranularityError) as caught:
        make(table, table.parent / "refused", **options)
    assert not (table.parent / "refused").exists() and "\n" not in str(caught.value)
    return str(caught.value)


def test_rows_are_those_of_timms_own_transform_and_features_with_any_number_of_threads(tmp_path, digits, model):
    made = {threads: make(digits, tmp_path / str(threads), threads, model=model) for threads in (1, 2, 4, 8)}
    assert len({one.digest for one in made.values()}) == 1
    folder = model.removeprefix("timm:")
    network = timm.create_model(folder, pretrained=True, num_classes=0).eval()
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(network))
    images = torch.stack([transform(Images(Artifact.open(digits)).load(i)) for i in range(180)])
    with torch.inference_mode():
        expected = torch.nn.functional.normalize(network(images), dim=-1).numpy()
    found = made[1].array("embedding.npy")
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    said = made[1].params["preprocessing"]
    assert (said["mean"], said["crop_pct"], said["pooling"]) == ([0.2, 0.3, 0.4], 0.9, "token")
    assert len(made[1].params["weights_sha256"]) == 64


def test_a_file_of_weights_and_weights_drawn_here(tmp_path, digits):
    drawn = [make(digits, tmp_path / name, model="timm:test_vit", pretrained="random") for name in ("one", "two")]
    assert drawn[0].digest == drawn[1].digest
    network = timm.create_model("test_vit")
    save_file(network.state_dict(), tmp_path / "vit.safetensors")
    loaded = make(digits, tmp_path / "loaded", model="timm:test_vit", pretrained=str(tmp_path / "vit.safetensors"))
    assert loaded.params["weights_sha256"] != drawn[0].params["weights_sha256"]


def test_pickles_other_weights_and_networks_that_keep_their_head_are_refused(tmp_path, digits, model, monkeypatch):
    folder = Path(model.removeprefix("timm:local-dir:"))
    pickled = tmp_path / "pickled"
    pickled.mkdir()
    for name in ("config.json", "pytorch_model.bin"):
        (pickled / name).write_bytes((folder / name).read_bytes())
    assert "not a safetensors file" in refused(digits, model=f"timm:local-dir:{pickled}")
    assert "contains no model.safetensors" in " ".join(timm_encoders.check(Encoder(model=f"timm:local-dir:{pickled}")))
    weights = load_file(folder / "model.safetensors")
    weights.pop("norm.weight")
    save_file(weights, tmp_path / "half.safetensors")
    half = {"model": model, "pretrained": str(tmp_path / "half.safetensors")}
    assert 'Missing key(s) in state_dict: "norm.weight"' in refused(digits, **half)
    assert "(timm cannot remove its head); choose another" in refused(
        digits, model="timm:samvit_base_patch16", pretrained="random"
    )
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "not in the local cache" in refused(digits, model="timm:test_vit.r160_in1k")
    (message,) = timm_encoders.check(Encoder(model="timm:vit_tinny"))
    assert "Unknown model" in message
    assert not list(timm_encoders.check(Encoder(model="timm:vit_small_patch14_dinov2.lvd142m")))


def test_an_encoder_of_ones_own_is_one_file(tmp_path, digits):
    (tmp_path / "grey.py").write_text(
        'EXTENDS = "encoder"\n'
        "def load(encoder, trained, device):\n"
        "    from torchvision.transforms import Compose, Normalize, ToTensor\n"
        "    from granularity.learning.encoders import Loaded\n"
        "    transform = Compose([ToTensor(), Normalize([0.0] * 3, [1.0] * 3)])\n"
        '    return Loaded(transform, lambda images: images.flatten(1) + 1, {"architecture": encoder.name})\n'
        "def check(encoder):\n"
        "    return ()\n"
    )
    extensions.load([tmp_path / "grey.py"])
    try:
        made = make(digits, tmp_path / "made", model="grey:plain")
    finally:
        extensions.load([])
    assert made.params["architecture"] == "plain" and made.array("embedding.npy").shape == (180, 192)


# ---------------------------------------------------------------- embeddings of another program


@pytest.fixture(scope="module")
def ids(digits) -> list[str]:
    return Artifact.open(digits).table("samples.parquet")["sample_id"].tolist()


@pytest.fixture(scope="module")
def vectors(ids) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(len(ids) + 1, 5)).astype(np.float32)


@pytest.mark.parametrize("form", ["list", "columns", "npy", "npy and parquet"])
def test_embeddings_are_found_by_id_in_every_form(tmp_path, digits, ids, vectors, form):
    names = [*reversed(ids), "another"]
    table, file = pd.DataFrame({"label": 1, "id": names}), tmp_path / "vectors.parquet"
    if form == "list":
        table.assign(embedding=list(vectors)).to_parquet(file)
    elif form == "columns":
        table.join(pd.DataFrame(vectors, columns=[f"d{i}" for i in range(5)])).to_parquet(file)
    else:
        file = file.with_suffix(".npy")
        np.save(file, vectors)
        file.with_suffix(".txt").write_text("\n".join(names)) if form == "npy" else table.to_parquet(
            file.with_suffix(".parquet")
        )
    made = make(digits, tmp_path / "made", embeddings=str(file))
    expected = vectors[len(ids) - 1 :: -1]
    expected = expected / np.linalg.norm(expected.astype(float), axis=1, keepdims=True)
    found = made.array("embedding.npy")
    assert found.dtype == np.float32 and made.manifest["outside"]
    np.testing.assert_allclose(found, expected, atol=1e-7)


def wide(table: pd.DataFrame) -> pd.DataFrame:
    """The same vectors, a column for each component."""
    vectors = pd.DataFrame(table["vector"].tolist(), index=table.index).add_prefix("d")
    return table.drop(columns="vector").join(vectors)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t[:-3], r"3 of 180 images are missing, such as "),
        (lambda t: pd.concat([t, t[7:8]]), r"row 181: '.+' appears twice"),
        (
            lambda t: t.assign(vector=[*t["vector"][:9], [1.0], *t["vector"][10:]]),
            r"row 10: the vector of '.+' has 1 num",
        ),
        (lambda t: t.assign(vector=[*t["vector"][:9], [np.nan] * 5, *t["vector"][10:]]), r"row 10: .+ is not finite"),
        (lambda t: t.assign(vector=[*t["vector"][:9], [0.0] * 5, *t["vector"][10:]]), r"row 10: .+ is all zeros"),
        (lambda t: t.assign(vector=[*t["vector"][:9], None, *t["vector"][10:]]), r"row 10: .+ has 0 numbers"),
        (lambda t: t.drop(columns="sample_id"), r"has no column of ids"),
        (lambda t: t.drop(columns="vector"), r"no column of vectors"),
        (lambda t: wide(t).assign(x=0.5, y=0.5), r"columns 'x', 'y' have no number, or another name than the rest"),
        (lambda t: wide(t).astype({f"d{i}": int for i in range(5)}).assign(x=0.5, y=0.5), r"columns 'x', 'y' have no"),
        (lambda t: wide(t).assign(boxes=[[1.0, 2.0]] * len(t)), r"1 columns of vectors beside 5 columns of numbers"),
        (lambda t: t.assign(sample_id=[None, *t["sample_id"][1:]]), r"row 1: sample_id is missing"),
    ],
)
def test_embeddings_that_do_not_fit_are_refused_by_file_and_row(tmp_path, digits, ids, vectors, change, said):
    file = tmp_path / "vectors.parquet"
    change(pd.DataFrame({"sample_id": ids, "vector": vectors[:-1].tolist()})).to_parquet(file)
    message = refused(digits, embeddings=str(file))
    assert message.startswith(f"{file}: ")
    assert pd.Series([message]).str.contains(said).all(), message


def test_arrays_that_do_not_fit_are_refused(tmp_path, digits, ids, vectors):
    file = tmp_path / "vectors.npy"
    np.save(file, vectors)
    assert "no file of ids is beside it" in refused(digits, embeddings=str(file))
    file.with_suffix(".txt").write_text("\n".join(ids))
    assert "181 vectors, but 180 ids" in refused(digits, embeddings=str(file))
    np.save(file, np.array([{}]), allow_pickle=True)
    assert "is not an array of numbers" in refused(digits, embeddings=str(file))
    file.with_suffix(".parquet").write_text(json.dumps({}))
    assert "not an intact Parquet" in refused(digits, embeddings=str(file.with_suffix(".parquet")))
