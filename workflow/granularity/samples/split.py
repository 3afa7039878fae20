"""The fixed train/validation split, and training subsets that nest."""

from __future__ import annotations

import numpy as np
import pandas as pd

from granularity.config import Condition, Samples
from granularity.errors import GranularityError
from granularity.seeds import seed_of


def assign(frame: pd.DataFrame, params: Samples, condition: Condition, seed: int) -> pd.DataFrame:
    """Add the column `split` and keep the images of this condition, in the order they came.

    The validation images do not depend on the training-set size, and smaller training sets are subsets of larger
    ones. Both are stratified by the finest rank.

    Raises:
        GranularityError: fewer images than asked for, or an empty split.
    """
    order = _stratified_order(frame[params.ranks[-1]].to_numpy(), seed_of(seed, "split"))
    if "split" in frame:
        split = frame["split"].to_numpy(dtype=object)
        pool = order[split[order] == "train"]
        held_out = order[split[order] == "val"]
    else:
        count = params.validation if params.validation >= 1 else round(params.validation * len(frame))
        held_out, pool = order[: int(count)], order[int(count) :]
    size = len(pool) if condition.train_size == "all" else condition.train_size
    if size > len(pool) or len(pool) == 0 or len(held_out) == 0:
        raise GranularityError(
            f"conditions.train_size = {condition.train_size}: there are {len(frame)} images, of which "
            f"{len(held_out)} are for validation and {len(pool)} for training"
        )
    split = np.full(len(frame), None, dtype=object)
    split[held_out], split[pool[:size]] = "val", "train"
    kept = frame.drop(columns="split", errors="ignore")
    kept.insert(1, "split", split)
    return kept[pd.notna(kept["split"])].reset_index(drop=True)


def _stratified_order(strata: np.ndarray, seed: int) -> np.ndarray:
    """An order of which every prefix holds each stratum in its share, to within an image or two."""
    rng = np.random.default_rng(seed)
    place = np.empty(len(strata))
    for stratum in np.unique(strata):
        members = rng.permutation(np.flatnonzero(strata == stratum))
        place[members] = (np.arange(len(members)) + rng.random()) / len(members)
    return np.argsort(place, kind="stable")
