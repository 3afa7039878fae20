"""Stage `duplicates`: pairs of nearly identical images, by a hash of their pixels or by their embeddings."""

from collections.abc import Iterator

import faiss
import numpy as np
import pandas as pd
from PIL import Image

from granularity.base import interrupt
from granularity.base.errors import GranularityError
from granularity.base.progress import say, track
from granularity.data.shards import Shards, pictures
from granularity.store.task import Task

FINDINGS = ("near_in_both_splits", "near_duplicate", "near_conflicting_duplicate")
HASHED = 2**20  # pairs of hashes compared at once
ROWS, QUERIES = 4096, 512  # vectors that one call of FAISS searches, and queries of one call
NUMBERS = 2**23  # values in the vectors multiplied at once
Pairs = tuple[np.ndarray, np.ndarray]  # rows of the sample table; in each pair the earlier one comes first


def run(task: Task) -> None:
    """Write `findings.parquet`: a row per image and finding, with the nearest of the images that the finding is about.

    Findings are those of stage `samples`, prefixed by `near_`. Memory is linear in the number of images: for each image
    only the nearest pair is kept, and the number of pairs in `twins`. Raises GranularityError: duplicates are switched
    off, or an input is missing or of other images.
    """
    options, faiss_threads = task.options, faiss.omp_get_max_threads()
    if options.by == "no":
        raise GranularityError("duplicates: by is 'no'; choose pixels, embedding or both")
    inputs = {role: task.open(role) for role in ("samples", "pixels", "embed") if task.path(role) is not None}
    rank = inputs["samples"].facts["ranks"][-1]
    frame = inputs["samples"].table("samples.parquet", dict.fromkeys(("sample_id", "split", rank), "text"))
    images, vectors = pictures(inputs["pixels"]), None
    if len(images) != len(frame):
        raise GranularityError(f"{inputs['pixels'].path}: {len(images)} images, but the sample table has {len(frame)}")
    if "embed" in inputs:
        vectors = inputs["embed"].array("embedding.npy", (len(frame), None), np.float32)
    elif options.by != "pixels":
        raise GranularityError(f"duplicates: by is '{options.by}', which needs --embed")
    with task.create(inputs, options.asked) as out:
        hashes, twins = difference_hashes(images), Twins(frame["split"], frame[rank], vectors is not None)
        try:
            faiss.omp_set_num_threads(1)  # several threads would round sums differently
            pairs = by_cosine(vectors, options.cosine) if options.by == "embedding" else by_hash(hashes, options.bits)
            for i, j in pairs:
                cosine = None if vectors is None else cosines(vectors, i, j)
                if options.by == "both":
                    i, j, cosine = (values[cosine >= options.cosine] for values in (i, j, cosine))
                twins.add(i, j, cosine, different_bits(hashes, i, j))
                interrupt.stop_if_requested()
        finally:
            faiss.omp_set_num_threads(faiss_threads)
        table = twins.table(frame["sample_id"])
        out.table("findings.parquet", table)
        counts = table["finding"].value_counts(sort=False)
        out.summary["findings"] = {name: int(count) for name, count in counts.items() if count}
        say(f"near duplicates: {', '.join(f'{count} {name}' for name, count in counts.items() if count) or 'none'}")


def difference_hashes(images: np.ndarray | Shards) -> np.ndarray:
    """Hash each image by which pixels are brighter than their left and upper neighbours (dHash): uint64 [N, 2].

    The image is converted to grey and resized to 9 x 8 pixels for the left neighbours, to 8 x 9 for the upper ones.
    """
    hashes = np.empty((len(images), 2, 8), np.uint8)
    for row in track(range(len(images)), len(images), "hashing", "images"):
        values = images[row]
        image = Image.fromarray(values[..., 0] if values.shape[-1] == 1 else values).convert("L")
        wide, high = (np.asarray(image.resize(size, Image.Resampling.LANCZOS)) for size in ((9, 8), (8, 9)))
        hashes[row] = np.packbits([wide[:, 1:] > wide[:, :-1], high[1:] > high[:-1]]).reshape(2, 8)
    return hashes.view(np.uint64)[..., 0]


def different_bits(hashes: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Return in how many of 128 bits the hashes of each pair differ, uint8."""
    return np.bitwise_count(hashes[i] ^ hashes[j]).sum(1, dtype=np.uint8)


def by_hash(hashes: np.ndarray, bits: int) -> Iterator[Pairs]:
    """Yield all pairs whose hashes differ in at most `bits` bits."""
    step = max(1, HASHED // len(hashes))
    starts = range(0, len(hashes), step)
    for start in track(starts, len(starts), "comparing hashes", "blocks"):
        rest = hashes[start:, 0]  # first one direction only, which excludes most pairs
        near = np.bitwise_count(rest[:step, None] ^ rest) <= bits
        i, j = np.divmod(np.flatnonzero(near), len(rest))
        i, j = start + i[i < j], start + j[i < j]
        near = different_bits(hashes, i, j) <= bits
        yield i[near], j[near]


def by_cosine(vectors: np.ndarray, cosine: float) -> Iterator[Pairs]:
    """Yield all pairs of unit vectors with at least this cosine similarity."""
    starts = range(0, len(vectors), ROWS)
    for start in track(starts, len(starts), "comparing embeddings", "blocks"):
        index = faiss.IndexFlatIP(vectors.shape[1])
        index.add(np.ascontiguousarray(vectors[start : start + ROWS]))
        for first in range(0, min(start + ROWS, len(vectors)), QUERIES):
            queries = np.ascontiguousarray(vectors[first : first + QUERIES])
            limits, _, neighbours = index.range_search(queries, cosine)
            i, j = first + np.repeat(np.arange(len(queries)), np.diff(limits.astype(np.int64))), start + neighbours
            yield i[i < j], j[i < j]


def cosines(vectors: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Return the cosine similarity of pairs of unit vectors, float32."""
    step, values = max(1, NUMBERS // vectors.shape[1]), np.empty(len(i), np.float32)
    for at in range(0, len(i), step):
        part = slice(at, at + step)
        values[part] = np.einsum("nd,nd->n", vectors[i[part]], vectors[j[part]])
    return values


class Twins:
    """For each finding and image: the nearest other image that the finding is about, and how many there are.

    An image of another split has twins among the training images; any image has twins among the earlier images of its
    own split, of its class or of another. The nearest has the highest cosine similarity or, without embeddings, the
    fewest different bits; ties: the first.
    """

    def __init__(self, split: pd.Series, label: pd.Series, embedded: bool):
        self._split, self._label, self._embedded = split, label, embedded
        self._splits, self._labels = (pd.factorize(names)[0] for names in (split, label))
        self._train = (split == "train").to_numpy()
        size = len(FINDINGS) * len(split)  # indexed by finding, then by row
        self._count, self._twin = np.zeros(size, np.int64), np.full(size, -1)
        self._nearness, self._bits = np.full(size, -np.inf, np.float32), np.zeros(size, np.uint8)

    def add(self, i: np.ndarray, j: np.ndarray, cosine: np.ndarray | None, bits: np.ndarray) -> None:
        """Count pairs; each comes once, with the earlier row first."""
        nearness = cosine if self._embedded else -bits.astype(np.float32)
        within = self._splits[i] == self._splits[j]
        kept = within | self._train[i] | self._train[j]
        i, j, within, nearness, bits = (values[kept] for values in (i, j, within, nearness, bits))
        swap = ~within & self._train[j]
        row, twin = np.where(swap, i, j), np.where(swap, j, i)
        finding = np.where(within, 1 + (self._labels[i] != self._labels[j]), 0)
        place = finding * len(self._splits) + row
        np.add.at(self._count, place, 1)
        order = np.lexsort((twin, -nearness, place))
        order = order[np.flatnonzero(np.diff(place[order], prepend=-1))]  # the nearest of each image
        place, twin, nearness, bits = (values[order] for values in (place, twin, nearness, bits))
        better = (nearness > self._nearness[place]) | ((nearness == self._nearness[place]) & (twin < self._twin[place]))
        for kept, new in ((self._twin, twin), (self._nearness, nearness), (self._bits, bits)):
            kept[place[better]] = new[better]

    def table(self, ids: pd.Series) -> pd.DataFrame:
        """Return the findings, in the order of the sample table."""
        finding, row = np.nonzero(self._count.reshape(len(FINDINGS), -1))
        order = np.lexsort((finding, row))
        finding, row = finding[order], row[order]
        place = finding * len(ids) + row
        columns = {"finding": pd.Categorical.from_codes(finding, FINDINGS)}
        for start, rows in (("", row), ("twin_", self._twin[place])):
            for name, values in (("sample_id", ids), ("split", self._split), ("class", self._label)):
                columns[start + name] = values.array.take(rows)
        cosine = self._nearness[place] if self._embedded else np.full(len(place), np.nan, np.float32)
        columns |= {"cosine": cosine, "bits": self._bits[place], "twins": self._count[place]}
        return pd.DataFrame(columns)
