"""The accuracy of a network's own answers: the class of its head's largest output, against the target.

An output of a head that was pretrained on other labels answers with the target class that its own class lies within.
Keys: `error` (top-1, percent), `macro_f1` (percent), `images` (how many count); `error_any`, against several right
labels; and, as an array in the order of the target's classes, `error_by_class`. On the split `train` these are the
training accuracy, of images as evaluation sees them. What has no head, such as the embedding, has no row.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from granularity.base.errors import GranularityError
from granularity.base.section import Section

if TYPE_CHECKING:
    import numpy as np

    from granularity.learning.dataset import LabelSets
    from granularity.stages.measure.view import View


class Options(Section):
    classes: list[str] | None = Field(
        None,
        min_length=1,
        description="Only images of these target classes, and answers among them alone, as for a test set that has a "
        "part of the classes (null: all).",
    )
    several: Path | None = Field(
        None,
        description="A Parquet file of images with several right labels: `sample_id` and `label`, a list of target "
        "classes. Any of them is right; an image that is not there, or has none, does not count.",
    )
    by_class: bool = Field(False, description="Whether to give the error of each class as well.")


def files(options: Options) -> list[str]:
    return [] if options.several is None else [str(options.several)]


def measure(view: View, options: Options, seed: int) -> Iterator[tuple[str, str, Any]]:
    import numpy as np

    from granularity.learning.evaluation import error_by_class, macro_f1, percent_wrong

    if view.answers is None:
        return
    names, among, chosen = view.data.target_names, slice(None), None
    if options.classes is not None:
        chosen = _numbers(options.classes, names)
        if (chosen < 0).any():
            unknown = options.classes[int((chosen < 0).argmax())]
            raise GranularityError(f"classes: '{unknown}' is no class of the target in the training split")
        among = np.flatnonzero(np.isin(view.answers, chosen))
        if not len(among):
            raise GranularityError(f"classes: the network of {view.about['run']} answers with none of them")
    for split in view.splits:
        rows = view.rows(split)
        # Classes, not outputs: those of half a million classes would fill the memory.
        best = view.predict(split, lambda images: view.network(images)[:, among].argmax(1)).numpy()
        predicted, truth = view.answers[among][best], view.data.target[rows]
        counted = np.ones(len(rows), dtype=bool) if chosen is None else np.isin(truth, chosen)
        yield split, "error", percent_wrong(predicted[counted], truth[counted])
        yield split, "macro_f1", macro_f1(predicted[counted], truth[counted])
        yield split, "images", int(counted.sum())
        if options.by_class:
            yield split, "error_by_class", error_by_class(predicted[counted], truth[counted], len(names))
        if options.several is not None:
            there, right = _several(options.several, view.data.table["sample_id"].iloc[rows], names)
            yield split, "error_any", percent_wrong(predicted[there], right)


def _numbers(classes: list[str], names: np.ndarray) -> np.ndarray:
    import pandas as pd

    return pd.Index(names).get_indexer(classes)


def _several(file: Path, ids: Any, names: np.ndarray) -> tuple[np.ndarray, LabelSets]:
    """Which of some images have right labels, bool [N], and those of them; -1 is a class that training never saw."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from granularity.learning.dataset import LabelSets
    from granularity.store.artifacts import readable

    with readable(file, "a Parquet table of sample_id and label"):
        table = pq.ParquetFile(file).read(columns=["sample_id", "label"])
        labels = table["label"].cast(pa.list_(pa.string())).to_pylist()
        known = dict(zip(table["sample_id"].to_pylist(), labels, strict=True))
    found = [known.get(one) or [] for one in ids]
    there = np.array([bool(labels) for labels in found], dtype=bool)
    values = _numbers([name for labels in found for name in labels], names).astype(np.int32)
    if not (values >= 0).any():
        raise GranularityError(f"{file}: names no image of this split with a class of the target")
    counts = [len(labels) for labels in found if labels]
    return there, LabelSets(values, np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]))
