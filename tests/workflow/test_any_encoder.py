"""Which encoder's clusters help? An encoder trained here, a network of timm, and another program's vectors."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import timm

from granularity import cli
from granularity.base.errors import GranularityError
from granularity.config import files
from granularity.config.cells import cells
from granularity.store.artifact import Artifact
from support import tiny_chain

ARGS = {"img_size": 8, "patch_size": 4, "embed_dim": 16, "depth": 1, "num_heads": 2}
CHAIN = ("samples", "encoder", "embed", "cluster", "hierarchy")


def configure(**over) -> Path:
    Path("own.yaml").write_text(json.dumps(tiny_chain.TINY | {"label_spaces": {"kmeans": [6], "manual": []}} | over))
    return Path("own.yaml")


def made(*stages: str) -> set[str]:
    """The stages of which the configuration plans jobs; those asked for are run by their commands."""
    steps = [step for cell in cells(files.load("own.yaml")) for step in tiny_chain.steps(cell.config)]
    for step in steps:
        if step.kind in stages:
            step.run()
    return {step.kind for step in steps}


def test_encoders_are_an_axis_of_a_study_down_to_label_spaces(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    network = timm.create_model("vit_tiny_patch16_224", num_classes=0, **ARGS)
    data = {"input_size": (3, 8, 8), "crop_pct": 1.0}
    timm.models.save_for_hf(network, "vit", safe_serialization=True, model_args=ARGS, data_config=data)
    models = [tiny_chain.TINY["encoder"]["model"], "timm:local-dir:vit"]
    configure(name="several", axes={"encoder.model": models})
    made(*CHAIN)
    embedded = [Artifact.open(path) for path in Path().glob("results/several/*/train-60/embed")]
    assert len(embedded) == len({one.digest for one in embedded}) == 2

    file = configure(name="file", encoder={"embeddings": "vectors.parquet"})
    ids = embedded[0].lineage()["samples"].table("samples.parquet")["sample_id"]
    vectors = np.random.default_rng(0).normal(size=(len(ids), 4))
    frame = pd.DataFrame({"sample_id": ids[::-1], "vector": vectors.tolist()})
    frame[:-1].to_parquet("vectors.parquet")
    made("samples")
    with pytest.raises(GranularityError, match=rf"embeddings: vectors.parquet: 1 of {len(ids)} images are missing"):
        cli.app(["config", "check", "-f", str(file)], standalone_mode=False)
    frame.to_parquet("vectors.parquet")
    assert "encoder" not in made(*CHAIN)
    embed = Artifact.open("results/file/train-60/embed")
    assert embed.params == {"embeddings": "vectors.parquet"} and embed.array("embedding.npy").shape[1] == 4
    assert Path("results/file/train-60/hierarchy/kmeans-6").exists()
