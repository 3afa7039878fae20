"""Label spaces: every family against its definition, and the measured properties against brute force."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import mutual_info_score, normalized_mutual_info_score

from granularity import cluster
from granularity.artifacts import Artifact
from granularity.config import Cluster
from granularity.errors import GranularityError
from granularity.hierarchy import families, stage
from granularity.hierarchy.properties import class_table, properties

GRID = [2, 4, 8]
# species -> (phylum, kind): `chordate` holds two kinds, so the rank "phylum" does not refine the rank "kind"
TREE = {
    "crow": ("chordate", "bird"),
    "owl": ("chordate", "bird"),
    "tit": ("chordate", "bird"),
    "eel": ("chordate", "fish"),
    "carp": ("chordate", "fish"),
    "oak": ("plant", "plant"),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory, make_samples, make_array):
    """160 images of six species, an embedding in which species are heaps, and its clusterings."""
    folder = tmp_path_factory.mktemp("world")
    rng = np.random.default_rng(0)
    species = rng.choice(list(TREE), size=160, p=[0.3, 0.2, 0.1, 0.1, 0.1, 0.2])
    split = np.where(rng.random(160) < 0.8, "train", "val")
    ranks = {
        "phylum": [TREE[name][0] for name in species],
        "kind": [TREE[name][1] for name in species],
        "species": species.tolist(),
    }
    samples = make_samples(folder / "samples", split.tolist(), ranks, "kind")
    heaps = {name: rng.normal(size=6) for name in TREE}
    vectors = np.stack([heaps[name] for name in species]) + rng.normal(size=(160, 6))
    embedding = make_array(folder / "embedding", "embedding", samples, vectors.astype(np.float32))
    for name in ("whole-6", *(f"superclass-{n}" for n in GRID)):
        cluster.run(Cluster(), name, 0, samples, embedding, folder / name, "cpu")
    frame = Artifact.open(samples).table("samples.parquet")
    return folder, frame[frame["split"] == "train"].reset_index(drop=True)


class Space:
    """A label space made by the stage, read back."""

    def __init__(self, world, output: Path, family: str, params: dict, seed: int = 0):
        folder, self.train = world
        clusterings = [folder / name for name in params.get("clusterings", ())]
        stage.run("space", family, params, seed, folder / "samples", clusterings, output)
        self.artifact = Artifact.open(output, "label_space")
        labels = self.artifact.table("labels.parquet")
        assert labels["sample_id"].tolist() == self.train["sample_id"].tolist()
        self.labels = labels["label"].to_numpy()
        self.classes = self.artifact.table("classes.parquet")
        self.properties = self.artifact.json("properties.json")
        assert self.labels.dtype == np.int32
        assert self.classes["label"].tolist() == list(range(len(self.classes)))
        assert self.classes["name"].is_unique
        assert self.properties["granularity"] == len(self.classes)
        assert self.classes["size"].tolist() == np.bincount(self.labels, minlength=len(self.classes)).tolist()

    def kinds_of_label(self) -> pd.Series:
        return self.train.groupby(self.labels)["kind"].agg(set)


@pytest.fixture
def make(world, tmp_path):
    return lambda family, params, seed=0, name="out": Space(world, tmp_path / name, family, params, seed)


# ---------------------------------------------------------------- the families


@pytest.mark.parametrize("rank", ["phylum", "kind", "species"])
def test_manual_is_the_human_rank(make, rank):
    space = make("manual", {"rank": rank})
    assert space.classes["name"].tolist() == sorted(set(space.train[rank]))
    assert space.classes["name"].to_numpy()[space.labels].tolist() == space.train[rank].tolist()


def test_a_rank_that_does_not_refine_the_target_is_handled(make):
    """Like iNaturalist's phyla: one label, several target classes."""
    space = make("manual", {"rank": "phylum"})
    chordates = space.train["phylum"] == "chordate"
    assert space.properties["refines_target"] is False
    assert space.properties["straddling_share"] == pytest.approx(chordates.mean())
    birds = (space.train["kind"] == "bird").sum()
    assert space.classes.set_index("name")["parent"].to_dict() == {"chordate": "bird", "plant": "plant"}
    assert space.classes.set_index("name").loc["chordate", "purity"] == pytest.approx(birds / chordates.sum())


@pytest.mark.parametrize("rank", ["kind", "species"])
def test_a_rank_that_refines_the_target_is_seen_to(make, rank):
    space = make("manual", {"rank": rank})
    assert space.properties["refines_target"] is True
    assert space.properties["straddling_share"] == 0
    assert (space.classes["purity"] == 1).all()


def test_random_ids_keep_the_empty_ones(make):
    space = make("random", {"classes": 100})
    assert len(space.classes) == 100
    empty = space.classes[space.classes["size"] == 0]
    assert len(empty) == space.properties["empty_classes"] > 0
    assert empty["parent"].isna().all()
    assert empty["purity"].isna().all()
    assert space.classes["parent"].notna().sum() == 100 - len(empty)


def test_random_ids_are_uniform_and_ignore_the_target():
    frame = pd.DataFrame({"kind": ["a"] * 3000 + ["b"] * 1000})
    labels, names = families.random(frame, 4, 0)
    assert len(names) == 4
    for part in (labels[:3000], labels[3000:]):
        share = np.bincount(part, minlength=4) / len(part)
        assert np.abs(share - 0.25).max() < 5 * np.sqrt(0.25 * 0.75 / len(part))


def test_one_id_an_image_is_a_bijection(make):
    space = make("random", {"classes": None})
    assert sorted(space.labels) == list(range(len(space.train)))
    assert space.labels.tolist() != sorted(space.labels)
    assert len(space.classes) == len(space.train)


@pytest.mark.parametrize("per_superclass", [1, 3, 40])
def test_random_ids_within_a_superclass_lie_in_one_target_class(make, per_superclass):
    space = make("random_superclass", {"per_superclass": per_superclass})
    assert len(space.classes) == 3 * per_superclass
    superclass = np.searchsorted(["bird", "fish", "plant"], space.train["kind"])
    np.testing.assert_array_equal(space.labels // per_superclass, superclass)
    assert space.kinds_of_label().map(len).max() == 1
    if per_superclass == 3:
        assert len(set(space.labels)) == 9  # all are drawn


def test_random_families_with_equal_numbers_are_not_one_draw(make):
    first = make("random", {"classes": 3}).labels
    second = make("random_superclass", {"per_superclass": 3}, name="other").labels % 3
    assert 0.1 < (first == second).mean() < 0.6


def test_kmeans_over_the_whole_set_straddles_superclasses(make, world):
    space = make("kmeans", {"clusterings": ["whole-6"]})
    assignment = Artifact.open(world[0] / "whole-6").table("assignment.parquet")["cluster"]
    assert space.labels.tolist() == assignment.tolist()
    assert space.kinds_of_label().map(len).max() > 1
    assert 0 < space.properties["straddling_share"] <= 1
    assert space.properties["refines_target"] is False


@pytest.mark.parametrize("clusters", GRID)
def test_kmeans_in_each_superclass_refines_it(make, clusters):
    space = make("kmeans_superclass", {"clusterings": [f"superclass-{clusters}"]})
    kinds = space.kinds_of_label()
    assert kinds.index.tolist() == list(range(3 * clusters))
    assert kinds.map(len).max() == 1
    assert [next(iter(kind)) for kind in kinds] == ["bird"] * clusters + ["fish"] * clusters + ["plant"] * clusters
    assert space.properties["refines_target"] is True
    assert space.properties["empty_classes"] == 0


# ---------------------------------------------------------------- rebalanced


def sizes_at(world, clusters: int, kind: str) -> np.ndarray:
    folder, train = world
    assignment = Artifact.open(folder / f"superclass-{clusters}").table("assignment.parquet")["cluster"]
    return assignment[(train["kind"] == kind).to_numpy()].value_counts().to_numpy()


@pytest.mark.parametrize("threshold", [0, 1, 2, 4, 8, 12, 20, 1000])
def test_rebalanced_takes_the_finest_whose_smallest_cluster_is_large_enough(make, world, threshold):
    space = make("rebalanced", {"clusterings": [f"superclass-{n}" for n in GRID], "threshold": threshold})
    chosen = space.artifact.summary["clusters_of_superclass"]
    assert set(chosen) == {"bird", "fish", "plant"}
    for kind, clusters in chosen.items():
        assert clusters in (1, *GRID)
        if clusters > 1:
            assert sizes_at(world, clusters, kind).min() > threshold
        assert all(sizes_at(world, finer, kind).min() <= threshold for finer in GRID if finer > clusters)
        own = space.labels[(space.train["kind"] == kind).to_numpy()]
        assert len(set(own)) == clusters == 1 + own.max() - own.min()  # contiguous
        if clusters > 1:
            assert Counter(Counter(own).values()) == Counter(sizes_at(world, clusters, kind))
    assert len(space.classes) == sum(chosen.values())
    assert space.properties["refines_target"] is True
    if threshold == 1000:
        assert set(chosen.values()) == {1}


def test_rebalanced_granularity_falls_with_the_threshold(world):
    folder, train = world
    clusterings = {
        f"superclass-{n}": (
            Artifact.open(folder / f"superclass-{n}").table("assignment.parquet")["cluster"].to_numpy(),
            None,
        )
        for n in GRID
    }
    kinds = train["kind"].to_numpy(dtype=str)
    found = [len(families.rebalanced(clusterings, kinds, threshold)[1]) for threshold in range(60)]
    assert found == sorted(found, reverse=True)
    assert (found[0], found[-1]) == (24, 3)
    assert len(set(found)) >= 4  # superclasses decide on their own


def test_rebalanced_needs_more_images_than_the_threshold_not_as_many():
    assignment = np.repeat([0, 1], 5)
    superclass = np.array(["a"] * 10)
    clusterings = {"superclass-2": (assignment, None)}
    assert families.rebalanced(clusterings, superclass, 4)[2] == {"a": 2}
    assert families.rebalanced(clusterings, superclass, 5)[2] == {"a": 1}


def test_rebalanced_orders_its_grid_by_number():
    """ "superclass-16" comes after "superclass-2" as a number, before it as a word."""
    superclass = np.array(["a"] * 32)
    clusterings = {f"superclass-{n}": (np.arange(32) % n, None) for n in (16, 2, 4)}
    assert families.rebalanced(clusterings, superclass, 1)[2] == {"a": 16}
    assert families.rebalanced(clusterings, superclass, 2)[2] == {"a": 4}


# ---------------------------------------------------------------- properties


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("classes", [1, 3, 30, 200])
def test_properties_are_what_brute_force_finds(seed, classes):
    rng = np.random.default_rng(seed)
    ranks = pd.DataFrame({"kind": rng.choice(list("abc"), 120), "fine": rng.choice(list("uvwxyz"), 120)})
    labels = rng.integers(classes, size=120)
    table = class_table(labels, [str(i) for i in range(classes)], ranks["kind"].to_numpy())
    found = properties(labels, table, ranks, "kind")

    members = {label: np.flatnonzero(labels == label) for label in set(labels)}
    straddling = sum(len(rows) for rows in members.values() if ranks["kind"][rows].nunique() > 1)
    assert found["straddling_share"] == pytest.approx(straddling / 120)
    assert found["refines_target"] == (straddling == 0)
    assert found["empty_classes"] == classes - len(members)
    sizes = [len(members.get(label, ())) for label in range(classes)]
    assert found["class_size"] == {"min": min(sizes), "median": np.median(sizes), "max": max(sizes)}
    assert found["starved_share"] == pytest.approx(np.mean([size < 5 for size in sizes]))
    for rank in ranks:
        majority = sum(ranks[rank][rows].value_counts().max() for rows in members.values())
        assert found["purity"][rank] == pytest.approx(majority / 120)
        nats = mutual_info_score(ranks[rank], labels)
        assert found["mutual_information_bits"][rank] == pytest.approx(nats / np.log(2), abs=1e-9)
        assert found["nmi"][rank] == pytest.approx(normalized_mutual_info_score(ranks[rank], labels), abs=1e-9)
    for label, rows in members.items():
        counts = ranks["kind"][rows].value_counts()
        tied = sorted(counts[counts == counts.max()].index)
        assert table["parent"][label] == tied[0]  # ties go to the first in alphabetical order
        assert table["purity"][label] == pytest.approx(counts.max() / len(rows))


def test_one_class_each_carries_all_and_no_information():
    ranks = pd.DataFrame({"kind": ["a"] * 4})
    table = class_table(np.zeros(4, int), ["all"], ranks["kind"].to_numpy())
    found = properties(np.zeros(4, int), table, ranks, "kind")
    assert found["nmi"]["kind"] == normalized_mutual_info_score([0] * 4, [0] * 4)
    assert found["mutual_information_bits"]["kind"] == 0


# ---------------------------------------------------------------- determinism and refusals

DEFINITIONS = [
    ("random", {"classes": 7}),
    ("random", {"classes": None}),
    ("random_superclass", {"per_superclass": 4}),
    ("kmeans", {"clusterings": ["whole-6"]}),
    ("rebalanced", {"clusterings": ["superclass-2", "superclass-4"], "threshold": 3}),
    ("manual", {"rank": "species"}),
]


@pytest.mark.parametrize(("family", "params"), DEFINITIONS)
def test_one_seed_gives_one_label_file(make, family, params):
    digests = [make(family, params, seed, str(i)).artifact.digest for i, seed in enumerate((3, 3, 4))]
    assert digests[0] == digests[1]
    assert (digests[0] != digests[2]) == family.startswith("random")


def test_an_unknown_family_is_refused(make):
    with pytest.raises(GranularityError, match="there is no family 'alphabetical'"):
        make("alphabetical", {})


def test_a_clustering_of_other_images_is_refused(world, tmp_path, make_samples):
    folder, train = world
    ranks = {rank: train[rank].tolist() for rank in ("phylum", "kind", "species")}
    fewer = make_samples(tmp_path / "fewer", ["train"] * len(train), ranks, "kind")
    with pytest.raises(GranularityError, match="whole-6: does not cover the training images"):
        stage.run("space", "kmeans", {"clusterings": ["whole-6"]}, 0, fewer, [folder / "whole-6"], tmp_path / "out")
    assert not (tmp_path / "out").exists()
