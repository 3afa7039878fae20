"""Label spaces: every family against its definition, and the measured properties against brute force."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import mutual_info_score, normalized_mutual_info_score

from granularity.base.errors import GranularityError
from granularity.config.options import Cluster
from granularity.stages.cluster import stage as cluster
from granularity.stages.hierarchy import stage
from granularity.stages.hierarchy.families import coarse_mod, nested, random, rebalanced
from granularity.stages.hierarchy.labels import Clustering, Labels, Training
from granularity.stages.hierarchy.properties import class_table, properties
from granularity.store.artifacts import Artifact

GRID = [2, 4, 8]
TREES = ["whole-3-2-2", "superclass-2-3"]
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
    for name in ("whole-6", *TREES, "class-2", *(f"superclass-{n}" for n in GRID)):
        cluster.run(Cluster(), name, 0, samples, embedding, folder / name, "cpu")
    frame = Artifact.open(samples).table("samples.parquet")
    return folder, frame[frame["split"] == "train"].reset_index(drop=True)


def training_of(target: list[str], clusterings: dict[str, np.ndarray] | None = None) -> Training:
    """Images of whom only the target rank is known, and clusterings of them."""
    frame = pd.DataFrame({"sample_id": map(str, range(len(target))), "kind": pd.Categorical(target)})
    made = {name: Clustering(values, pd.DataFrame(), np.empty(0)) for name, values in (clusterings or {}).items()}
    return Training(frame, "kind", clusterings=made)


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
    labels = random.labels(training_of(["a"] * 3000 + ["b"] * 1000), 4)
    assert len(labels.names) == 4
    for part in (labels.values[:3000], labels.values[3000:]):
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


def test_kmeans_in_each_class_refines_the_finest_rank(make):
    space = make("kmeans_class", {"clusterings": ["class-2"]})
    assert len(space.classes) == 12
    assert space.train.groupby(space.labels)["species"].nunique().max() == 1
    assert space.classes["name"].iloc[0] == "carp, cluster 0"


# ---------------------------------------------------------------- nested


def parents_of(fine: np.ndarray, coarse: np.ndarray) -> pd.Series:
    return pd.Series(coarse).groupby(fine).nunique()


@pytest.mark.parametrize(("tree", "sizes"), [("whole-3-2-2", [3, 6, 12]), ("superclass-2-3", [6, 18])])
def test_levels_of_a_tree_from_above_refine_one_another(make, tree, sizes):
    levels = [
        make("topdown", {"clusterings": [tree], "level": level}, name=str(level)) for level in range(1, len(sizes) + 1)
    ]
    assert [len(level.classes) for level in levels] == sizes
    for coarse, fine in itertools.pairwise(levels):
        assert parents_of(fine.labels, coarse.labels).max() == 1
    if tree.startswith("superclass"):
        assert all(level.properties["refines_target"] for level in levels)


def test_the_first_level_of_a_tree_is_the_plain_clustering(make, world):
    """So that a tree differs from the k-means space of the same size only below it."""
    plain = make("kmeans_superclass", {"clusterings": ["superclass-2"]})
    tree = make("topdown", {"clusterings": ["superclass-2-3"], "level": 1}, name="tree")
    np.testing.assert_array_equal(plain.labels, tree.labels)


def test_each_node_of_a_tree_is_split_by_kmeans_on_its_own_images(make, world):
    folder, _ = world
    top, below = (make("topdown", {"clusterings": ["whole-3-2-2"], "level": n}, name=str(n)).labels for n in (1, 2))
    rows = Artifact.open(folder / "samples").table("samples.parquet")["split"] == "train"
    vectors = Artifact.open(folder / "embedding").array("embedding.npy")[rows].astype(np.float64)
    for node in range(3):
        members = top == node
        ours = sum(((vectors[below == b] - vectors[below == b].mean(0)) ** 2).sum() for b in set(below[members]))
        theirs = KMeans(2, n_init=20, random_state=0).fit(vectors[members]).inertia_
        assert ours <= 1.05 * theirs


@pytest.mark.parametrize(("clustering", "sizes"), [("whole-6", [1, 2, 3, 5, 6]), ("superclass-8", [1, 2, 5, 8])])
def test_merging_from_below_gives_a_tree(make, clustering, sizes):
    spaces = [make("bottomup", {"clusterings": [clustering], "classes": n}, name=str(n)) for n in sizes]
    superclasses = 3 if clustering.startswith("superclass") else 1
    assert [len(space.classes) for space in spaces] == [n * superclasses for n in sizes]
    for coarse, fine in itertools.pairwise(spaces):
        assert parents_of(fine.labels, coarse.labels).max() == 1
    if superclasses > 1:
        assert all(space.properties["refines_target"] for space in spaces)


def test_merging_from_below_joins_what_is_near(tmp_path):
    """Two pairs of near centroids: Ward's first merges are those pairs, whatever the numbering."""
    centroids = np.array([[0, 0], [10, 10], [0, 1], [10, 12]], dtype=np.float32)
    clusters = pd.DataFrame({"cluster": range(4), "superclass": [None] * 4})
    training = training_of(["a"] * 8)
    training.clusterings["whole-4"] = Clustering(np.arange(8) % 4, clusters, centroids)
    merged = nested.bottomup(training, ["whole-4"], 2).values
    assert merged.tolist() == [0, 1, 0, 1] * 2
    assert nested.bottomup(training, ["whole-4"], 3).values.tolist() == [0, 1, 0, 2] * 2


# ---------------------------------------------------------------- relabellings


def test_coarse_labels_are_class_numbers_modulo(make, world):
    """The publisher's numbers: here the taxonomy's order, which is alphabetical (carp 0, crow 1, eel 2, ...)."""
    space = make("coarse_mod", {"classes": 3})
    assert space.classes["name"].tolist() == ["carp + oak", "crow + owl", "eel + tit"]
    assert space.classes["name"].to_numpy()[space.labels[space.train["species"] == "tit"]].tolist()[0] == "eel + tit"


def test_cifar10s_coarse_classes_are_the_published_ones():
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    frame = pd.DataFrame({"sample_id": names, "class": pd.Categorical(names)})
    space = coarse_mod.labels(Training(frame, "class", order=names), 5)
    published = ["airplane + dog", "automobile + frog", "bird + horse", "cat + ship", "deer + truck"]
    assert list(space.names) == published
    assert space.values.tolist() == [0, 1, 2, 3, 4] * 2


def test_random_coarse_labels_are_equal_groups_of_whole_classes(make):
    space = make("random_coarse", {"classes": 3})
    groups = space.train.groupby(space.labels)["species"].agg(lambda names: tuple(sorted(set(names))))
    assert sorted(name for group in groups for name in group) == sorted(TREE)
    assert [len(group) for group in groups] == [2, 2, 2]
    others = [make("random_coarse", {"classes": 3}, seed, f"seed {seed}").labels for seed in range(1, 4)]
    assert any((other != space.labels).any() for other in others)


@pytest.mark.parametrize("family", ["coarse_mod", "random_coarse"])
def test_a_modulus_that_does_not_divide_is_refused(make, family):
    with pytest.raises(GranularityError, match=f"{family}: 4 does not divide the 6 classes of species"):
        make(family, {"classes": 4})


def test_random_fine_labels_halve_each_class(make):
    space = make("random_fine", {})
    assert len(space.classes) == 12
    order = sorted(TREE)
    assert [order[label % 6] for label in space.labels] == space.train["species"].tolist()
    assert 0.3 < (space.labels >= 6).mean() < 0.7


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
    tables = {f"superclass-{n}": Artifact.open(folder / f"superclass-{n}").table("assignment.parquet") for n in GRID}
    training = training_of(train["kind"].tolist(), {n: table["cluster"].to_numpy() for n, table in tables.items()})
    found = [len(rebalanced.labels(training, list(tables), threshold).names) for threshold in range(60)]
    assert found == sorted(found, reverse=True)
    assert (found[0], found[-1]) == (24, 3)
    assert len(set(found)) >= 4  # superclasses decide on their own
    sweep = rebalanced.threshold_sweep(training, list(tables))
    for row in sweep.itertuples():
        end = 60 if pd.isna(row.threshold_to) else row.threshold_to + 1
        assert set(found[row.threshold_from : end]) == {row.granularity}
    assert sweep["threshold_from"].iloc[0] == 0
    assert pd.isna(sweep["threshold_to"].iloc[-1])
    assert (sweep["threshold_from"].iloc[1:].to_numpy() == sweep["threshold_to"].iloc[:-1] + 1).all()


def chosen_at(training: Training, threshold: int) -> dict[str, int]:
    found = rebalanced.labels(training, list(training.clusterings), threshold)
    return found.notes["clusters_of_superclass"]


def test_rebalanced_needs_more_images_than_the_threshold_not_as_many():
    training = training_of(["a"] * 10, {"superclass-2": np.repeat([0, 1], 5)})
    assert chosen_at(training, 4) == {"a": 2}
    assert chosen_at(training, 5) == {"a": 1}


def test_rebalanced_orders_its_grid_by_number():
    """ "superclass-16" comes after "superclass-2" as a number, before it as a word."""
    training = training_of(["a"] * 32, {f"superclass-{n}": np.arange(32) % n for n in (16, 2, 4)})
    assert chosen_at(training, 1) == {"a": 16}
    assert chosen_at(training, 2) == {"a": 4}


# ---------------------------------------------------------------- properties


def measured(labels: np.ndarray, names: list[str], ranks: pd.DataFrame, offsets=None) -> tuple[pd.DataFrame, dict]:
    coded = {rank: np.unique(ranks[rank].to_numpy(dtype=str), return_inverse=True)[::-1] for rank in ranks}
    space = Labels(labels, names, offsets)
    table = class_table(space, coded["kind"])
    return table, properties(space, table, coded)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("classes", [1, 3, 30, 200])
def test_properties_are_what_brute_force_finds(seed, classes):
    rng = np.random.default_rng(seed)
    ranks = pd.DataFrame({"kind": rng.choice(list("abc"), 120), "fine": rng.choice(list("uvwxyz"), 120)})
    labels = rng.integers(classes, size=120)
    table, found = measured(labels, [str(i) for i in range(classes)], ranks)

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
    _, found = measured(np.zeros(4, int), ["all"], ranks)
    assert found["nmi"]["kind"] == normalized_mutual_info_score([0] * 4, [0] * 4)
    assert found["mutual_information_bits"]["kind"] == 0


@pytest.mark.parametrize("seed", range(3))
def test_properties_of_several_labels_are_what_brute_force_finds(seed):
    rng = np.random.default_rng(seed)
    ranks = pd.DataFrame({"kind": rng.choice(list("abc"), 60), "fine": rng.choice(list("uvwxyz"), 60)})
    sets = [sorted(rng.choice(9, size=rng.integers(1, 4), replace=False)) for _ in range(60)]
    offsets = np.cumsum([0, *map(len, sets)])
    table, found = measured(np.concatenate(sets).astype(np.int32), list("123456789"), ranks, offsets)
    pairs = [(label, image) for image, one in enumerate(sets) for label in one]
    kinds = {label: {ranks["kind"][image] for mine, image in pairs if mine == label} for label in range(9)}
    assert found["straddling_share"] == pytest.approx(np.mean([any(len(kinds[x]) > 1 for x in one) for one in sets]))
    assert found["labels_per_image"] == pytest.approx(len(pairs) / 60)
    assert found["multi_label"] is True
    assert table["size"].tolist() == [sum(label == mine for mine, _ in pairs) for label in range(9)]
    fine = [ranks["fine"][image] for _, image in pairs]
    nmi = normalized_mutual_info_score(fine, [label for label, _ in pairs])
    assert found["nmi"]["fine"] == pytest.approx(nmi)


# ---------------------------------------------------------------- determinism and refusals

DEFINITIONS = [
    ("random", {"classes": 7}),
    ("random", {"classes": None}),
    ("random_superclass", {"per_superclass": 4}),
    ("kmeans", {"clusterings": ["whole-6"]}),
    ("rebalanced", {"clusterings": ["superclass-2", "superclass-4"], "threshold": 3}),
    ("manual", {"rank": "species"}),
    ("topdown", {"clusterings": ["whole-3-2-2"], "level": 2}),
    ("bottomup", {"clusterings": ["whole-6"], "classes": 3}),
    ("coarse_mod", {"classes": 2}),
    ("random_coarse", {"classes": 3}),
    ("random_fine", {}),
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
