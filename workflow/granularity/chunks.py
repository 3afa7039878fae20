"""Rows of a large array, made chunk by chunk: what a killed job had finished is not made again."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np

from granularity import interrupt
from granularity.artifacts import Writer, write_atomically
from granularity.progress import track


def write_rows(
    out: Writer, name: str, total: int, compute: Callable[[int, int], np.ndarray], chunk: int, what: str
) -> np.ndarray:
    """Fill an array file with ``compute(start, stop)`` for consecutive ranges of at most ``chunk`` rows.

    The bytes do not depend on ``chunk`` as long as ``compute`` gives each row the same value in any range.

    Returns:
        The array, memory-mapped, of shape (total, ...).
    """
    starts = range(0, total, chunk)
    for start in track(starts, len(starts), what, f"chunks of {chunk} images"):
        file = out.work / f"{name}.{start:012d}-{min(start + chunk, total):012d}"
        if not file.exists():
            stream = io.BytesIO()
            np.save(stream, compute(start, min(start + chunk, total)), allow_pickle=False)
            write_atomically(file, stream.getvalue())
            interrupt.stop_if_requested()
    array = None
    for file in sorted(out.work.glob(f"{name}.*-*")):
        rows = np.load(file, allow_pickle=False)
        start = int(file.name.rsplit(".", 1)[1].split("-")[0])
        if array is None:
            shape = (total, *rows.shape[1:])
            array = np.lib.format.open_memmap(out.path(name), mode="w+", dtype=rows.dtype, shape=shape)
        array[start : start + len(rows)] = rows
    array.flush()
    out.describe_array(name, array)
    return array
