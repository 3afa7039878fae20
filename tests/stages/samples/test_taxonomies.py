"""The taxonomies in config/taxonomies: each names every class of its data set, and joins."""

import itertools
from pathlib import Path

import pandas as pd
import pytest

from granularity.stages.samples import ranks
from granularity.stages.samples.sources import digits

FOLDER = Path(__file__).parents[3] / "config" / "taxonomies"
LABELS = [str(i) for i in range(10)]
CIFAR10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
SYNSETS = pd.read_csv(FOLDER / "tiny_imagenet_parents.csv", comment="#")["synset"].tolist()
TABLES = {  # file -> the rank that it joins on and its classes, and the sizes of the ranks that it adds
    "cifar10.csv": ("class", CIFAR10, {"group": 6, "kind": 2}),
    "cifar10_crossed.csv": ("class", CIFAR10, {"quarter": 4, "half": 2, "kind": 2}),
    "cifar10_halves.csv": ("class", CIFAR10, {f"t{number:02}": 2 for number in range(20)}),
    "cifar10_mod5.csv": ("class", CIFAR10, {"pair": 5}),
    "cifar10_random_pairs.csv": ("class", CIFAR10, {"pair": 5}),
    "fashion_mnist.csv": ("label", LABELS, {"name": 10, "group": 5}),
    "mnist.csv": ("label", LABELS, {"loops": 3}),
    "tiny_imagenet_parents.csv": ("synset", SYNSETS, {"parent": 38}),
    "tiny_imagenet_tree.csv": ("synset", SYNSETS, {"kind": 12, "group": 20, "family": 39, "type": 76}),
    "tiny_imagenet_random_parents.csv": ("synset", SYNSETS, {"parent": 38}),
}


@pytest.mark.parametrize("name", sorted(file.name for file in FOLDER.iterdir()))
def test_a_taxonomy_names_every_class_in_order_and_joins(name):
    rank, classes, sizes = TABLES[name]
    table = ranks.read_taxonomy(FOLDER / name)
    assert table.columns.tolist() == [rank, *sizes]
    assert table[rank].tolist() == classes
    frame = pd.DataFrame({"sample_id": classes, rank: pd.Categorical(classes, classes)})
    joined = ranks.join(frame, table, FOLDER / name)
    assert joined[rank].tolist() == classes
    assert {added: joined[added].nunique() for added in sizes} == sizes
    assert not joined.isna().any(axis=None)


def test_loops_are_those_of_the_digits():
    loops = ranks.read_taxonomy(FOLDER / "mnist.csv")["loops"].tolist()
    assert loops == [digits.LOOPS[count] for count in digits.LOOPS_OF_DIGIT]


def test_random_parents_have_the_sizes_of_those_of_wordnet():
    names = ("tiny_imagenet_parents.csv", "tiny_imagenet_random_parents.csv")
    first, second = (ranks.read_taxonomy(FOLDER / name)["parent"].value_counts().tolist() for name in names)
    assert first == second and len(SYNSETS) == len({*SYNSETS}) == 200


@pytest.mark.parametrize("name", ["cifar10.csv", "tiny_imagenet_tree.csv"])
def test_a_tree_is_one(name):
    """Each class of a rank lies in one class of the coarser rank."""
    table = ranks.read_taxonomy(FOLDER / name)
    levels = sorted(table.columns[1:], key=lambda rank: table[rank].nunique())
    for coarse, fine in itertools.pairwise(levels):
        assert (table.groupby(fine)[coarse].nunique() == 1).all()


def test_a_byte_order_mark_before_a_comment_is_none_of_its_columns(tmp_path):
    """As Windows' editors save a file."""
    (tmp_path / "mine.csv").write_text("# mine\nspecies,kind\ncat,animal\n", encoding="utf-8-sig")
    assert ranks.read_taxonomy(tmp_path / "mine.csv").to_dict("list") == {"species": ["cat"], "kind": ["animal"]}
