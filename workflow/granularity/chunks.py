"""Rows of a large array, made chunk by chunk: what a killed job had finished is not made again."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from granularity.artifacts import Writer
from granularity.progress import track
from granularity.state import read_state, write_state


def write_rows(
    out: Writer, name: str, total: int, compute: Callable[[int, int], np.ndarray], chunk: int, what: str
) -> np.ndarray:
    """Fill an array file with ``compute(start, stop)`` for consecutive ranges of at most ``chunk`` rows.

    The bytes do not depend on ``chunk`` as long as ``compute`` gives each row the same value in any range.

    Returns:
        The array, memory-mapped, of shape (total, ...).
    """
    starts = range(0, total, chunk)
    array = None
    for start in track(starts, len(starts), what, f"chunks of {chunk} images"):
        stop = min(start + chunk, total)
        file = out.work / f"{name}.{start:012d}-{stop:012d}"
        state = read_state(file)  # None as well where the file was damaged since
        rows = compute(start, stop) if state is None else state[0]["rows"]
        if state is None:
            write_state(file, {"rows": rows}, {})
        if array is None:
            shape = (total, *rows.shape[1:])
            array = np.lib.format.open_memmap(out.path(name), mode="w+", dtype=rows.dtype, shape=shape)
        array[start:stop] = rows
    array.flush()
    out.describe_array(name, array)
    return array
