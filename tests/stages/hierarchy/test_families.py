"""Label spaces: every family against its definition, on images to train on and on others."""

import itertools
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from granularity.stages.hierarchy.families import nested
from granularity.stages.hierarchy.labels import Clustering
from granularity.stages.hierarchy.space import label_spaces_section, spaces
from granularity.store.artifact import Artifact
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


def test_random_ids_keep_the_empty_ones(make):
    space = make("random", {"classes": 100})
    assert len(space.classes) == 100
    empty = space.classes[space.classes["size"] == 0]
    assert len(empty) == space.properties["empty_classes"] > 0
    assert empty["parent"].isna().all() and empty["purity"].isna().all()


@pytest.mark.parametrize("per_superclass", [3, 40])
def test_random_ids_within_a_superclass_lie_in_one_target_class(make, per_superclass):
    space = make("random_superclass", {"per_superclass": per_superclass})
    assert len(space.classes) == 3 * per_superclass
    superclass = np.searchsorted(["bird", "fish", "plant"], space.train["kind"])
    np.testing.assert_array_equal(space.labels // per_superclass, superclass)
    assert space.kinds_of_label().map(len).max() == 1
    if per_superclass == 3:
        assert len(set(space.labels)) == 9  # all are drawn


def test_regrouped_clusters_mix_the_classes_of_a_superclass(make, world):
    """Each label takes one cluster of each class of its superclass: it can be learnt, and says nothing of the class."""
    space = make("regrouped", {"clusterings": ["class-2"]})
    clusters = Artifact.open(world[0] / "class-2").table("assignment.parquet")["cluster"]
    table = space.train.assign(label=space.labels)
    assert table.groupby(clusters)["label"].nunique().max() == 1
    for _, label in table.groupby("label"):
        (kind,) = label["kind"].unique()
        assert set(label["species"]) == {name for name, (_, of) in TREE.items() if of == kind}
    assert table["label"].nunique() == 6 and space.properties["refines_target"]
    other = make("regrouped", {"clusterings": ["class-2"]}, seed=1, name="other")
    assert not np.array_equal(other.labels, space.labels)


def test_a_share_of_labels_is_redrawn_within_the_superclass(make):
    """Labels keep their superclass and their sizes; of a class of n images in a superclass of N, n / N come back."""
    fine = make("manual", {"rank": "species"})
    sizes = fine.train.groupby(["kind", "species"], observed=True).size()
    for percent in (25, 100):
        space = make("redrawn", {"percent": percent}, name=f"redrawn-{percent}")
        assert space.properties["refines_target"]
        assert np.array_equal(np.bincount(space.labels), np.bincount(fine.labels))
        back = (sizes**2 / sizes.groupby("kind").transform("sum")).sum() / sizes.sum()
        expected = percent / 100 * (1 - back)
        assert np.mean(space.labels != fine.labels) == pytest.approx(expected, abs=0.1), percent


def test_kmeans_in_each_superclass_or_class_refines_it(make):
    space = make("kmeans_superclass", {"clusterings": ["superclass-4"]})
    kinds = space.kinds_of_label()
    assert kinds.map(len).max() == 1
    assert [next(iter(kind)) for kind in kinds] == ["bird"] * 4 + ["fish"] * 4 + ["plant"] * 4
    assert space.properties["refines_target"] is True and space.properties["empty_classes"] == 0
    fine = make("kmeans_class", {"clusterings": ["class-2"]}, name="fine")
    assert fine.train.groupby(fine.labels)["species"].nunique().max() == 1
    assert len(fine.classes) == 12 and fine.classes["name"].iloc[0] == "carp, cluster 0"


def several(world, output, params) -> tuple[Artifact, list[list[int]]]:
    folder, names = world[0], params["clusterings"]
    inputs = {"samples": folder / "samples"}
    if names:
        inputs |= {"cluster": [folder / name for name in names], "embed": folder / "embed"}
    made = tasks.run("hierarchy", output, {"space": "several", "family": "several", "params": params}, **inputs)
    return made, made.table("labels.parquet")["label"].map(list).tolist()


def test_the_nearest_clusters_of_each_image(world, tmp_path):
    made, labels = several(world, tmp_path / "out", {"clusterings": ["whole-6"], "nearest": 3})
    rows = Artifact.open(world[0] / "samples").table("samples.parquet")["split"] == "train"
    vectors = Artifact.open(world[0] / "embed").array("embedding.npy")[rows.to_numpy()]
    far = np.linalg.norm(vectors[:, None] - Artifact.open(world[0] / "whole-6").array("centroids.npy")[None], axis=2)
    assert labels == [sorted(np.argsort(row)[:3]) for row in far]
    assert made.json("properties.json")["multi_label"] and made.json("properties.json")["labels_per_image"] == 3


def test_all_levels_at_once_are_those_of_their_own_label_spaces(world, make, tmp_path):
    made, labels = several(world, tmp_path / "out", {"clusterings": ["class-2"]})
    spaces = [make("manual", {"rank": rank}, name=rank) for rank in ("kind", "species")]
    spaces.append(make("kmeans_class", {"clusterings": ["class-2"]}, name="clusters"))
    starts = np.cumsum([0, *(len(space.classes) for space in spaces)])
    assert labels == np.stack([space.labels + start for space, start in zip(spaces, starts, strict=False)], 1).tolist()
    assert several(world, tmp_path / "ranks", {"clusterings": []})[1] == [one[:-1] for one in labels]
    assert made.table("classes.parquet")["name"].tolist() == [
        name for space in spaces for name in space.classes["name"]
    ]


# ---------------------------------------------------------------- nested


@pytest.mark.parametrize(
    ("levels", "sizes"),
    [
        ([topdown("whole-3-2-2", level) for level in (1, 2, 3)], [3, 6, 12]),
        ([topdown("superclass-2-3", level) for level in (1, 2)], [6, 18]),
        ([bottomup("whole-6", classes) for classes in (1, 2, 3, 5, 6)], [1, 2, 3, 5, 6]),
        ([bottomup("superclass-8", classes) for classes in (1, 2, 5, 8)], [3, 6, 15, 24]),
    ],
)
def test_levels_of_a_tree_refine_one_another(make, levels, sizes):
    made = [make("nested", level, name=str(i)) for i, level in enumerate(levels)]
    assert [len(one.classes) for one in made] == sizes
    for coarse, fine in itertools.pairwise(made):
        assert pd.Series(coarse.labels).groupby(fine.labels).nunique().max() == 1
    if levels[0]["clusterings"][0].startswith("superclass"):
        assert all(one.properties["refines_target"] for one in made)


def test_a_configuration_names_its_trees():
    samples = SimpleNamespace(ranks=["kind"], target="kind")
    option = label_spaces_section()(nested=["topdown-superclass-2-3", "bottomup-5-9"])
    found = [one for one in spaces(option, samples) if one.family == "nested"]
    assert [one.name for one in found[:2]] == ["topdown-superclass-2", "topdown-superclass-2-3"]
    assert found[1].params == {"direction": "topdown", "clusterings": ["superclass-2-3"], "level": 2}


def test_merging_from_below_joins_what_is_near():
    """Two pairs of near centroids: Ward's first merges are those pairs, whatever the numbering."""
    centroids = np.array([[0, 0], [10, 10], [0, 1], [10, 12]], dtype=np.float32)
    clusters = pd.DataFrame({"cluster": range(4), "superclass": [None] * 4})
    one = Clustering(np.arange(8) % 4, clusters, centroids)
    assert nested.bottomup(one, 2)[0].tolist() == [0, 1, 0, 1]
    assert nested.bottomup(one, 3)[0].tolist() == [0, 1, 0, 2]


# ---------------------------------------------------------------- rebalanced


def sizes_at(world, clusters: int, kind: str) -> np.ndarray:
    folder, train = world
    assignment = Artifact.open(folder / f"superclass-{clusters}").table("assignment.parquet")["cluster"]
    return assignment[(train["kind"] == kind).to_numpy()].value_counts().to_numpy()


@pytest.mark.parametrize("threshold", [0, 2, 8, 20, 1000])
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


def test_rebalanced_finds_the_threshold_of_a_number_of_classes(make, world):
    """The largest threshold of that G; where no threshold has it, that of the nearest G."""
    grid = {"clusterings": [f"superclass-{n}" for n in GRID]}
    sweep = make("rebalanced", grid | {"threshold": 0}).artifact.table("threshold_sweep.parquet")
    for row in sweep.iloc[:-1].itertuples():
        space = make("rebalanced", grid | {"classes": row.granularity})
        assert (space.properties["granularity"], space.artifact.summary["threshold"]) == (row[3], row.threshold_to)
    assert make("rebalanced", grid | {"classes": 1000}).properties["granularity"] == sweep["granularity"].max()


# ---------------------------------------------------------------- determinism and refusals

DEFINITIONS = [
    ("random", {"classes": 7}),
    ("random_instance", {}),
    ("random_superclass", {"per_superclass": 4}),
    ("rebalanced", {"clusterings": ["superclass-2", "superclass-4"], "threshold": 3}),
    ("manual", {"rank": "species"}),
    ("nested", bottomup("whole-6", 3)),
]


@pytest.mark.parametrize(("family", "params"), DEFINITIONS)
def test_one_seed_gives_one_label_file(make, family, params):
    digests = [make(family, params, seed, str(i)).artifact.digest for i, seed in enumerate((3, 3, 4))]
    assert digests[0] == digests[1]
    assert (digests[0] != digests[2]) == params.get("way", family).startswith("random")


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


@pytest.mark.parametrize("rank", ["phylum", "species"])
def test_what_follows_from_the_species_is_so_everywhere(make, world, rank):
    space = make("manual", {"rank": rank})
    label_of = dict(zip(space.train["species"], space.labels, strict=True))
    found = elsewhere(space, world)
    assert found["label"].tolist() == [label_of[name] for name in found["species"]]


CLUSTERED = [
    ("kmeans", {"clusterings": ["whole-6"]}),
    ("kmeans_superclass", {"clusterings": ["superclass-4"]}),
    ("kmeans_class", {"clusterings": ["class-2"]}),
    ("regrouped", {"clusterings": ["class-2"]}),
    ("rebalanced", {"clusterings": ["superclass-2"], "threshold": 1000}),
    ("rebalanced", {"clusterings": ["superclass-2", "superclass-4"], "classes": 9}),
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


@pytest.mark.parametrize("family", [("random", {"classes": 5}), ("random_superclass", {"per_superclass": 4})])
def test_chance_says_nothing_of_other_images(make, family):
    assert "labels_elsewhere.parquet" not in make(*family).artifact.manifest["files"]


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
