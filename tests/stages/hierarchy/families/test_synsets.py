"""Label spaces of WordNet: one label where paths agree, several where they do not, and those of images elsewhere."""

import numpy as np
import pandas as pd
import pytest

from granularity.data.wordnet import WordNet
from granularity.stages.hierarchy.families import wordnet
from granularity.stages.hierarchy.labels import Training
from support.small_wordnet import SMALL


@pytest.fixture
def small(tmp_path) -> WordNet:
    (tmp_path / "data.noun").write_text(SMALL)
    return WordNet.read(tmp_path)


def images_of(images: list[str]) -> pd.DataFrame:
    return pd.DataFrame({"sample_id": range(len(images)), "synset": pd.Categorical(images)})


def space_at(small: WordNet, images: list[str], level: int):
    training = Training(images_of(images), "synset", graph=small)
    return wordnet.elsewhere(training, training.frame, level)


@pytest.mark.parametrize("level", range(4))
def test_labels_of_many_images_are_those_of_each(small, level):
    rng = np.random.default_rng(0)
    graph = small
    kinds = ["n00000040", "n00000020|n00000050", "n00000010", "n00000030"]
    images = rng.choice(kinds, 200).tolist()
    space = space_at(small, images, level)
    labels = space.table(pd.Series(range(200)))["label"].to_pylist()
    for image, mine in zip(images, labels, strict=True):
        expected = frozenset().union(*(graph.level(synset, level) for synset in image.split("|")))
        mine = mine if isinstance(mine, list) else [mine]
        assert {space.names[label].split("(")[1].rstrip(")") for label in mine} == expected
        assert mine == sorted(mine)


def test_images_elsewhere_have_the_labels_that_training_images_have(small):
    """Level 2: the husky's animal and artifact, the artifact's entity; the living thing's entity."""
    training = Training(images_of(["n00000040", "n00000020"]), "synset", graph=small)
    known = wordnet.elsewhere(training, training.frame, 2)
    others = images_of(["n00000040", "n00000010", "n00000050", "n00000030"])
    found = wordnet.elsewhere(training, others, 2)
    assert list(found.names) == list(known.names)
    names = [
        {known.names[label].split(" (")[0] for label in found.values[start:stop]}
        for start, stop in zip(found.offsets, found.offsets[1:], strict=False)
    ]
    # An animal is an entity two steps up. Balto's root is no training image's, so Balto has no label; of a working
    # dog's two paths one ends in a living thing, which no training image is, and the other in an entity.
    assert names == [{"animal", "artifact"}, {"entity"}, set(), {"entity"}]
