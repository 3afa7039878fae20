"""An edit of a user's file, or an image that comes or goes, makes the sample table again, and what follows from it."""

import json
import os

import pytest
from PIL import Image

from granularity.store.artifact import Artifact
from support.checkout import Checkout
from support.sampling import save

pytestmark = pytest.mark.workflow

COMMON = {
    "encoder": {"captions": {"template": "a {}"}},
    "pretrain": {"batch_size": 4},
    "conditions": [{"train_size": "all"}],
    "label_spaces": {"random": [2], "kmeans": []},
    "pixels": {"size": 4},
}
FOLDER = {"source": "folder", "ranks": ["kind", "species"], "target": "kind", "taxonomy": "taxonomy.csv"}
SPECIES = {"cat": "animal", "dog": "animal", "ash": "plant"}


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


def configure(checkout, samples):
    """Write the configuration of a data set in `data/`; returns a function that makes its pixels.

    That one returns what Snakemake says, and the digest and rows of the sample table.
    """
    samples = {**samples, "root": "data", "validation": 3}
    checkout.path("edits.yaml").write_text(json.dumps({**COMMON, "name": "edits", "samples": samples}))

    def make():
        output = checkout.snakemake("pixels", "--configfile", "edits.yaml")
        table = Artifact.open(checkout.path("results/edits/train-all/samples").resolve())
        return output, table.digest, table.table("samples.parquet")

    return make


def again(make, digest, edit):
    """Edit something; returns digest and rows of the table that it makes."""
    edit()
    output, made, table = make()
    assert "make_samples" in output and "make_pixels" in output
    assert made != digest
    return made, table


def is_finished(checkout):
    return "Nothing to be done" in checkout.snakemake("-n", "pixels", "--configfile", "edits.yaml")


def replace(file, old, new, time=None):
    """Edit a file in place; or give it another's time, as a copy of an older version that takes its place has."""
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    if time is not None:
        os.utime(file, (time, time))


def draw(checkout, name, grey):
    save(checkout.path("data") / name, Image.new("L", (4, 4), grey))


def test_a_folder_of_images_and_a_taxonomy(checkout):
    for i in range(15):
        draw(checkout, f"{[*SPECIES][i % 3]}/{i}.png", i)
    taxonomy = checkout.path("taxonomy.csv")
    taxonomy.write_text("species,kind\ncat,animal\ndog,animal\nash,plant\n")
    make = configure(checkout, FOLDER)
    _, digest, table = make()
    assert len(table) == 15 and is_finished(checkout)
    digest, table = again(make, digest, lambda: draw(checkout, "cat/new.png", 100))
    assert "cat/new.png" in set(table["sample_id"])
    digest, table = again(make, digest, checkout.path("data/cat/new.png").unlink)
    assert len(table) == 15
    digest, table = again(make, digest, lambda: replace(taxonomy, "animal", "beast"))
    assert set(table["kind"]) == {"beast", "plant"}
    digest, table = again(make, digest, lambda: replace(taxonomy, "beast", "brute", time=10**9))
    assert set(table["kind"]) == {"brute", "plant"} and is_finished(checkout)
    os.utime(taxonomy)
    _, made, _ = make()
    assert made == digest and is_finished(checkout)
