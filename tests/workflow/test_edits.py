"""An edit of a user's file, or an image that comes or goes, makes the sample table again, and what follows from it."""

import json
import os

import pytest
from PIL import Image

from granularity.store.artifact import Artifact
from support.checkout import Checkout
from support.sampling import save
from support.small_wordnet import SMALL

pytestmark = pytest.mark.workflow

COMMON = {"conditions": [{"train_size": "all"}], "label_spaces": {"random": [2], "kmeans": []}, "pixels": {"size": 4}}
FOLDER = {"source": "folder", "ranks": ["kind", "species"], "target": "kind", "taxonomy": "taxonomy.csv"}
SYNSETS = {"source": "table", "ranks": ["living_thing", "synset"], "target": "living_thing"}
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


def test_a_table_of_several_labels_and_wordnet(checkout):
    rows = ["path,synset"]
    for synset in ("n00000040", "n00000020"):
        for i in range(6):
            draw(checkout, f"{synset}/{synset}_{i}.png", 20 * i)
            rows.append(f"{synset}/{synset}_{i}.png,{synset}")
    rows[1] = "n00000040/n00000040_0.png,n00000030|n00000040"
    labels, wordnet = checkout.path("data/images.csv"), checkout.path("wordnet/data.noun")
    labels.write_text("\n".join(rows) + "\n")
    wordnet.parent.mkdir()
    wordnet.write_text(SMALL)
    make = configure(checkout, SYNSETS | {"labels": "images.csv", "wordnet": "wordnet"})
    _, digest, table = make()
    assert "n00000030|n00000040" in set(table["synset"])
    digest, table = again(make, digest, lambda: replace(labels, "n00000030|", ""))
    assert set(table["synset"]) == {"n00000020", "n00000040"}
    again(make, digest, lambda: replace(wordnet, " husky ", " spitz ", time=10**9))
    assert is_finished(checkout)
