"""Stage `samples`: the table of images that every later stage joins on."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from granularity import artifacts
from granularity.config import Condition, Samples
from granularity.errors import GranularityError
from granularity.progress import track
from granularity.samples import digits, folder, split

ADAPTERS = {"digits": digits.read, "folder": folder.read}


def run(params: Samples, condition: Condition, seed: int, output: Path, threads: int = 1) -> None:
    """Write the sample table of one condition.

    `samples.parquet`: `sample_id` (stable), `split` (train, val), `file` (relative to `root`, or to the artifact where
    root is null), `row` (in a Parquet file, else null), `bytes`, `sha256`, and one column a rank, coarse to fine.

    Raises:
        GranularityError: unreadable or too few images.
    """
    resolved = {**params.model_dump(mode="json"), "train_size": condition.train_size, "seed": seed}
    frame, contained = ADAPTERS[params.source](params)
    with artifacts.create(output, "samples", "granularity.samples.stage", {}, resolved) as out:
        if contained:
            _write_images(out.path("images.parquet"), contained, frame["sample_id"])
            frame["bytes"], frame["sha256"] = zip(*map(_measure, contained), strict=True)
            frame = split.assign(frame, params, condition, seed)
        else:
            frame = split.assign(frame, params, condition, seed)
            files = [params.root / name for name in frame["file"]]
            with ThreadPoolExecutor(threads) as pool:
                measured = pool.map(_measure_file, files)
                measured = list(track(measured, len(files), "hashing images", "images"))
            frame["bytes"], frame["sha256"] = zip(*measured, strict=True)
        frame["row"] = frame["row"].astype("Int64")
        columns = ["sample_id", "split", "file", "row", "bytes", "sha256", *params.ranks]
        out.table("samples.parquet", frame[columns])
        out.summary["images"] = frame["split"].value_counts().to_dict()
        out.summary["classes"] = {rank: int(frame[rank].nunique()) for rank in params.ranks}


def _measure_file(file: Path) -> tuple[int, str]:
    try:
        return _measure(file.read_bytes())
    except OSError as error:
        raise GranularityError(f"{file}: cannot be read ({error.strerror})") from None


def _measure(data: bytes) -> tuple[int, str]:
    return len(data), hashlib.sha256(data).hexdigest()


def _write_images(file: Path, images: list[bytes], names) -> None:
    """The layout of image data sets on the Hugging Face hub: a column `img` of {bytes, path}."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"bytes": data, "path": f"{name}.png"} for data, name in zip(images, names, strict=True)]
    struct = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    pq.write_table(pa.table({"img": pa.array(rows, struct)}), file, compression="zstd")
