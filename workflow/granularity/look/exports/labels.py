"""Label spaces as one Parquet file that the library `datasets` reads, with the names of their classes."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from granularity.base.errors import GranularityError
from granularity.data.columns import PLACE, RESERVED
from granularity.data.images import Images
from granularity.look.api import of_kinds
from granularity.look.exports import whole
from granularity.store.artifact import Artifact

IMAGE, STRUCT = "image", pa.struct({"bytes": pa.binary(), "path": pa.string()})
CHUNK = 2000  # images written at once


def export(results: Path, to: Path, names: Sequence[str] = (), images: bool = False) -> None:
    """Write the label spaces of one condition (or those named) into a new file: a row per training image.

    Columns: `sample_id`; for each label space the class number or a list of them; with `images`, `image`. Raises
    GranularityError: there is no such label space, or in several conditions; one is corrupt or of other images; two of
    its classes share a name; an image has changed; or `to` exists.
    """
    samples, spaces = spaces_of(results, names)
    frame = samples.table("samples.parquet", ["sample_id", "split"])
    rows = (frame["split"] == "train").to_numpy().nonzero()[0]
    columns = {"sample_id": pa.array(frame["sample_id"].iloc[rows], pa.string())}
    features: dict[str, dict] = {"sample_id": {"dtype": "string", "_type": "Value"}}
    for name, space in spaces.items():
        columns[name], features[name] = _column(space, name)
    table = pa.table(columns)
    pictures, added = (Images(samples), {IMAGE: {"_type": "Image"}}) if images else (None, {})
    schema = pa.schema([*table.schema, *(pa.field(name, STRUCT) for name in added)])
    schema = schema.with_metadata({"huggingface": json.dumps({"info": {"features": features | added}})})
    with whole(to) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for start in range(0, len(rows), CHUNK):
            part = table.slice(start, CHUNK)
            if pictures:
                part = part.append_column(IMAGE, originals(pictures, rows[start : start + CHUNK]))
            writer.write_table(part.cast(schema))


def spaces_of(results: Path, names: Sequence[str] = ()) -> tuple[Artifact, dict[str, Artifact]]:
    """Return the samples of one condition and its label spaces (or those named); GranularityError if any is missing."""
    conditions, spaces = zip(*of_kinds(results, "hierarchy"), strict=True)
    by_name = {space.params["space"]: space for space in spaces}
    if len({*conditions}) > 1:
        raise GranularityError(f"{results}: has label spaces of {', '.join(sorted({*conditions}))}; name one")
    if missing := [name for name in names if name not in by_name]:
        raise GranularityError(f"--space {missing[0]}: {results} has {', '.join(by_name)}")
    samples = Artifact.open(spaces[0].place.parents[1] / "samples", "samples")
    for name in (chosen := dict.fromkeys(names or by_name)):
        chosen[name] = space = by_name[name]
        if space.manifest["inputs"]["samples"]["digest"] != samples.digest:
            raise GranularityError(f"{space.path}: was made from different samples than {samples.path}; run snakemake")
    return samples, chosen


def _column(space: Artifact, name: str) -> tuple[pa.Array, dict]:
    """Return the labels of a space, and their description for `datasets`."""
    names = space.table("classes.parquet", ["name"])["name"].tolist()
    if len({*names}) < len(names) or name in (*RESERVED, IMAGE):
        raise GranularityError(
            f"{space.path}: its name, or two of its classes, would be the same; choose others with --space"
        )
    labels, kind = space.table("labels.parquet", ["label"])["label"], {"names": names, "_type": "ClassLabel"}
    if labels.dtype != object:
        return pa.array(labels, pa.int64()), kind
    return pa.array(labels, pa.list_(pa.int64())), {"feature": kind, "_type": "Sequence"}


def originals(images: Images, rows: Iterable[int]) -> pa.Array:
    """Return the bytes of some images, after comparing them with their checksums."""
    found = []
    for *place, known in images.table.iloc[rows][[*PLACE, "sha256"]].values.tolist():
        data = images.reader.read(*place)
        if not pd.isna(known) and hashlib.sha256(data).hexdigest() != known:
            raise GranularityError(f"{images.reader.name(*place[:3])}: has changed since the sample table was made")
        found.append({"bytes": data, "path": None})
    return pa.array(found, STRUCT)
