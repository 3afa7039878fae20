"""Columns of labels for sample tables."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import numpy as np
import pandas as pd

from granularity.stages.samples.ranks import SYNSET

NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")
WNID = re.compile(r"n[0-9]{8}")


def ordered(names: Iterable[str]) -> list[str]:
    """Class names in alphabetical order; whole numbers in theirs."""
    names = list(names)
    return sorted(names, key=int if all(NUMBER.fullmatch(name) for name in names) else None)


def categorical(column) -> pd.Categorical:
    """A chunked Arrow column as classes in the order of :func:`ordered`; null and empty text are missing."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    encoded = column.unify_dictionaries().combine_chunks()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    names = encoded.dictionary.cast(pa.string()).to_pylist()
    used = np.bincount(codes + 1, minlength=len(names) + 1)[1:] > 0
    kept = ordered(name for name, some in zip(names, used, strict=True) if some and name)
    position = {name: i for i, name in enumerate(kept)}
    place = np.array([*(position.get(name, -1) for name in names), -1], dtype=np.int32)  # the last is for code -1
    return pd.Categorical.from_codes(place[codes], pd.Index(kept, dtype="str"))


def joined(parts: list[pd.Categorical], numbered: bool) -> pd.Categorical:
    """The labels of several files together.

    Args:
        parts: one per file.
        numbered: whether the publisher has put the classes in order, the same in every file; else they are in that of
            :func:`ordered`.
    """
    labels = pd.api.types.union_categoricals(parts)
    return labels if numbered else labels.reorder_categories(ordered(labels.categories))


def rank_name(name: str, labels: pd.Categorical, taken: Collection[str]) -> str:
    """The name of a rank: that of the label column, or `synset` where its classes are WordNet ids and nothing else is
    called so."""
    is_synset = len(labels.categories) and all(WNID.fullmatch(text) for text in labels.categories)
    return SYNSET if is_synset and SYNSET not in taken else name


def is_text(kind) -> bool:
    """Whether an Arrow type is text, dictionary-encoded or not."""
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    return types.is_string(kind) or types.is_large_string(kind)
