"""The images of one condition: positions on the map, labels, predictions of networks, sheets of tiles."""

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pandas as pd
from PIL import Image
from scipy import stats
from sklearn.decomposition import PCA

from granularity.base.progress import say
from granularity.base.seeds import seed_of
from granularity.data.shards import pictures
from granularity.store.artifact import Artifact

SHEET = 4096  # pixels a side of a sheet, at most
BYTES = 2**28  # for the images on all sheets of a condition
NEIGHBOURS = 100_000  # most images for t-SNE, which then takes minutes
SECONDS = 3e-3  # of t-SNE per image, if there are many
PIXELS = 32  # a side, for images whose pixels replace an embedding
NONE = -1  # the code of an image without a label


class Column(NamedTuple):
    """The images' labels by one labelling: a code for each image (-1: none), and the names of the codes."""

    group: str
    name: str
    names: list[str]
    codes: np.ndarray

    def as_json(self) -> dict[str, Any]:
        return {**self._asdict(), "codes": self.codes.tolist()}


class Images:
    """Images drawn from a condition: `ids`, `rows` (in its sample table), and the number of `all` its images."""

    def __init__(self, samples: Artifact, pixels: Artifact | None, most: int):
        self.samples, self.target = samples, samples.facts["target"]
        self.frame = samples.table("samples.parquet", ["sample_id", "split", *samples.facts["ranks"]])
        self.all, self.pictures = len(self.frame), None
        if pixels is not None:
            self.pictures = pictures(pixels)
            most = min(most, max(1, BYTES // self.pictures[0].nbytes))
        self.rows = np.arange(self.all)
        if self.all > most:
            drawn = np.random.default_rng(seed_of(0, "explore")).choice(self.all, most, replace=False)
            self.rows = np.sort(drawn)
        self.frame = self.frame.iloc[self.rows].reset_index(drop=True)
        self.ids = self.frame["sample_id"].astype(str)

    def align(self, values: pd.Series) -> np.ndarray:
        """Return values indexed by `sample_id` as codes of the images drawn."""
        return values.reindex(self.ids).fillna(NONE).to_numpy(np.int64)

    def originals(self) -> list[str | None]:
        """Return file URIs of the images: None for an image within a larger file; an empty list without the root."""
        root = self.samples.params["root"]
        if root is None or not os.path.isdir(root):
            return []
        frame, above = self.samples.table("samples.parquet", ["file", "row", "offset"]), Path(root).absolute().as_uri()
        files = frame["file"].map(lambda name: f"{above}/{quote(name)}").astype(object)
        return files.where(frame[["row", "offset"]].isna().all(axis=1), None).iloc[self.rows].tolist()

    def ranks(self) -> Iterator[Column]:
        for rank in self.samples.facts["ranks"]:
            codes, names = pd.factorize(self.frame[rank].astype("str"), sort=True)
            yield Column("rank", rank, [*map(str, names)], codes)

    def space(self, space: Artifact) -> Column:
        """Return the column of a label space; several labels of an image are joined into one name."""
        files = [name for name in ("labels.parquet", "labels_elsewhere.parquet") if name in space.manifest["files"]]
        labels = pd.concat([space.table(name, ["sample_id", "label"]) for name in files])
        labels = labels[labels["sample_id"].isin(self.ids)].drop_duplicates("sample_id").set_index("sample_id")["label"]
        names = [*map(str, space.table("classes.parquet")["name"])]
        if labels.map(np.ndim).any():
            labels = labels.map(lambda several: " + ".join(names[one] for one in np.atleast_1d(several)))
            codes, found = pd.factorize(labels, sort=True)
            labels, names = pd.Series(codes, labels.index), [*found]
        return Column("label space", space.manifest["options"]["space"], names, self.align(labels))

    def predictions(self, jobs: list[Artifact]) -> Iterator[Column]:
        """Yield each arm's most frequent prediction (ties: the first class), and how many networks are wrong."""
        runs, votes, names = [], {}, []
        for job in (artifact for artifact in jobs if not artifact.manifest["options"].get("other_data")):
            runs.append(job.table("runs.parquet", ["run_id", "transfer", "network", "space"]))
            table = job.table("predictions.parquet").set_index("sample_id")
            names = [*map(str, job.table("classes.parquet")["name"])]
            votes |= {run: self.align(table[run]) for run in runs[-1]["run_id"]}
        if not runs:
            return
        table = pd.concat(runs, ignore_index=True)
        several = [column for column in ("transfer", "network") if table[column].nunique() > 1]
        for arm, part in table.groupby(["space", *several], sort=False):
            cast = np.stack([votes[run] for run in part["run_id"]])
            yield Column("prediction", ", ".join(arm), names, stats.mode(cast).mode)
        truth = pd.Categorical(self.frame[self.target].astype("str"), categories=names).codes
        all_votes = np.stack([*votes.values()])
        wrong = np.where((all_votes == NONE).any(0), NONE, (all_votes != truth).sum(0))
        words = [f"wrong: {n} of {len(all_votes)} networks" for n in range(len(all_votes) + 1)]
        yield Column("hardness", f"wrong networks, of {len(all_votes)}", words, wrong)

    # ------------------------------------------------------------ where they lie

    def features(self, embedding: Artifact | None = None) -> np.ndarray | None:
        """Return the images' embedding, or else their (subsampled) pixels; None without either."""
        if embedding is not None:
            return np.asarray(embedding.array("embedding.npy")[self.rows], np.float32)
        if self.pictures is None:
            return None
        step = -(-self.pictures[0].shape[0] // PIXELS)
        return np.stack([self.pictures[row][::step, ::step].astype(np.float32).ravel() / 255 for row in self.rows])

    def sheets(self) -> tuple[dict[str, int] | None, list[bytes]]:
        """Return the images as PNG sheets, row by row, and their layout: `side`, `across` a sheet, on `each` sheet."""
        if self.pictures is None:
            return None, []
        side = self.pictures[self.rows[0]].shape[0]
        across = min(SHEET // side, int(np.ceil(np.sqrt(len(self.rows)))))
        sheets = []
        for begin in range(0, len(self.rows), across**2):
            tiles = [Image.fromarray(self.pictures[row].squeeze()) for row in self.rows[begin : begin + across**2]]
            sheet = Image.new(tiles[0].mode, (across * side, -(-len(tiles) // across) * side))
            for place, tile in enumerate(tiles):
                sheet.paste(tile, (place % across * side, place // across * side))
            stream = io.BytesIO()
            sheet.save(stream, "png")
            sheets.append(stream.getvalue())
        return {"side": side, "across": across, "each": across**2}, sheets


def pca(features: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the first two principal components (largest loading positive) and their share of the variance."""
    features = np.pad(features.astype(np.float64), ((0, 0), (0, max(0, 2 - features.shape[1]))))
    model = PCA(2, svd_solver="covariance_eigh")  # the other solvers draw random numbers, or are slow for many images
    places = model.fit_transform(features)
    return places, float(np.nan_to_num(model.explained_variance_ratio_.sum()))  # 0 if all images are equal


def tsne(features: np.ndarray) -> np.ndarray:
    """Return t-SNE coordinates: neighbours stay together; distances between groups mean little."""
    from openTSNE import TSNE
    from threadpoolctl import threadpool_limits

    if (minutes := len(features) * SECONDS / 60) > 0.5:
        say(f"placing {len(features):,} images by t-SNE, about {minutes:.0f} min")
    start, _ = pca(features)
    start *= 1e-4 / (start[:, 0].std() or 1)
    model = TSNE(perplexity=min(30, (len(features) - 1) / 3), initialization=start, random_state=0, n_jobs=1)
    with threadpool_limits(1):  # the result depends on the number of threads
        return np.asarray(model.fit(features))


# ---------------------------------------------------------------- clusters

SHOWN = 8  # images of a cluster: nearest, farthest, random


def clusters(images: Images, features: np.ndarray | None, job: Artifact) -> Iterator[tuple[Column, list[dict]]]:
    """Yield each level of a clustering, top first: its column, and each cluster's size, parent, children, images."""
    table = job.table("clusters.parquet").set_index("cluster")
    assignment = job.table("assignment.parquet").set_index("sample_id")["cluster"]
    levels = sorted((name for name in table if name.startswith("level_")), key=lambda name: int(name[6:]))
    tree = [table[level] for level in levels] or [table.index.to_series()]
    for depth, labels in enumerate(tree):
        name = job.manifest["options"]["clustering"] + (f", level {depth + 1}" if len(tree) > 1 else "")
        codes = images.align(assignment.map(labels))
        above = dict(zip(labels, tree[depth - 1], strict=True)) if depth else {}
        below = tree[depth + 1].groupby(labels).unique() if depth + 1 < len(tree) else {}
        sizes, rng, described = table["size"].groupby(labels).sum(), np.random.default_rng(depth), []
        for cluster in range(int(labels.max()) + 1):
            members, order = np.flatnonzero(codes == cluster), []
            if features is not None and len(members):
                vectors = features[members]
                order = members[np.argsort(((vectors - vectors.mean(0)) ** 2).sum(1), kind="stable")].tolist()
            sample = rng.permutation(members)[:SHOWN].tolist()
            summary = {"size": int(sizes.get(cluster, 0)), "nearest": order[:SHOWN], "farthest": order[::-1][:SHOWN]}
            summary |= {"random": sample, "parent": int(above[cluster]) if cluster in above else None}
            described.append(summary | {"children": sorted(map(int, below[cluster])) if cluster in below else []})
        yield Column("clustering", name, [f"cluster {cluster}" for cluster in range(len(described))], codes), described
