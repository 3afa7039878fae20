"""A data set in Parquet whose classes are cut in two by a coin per image: the rank `half`, finer than the class.

The fine labels of Yang, Steinhardt and Hu 2023, section 6, as a human rank, so that measures look at them. The coins
are drawn once, whatever the base seed.
"""

import numpy as np

from granularity.stages.samples.source import Source
from granularity.stages.samples.sources import parquet

EXTENDS, NEEDS_ROOT = "source", True
files = parquet.files


def read(params, threads: int = 1) -> Source:
    """The images of the splits asked for, with the rank `half`, such as `cat 0`."""
    found = parquet.read(params, threads)
    coins = np.random.default_rng(0).integers(2, size=len(found.frame)).astype(str)
    halves = found.frame[found.ranks[-1]].astype(str) + " " + coins
    return Source(found.frame.assign(half=halves.astype("category")), root=found.root)
