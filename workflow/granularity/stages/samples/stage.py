"""Stage `samples`: the table of images that every later stage joins on."""

import hashlib
from itertools import compress, islice
from pathlib import Path

import numpy as np
import pandas as pd

from granularity.base.errors import GranularityError
from granularity.base.progress import say, track
from granularity.base.regular import check_regular, read_text
from granularity.base.seeds import seed_of
from granularity.data import hub
from granularity.data.images import Reader
from granularity.stages.samples import checks, ranks, source
from granularity.stages.samples.options import Samples, kept_as, of_source, too_few
from granularity.store.task import Task
from granularity.store.writer import Writer

CHUNK = 4096  # images written at once
CONTAINED = "images.parquet"


def run(task: Task) -> None:
    """Write the sample table of one condition (files: docs/artifacts.md).

    `file` is relative to `root`, or to the artifact if that contains the images. Images with errors (:mod:`.checks`)
    are left out of the table, so splits can be smaller. Raises GranularityError: unreadable or too few images, or a
    rank that the source does not have; with `check_images: fail`, an image that cannot be used.
    """
    options = task.options
    if options.show and options.check_images == "no":
        options = options.model_copy(update={"check_images": "fail"})
    try:
        data = source.find(options, task.threads)
        frame, graph = ranks.add(data, options)
        names = [column for column in ("sample_id", "file") if column in frame and frame[column].dtype == object]
        frame = frame.astype(dict.fromkeys(names, "str"))
    except UnicodeEncodeError as error:  # lone surrogates, from undecodable bytes or JSON escapes
        raise GranularityError(f"{options.root}: the name {error.object[:200]!r} is not UTF-8; rename it") from None
    frame, held_out = assign(frame, options, options.train_size, task.seed)
    root = data.root or options.root
    resolved = of_source(options) | {"train_size": options.train_size, "seed": task.seed, "root": None}
    if data.images is None:
        resolved["root"] = str(root)
        if (revision := hub.commit(root)) is not None:
            resolved["revision"] = revision
    # Images without checksums are identified by their location.
    facts = ("source", "target", "ranks", "wordnet", "checksums", *(("root",) if options.checksums == "size" else ()))
    with task.create({}, resolved, facts) as out:
        if data.images is not None:
            frame = _store(data, frame, out)
        frame = frame.reset_index(drop=True)
        stored = data.images is not None
        reader = Reader(out.folder if stored else root, None if stored else getattr(options, "image_column", None))
        for column in ("row", "offset", "bytes"):  # null if the source does not need them
            frame[column] = (
                frame[column].astype("Int64") if column in frame else pd.array([pd.NA] * len(frame), "Int64")
            )
        if options.check_images == "no":
            _measure(frame, reader, options.checksums, task.threads)
            findings = checks.unchecked(frame, options)
        else:
            whole = frame["split"].value_counts(sort=False)
            frame, findings = checks.run(frame, options, reader, task.threads, options.show)
        if options.check_images != "no" or len(findings):
            out.table("findings.parquet", findings)
            out.summary["findings"] = checks.counted(findings)
        if options.check_images != "no":
            out.summary["left_out"] = (whole - frame["split"].value_counts(sort=False)).to_dict()
        if complaints := list(too_few(options.asks, int((frame["split"] == "train").sum()))):
            raise GranularityError("; ".join(complaints))
        columns = ["sample_id", "split", "file", "row", "offset", "bytes", "sha256"]
        columns += ["distribution"] if "distribution" in frame else []
        out.table("samples.parquet", frame[[*columns, *options.ranks]])
        out.table("taxonomy.parquet", ranks.taxonomy(frame, options.ranks))
        if graph is not None:
            out.table("wordnet.parquet", graph.frame())
        out.summary["images"] = frame["split"].value_counts(sort=False).to_dict()
        out.summary["classes"] = {rank: int(frame[rank].nunique()) for rank in options.ranks}
        out.summary["validation"] = held_out
        if remarks := list(checks.remarks(frame, options)):
            out.summary["remarks"] = remarks
            for remark in remarks:
                say(remark)
        out.summary |= data.notes


def assign(frame: pd.DataFrame, params: Samples, train_size: int | str, seed: int) -> tuple[pd.DataFrame, str]:
    """Return the images of this condition with their split (train, val, or an extra split's name), in their order.

    Also returns the origin of the validation images (docs/draws.md, docs/datasets.md). Raises GranularityError: fewer
    images than asked for, an empty split, or one that the source does not have.
    """

    def ordered(rows: np.ndarray) -> np.ndarray:
        return rows[_stratified_order(frame[params.ranks[-1]].iloc[rows], seed_of(seed, "split"))]

    # Each split on its own: training images do not depend on which other splits are read.
    splits = frame.groupby("split", observed=True).indices if "split" in frame else {}
    published = {str(name): ordered(rows) for name, rows in splits.items()}
    train, val = source.chosen(published, params)
    if val is not None:
        pool, held_out = published[train], published[val]
        origin = f"the published split '{val}'"
    else:
        pool = published[train] if published else ordered(np.arange(len(frame)))
        count = int(params.validation if params.validation >= 1 else round(params.validation * len(pool)))
        held_out, pool = pool[:count], pool[count:]
        origin = f"{len(held_out)} images held out, stratified by {params.ranks[-1]}"
    if params.subset is not None:
        pool = pool[_listed(params.subset, frame["sample_id"].iloc[pool])]
    size = len(pool) if train_size == "all" else train_size
    if size > len(pool) or len(pool) == 0 or len(held_out) == 0:
        sizes = f"{len(frame)} images, {len(held_out)} for validation and {len(pool)} for training"
        hint = "" if val is not None else f" (samples.validation = {params.validation:g})"
        raise GranularityError(f"conditions.train_size = {train_size}: there are {sizes}{hint}")
    split = np.full(len(frame), None, dtype=object)
    extra = {name: kept_as(name) for name in params.extra_splits}
    for name, shown in extra.items():
        split[published[name]] = shown
    split[held_out], split[pool[:size]] = "val", "train"
    kept = frame.drop(columns="split", errors="ignore")
    kept.insert(1, "split", pd.Categorical(split, ["train", "val", *extra.values()]))
    return kept[kept["split"].notna()], origin


def _listed(file: Path, ids: pd.Series) -> np.ndarray:
    """Return which training images a file lists; GranularityError: an unknown or repeated line."""
    listed = pd.Index(read_text(file).splitlines())
    for wrong, what in (
        (~listed.isin(ids), "is not a training image of this draw"),
        (listed.duplicated(), "appears twice"),
    ):
        if wrong.any():
            line = int(wrong.argmax())
            raise GranularityError(f"samples.subset: {file}: line {line + 1}: '{listed[line]}' {what}; remove the line")
    return ids.isin(listed).to_numpy()


def _stratified_order(strata: pd.Series, seed: int) -> np.ndarray:
    """Return an order whose every prefix holds each stratum (a category) in proportion, to within an image or two."""
    alphabetical = np.argsort(np.argsort(strata.cat.categories.to_numpy(dtype=str)))
    codes = alphabetical[strata.cat.codes]
    grouped = np.argsort(codes, kind="stable")
    rng = np.random.default_rng(seed)
    place = np.empty(len(strata))
    for members in np.split(grouped, np.flatnonzero(np.diff(codes[grouped])) + 1):
        members = rng.permutation(members)
        place[members] = (np.arange(len(members)) + rng.random()) / len(members)
    return np.argsort(place, kind="stable")


def _store(found: source.Source, frame: pd.DataFrame, out: Writer) -> pd.DataFrame:
    """Store the images of a source that ships arrays, as on the Hugging Face hub: a column `img` of {bytes, path}."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    struct = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    schema = pa.schema({"img": struct})
    kept = compress(found.images, pd.RangeIndex(len(found.frame)).isin(frame.index))
    named = zip(kept, frame["sample_id"], strict=True)
    parts = iter(lambda: list(islice(named, CHUNK)), [])
    with pq.ParquetWriter(out.path(CONTAINED), schema, compression="zstd") as writer:
        for part in track(parts, -(-len(frame) // CHUNK), "storing images", "chunks"):
            rows = [{"bytes": data, "path": f"{name}.png"} for data, name in part]
            writer.write_table(pa.table({"img": pa.array(rows, struct)}, schema))
    return frame.assign(file=CONTAINED, row=np.arange(len(frame)))


def _measure(frame: pd.DataFrame, reader: Reader, checksums: str, threads: int) -> None:
    if checksums == "size" and frame["bytes"].notna().all():
        frame["sha256"] = pd.array([None] * len(frame), "str")
        return

    def measured(place: tuple) -> tuple[int, str | None]:
        if checksums == "size" and pd.isna(place[1]):  # a whole file
            return check_regular(reader.root / place[0]).st_size, None
        data = reader.read(*place)
        return len(data), None if checksums == "size" else hashlib.sha256(data).hexdigest()

    sizes, digests = np.empty(len(frame), dtype=np.int64), []
    for start, results in checks.in_chunks(frame, measured, threads, "measuring"):
        lengths, texts = zip(*results, strict=True)
        sizes[start : start + len(lengths)] = lengths
        digests.append(pd.Series(pd.array(texts, "str")))  # a list of all 12.7 million would take 1.4 GB
    frame["bytes"], frame["sha256"] = sizes, pd.concat(digests, ignore_index=True)
