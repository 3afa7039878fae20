"""The human labels of a sample table, from the source, a taxonomy file, and WordNet."""

import codecs
import io
import re
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import replace
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
NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")
WNID = re.compile(r"n[0-9]{8}")
FEW = 50  # up to this many images, each may have its own class


def add(source: Source, params: Samples) -> tuple[pd.DataFrame, WordNet | None]:
    """Return the frame with every requested rank, and WordNet above its synsets; GranularityError: one is missing."""
    if params.taxonomy is not None:
        source = replace(source, frame=join(source.frame, read_taxonomy(params.taxonomy), params.taxonomy))
    graph = None
    if params.wordnet is not None:
        frame, graph = _with_wordnet(source, params)
        source = replace(source, frame=frame)
    frame = source.frame
    for rank in params.ranks:
        if rank not in source.ranks:
            hint = " (living_thing needs samples.wordnet)" if rank == LIVING and params.wordnet is None else ""
            has = f"samples.source '{params.source}' has {source.ranks}{hint}"
            raise GranularityError(f"samples.ranks: there is no rank '{rank}'; {has}")
        source.complete(rank, params)
    kept = frame[[column for column in frame.columns if column in RESERVED]].copy()
    return kept.assign(**{rank: _checked(rank, _categorical(frame[rank]), frame) for rank in params.ranks}), graph


def _checked(rank: str, column: pd.Series, frame: pd.DataFrame) -> pd.Series:
    """Check a rank and return it, with several synsets of an image in canonical order. Raises GranularityError: a class
    stands for several labels, two are one name in two Unicode forms, or nearly every image has its own class.
    """
    names, forms = column.cat.categories, {}
    if rank == SYNSET and names.str.contains(SEPARATOR, regex=False).any():
        sets = names.map(lambda name: SEPARATOR.join(sorted({*name.split(SEPARATOR)})))
        names = sets.unique()
        codes = names.get_indexer(sets)[column.cat.codes]
        column = pd.Series(pd.Categorical.from_codes(codes, names), column.index)
    for name in names:
        first, wrong = forms.setdefault(unicodedata.normalize("NFC", name), name), None
        if rank != SYNSET and SEPARATOR in name:
            wrong = f"{name!r} joins labels by {SEPARATOR}; only the rank {SYNSET} can have several labels per image"
        if first != name:
            wrong = f"the classes {first!a} and {name!a} are the same name in two Unicode forms; rename one of them"
        if wrong:
            raise GranularityError(_of(rank, wrong, frame, column == name))
    counts = column.value_counts()
    alone = counts.index[counts == 1]
    if len(frame) > FEW and len(alone) > 0.9 * len(frame):
        wrong = (
            f"{len(alone):,} of {len(frame):,} images are alone in their class; does the "
            "rank contain captions or names?"
        )
        raise GranularityError(_of(rank, wrong, frame, column == alone[0]))
    return column


def _of(rank: str, what: str, frame: pd.DataFrame, rows: pd.Series) -> str:
    return f"samples.ranks: {rank}: {what} (the image {str(frame['sample_id'][rows].iloc[0])!r} has it)"


def _categorical(column: pd.Series) -> pd.Series:
    """Return the column as it is if categorical, else with its classes in alphabetical order."""
    return column if isinstance(column.dtype, pd.CategoricalDtype) else column.astype("str").astype("category")


def read_taxonomy(file: Path) -> pd.DataFrame:
    """Read a CSV file whose first column names the classes of a rank, each once; other columns are coarser ranks."""
    try:
        lines = read_regular(file, LARGEST).removeprefix(codecs.BOM_UTF8).splitlines(keepends=True)
        told = [line for line in lines if not line.startswith(b"#")]
        rows = pd.read_csv(io.BytesIO(b"".join(told)), dtype="str", keep_default_na=False, header=None)
    except (GranularityError, ValueError) as error:
        problem = error if isinstance(error, GranularityError) else f"{file}: is not a CSV file ({str(error).strip()})"
        raise GranularityError(f"samples.taxonomy: {problem}") from None
    table = rows[1:].set_axis(rows.iloc[0].tolist(), axis=1).reset_index(drop=True)  # pandas would rename equal names
    names = table.columns
    wrong = None
    if len(names) < 2 or not len(table):
        wrong = "needs a column of classes, one per rank to add, and rows"
    elif not names.is_unique:
        wrong = f"has two columns '{names[names.duplicated()][0]}'"
    elif {*names} & {*RESERVED}:
        wrong = f"a rank cannot be named {min({*names} & {*RESERVED})}"
    elif (empty := (table == "").any(axis=1)).any():
        wrong = f"row {empty.argmax() + 1} has an empty field"
    elif (twice := table[names[0]].duplicated()).any():
        wrong = f"column {names[0]} names '{table[names[0]][twice].iloc[0]}' twice"
    if wrong:
        raise GranularityError(f"samples.taxonomy: {file}: {wrong}")
    return table


def join(frame: pd.DataFrame, taxonomy: pd.DataFrame, file: Path) -> pd.DataFrame:
    """Add the ranks of a taxonomy; its first column is matched by name, or by classes to the only rank that fits."""
    key, *added = taxonomy.columns
    available = {name: _categorical(frame[name]) for name in frame.columns if name not in RESERVED}
    classes = pd.Index(taxonomy[key])
    fitting = (
        [key] if key in available else [n for n, rank in available.items() if rank.cat.categories.isin(classes).all()]
    )
    if len(fitting) != 1:
        problem = f"is not one of the ranks {[*available]}, nor does it name the classes of exactly one of them"
        raise GranularityError(f"samples.taxonomy: {file}: its first column, '{key}', {problem}")
    column = available[fitting[0]]
    row = np.append(classes.get_indexer(column.cat.categories), -1)[column.cat.codes]
    unknown = column[(row < 0) & column.notna()].unique()
    if len(unknown):
        problem = f"has no row for {len(unknown)} classes, such as '{unknown[0]}'"
        raise GranularityError(f"samples.taxonomy: {file}: {problem}")
    result = frame.copy(deep=False)
    for name in added:
        codes, names = pd.factorize(taxonomy[name])  # in file order
        result[name] = pd.Categorical.from_codes(np.where(row >= 0, codes[row], -1), names)
    result[key] = pd.Categorical.from_codes(row, classes)
    return result


def _with_wordnet(source: Source, params: Samples) -> tuple[pd.DataFrame, WordNet]:
    if SYNSET not in source.ranks:
        has = f"samples.source '{params.source}' has {source.ranks}"
        raise GranularityError(f"samples.wordnet: needs a rank {SYNSET} of WordNet ids; {has}")
    column = _categorical(source.frame[SYNSET])
    sets = [str(name).split(SEPARATOR) for name in column.cat.categories]
    graph = WordNet.read(params.wordnet).above(sorted({synset for synsets in sets for synset in synsets}))
    living = np.array([any(graph.is_living(synset) for synset in synsets) for synsets in sets], dtype=bool)
    codes = np.where(column.cat.codes >= 0, (~living).astype(np.int8)[column.cat.codes], -1)
    return source.frame.assign(**{LIVING: pd.Categorical.from_codes(codes, ["living thing", "other"])}), graph


def taxonomy(frame: pd.DataFrame, ranks: list[str]) -> pd.DataFrame:
    """Return a row per combination of ranks, in the order of the finest, with its images in each split."""
    keys = ranks[::-1]
    counts = frame.groupby([*keys, "split"], observed=True, sort=True).size().unstack("split", fill_value=0)
    table = counts.astype("int64").rename_axis(columns=None).reset_index()
    return table[[*ranks, *counts.columns]]


# ---------------------------------------------------------------- columns of labels, for sources


def categorical(column) -> pd.Categorical:
    """Return a chunked Arrow column as classes in alphabetical (whole numbers: numerical) order; null, "": missing."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    encoded = column.unify_dictionaries().combine_chunks()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    names = pd.Index(encoded.dictionary.cast(pa.string()).to_pylist(), dtype="str")
    present = [name for name in names[np.unique(codes[codes >= 0])] if name]
    present.sort(key=int if all(NUMBER.fullmatch(name) for name in present) else None)
    kept = pd.Index(present, dtype="str")
    place = np.append(kept.get_indexer(names), -1)  # the last is for code -1
    return pd.Categorical.from_codes(place[codes], kept)


def numbered(codes: np.ndarray, names: Sequence[str]) -> pd.Categorical:
    """Return class numbers with their names; an image with another number has no class."""
    return pd.Categorical.from_codes(np.where((codes >= 0) & (codes < len(names)), codes, -1), names)


def repeated(names: Sequence[str], counts: Sequence[int]) -> pd.Categorical:
    """Repeat each name `counts` times, such as a folder's name for each of its images; in alphabetical order."""
    kept, codes = np.unique(names, return_inverse=True)
    return pd.Categorical.from_codes(np.repeat(codes, counts), pd.Index(kept, dtype="str"))


def rank_name(name: str, labels: pd.Categorical, taken: Collection[str]) -> str:
    """Return a rank's name: the column's, or `synset` if all classes are WordNet ids and that name is free."""
    is_synset = len(labels.categories) and all(WNID.fullmatch(text) for text in labels.categories)
    return SYNSET if is_synset and SYNSET not in taken else name


def is_text(kind) -> bool:
    """Return whether an Arrow type is text, dictionary-encoded or not."""
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    return types.is_string(kind) or types.is_large_string(kind)


def no_class(field, params: Samples, file: Path) -> None:
    """Raise a GranularityError if a rank is an Arrow field of floating-point numbers, which name no classes."""
    from pyarrow import types

    if types.is_floating(field.type) and field.name in params.ranks:
        fault = (
            f"contains floating-point numbers ({field.type}), which pandas makes of whole numbers if some are missing"
        )
        raise GranularityError(f"{file}: column '{field.name}' {fault}; write whole numbers or text, null for missing")
