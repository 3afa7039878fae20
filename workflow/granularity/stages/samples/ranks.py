"""The human labels of a sample table: what the source gives, a taxonomy file, and WordNet."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd

from granularity.base.errors import GranularityError
from granularity.base.regular import read_regular
from granularity.data.columns import RESERVED
from granularity.data.wordnet import SEPARATOR, WordNet
from granularity.stages.samples.options import Samples
from granularity.stages.samples.source import Source

SYNSET = "synset"  # the rank whose classes are WordNet ids, such as n02124075
LARGEST = 16 << 20  # bytes of a taxonomy
LIVING = "living_thing"


def add(source: Source, params: Samples) -> tuple[pd.DataFrame, WordNet | None]:
    """The frame of a source with every rank that is asked for, and the part of WordNet above its synsets.

    Raises:
        GranularityError: a rank is nowhere to be had, an image has no label, a class is missing in the taxonomy, or
            a synset in WordNet.
    """
    frame = source.frame
    if params.taxonomy is not None:
        frame = join(frame, read_taxonomy(params.taxonomy), params.taxonomy)
    graph = None
    if params.wordnet is not None:
        frame, graph = _with_wordnet(frame, params)
    available = [column for column in frame.columns if column not in RESERVED]
    for rank in params.ranks:
        if rank not in available:
            hint = " (living_thing needs samples.wordnet)" if rank == LIVING and params.wordnet is None else ""
            raise GranularityError(
                f"samples.ranks: there is no rank '{rank}'; samples.source '{params.source}' has {available}{hint}"
            )
        unlabelled = frame[rank].isna()
        if unlabelled.any():
            name = frame["sample_id"][unlabelled].iloc[0]
            raise GranularityError(f"{params.root}: {int(unlabelled.sum())} images have no {rank}, such as '{name}'")
    kept = frame[[column for column in frame.columns if column in RESERVED]].copy()
    for rank in params.ranks:
        kept[rank] = _categorical(frame[rank])
    return kept, graph


def _categorical(column: pd.Series) -> pd.Series:
    """As it is if it is categorical, else with its classes in alphabetical order."""
    return column if isinstance(column.dtype, pd.CategoricalDtype) else column.astype("str").astype("category")


def read_taxonomy(file: Path) -> pd.DataFrame:
    """A CSV file whose first column names the classes of a rank, once each, and whose others are coarser ranks.

    The order of its rows is the order of the classes.
    """
    try:
        data = io.BytesIO(read_regular(file, LARGEST))
    except GranularityError as error:
        raise GranularityError(f"samples.taxonomy: {error}") from None
    try:
        rows = pd.read_csv(data, dtype="str", keep_default_na=False, comment="#", header=None)
    except ValueError as error:
        raise GranularityError(f"samples.taxonomy: {file}: is no CSV file ({' '.join(str(error).split())})") from None
    table = rows[1:].set_axis(rows.iloc[0].tolist(), axis=1).reset_index(drop=True)  # pandas would rename equal names
    if len(table.columns) < 2 or not len(table):
        raise GranularityError(f"samples.taxonomy: {file}: needs a column of classes, one per rank to add, and rows")
    if not table.columns.is_unique:
        name = table.columns[table.columns.duplicated()][0]
        raise GranularityError(f"samples.taxonomy: {file}: has two columns '{name}'")
    first = table.columns[0]
    if table[first].duplicated().any():
        name = table[first][table[first].duplicated()].iloc[0]
        raise GranularityError(f"samples.taxonomy: {file}: column {first} names '{name}' twice")
    for column in table:
        if (table[column] == "").any():
            line = int(np.flatnonzero(table[column] == "")[0])
            raise GranularityError(f"samples.taxonomy: {file}: row {line + 1} has no {column}")
        if column in RESERVED:
            raise GranularityError(f"samples.taxonomy: {file}: a rank cannot be called {column}")
    return table


def join(frame: pd.DataFrame, taxonomy: pd.DataFrame, file: Path) -> pd.DataFrame:
    """Add the ranks of a taxonomy to a frame whose classes its first column names.

    They are those of the rank of that name; or, where there is none, of the one rank whose classes are all in it.
    """
    key, *added = taxonomy.columns
    available = {name: _categorical(frame[name]) for name in frame.columns if name not in RESERVED}
    named = set(taxonomy[key])
    fitting = (
        [key] if key in available else [name for name in available if named.issuperset(available[name].cat.categories)]
    )
    if len(fitting) != 1:
        raise GranularityError(
            f"samples.taxonomy: {file}: its first column, '{key}', is none of the ranks of the source, {[*available]}, "
            "and does not name the classes of exactly one of them"
        )
    column = available[fitting[0]]
    rows = pd.Index(taxonomy[key]).get_indexer(column.cat.categories)
    used = np.unique(column.cat.codes)
    unknown = [str(column.cat.categories[code]) for code in used if code >= 0 and rows[code] < 0]
    if unknown:
        raise GranularityError(
            f"samples.taxonomy: {file}: has no row for {len(unknown)} classes, such as '{unknown[0]}'"
        )
    row = np.where(column.cat.codes >= 0, rows[column.cat.codes], -1)
    result = frame.copy(deep=False)
    for name in added:
        codes, names = pd.factorize(taxonomy[name])  # in the order of the file
        result[name] = pd.Categorical.from_codes(np.where(row >= 0, codes[row], -1), names)
    order = taxonomy[key].tolist()
    result[key] = pd.Categorical.from_codes(row, order)
    return result


def _with_wordnet(frame: pd.DataFrame, params: Samples) -> tuple[pd.DataFrame, WordNet]:
    if SYNSET not in frame:
        available = [column for column in frame.columns if column not in RESERVED]
        raise GranularityError(
            f"samples.wordnet: needs a rank called {SYNSET} of WordNet ids; samples.source '{params.source}' has "
            f"{available}"
        )
    column = _categorical(frame[SYNSET])
    sets = [str(name).split(SEPARATOR) for name in column.cat.categories]
    graph = WordNet.read(params.wordnet).above(sorted({synset for one in sets for synset in one}))
    living = np.array([any(graph.is_living(synset) for synset in one) for one in sets], dtype=bool)
    codes = np.where(column.cat.codes >= 0, (~living).astype(np.int8)[column.cat.codes], -1)
    return frame.assign(**{LIVING: pd.Categorical.from_codes(codes, ["living thing", "other"])}), graph


def taxonomy(frame: pd.DataFrame, ranks: list[str]) -> pd.DataFrame:
    """One row per combination of ranks that occurs, with its number of images in each split.

    Rows are in the publisher's order of the finest rank's classes.
    """
    keys = ranks[::-1]
    counts = frame.groupby([*keys, "split"], observed=True, sort=True).size().unstack("split", fill_value=0)
    table = counts.astype("int64").rename_axis(columns=None).reset_index()
    return table[[*ranks, *counts.columns]]
