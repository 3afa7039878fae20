"""A condition's images as one Parquet file for viewers such as embedding-atlas and FiftyOne (docs/exports.md)."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from granularity.base.errors import GranularityError
from granularity.data.images import Images
from granularity.look.api import of_kinds
from granularity.look.explore import images as shown
from granularity.look.exports import whole
from granularity.look.exports.labels import CHUNK, IMAGE, STRUCT, originals
from granularity.store.artifact import Artifact

READ = ("samples", "embed", "hierarchy", "finetune", "cluster")


def export(results: Path, to: Path, images: bool = False) -> None:
    """Write a row per image of one condition into a new file.

    Columns: `sample_id`, `split`, `path` (null within a larger file), `x` and `y` (t-SNE, or principal components if
    there are many images), `embedding` (list of float32), names by ranks, label spaces, predictions and clusters, and,
    with `images`, `image` ({bytes, path}). Raises GranularityError: there is no embedding, or several conditions, or an
    image has changed.
    """
    by_kind: dict[str, list[Artifact]] = {}
    conditions = set()
    for condition, item in of_kinds(results, *READ):
        conditions.add(condition)
        by_kind.setdefault(item.kind, []).append(item)
    if len(conditions) > 1:
        raise GranularityError(f"{results}: has results of {', '.join(sorted(conditions))}; name one")
    for kind in ("samples", "embed"):
        if len(by_kind.get(kind, ())) != 1:
            raise GranularityError(f"{results}: contains no results of {kind}; make them with: snakemake {kind}")
    (samples,), (embed,) = by_kind["samples"], by_kind["embed"]
    if embed.manifest["inputs"]["samples"]["digest"] != samples.digest:
        raise GranularityError(f"{embed.path}: was made from different samples than {samples.path}; run snakemake")
    all_images = shown.Images(samples, None, sys.maxsize)
    vectors = all_images.features(embed)
    near = 2 < len(vectors) <= shown.NEIGHBOURS
    places = (shown.tsne(vectors) if near else shown.pca(vectors)[0]).astype(np.float32)
    flat = pa.array(np.ascontiguousarray(vectors).ravel())
    columns = {"sample_id": all_images.ids, "split": all_images.frame["split"].astype(str), "path": _paths(samples)}
    columns = {name: pa.array(values, pa.string()) for name, values in columns.items()}
    columns |= {axis: pa.array(values) for axis, values in zip("xy", places.T, strict=True)}
    columns["embedding"] = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]).cast(pa.list_(pa.float32()))
    labelled = [*all_images.ranks(), *map(all_images.space, by_kind.get("hierarchy", ()))]
    labelled += [*all_images.predictions(by_kind.get("finetune", []))]
    labelled += [item for job in by_kind.get("cluster", ()) for item, _ in shown.clusters(all_images, None, job)]
    for column in labelled:
        plain = column.group == "rank" and column.name not in (*columns, IMAGE)
        values = pd.Series(column.codes).map(dict(enumerate(column.names)))
        columns[column.name if plain else f"{column.group}: {column.name}"] = pa.array(values, pa.string())
    table, source = pa.table(columns), Images(samples) if images else None
    schema = table.schema.append(pa.field(IMAGE, STRUCT)) if images else table.schema
    with whole(to) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for start in range(0, len(table), CHUNK):
            part = table.slice(start, CHUNK)
            if source is not None:
                part = part.append_column(IMAGE, originals(source, range(start, start + len(part))))
            writer.write_table(part.cast(schema))


def _paths(samples: Artifact) -> list[str | None]:
    """Return the images' own files; None for an image within a larger file, or if none is known."""
    root, frame = samples.params["root"], samples.table("samples.parquet", ["file", "row", "offset"])
    if root is None:
        return [None] * len(frame)
    files = frame["file"].map(lambda name: str(Path(root, name).absolute())).astype(object)
    return files.where(frame[["row", "offset"]].isna().all(axis=1), None).tolist()
