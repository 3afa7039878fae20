"""The order in which an epoch visits the images."""

from __future__ import annotations

import numpy as np

from granularity.base.seeds import seed_of

WINDOW = 256  # blocks whose images are mixed


def order(images: int, seed: int, epoch: int, block: int = 1) -> np.ndarray:
    """A permutation of all images, int64 [images], that the seed and the epoch decide.

    Args:
        block: with 1, any permutation is as likely as any other. With more, this many consecutive images stay close to
            each other, as disks like it: the blocks are permuted, and then the images of each `WINDOW` of blocks.
    """
    rng = np.random.default_rng(seed_of(seed, "order", epoch))
    if block == 1:
        return rng.permutation(images)
    blocks = rng.permutation(-(-images // block))
    parts = []
    for start in range(0, len(blocks), WINDOW):
        near = (blocks[start : start + WINDOW, None] * block + np.arange(block)).ravel()
        parts.append(rng.permutation(near[near < images]))
    return np.concatenate(parts)
