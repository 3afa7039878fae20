"""Which encoder's clusters help? An encoder trained here, a network of timm, and another program's vectors."""

import json

import numpy as np
import pandas as pd
import pytest
import timm

from granularity.store.artifact import Artifact
from support import tiny_chain
from support.checkout import Checkout

pytestmark = pytest.mark.workflow

ARGS = {"img_size": 8, "patch_size": 4, "embed_dim": 16, "depth": 1, "num_heads": 2}
KMEANS = {"kmeans": [6], "manual": []}


def test_encoders_are_an_axis_of_a_study_down_to_label_spaces(tmp_path):
    checkout = Checkout(tmp_path)
    network = timm.create_model("vit_tiny_patch16_224", num_classes=0, **ARGS)
    data = {"input_size": (3, 8, 8), "crop_pct": 1.0}
    timm.models.save_for_hf(network, tmp_path / "vit", safe_serialization=True, model_args=ARGS, data_config=data)
    models = ["config/encoders/digits-tiny.json", "timm:local-dir:vit"]
    tiny_chain.configure(checkout, name="several", axes={"encoder.model": models}, label_spaces=KMEANS)
    tiny_chain.snakemake(checkout, "hierarchy")
    embedded = {
        path.parent.parent.name: Artifact.open(path) for path in tmp_path.glob("results/several/*/train-60/embed")
    }
    assert len(embedded) == 2
    tiny_chain.configure(checkout, name="file", label_spaces=KMEANS, encoder={"embeddings": "vectors.parquet"})
    ids = Artifact.open(next(tmp_path.glob("results/several/*/train-60/samples"))).table("samples.parquet")["sample_id"]
    vectors = np.random.default_rng(0).normal(size=(len(ids), 4))
    frame = pd.DataFrame({"sample_id": ids[::-1], "vector": vectors.tolist()})
    frame[:-1].to_parquet(tmp_path / "vectors.parquet")
    tiny_chain.snakemake(checkout, "samples")
    said = checkout.run("granularity", "config", "check", "-f", "tiny.yaml", code=1)
    assert f"encoder.embeddings: vectors.parquet: 1 of {len(ids)} images are missing" in " ".join(said.split())
    frame.to_parquet(tmp_path / "vectors.parquet")
    said = tiny_chain.snakemake(checkout, "hierarchy")
    assert "make_encoder" not in said
    made = Artifact.open(tmp_path / "results/file/train-60/embed")
    assert json.dumps(made.params) == '{"embeddings": "vectors.parquet"}' and made.array("embedding.npy").shape[1] == 4
    (tmp_path / "results/file/train-60/hierarchy/kmeans-6").resolve(strict=True)
