"""Stage `samples`: the table of images that every later stage joins on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import numpy as np
import pandas as pd

from granularity.base.errors import GranularityError
from granularity.base.progress import track
from granularity.data import hub
from granularity.data.images import Reader
from granularity.stages.samples import checks, ranks, source, split
from granularity.stages.samples.options import of_source
from granularity.store.task import Task
from granularity.store.writer import Writer

CHUNK = 16384
CONTAINED = "images.parquet"


def run(task: Task) -> None:
    """Write the sample table of one condition.

    `samples.parquet`: `sample_id` (stable), `split` (train, val, and the publisher's names of extra splits), `file`
    (relative to `root`, or to the artifact where the images lie in it), `row` (in a Parquet file, else null),
    `offset` (in an archive, else null), `bytes`, `sha256` (null with `checksums: size`), `distribution` (ID, OOD;
    domain-shift sets only), and one categorical column per rank, coarse to fine.
    `taxonomy.parquet`: see :func:`.ranks.taxonomy`. `wordnet.parquet`, with `samples.wordnet`: the
    part of WordNet above the synsets. `findings.parquet`, with `samples.check_images`: see
    :mod:`.checks`; images with errors are not in the sample table, and the splits are smaller
    by them.

    Raises:
        GranularityError: unreadable or too few images, or a rank that the source does not have; with
            `check_images: fail`, an image that cannot be used.
    """
    options = task.options
    if options.show and options.check_images == "no":
        options = options.model_copy(update={"check_images": "fail"})
    try:
        found = source.find(options, task.threads)
        frame, graph = ranks.add(found, options)
        names = [column for column in ("sample_id", "file") if column in frame and frame[column].dtype == object]
        frame = frame.astype(dict.fromkeys(names, "str"))
    except UnicodeEncodeError as error:  # lone surrogates: Python's stand-ins for other bytes, and JSON's escapes
        raise GranularityError(f"{options.root}: the name {error.object[:200]!r} is not UTF-8; rename it") from None
    frame, held_out = split.assign(frame, options, options.train_size, task.seed)
    root = found.root or options.root
    resolved = of_source(options) | {
        "train_size": options.train_size,
        "seed": task.seed,
        "root": None if found.images is not None else str(root),
    }
    if found.images is None and (revision := hub.commit(root)) is not None:
        resolved["revision"] = revision
    # Images without checksums are told apart by where they lie.
    facts = ("source", "target", "ranks", "wordnet", "checksums", *(("root",) if options.checksums == "size" else ()))
    with task.create({}, resolved, facts) as out:
        if found.images is not None:
            frame = _store(found, frame, out)
        frame = frame.reset_index(drop=True)
        reader = Reader(root if found.images is None else out.folder)
        _complete(frame)
        if options.check_images == "no":
            _measure(frame, reader, options.checksums, task.threads)
        else:
            whole = frame["split"].value_counts(sort=False)
            frame, findings = checks.run(frame, options, reader, task.threads, options.show)
            out.table("findings.parquet", findings)
            out.summary["findings"] = checks.counted(findings)
            out.summary["left_out"] = (whole - frame["split"].value_counts(sort=False)).to_dict()
        columns = ["sample_id", "split", "file", "row", "offset", "bytes", "sha256"]
        columns += ["distribution"] if "distribution" in frame else []
        out.table("samples.parquet", frame[[*columns, *options.ranks]])
        out.table("taxonomy.parquet", ranks.taxonomy(frame, options.ranks))
        if graph is not None:
            out.table("wordnet.parquet", graph.frame())
        out.summary["images"] = frame["split"].value_counts(sort=False).to_dict()
        out.summary["classes"] = {rank: int(frame[rank].nunique()) for rank in options.ranks}
        out.summary["validation"] = held_out
        out.summary |= found.notes


def _store(found: source.Source, frame: pd.DataFrame, out: Writer) -> pd.DataFrame:
    """Keep the images of a source that ships arrays, in the layout of image data sets on the Hugging Face hub.

    That is a column `img` of {bytes, path}.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    struct = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    schema = pa.schema({"img": struct})
    wanted = np.zeros(len(found.frame), dtype=bool)
    wanted[frame.index] = True
    kept = (data for data, keep in zip(found.images, wanted, strict=True) if keep)
    named = zip(kept, frame["sample_id"], strict=True)
    with pq.ParquetWriter(out.path(CONTAINED), schema, compression="zstd") as writer:
        for part in track(
            iter(lambda: list(islice(named, 4096)), []), -(-len(frame) // 4096), "storing images", "chunks"
        ):
            rows = [{"bytes": data, "path": f"{name}.png"} for data, name in part]
            writer.write_table(pa.table({"img": pa.array(rows, struct)}, schema))
    return frame.assign(file=CONTAINED, row=np.arange(len(frame)))


def _complete(frame: pd.DataFrame) -> None:
    """Add the columns of places that this source does not need."""
    for column in ("row", "offset", "bytes"):
        frame[column] = frame[column].astype("Int64") if column in frame else pd.array([pd.NA] * len(frame), "Int64")


def _measure(frame: pd.DataFrame, reader: Reader, checksums: str, threads: int) -> None:
    """Fill in `bytes` and `sha256`."""
    if checksums == "size":
        if frame["bytes"].isna().any():
            frame["bytes"] = _sizes(frame, reader, threads)
        frame["sha256"] = pd.array([None] * len(frame), "str")
        return
    sizes = np.empty(len(frame), dtype=np.int64)
    digests = []
    with ThreadPoolExecutor(threads) as pool:
        for start in track(
            range(0, len(frame), CHUNK), -(-len(frame) // CHUNK), "hashing", f"chunks of {CHUNK} images"
        ):
            part = pool.map(lambda place: _digest(reader.read(*place)), _places(frame.iloc[start : start + CHUNK]))
            lengths, texts = zip(*part, strict=True)
            sizes[start : start + len(lengths)] = lengths
            digests.append(pd.array(texts, "str"))  # not a list of all: 12.7 million strings are 1.4 GB of Python
    frame["bytes"], frame["sha256"] = sizes, pd.concat([pd.Series(part) for part in digests], ignore_index=True)


def _sizes(frame: pd.DataFrame, reader: Reader, threads: int) -> np.ndarray:
    with ThreadPoolExecutor(threads) as pool:
        sizes = pool.map(lambda place: reader.size(*place), _places(frame))
        return np.fromiter(track(sizes, len(frame), "measuring", "images"), np.int64, len(frame))


def _places(frame: pd.DataFrame) -> Iterator[tuple]:
    return zip(*(frame[column].tolist() for column in ("file", "row", "offset", "bytes")), strict=True)


def _digest(data: bytes) -> tuple[int, str]:
    return len(data), hashlib.sha256(data).hexdigest()
