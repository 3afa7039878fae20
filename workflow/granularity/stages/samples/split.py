"""Splits: the fixed train/validation split, and training subsets that nest."""

from __future__ import annotations

import numpy as np
import pandas as pd

from granularity.base.errors import GranularityError
from granularity.base.seeds import seed_of
from granularity.stages.samples.options import Samples
from granularity.stages.samples.published import chosen


def assign(frame: pd.DataFrame, params: Samples, train_size: int | str, seed: int) -> tuple[pd.DataFrame, str]:
    """The images of this condition with their split (train, val, or the name of an extra split), in their order.

    The validation images do not depend on the training-set size, and smaller training sets are subsets of larger
    ones. Both are stratified by the finest rank.

    Returns:
        The frame, with its index as it was; and where the validation images come from.

    Raises:
        GranularityError: fewer images than asked for, an empty split, or one that the source does not have.
    """
    split = np.full(len(frame), None, dtype=object)
    order = _stratified_order(frame[params.ranks[-1]], seed_of(seed, "split"))
    published = {} if "split" not in frame else _members(frame["split"], order)
    train, val = chosen(published, params)
    if val is not None:
        pool, held_out = published[train], published[val]
        source = f"the published split '{val}'"
    else:
        pool = published[train] if published else order
        count = int(params.validation if params.validation >= 1 else round(params.validation * len(pool)))
        held_out, pool = pool[:count], pool[count:]
        source = f"{len(held_out)} images held out, stratified by {params.ranks[-1]}"
    size = len(pool) if train_size == "all" else train_size
    if size > len(pool) or len(pool) == 0 or len(held_out) == 0:
        raise GranularityError(
            f"conditions.train_size = {train_size}: there are {len(frame)} images, of which "
            f"{len(held_out)} are for validation and {len(pool)} for training"
        )
    extra = {name: f"{name} (published)" if name in ("train", "val") else name for name in params.extra_splits}
    for name, shown in extra.items():
        split[published[name]] = shown
    split[held_out], split[pool[:size]] = "val", "train"
    kept = frame.drop(columns="split", errors="ignore")
    kept.insert(1, "split", pd.Categorical(split, ["train", "val", *extra.values()]))
    return kept[kept["split"].notna()], source


def _members(split: pd.Series, order: np.ndarray) -> dict[str, np.ndarray]:
    """The rows of each published split, in a stratified order."""
    codes, names = pd.factorize(split.iloc[order])
    return {str(name): order[codes == code] for code, name in enumerate(names)}


def _stratified_order(strata: pd.Series, seed: int) -> np.ndarray:
    """An order of which every prefix holds each stratum (a category) in its share, to within an image or two."""
    alphabetical = np.argsort(np.argsort(strata.cat.categories.to_numpy(dtype=str)))
    codes = alphabetical[strata.cat.codes]
    grouped = np.argsort(codes, kind="stable")
    rng = np.random.default_rng(seed)
    place = np.empty(len(strata))
    for members in np.split(grouped, np.flatnonzero(np.diff(codes[grouped])) + 1):
        members = rng.permutation(members)
        place[members] = (np.arange(len(members)) + rng.random()) / len(members)
    return np.argsort(place, kind="stable")
