"""The chain on a user's own folder of real colour images."""

import json
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from granularity.store.artifacts import Artifact
from support.checkout import Checkout

DATA = os.environ.get("GRANULARITY_DATA")
VEHICLES = {"airplane", "automobile", "ship", "truck"}
CONFIG = """
name: photos
samples: {source: folder, root: "my photos", ranks: [kind, species], target: kind, validation: 0.4}
conditions: [{train_size: all}]
encoder:
  captions: {template: "a photo of a {}", epochs: 1, batch_size: 20}
label_spaces:
  manual: [species]
  random: [5]
  random_superclass: []
  kmeans: [6]
  kmeans_superclass: [2]
  rebalanced: {clusters: [2, 3], thresholds: [3]}
pixels: {size: 32, mode: RGB}
model: {args: {channels: [8, 8, 8, 8], stem_width: 4}}
pretrain: &recipe {batch_size: 20, epochs: 1, warmup_epochs: 0, augment: {flip: true, pad: 4}}
finetune: *recipe
seeds: {pretrain: 2, finetune: 2}
jobs: {pretrain: condition, finetune: condition}
"""


@pytest.mark.workflow
@pytest.mark.skipif(DATA is None, reason="needs real images: set GRANULARITY_DATA (see docs/development.md)")
def test_a_folder_of_photographs_goes_through_the_whole_chain(tmp_path):
    checkout = Checkout(tmp_path)
    table = pq.read_table(Path(DATA, "cifar10/test.parquet"))
    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    names = features["label"]["names"]
    for i, (image, label) in enumerate(
        zip(table["img"].to_pylist()[:200], table["label"].to_pylist()[:200], strict=True)
    ):
        name = names[label]
        folder = tmp_path / "my photos" / ("vehicle" if name in VEHICLES else "animal") / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"photo {i} (é).jpg").write_bytes(image["bytes"])
    (tmp_path / "photos.yaml").write_text(CONFIG)
    checkout.snakemake("--configfile", "photos.yaml")
    assert (tmp_path / "results/photos/report/report.html").stat().st_size > 50_000
    assert "all sound" in checkout.run("granularity", "verify", "results")
    pixels = Artifact.open(tmp_path / "results/photos/train-all/pixels").array("pixels.npy")
    assert pixels.shape == (200, 32, 32, 3)
    photo = next((tmp_path / "my photos/animal").rglob("*.jpg"))
    photo.write_bytes(photo.read_bytes()[:-1])
    name = "results/photos/train-all/pixels"
    command = checkout.command_of(f"{name}.stamp", "--configfile", "photos.yaml")
    assert f"--output {name} " in command  # what is there is found again: it is decoded anew for another store
    output = checkout.run("bash", "-c", command.replace(f"--output {name} ", "--output apart/pixels "), code=1)
    assert str(photo.name) in output and "has changed since the sample table was made" in output
