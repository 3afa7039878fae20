"""k-means: as good as scikit-learn's, on all points, numbered one way, and the same bytes however it was run."""

import re
from pathlib import Path

import faiss
import numpy as np
import pytest
from sklearn.cluster import KMeans

from granularity.base import interrupt
from granularity.base.errors import GranularityError
from granularity.base.seeds import seed_of
from granularity.stages.cluster import kmeans
from granularity.stages.cluster.kmeans import Group
from granularity.stages.cluster.options import Cluster
from granularity.store.artifact import Artifact
from granularity.store.code import ROOT
from support import tasks


@pytest.fixture(autouse=True)
def one_thread():
    faiss.omp_set_num_threads(1)


def several(vectors: np.ndarray, wanted: list[Group], options: Cluster) -> list[np.ndarray]:
    """Labels of groups, in their order."""
    return [labels for _, labels in kmeans.cluster(vectors, wanted, options, 0, 1, (0, {}, {}), lambda *_: None)]


def fit(vectors: np.ndarray, clusters: int, options: Cluster, seed: int):
    """Labels and centroids of one group, all the vectors."""
    (labels,) = several(vectors, [Group(np.arange(len(vectors)), clusters, seed)], options)
    return labels, kmeans.means(vectors, labels, labels.max() + 1)


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
def test_objective_is_as_low_as_scikit_learns(clusters):
    vectors = blobs(500, 9)
    labels, centroids = fit(vectors, clusters, Cluster(restarts=8), 0)
    theirs = KMeans(clusters, n_init=10, random_state=0).fit(vectors.astype(np.float64)).inertia_
    assert len(centroids) == clusters
    assert objective(vectors, labels, centroids) <= 1.02 * theirs


@pytest.mark.parametrize("iterations", [1, 4])
def test_every_point_counts(iterations):
    """With 700 points a centroid: Lloyd's own steps in float64; FAISS by itself would take 256 of them."""
    vectors = blobs(1400, 5, spread=1.0)
    _, centroids = fit(vectors, 2, Cluster(iterations=iterations, restarts=1), 5)
    start = np.random.default_rng(seed_of(5, 0)).choice(1400, 2, replace=False)
    exact = vectors.astype(np.float64)
    expected = exact[np.sort(start)]
    for _ in range(iterations + 1):  # the last step is that of the centroids which are published
        nearest = ((exact[:, None] - expected) ** 2).sum(2).argmin(1)
        expected = np.stack([exact[nearest == c].mean(0) for c in range(2)])
    order = np.argsort([np.flatnonzero(nearest == c)[0] for c in range(2)])
    np.testing.assert_allclose(centroids, expected[order], atol=2e-5)


def test_resampling_spreads_clusters_over_rare_images():
    """Nine of ten points lie in one of two heaps. It gets most centroids, and about half with resampling."""
    vectors = np.random.default_rng(0).normal(size=(2000, 2)).astype(np.float32)
    vectors[1800:, 0] += 12
    in_heap = []
    for resamplings in (0, 10):
        _, centroids = fit(vectors, 40, Cluster(restarts=1, resamplings=resamplings), 0)
        assert len(centroids) == 40
        in_heap.append((centroids[:, 0] < 6).sum())
    assert in_heap[0] >= 29 and in_heap[1] <= 25


@pytest.mark.parametrize("clusters", [5, 6, 12, 20])
def test_duplicates_leave_no_empty_cluster_behind(clusters):
    distinct = blobs(5, 5)
    vectors = np.repeat(distinct, 4, axis=0)[np.random.default_rng(0).permutation(20)]
    labels, centroids = fit(vectors, clusters, Cluster(), 0)
    assert np.unique(labels).tolist() == list(range(len(centroids)))
    assert len(centroids) == 5
    assert objective(vectors, labels, centroids) < 1e-10


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
def test_what_a_clustering_says_is_so(inputs, tmp_path, clustering):
    made = run(inputs, tmp_path / "made", clustering)
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


@pytest.mark.parametrize("clustering", ["whole-5-3", "superclass-4"])
def test_bytes_do_not_depend_on_threads(inputs, tmp_path, clustering):
    made = {run(inputs, tmp_path / str(n), clustering, threads=n, resamplings=1).digest for n in (1, 2, 4, 8)}
    assert len(made) == 1
    assert run(inputs, tmp_path / "seed", clustering, seed=1).digest not in made


@pytest.mark.parametrize(
    ("clustering", "resamplings"), [("whole-90", 0), ("superclass-30-2", 0), ("whole-5-3-2", 0), ("whole-5", 2)]
)
def test_a_signal_is_obeyed_after_the_iteration(inputs, tmp_path, kill_at, monkeypatch, clustering, resamplings):
    """Also where nothing moves, as with a cluster an image."""
    monkeypatch.setattr(kmeans, "CALL", 0)  # one iteration per call of FAISS
    original = kmeans._iterate
    calls = kill_at(kmeans, "_iterate", None)
    undisturbed = run(inputs, tmp_path / "undisturbed", clustering, resamplings=resamplings, nearest=4)
    total = len(calls)
    for moment in {*range(1, total, max(1, total // 3)), total}:
        calls = []

        def signalled(*args, calls=calls, moment=moment):
            calls.append(args)
            if len(calls) == moment:
                interrupt.request("SIGTERM", 143)
            return original(*args)

        monkeypatch.setattr(kmeans, "_iterate", signalled)
        with pytest.raises(interrupt.Stopped):
            run(inputs, tmp_path / "resumed", clustering, resamplings=resamplings, nearest=4)
        assert len(calls) == moment
        monkeypatch.setattr(kmeans, "_iterate", original)
        assert (
            run(inputs, tmp_path / "resumed", clustering, resamplings=resamplings, nearest=4).digest
            == undisturbed.digest
        )


def test_more_clusters_than_training_images_are_refused(inputs, tmp_path):
    with pytest.raises(GranularityError, match="whole-91: 91 clusters of 90 training images"):
        run(inputs, tmp_path / "made", "whole-91")
    for clusters in (1, 90):
        made = run(inputs, tmp_path / "made", f"whole-{clusters}")
        assert made.summary["clusters"] == clusters


def test_a_gpu_that_faiss_does_not_see_is_an_error(inputs, tmp_path, monkeypatch):
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 0)
    with pytest.raises(GranularityError, match="device = cuda: FAISS sees no GPU"):
        tasks.run("cluster", tmp_path / "made", {"clustering": "whole-5"}, device="cuda", **inputs)
    assert not (tmp_path / "made").exists()
    made = tasks.run("cluster", tmp_path / "made", {"clustering": "whole-5"}, device="auto", **inputs)
    assert made.params["gpu"] is False


def test_no_process_has_both_faiss_and_torch(inputs, tmp_path):
    tasks.without_torch("cluster", tmp_path / "made", '{"clustering": "whole-5"}', **inputs)
    files = [
        file for file in ROOT.rglob("*.py") if re.search(r"^ *(import|from) faiss", file.read_text(), re.MULTILINE)
    ]
    known = {"machine/device.py", "stages/cluster/kmeans.py", "stages/duplicates/stage.py"}
    assert {file.relative_to(ROOT).as_posix() for file in files} == known
