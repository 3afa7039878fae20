"""Label spaces: every family against its definition, on images to train on and on others."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans

from granularity.base.errors import GranularityError
from granularity.stages.hierarchy.families import coarse_mod, nested, random, rebalanced
from granularity.stages.hierarchy.labels import Clustering, Training
from granularity.store.artifacts import Artifact
from support import tasks

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
    embed = make_array(folder / "embed", "embed", samples, vectors.astype(np.float32))
    for name in ("whole-6", *TREES, "class-2", *(f"superclass-{n}" for n in GRID)):
        tasks.run("cluster", folder / name, {"clustering": name}, samples=samples, embed=embed)
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
        clusters = [folder / name for name in params.get("clusterings", ())]
        inputs = {"samples": folder / "samples", "cluster": clusters, "embed": folder / "embed" if clusters else None}
        options = {"space": "space", "family": family, "params": params}
        self.artifact = tasks.run("hierarchy", output, options, seed, **inputs)
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


def topdown(tree: str, level: int) -> dict:
    return {"direction": "topdown", "clusterings": [tree], "level": level}


def bottomup(clustering: str, classes: int) -> dict:
    return {"direction": "bottomup", "clusterings": [clustering], "classes": classes}


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
    space = make("random_instance", {})
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
    levels = [make("nested", topdown(tree, level), name=str(level)) for level in range(1, len(sizes) + 1)]
    assert [len(level.classes) for level in levels] == sizes
    for coarse, fine in itertools.pairwise(levels):
        assert parents_of(fine.labels, coarse.labels).max() == 1
    if tree.startswith("superclass"):
        assert all(level.properties["refines_target"] for level in levels)


def test_the_first_level_of_a_tree_is_the_plain_clustering(make, world):
    """So that a tree differs from the k-means space of the same size only below it."""
    plain = make("kmeans_superclass", {"clusterings": ["superclass-2"]})
    tree = make("nested", topdown("superclass-2-3", 1), name="tree")
    np.testing.assert_array_equal(plain.labels, tree.labels)


def test_each_node_of_a_tree_is_split_by_kmeans_on_its_own_images(make, world):
    folder, _ = world
    top, below = (make("nested", topdown("whole-3-2-2", n), name=str(n)).labels for n in (1, 2))
    rows = Artifact.open(folder / "samples").table("samples.parquet")["split"] == "train"
    vectors = Artifact.open(folder / "embed").array("embedding.npy")[rows].astype(np.float64)
    for node in range(3):
        members = top == node
        ours = sum(((vectors[below == b] - vectors[below == b].mean(0)) ** 2).sum() for b in set(below[members]))
        theirs = KMeans(2, n_init=20, random_state=0).fit(vectors[members]).inertia_
        assert ours <= 1.05 * theirs


@pytest.mark.parametrize(("clustering", "sizes"), [("whole-6", [1, 2, 3, 5, 6]), ("superclass-8", [1, 2, 5, 8])])
def test_merging_from_below_gives_a_tree(make, clustering, sizes):
    spaces = [make("nested", bottomup(clustering, n), name=str(n)) for n in sizes]
    superclasses = 3 if clustering.startswith("superclass") else 1
    assert [len(space.classes) for space in spaces] == [n * superclasses for n in sizes]
    for coarse, fine in itertools.pairwise(spaces):
        assert parents_of(fine.labels, coarse.labels).max() == 1
    if superclasses > 1:
        assert all(space.properties["refines_target"] for space in spaces)


def test_merging_from_below_joins_what_is_near():
    """Two pairs of near centroids: Ward's first merges are those pairs, whatever the numbering."""
    centroids = np.array([[0, 0], [10, 10], [0, 1], [10, 12]], dtype=np.float32)
    clusters = pd.DataFrame({"cluster": range(4), "superclass": [None] * 4})
    one = Clustering(np.arange(8) % 4, clusters, centroids)
    assert nested.bottomup(one, 2)[0].tolist() == [0, 1, 0, 1]
    assert nested.bottomup(one, 3)[0].tolist() == [0, 1, 0, 2]


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


def test_rebalanced_finds_the_threshold_of_a_number_of_classes(make, world):
    """The largest threshold of that G; where no threshold has it, that of the nearest G, of two the smaller."""
    grid = {"clusterings": [f"superclass-{n}" for n in GRID]}
    sweep = make("rebalanced", grid | {"threshold": 0}).artifact.table("threshold_sweep.parquet")
    for row in sweep.iloc[:-1].itertuples():
        space = make("rebalanced", grid | {"classes": row.granularity})
        assert (space.properties["granularity"], space.artifact.summary["threshold"]) == (row[3], row.threshold_to)
        same = make("rebalanced", grid | {"threshold": int(row.threshold_to)})
        assert np.array_equal(space.labels, same.labels)
    assert make("rebalanced", grid | {"classes": 1000}).properties["granularity"] == sweep["granularity"].max()
    training = training_of(["a"] * 12, {f"superclass-{n}": np.arange(12) % n for n in (2, 4)})
    assert rebalanced.threshold_for(training, list(training.clusterings), 1) == 6  # the end of the sweep
    assert rebalanced.threshold_for(training, ["superclass-2", "superclass-4"], 3) == 2  # 4 is nearer than 2
    assert rebalanced.threshold_for(training, ["superclass-4"], 2) == 3  # 1 and 4 are as near


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


# ---------------------------------------------------------------- determinism and refusals

DEFINITIONS = [
    ("random", {"classes": 7}),
    ("random_instance", {}),
    ("random_superclass", {"per_superclass": 4}),
    ("kmeans", {"clusterings": ["whole-6"]}),
    ("rebalanced", {"clusterings": ["superclass-2", "superclass-4"], "threshold": 3}),
    ("manual", {"rank": "species"}),
    ("nested", topdown("whole-3-2-2", 2)),
    ("nested", bottomup("whole-6", 3)),
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
    options = {"space": "space", "family": "kmeans", "params": {"clusterings": ["whole-6"]}}
    with pytest.raises(GranularityError, match="whole-6: does not cover the training images"):
        tasks.run("hierarchy", tmp_path / "out", options, samples=fewer, cluster=folder / "whole-6")
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------- images of other splits


def elsewhere(space: Space, world) -> pd.DataFrame:
    """The images of other splits with what is known of them, and their `label`; null where they have none."""
    frame = Artifact.open(world[0] / "samples").table("samples.parquet")
    frame["row"] = np.arange(len(frame))
    frame = frame[frame["split"] != "train"]
    labels = space.artifact.table("labels_elsewhere.parquet")
    assert list(labels.columns) == ["sample_id", "split", "label"] and labels["label"].dtype == np.int32
    assert labels["sample_id"].isin(frame["sample_id"]).all() and labels["sample_id"].is_unique
    assert space.artifact.summary["elsewhere"] == len(labels)
    return frame.merge(labels, how="left", on=["sample_id", "split"], validate="one_to_one")


@pytest.mark.parametrize("rank", ["phylum", "kind", "species"])
def test_human_labels_of_other_images_are_theirs(make, world, rank):
    space = make("manual", {"rank": rank})
    found = elsewhere(space, world)
    assert space.classes["name"].to_numpy()[found["label"]].tolist() == found[rank].tolist()


@pytest.mark.parametrize("family", ["coarse_mod", "random_coarse"])
def test_relabelled_classes_are_so_everywhere(make, world, family):
    space = make(family, {"classes": 3})
    label_of = dict(zip(space.train["species"], space.labels, strict=True))
    found = elsewhere(space, world)
    assert found["label"].tolist() == [label_of[name] for name in found["species"]]


CLUSTERED = [
    ("kmeans", {"clusterings": ["whole-6"]}),
    ("kmeans_superclass", {"clusterings": ["superclass-4"]}),
    ("kmeans_class", {"clusterings": ["class-2"]}),
    ("rebalanced", {"clusterings": ["superclass-2", "superclass-4"], "threshold": 3}),
    ("rebalanced", {"clusterings": ["superclass-2"], "threshold": 1000}),
    ("rebalanced", {"clusterings": ["superclass-2", "superclass-4"], "classes": 9}),
    ("nested", topdown("whole-3-2-2", 1)),
    ("nested", topdown("superclass-2-3", 2)),
    ("nested", bottomup("superclass-8", 2)),
]


@pytest.mark.parametrize(("family", "params"), CLUSTERED)
def test_other_images_are_what_the_training_images_of_their_nearest_cluster_are(make, world, family, params):
    """Against brute force, which knows the labels of training images and the centroids alone."""
    folder, train = world
    space = make(family, params)
    found = elsewhere(space, world)
    vectors = Artifact.open(folder / "embed").array("embedding.npy").astype(np.float64)
    for image in found.itertuples():
        answers = set()
        for name in params["clusterings"]:
            source = Artifact.open(folder / name)
            near = ((source.array("centroids.npy").astype(np.float64) - vectors[image.row]) ** 2).sum(axis=1)
            within = source.table("clusters.parquet")["superclass"]
            own = {"whole": within.isna(), "superclass": within == image.kind, "class": within == image.species}
            near[~own[name.split("-")[0]].to_numpy()] = np.inf
            members = source.table("assignment.parquet")["cluster"] == near.argmin()
            labels = set(space.labels[members])
            if len(labels) == 1 and ((train["kind"] == image.kind) & (space.labels == min(labels))).any():
                answers |= labels
        if family == "rebalanced":  # one of the clusterings is that of the superclass; of the others labels are mixed
            assert image.label in answers
        else:
            assert {image.label} == answers


@pytest.mark.parametrize(
    ("family", "params"),
    [
        ("random", {"classes": 5}),
        ("random_instance", {}),
        ("random_superclass", {"per_superclass": 2}),
        ("random_fine", {}),
    ],
)
def test_chance_says_nothing_of_other_images(make, family, params):
    assert "labels_elsewhere.parquet" not in make(family, params).artifact.manifest["files"]


def test_an_image_of_a_class_that_was_never_seen_has_no_label(tmp_path, make_samples, make_array):
    """Training has birds alone: an eel is of no manual class and of no superclass, but near some cluster."""
    split = ["train"] * 6 + ["val"] * 3 + ["test"]
    ranks = {"kind": ["bird"] * 8 + ["fish"] * 2, "species": ["crow", "owl"] * 4 + ["eel"] * 2}
    samples = make_samples(tmp_path / "samples", split, ranks, "kind")
    vectors = np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32)
    embed = make_array(tmp_path / "embed", "embed", samples, vectors)
    seen = {}
    for family, params, clustering in (
        ("manual", {"rank": "species"}, None),
        ("kmeans", {"clusterings": ["whole-2"]}, "whole-2"),
        ("kmeans_superclass", {"clusterings": ["superclass-2"]}, "superclass-2"),
        ("rebalanced", {"clusterings": ["superclass-2"], "threshold": 0}, "superclass-2"),
    ):
        inputs = {"samples": samples}
        if clustering is not None:
            tasks.run("cluster", tmp_path / clustering, {"clustering": clustering}, samples=samples, embed=embed)
            inputs |= {"cluster": tmp_path / clustering, "embed": embed}
        options = {"space": "space", "family": family, "params": params}
        made = tasks.run("hierarchy", tmp_path / family, options, **inputs)
        seen[family] = made.table("labels_elsewhere.parquet")["split"].tolist()
    assert seen == {
        "manual": ["val", "val"],
        "kmeans": ["val", "val", "val", "test"],
        "kmeans_superclass": ["val", "val"],
        "rebalanced": ["val", "val"],
    }


def test_without_the_embedding_clusters_of_other_images_are_not_known(world, tmp_path):
    folder, _ = world
    options = {"space": "space", "family": "kmeans", "params": {"clusterings": ["whole-6"]}}
    made = tasks.run("hierarchy", tmp_path / "out", options, samples=folder / "samples", cluster=folder / "whole-6")
    assert "labels_elsewhere.parquet" not in made.manifest["files"]
