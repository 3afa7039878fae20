"""The publisher's splits: which of them are train and val, and which have to be read."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from granularity.base.errors import GranularityError

if TYPE_CHECKING:
    from granularity.stages.samples.options import Samples

VALIDATION = ("val", "validation", "valid", "test")  # where samples.val is null: the first that the source has


def named(params: Samples) -> dict[str, str]:
    """The splits that a configuration names, by its keys (`train`, `val`, `extra_splits[0]`, ...)."""
    extra = {f"extra_splits[{i}]": name for i, name in enumerate(params.extra_splits)}
    return {key: name for key, name in {"train": params.train, "val": params.val, **extra}.items() if name is not None}


def chosen(published: Collection[str], params: Samples) -> tuple[str | None, str | None]:
    """The published splits that are train and val; None where the source has none, or where val is held out.

    Raises:
        GranularityError: the source has splits, but not one that is asked for.
    """
    for key, name in named(params).items():
        if name not in published:
            raise GranularityError(f"samples.{key}: there is no split '{name}'; the source has {sorted(published)}")
    if not published:
        return None, None
    train = params.train or "train"
    if train not in published:
        raise GranularityError(f"samples.train: name the split to train on; the source has {sorted(published)}")
    val = params.val or next((name for name in VALIDATION if name in published and name != train), None)
    if val == train:
        raise GranularityError(f"samples.val: '{val}' is the training split")
    return train, val


def wanted(published: Collection[str], params: Samples) -> set[str]:
    """The published splits that a source has to read."""
    return {*chosen(published, params), *params.extra_splits} - {None}
