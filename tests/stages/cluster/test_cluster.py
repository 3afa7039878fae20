"""k-means: as good as scikit-learn's, on all points, numbered one way, and the same bytes however it was run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import faiss
import numpy as np
import pytest
import torch
from pydantic import ValidationError
from sklearn.cluster import KMeans

from granularity.base import interrupt
from granularity.base.errors import GranularityError
from granularity.base.seeds import seed_of
from granularity.stages.cluster import groups
from granularity.stages.cluster.engines import faiss as faiss_engine
from granularity.stages.cluster.engines import torch as torch_engine
from granularity.stages.cluster.groups import Group
from granularity.stages.cluster.options import Cluster, Clustering
from granularity.store import checkpoints
from granularity.store.artifacts import Artifact
from support import tasks, writing

ENGINES = {"faiss": faiss_engine, "torch": torch_engine}


@pytest.fixture(autouse=True)
def one_thread():
    for engine in ENGINES.values():
        engine.prepare("cpu", 1)


@pytest.fixture(params=ENGINES)
def engine(request) -> str:
    return request.param


def several(engine: str, vectors: np.ndarray, wanted: list[Group], options: Cluster) -> list[np.ndarray]:
    """Labels of groups, in their order."""
    made, device = ENGINES[engine], ENGINES[engine].prepare("cpu", 1)
    found = made.cluster(made.load(vectors, device), wanted, options, device, (0, {}, {}), lambda *_: None)
    return [labels for _, labels in sorted(found, key=lambda one: one[0])]


def kmeans(engine: str, vectors: np.ndarray, clusters: int, options: Cluster, seed: int):
    """Labels and centroids of one group, all the vectors."""
    (labels,) = several(engine, vectors, [Group(np.arange(len(vectors)), clusters, seed)], options)
    return labels, groups.means(vectors, labels, labels.max() + 1)


def blobs(points: int, centres: int, dimensions: int = 8, spread: float = 0.6, seed: int = 0) -> np.ndarray:
    """Overlapping heaps of points on the unit sphere."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(centres, dimensions))
    values = means[rng.integers(centres, size=points)] + spread * rng.normal(size=(points, dimensions))
    return (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)


def objective(vectors: np.ndarray, labels: np.ndarray, centroids: np.ndarray) -> float:
    return float(((vectors.astype(np.float64) - centroids[labels]) ** 2).sum())


# ---------------------------------------------------------------- the algorithm


@pytest.mark.parametrize("clusters", [2, 6, 25])
def test_objective_is_as_low_as_scikit_learns(engine, clusters):
    vectors = blobs(500, 9)
    labels, centroids = kmeans(engine, vectors, clusters, Cluster(restarts=8), 0)
    theirs = KMeans(clusters, n_init=10, random_state=0).fit(vectors.astype(np.float64)).inertia_
    assert len(centroids) == clusters
    assert objective(vectors, labels, centroids) <= 1.02 * theirs


def test_more_restarts_are_never_worse(engine):
    vectors = blobs(300, 12)
    found = [objective(vectors, *kmeans(engine, vectors, 12, Cluster(restarts=n), 0)) for n in (1, 2, 4, 8)]
    assert found == sorted(found, reverse=True)
    assert found[-1] < found[0]


@pytest.mark.parametrize("iterations", [1, 4])
def test_every_point_counts(engine, iterations):
    """With 700 points a centroid: Lloyd's own steps in float64; FAISS by itself would take 256 of them."""
    vectors = blobs(1400, 5, spread=1.0)
    _, centroids = kmeans(engine, vectors, 2, Cluster(iterations=iterations, restarts=1), 5)
    start = np.random.default_rng(seed_of(5, 0)).choice(1400, 2, replace=False)
    exact = vectors.astype(np.float64)
    expected = exact[np.sort(start)]
    for _ in range(iterations + 1):  # the last step is that of the centroids which are published
        nearest = ((exact[:, None] - expected) ** 2).sum(2).argmin(1)
        expected = np.stack([exact[nearest == c].mean(0) for c in range(2)])
    order = np.argsort([np.flatnonzero(nearest == c)[0] for c in range(2)])
    np.testing.assert_allclose(centroids, expected[order], atol=2e-5)


def test_result_is_a_fixed_point_of_lloyd(engine):
    vectors = blobs(200, 4)
    labels, centroids = kmeans(engine, vectors, 4, Cluster(iterations=100), 0)
    nearest = ((vectors[:, None].astype(np.float64) - centroids) ** 2).sum(2).argmin(1)
    np.testing.assert_array_equal(nearest, labels)
    for c in range(4):
        np.testing.assert_allclose(vectors[labels == c].mean(0), centroids[c], atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_one_partition_has_one_numbering(seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(12, size=60)
    renamed = rng.permutation(100)[labels]
    canonical = groups.canonical_order(labels)
    np.testing.assert_array_equal(groups.canonical_order(renamed), canonical)
    assert canonical.dtype == np.int32
    first = [np.flatnonzero(canonical == c)[0] for c in range(canonical.max() + 1)]
    assert first == sorted(first)
    assert len(set(zip(labels.tolist(), canonical.tolist(), strict=True))) == len(set(labels.tolist()))


@pytest.mark.parametrize("clusters", [5, 6, 12, 20])
def test_duplicates_leave_no_empty_cluster_behind(engine, clusters):
    distinct = blobs(5, 5)
    vectors = np.repeat(distinct, 4, axis=0)[np.random.default_rng(0).permutation(20)]
    labels, centroids = kmeans(engine, vectors, clusters, Cluster(), 0)
    assert np.unique(labels).tolist() == list(range(len(centroids)))
    assert len(centroids) == 5
    assert objective(vectors, labels, centroids) < 1e-10


def test_identical_points_are_one_cluster(engine):
    labels, centroids = kmeans(engine, np.ones((7, 3), np.float32), 4, Cluster(), 0)
    assert labels.tolist() == [0] * 7
    np.testing.assert_array_equal(centroids, np.ones((1, 3)))


def test_as_many_clusters_as_points_is_a_bijection(engine):
    vectors = blobs(30, 4)
    labels, centroids = kmeans(engine, vectors, 30, Cluster(), 0)
    assert labels.tolist() == list(range(30))
    np.testing.assert_array_equal(centroids, vectors)


def test_one_cluster_is_the_mean(engine):
    vectors = blobs(40, 3)
    labels, centroids = kmeans(engine, vectors, 1, Cluster(), 0)
    assert set(labels) == {0}
    np.testing.assert_allclose(centroids[0], vectors.mean(0), atol=1e-6)


def test_an_empty_cluster_moves_to_the_farthest_point(engine):
    vectors = np.array([[0, 0], [0.1, 0], [0, 0.1], [5, 5]], dtype=np.float32)
    centroids = np.array([[0, 0], [100, 100], [-100, 0]], dtype=np.float32)
    if engine == "faiss":
        labels = faiss_engine._assign(faiss_engine._kmeans(vectors, 3, 0), vectors, centroids)
    else:
        points = torch.from_numpy(vectors)[None]
        labels = torch_engine._assign(points, [4], [3], torch.from_numpy(centroids)[None, None])[0][0, 0]
    assert labels[3] == 1  # the first empty one takes the point farthest from its own centroid
    np.testing.assert_array_equal(centroids, [[0, 0], [100, 100], [-100, 0]])  # and the argument is untouched


# ---------------------------------------------------------------- what one engine owes the other


@pytest.mark.parametrize("seed", range(6))
def test_engines_agree_from_the_same_starts(seed):
    """Also when cut off before they settle, and with clusters that lose all their points on the way."""
    rng = np.random.default_rng(seed)
    vectors = blobs(int(rng.integers(100, 900)), 12, int(rng.integers(2, 30)), seed=seed)
    options = Cluster(iterations=int(rng.integers(1, 12)), restarts=int(rng.integers(1, 4)))
    clusters = int(rng.integers(1, len(vectors) // 5))
    labels = [kmeans(engine, vectors, clusters, options, seed)[0] for engine in ENGINES]
    np.testing.assert_array_equal(*labels)


def test_engines_refill_the_same_clusters():
    """Most of these first centroids are equal, so that all but one of each win no point."""
    vectors = blobs(200, 9, 5)
    start = np.repeat(vectors[:8], 5, axis=0)
    lloyd = faiss_engine._kmeans(vectors, 40, 0)
    assert faiss_engine._iterate(lloyd, vectors, start, 1) == 1
    assert lloyd.iteration_stats[0]["nsplit"] == 32
    ours = torch.from_numpy(start)[None, None]
    assert torch_engine._iterate(torch.from_numpy(vectors)[None], [200], [40], ours, [0]) == [True]
    np.testing.assert_allclose(ours[0, 0], lloyd.centroids, atol=1e-6)


def test_calls_of_faiss_may_be_cut_anywhere(monkeypatch):
    """FAISS stops by itself where its objective stays as it was, and that may be too early."""
    vectors = np.concatenate([blobs(600, 5), np.repeat(blobs(40, 3, seed=1), 4, axis=0)])
    for clusters in (3, 50, 300):
        at_once = kmeans("faiss", vectors, clusters, Cluster(iterations=30), 0)[0]
        with monkeypatch.context() as patch:
            patch.setattr(faiss_engine, "CALL", 0)
            np.testing.assert_array_equal(kmeans("faiss", vectors, clusters, Cluster(iterations=30), 0)[0], at_once)


def test_groups_together_are_what_they_are_alone(engine, monkeypatch):
    monkeypatch.setitem(torch_engine.BATCH, "cpu", 2**30)
    monkeypatch.setitem(torch_engine.TILE, "cpu", 1000)  # a group's points are several tiles
    vectors = blobs(700, 9)
    members = np.split(np.random.default_rng(0).permutation(700), [1, 3, 10, 200, 330])
    wanted = [Group(np.sort(rows), min(7, len(rows)), seed) for seed, rows in enumerate(members)]
    together = several(engine, vectors, wanted, Cluster(iterations=8))
    for group, labels in zip(wanted, together, strict=True):
        alone = kmeans(engine, vectors[group.members], group.clusters, Cluster(iterations=8), group.seed)[0]
        np.testing.assert_array_equal(labels, alone)


def test_means_of_several_groups_and_restarts_at_once(monkeypatch):
    """Of clusters of several runs, and of none."""
    rng = np.random.default_rng(0)
    points = torch.from_numpy(rng.normal(size=(3, 500, 6)).astype(np.float32))
    labels, sizes = torch.from_numpy(rng.integers(9, size=(3, 2, 500))), [500, 130, 1]
    labels[0, 0] = 3  # all in one
    monkeypatch.setattr(torch_engine, "RUN", 16)
    means, counts = torch_engine._means(points, sizes, labels, 10)
    for b, size in enumerate(sizes):
        for r in range(2):
            own = labels[b, r, :size]
            expected = groups.means(points[b, :size].numpy(), own.numpy(), 10)
            np.testing.assert_allclose(means[b, r], expected, atol=1e-6)
            assert counts[b, r].tolist() == np.bincount(own, minlength=10).tolist()


def test_means_are_those_of_float64(monkeypatch):
    monkeypatch.setattr(groups, "ROWS", 64)
    vectors, labels = blobs(1000, 3), np.random.default_rng(0).integers(3, size=1000)
    found = groups.means(vectors, labels, 4)
    for cluster in range(3):
        np.testing.assert_array_equal(found[cluster], vectors[labels == cluster].mean(0, dtype=np.float64).astype("f"))
    assert not found[3].any()


# ---------------------------------------------------------------- the stage


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, make_samples, make_array) -> dict[str, Path]:
    """90 training and 30 validation images, of superclasses a (3 training images), b and c."""
    folder = tmp_path_factory.mktemp("cluster")
    split = ["train", "train", "train", "val"] * 30
    kinds = ["c", "b", "c", "b", "c"] * 24
    kinds[4] = kinds[12] = kinds[20] = "a"
    samples = make_samples(folder / "samples", split, {"kind": kinds}, "kind")
    vectors = blobs(120, 7)
    vectors[[part == "val" for part in split]] = 1e6  # would ruin every centroid if they were looked at
    return {"samples": samples, "embed": make_array(folder / "embed", "embed", samples, vectors)}


def run(
    inputs, output: Path, clustering: str = "superclass-4", seed: int = 0, threads: int = 1, anew: bool = True, **over
) -> Artifact:
    options = {"clustering": clustering, "iterations": 6, "restarts": 3, **over}
    return tasks.run("cluster", output, options, seed, threads=threads, anew=anew, **inputs)


@pytest.mark.parametrize("clustering", ["whole-5", "superclass-4"])
def test_what_a_clustering_says_is_so(inputs, tmp_path, clustering, engine):
    made = run(inputs, tmp_path / "made", clustering, engine=engine)
    samples = Artifact.open(inputs["samples"]).table("samples.parquet")
    train = samples[samples["split"] == "train"].reset_index(drop=True)
    assignment, table = made.table("assignment.parquet"), made.table("clusters.parquet")
    vectors = Artifact.open(inputs["embed"]).array("embedding.npy")[(samples["split"] == "train").to_numpy()]
    labels, centroids = assignment["cluster"].to_numpy(), made.array("centroids.npy")

    assert assignment["sample_id"].tolist() == train["sample_id"].tolist()
    assert (labels.dtype, centroids.dtype) == (np.int32, np.float32)
    assert table["cluster"].tolist() == list(range(len(centroids)))
    assert table["size"].tolist() == np.bincount(labels).tolist()
    assert table["size"].min() > 0
    for c in range(len(centroids)):
        members = vectors[labels == c].astype(np.float64)
        np.testing.assert_allclose(centroids[c], members.mean(0), atol=1e-6)
        assert table["objective"][c] == pytest.approx(((members - members.mean(0)) ** 2).sum(), abs=1e-5)
        kinds = set(train["kind"][labels == c])
        assert clustering == "whole-5" or kinds == {table["superclass"][c]}
    if clustering == "whole-5":
        assert table["superclass"].isna().all()
    assert made.summary["clusters"] == len(centroids)
    assert made.summary["objective"] == pytest.approx(table["objective"].sum())


def test_a_small_superclass_has_a_cluster_an_image(inputs, tmp_path, engine):
    table = run(inputs, tmp_path / "made", "superclass-10", engine=engine).table("clusters.parquet")
    assert table["superclass"].tolist() == ["a"] * 3 + ["b"] * 10 + ["c"] * 10
    assert table["size"][:3].tolist() == [1, 1, 1]


@pytest.mark.parametrize("clustering", ["whole-5", "superclass-4"])
def test_bytes_do_not_depend_on_threads(inputs, tmp_path, clustering):
    once, again, threaded = (run(inputs, tmp_path / str(i), clustering, threads=n) for i, n in enumerate((1, 1, 2)))
    assert once.digest == again.digest == threaded.digest
    assert run(inputs, tmp_path / "seed", clustering, seed=1).digest != once.digest


@pytest.fixture
def one_by_one(monkeypatch):
    """One iteration per call of FAISS, one group per batch."""
    monkeypatch.setattr(faiss_engine, "CALL", 0)
    monkeypatch.setitem(torch_engine.BATCH, "cpu", 1)


@pytest.mark.parametrize("clustering", ["whole-5", "superclass-4"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
def test_a_killed_clustering_resumes_to_the_same_bytes(
    inputs, tmp_path, kill_at, checkpoint_always, monkeypatch, clustering, share, engine
):
    early = {"iterations": 2, "engine": engine}  # stopped before they settle, where one iteration too many would show
    undisturbed = run(inputs, tmp_path / "undisturbed", clustering, **early)
    monkeypatch.setattr(faiss_engine, "CALL", 0)
    calls = kill_at(ENGINES[engine], "_iterate", None)
    assert run(inputs, tmp_path / "cut", clustering, **early).digest == undisturbed.digest
    total = len(calls)
    kill_at(ENGINES[engine], "_iterate", 1 + int(share * total))
    with pytest.raises(kill_at.Killed):
        run(inputs, tmp_path / "resumed", clustering, **early)
    assert not (tmp_path / "resumed").exists()
    calls = kill_at(ENGINES[engine], "_iterate", None)
    assert run(inputs, tmp_path / "resumed", clustering, **early).digest == undisturbed.digest
    assert len(calls) < total or share == 0.1  # it went on, and did not start over
    assert writing.names(tmp_path) == ["cut", "resumed", "undisturbed"]


@pytest.mark.parametrize("clustering", ["class-3", "superclass-4-2", "whole-5-3-2"])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_at_most_what_was_done_since_a_checkpoint_is_done_again(
    inputs, tmp_path, kill_at, monkeypatch, one_by_one, clustering, share, engine
):
    """Checkpoints are some iterations apart, and most groups are done in fewer."""
    calls = kill_at(ENGINES[engine], "_iterate", None)
    undisturbed = run(inputs, tmp_path / "undisturbed", clustering, engine=engine)
    total = len(calls)
    every = total // 3
    assert every > 3
    killed = 1 + int(share * total)
    calls = kill_at(ENGINES[engine], "_iterate", killed)
    monkeypatch.setattr(checkpoints, "CHECKPOINT_SECONDS", float(every))
    monkeypatch.setattr(checkpoints, "time", SimpleNamespace(monotonic=lambda: float(len(calls))))
    with pytest.raises(kill_at.Killed):
        run(inputs, tmp_path / "resumed", clustering, engine=engine)
    calls = kill_at(ENGINES[engine], "_iterate", None)
    assert run(inputs, tmp_path / "resumed", clustering, engine=engine).digest == undisturbed.digest
    assert len(calls) <= total - killed + 1 + every + 1


@pytest.mark.parametrize("clustering", ["whole-90", "superclass-30-2", "whole-5-3-2"])
def test_a_signal_is_obeyed_after_the_iteration(inputs, tmp_path, kill_at, monkeypatch, one_by_one, clustering, engine):
    """Also where nothing moves, as with a cluster an image."""
    original = ENGINES[engine]._iterate
    calls = kill_at(ENGINES[engine], "_iterate", None)
    undisturbed = run(inputs, tmp_path / "undisturbed", clustering, engine=engine)
    total = len(calls)
    for moment in {*range(1, total, max(1, total // 8)), total}:
        calls = []

        def signalled(*args, calls=calls, moment=moment):
            calls.append(args)
            if len(calls) == moment:
                interrupt.request("SIGTERM", 143)
            return original(*args)

        monkeypatch.setattr(ENGINES[engine], "_iterate", signalled)
        with pytest.raises(interrupt.Stopped):
            run(inputs, tmp_path / "resumed", clustering, engine=engine)
        assert len(calls) == moment
        monkeypatch.setattr(ENGINES[engine], "_iterate", original)
        assert run(inputs, tmp_path / "resumed", clustering, engine=engine).digest == undisturbed.digest


@pytest.mark.parametrize("scope", ["superclass", "class", "whole"])
def test_another_target_is_another_clustering(tmp_path, make_samples, make_array, monkeypatch, scope):
    """The sample tables are equal, file by file: which rank is the target is a fact, and counts as a file does."""
    monkeypatch.setenv("GRANULARITY_CACHE", str(tmp_path / "cache"))
    ranks = {"coarse": list("aabb") * 5, "fine": list("abcd") * 5}
    within = {target: {"superclass": target, "class": "fine", "whole": None}[scope] for target in ranks}
    made = {}
    for target in ranks:
        samples = make_samples(tmp_path / target, ["train"] * 20, ranks, target)
        vectors = make_array(tmp_path / f"{target} embed", "embed", samples, blobs(20, 4))
        inputs = {"samples": samples, "embed": vectors}
        made[target] = run(inputs, tmp_path / f"{target} clusters", f"{scope}-2", anew=False)
        groups = sorted(set(ranks[within[target]])) if within[target] else [None]
        assert made[target].table("clusters.parquet")["superclass"].unique().tolist() == groups
    assert {target: one.params["within"] for target, one in made.items()} == within
    assert made["fine"].manifest["key"] != made["coarse"].manifest["key"]
    assert made["fine"].folder != made["coarse"].folder


def test_work_of_another_seed_is_not_continued(inputs, tmp_path, kill_at, checkpoint_always, monkeypatch):
    kill_at(faiss_engine, "_iterate", 3)
    with pytest.raises(kill_at.Killed):
        run(inputs, tmp_path / "made", "whole-5", seed=1)
    monkeypatch.undo()
    expected = run(inputs, tmp_path / "expected", "whole-5", seed=0)
    assert run(inputs, tmp_path / "made", "whole-5", seed=0).digest == expected.digest


def test_more_clusters_than_training_images_are_refused(inputs, tmp_path, engine):
    with pytest.raises(GranularityError, match="whole-91: 91 clusters of 90 training images"):
        run(inputs, tmp_path / "made", "whole-91", engine=engine)
    for clusters in (1, 90):
        made = run(inputs, tmp_path / "made", f"whole-{clusters}", engine=engine)
        assert made.summary["clusters"] == clusters


def test_an_embedding_that_is_not_finite_is_refused(tmp_path, make_samples, make_array, engine):
    samples = make_samples(tmp_path / "samples", ["train"] * 20, {"kind": list("ab") * 10}, "kind")
    vectors = blobs(20, 3)
    vectors[13, 2] = np.nan
    embed = make_array(tmp_path / "embed", "embed", samples, vectors)
    sample = Artifact.open(samples).table("samples.parquet")["sample_id"][13]
    with pytest.raises(GranularityError, match=rf"embedding\.npy: that of '{sample}' is not finite"):
        run({"samples": samples, "embed": embed}, tmp_path / "made", engine=engine)


def test_a_superclass_of_one_image_and_one_of_equal_images(tmp_path, make_samples, make_array, engine):
    kinds = ["a"] + ["b"] * 6 + ["c"] * 13
    samples = make_samples(tmp_path / "samples", ["train"] * 20, {"kind": kinds}, "kind")
    vectors = blobs(20, 3)
    vectors[1:7] = vectors[1]
    embed = make_array(tmp_path / "embed", "embed", samples, vectors)
    table = run({"samples": samples, "embed": embed}, tmp_path / "made", engine=engine).table("clusters.parquet")
    assert table.groupby("superclass")["size"].agg(list).to_dict() | {"c": None} == {"a": [1], "b": [6], "c": None}


def test_the_engine_counts_in_keys_and_ids_where_it_is_not_the_default(inputs, tmp_path):
    assert "engine" not in Clustering(clustering="whole-5").identity
    assert Clustering(clustering="whole-5", engine="torch").identity["engine"] == "torch"
    made = {engine: run(inputs, tmp_path / engine, "whole-5", engine=engine, anew=False) for engine in ENGINES}
    assert made["faiss"].manifest["key"] != made["torch"].manifest["key"]
    assert made["torch"].params["engine"] == "torch"
    with pytest.raises(ValidationError, match="there is no such engine; there are 'faiss', 'torch'"):
        Cluster(engine="fais")


@pytest.mark.parametrize("name", ["whole", "whole-0", "whole-x", "superclas-3", "whole--3", "5", ""])
def test_a_clustering_nobody_defined_is_refused(name):
    with pytest.raises(ValidationError, match="must be whole-K, superclass-C or class-C"):
        Clustering(clustering=name)


def test_a_gpu_that_faiss_does_not_see_is_an_error(inputs, tmp_path, monkeypatch):
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 0)
    with pytest.raises(GranularityError, match="device = cuda: FAISS sees no GPU"):
        tasks.run("cluster", tmp_path / "made", {"clustering": "whole-5"}, device="cuda", **inputs)
    if not torch.cuda.is_available():
        with pytest.raises(GranularityError, match="device = cuda: torch sees no GPU"):
            tasks.run(
                "cluster", tmp_path / "made", {"clustering": "whole-5", "engine": "torch"}, device="cuda", **inputs
            )
    assert not (tmp_path / "made").exists()
    made = tasks.run("cluster", tmp_path / "made", {"clustering": "whole-5"}, device="auto", **inputs)
    assert made.params["gpu"] is False
