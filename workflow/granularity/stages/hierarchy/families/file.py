"""Labels from a file: corrections of another label space, or all labels."""

import hashlib
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, model_validator

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.base.regular import read_regular
from granularity.base.section import Section
from granularity.stages.hierarchy.labels import Frame, Labels, Training, labels_of
from granularity.stages.hierarchy.space import Space
from granularity.store.artifact import readable

LARGEST = 2**30  # bytes
COLUMNS = ["sample_id", "label"]


class LabelFile(Section):
    path: Path = Field(description="A CSV or Parquet table with the columns sample_id and label.")
    of: str | None = Field(
        None, description="The label space that the file corrects (null: the file has all training images)."
    )
    name: str | None = Field(None, description="Name of the label space (null: file- and the name of the file).")

    @model_validator(mode="before")
    @classmethod
    def _by_path(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str | Path) else value


OPTION = (
    list[LabelFile],
    Field([], description="Labels from files: a path, or {path: labels.csv, of: the label space corrected, name}."),
)
WORDS, STYLE = "labels from a file", ("#37474f", "h")


def spaces(option: list[LabelFile], samples: Any) -> Iterator[Space]:
    for file in option:
        params = {"path": str(file.path), "sha256": hashlib.sha256(_read(file.path)).hexdigest()}
        yield Space(file.name or f"file-{file.path.stem}", "file", params | ({"of": file.of} if file.of else {}))


def labels(
    training: Training, path: str, sha256: str, of: dict[str, Any] | None = None, clusterings: Sequence[str] = ()
) -> Labels:
    """Return the labels of the file; if it corrects another label space, images not in it keep their labels there."""
    import pandas as pd

    ids = pd.Index(training.frame["sample_id"])
    table = checked(path, sha256, ids, of is not None)
    row = ids.get_indexer(table["sample_id"])
    names, codes = np.unique(table["label"].to_numpy(dtype=str), return_inverse=True)
    if of is None:
        base, base_names = np.empty(len(ids), dtype=np.int64), []
    else:
        corrected = labels_of(extensions.find("family", of["family"]), training, of["params"])
        if corrected.offsets is not None:
            raise GranularityError(
                f"{path}: corrects a label space with several labels per image, but a file has only one"
            )
        base, base_names = corrected.values.astype(np.int64), list(map(str, corrected.names))
        numbers = {str(number) for number in range(len(base_names))} - {*base_names}
        if wrong := sorted(numbers & {*names.tolist()}, key=int):
            known = f"'{base_names[int(wrong[0])]}'"
            raise GranularityError(f"{path}: '{wrong[0]}' is the number of a class, whose name is {known}; write names")
    all_names = [*base_names, *(name for name in names.tolist() if name not in set(base_names))]
    number = {name: i for i, name in reversed(list(enumerate(all_names)))}
    base[row] = np.array([number[name] for name in names.tolist()], dtype=np.int64)[codes]
    kept, values = np.unique(base, return_inverse=True)
    return Labels(values.astype(np.int32), [all_names[i] for i in kept], notes={"from_file": len(table)})


def checked(path: str, sha256: str, training: Any | None, corrects: bool) -> Frame:
    """Check a label file and return its table; `training`: ids of the training images (None: not known yet)."""
    data = _read(path)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise GranularityError(f"{path}: has changed since the run was planned; run snakemake again")
    table = _table(Path(path), data)
    ids = table["sample_id"]
    _refuse(path, "images that appear twice", ids[ids.duplicated()])
    _refuse(path, "images without a label", ids[table["label"] == ""])
    if training is not None:
        _refuse(path, "images not of the training split of this draw (delete their rows)", ids[~ids.isin(training)])
        problem = "training images are missing (set `of` if the file corrects another label space)"
        _refuse(path, problem, () if corrects else training[~training.isin(ids)])
    return table


def _read(path: str | Path) -> bytes:
    try:
        return read_regular(path, LARGEST)
    except GranularityError as error:
        raise GranularityError(f"label_spaces.file: {error}") from None


def _table(file: Path, data: bytes) -> Frame:
    """Return the two columns as text."""
    import pandas as pd
    import pyarrow.parquet as pq

    with readable(file, "a CSV or Parquet table with the columns sample_id and label"):
        if file.suffix == ".parquet":
            table = pq.ParquetFile(io.BytesIO(data)).read(columns=COLUMNS).to_pandas()[COLUMNS]
            missing = table.isna()
            return table.astype("str").mask(missing, "")
        table = pd.read_csv(io.BytesIO(data), usecols=COLUMNS, dtype="str", keep_default_na=False, encoding="utf-8-sig")
        return table.fillna("")


def _refuse(path: str, what: str, ids: Iterable[str]) -> None:
    if images := list(dict.fromkeys(ids)):
        raise GranularityError(f"{path}: {what}: {len(images)}, such as {', '.join(map(repr, images[:3]))}")
