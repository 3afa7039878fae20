"""WILDS' iWildCam and Camelyon17: the same classes, seen where the network was trained (ID) and elsewhere (OOD).

iwildcam_v2.0/      metadata.csv, categories.csv, train/*.jpg (all splits)
                    ranks `label` (animals) and `location` (camera traps)
camelyon17_v1.0/    metadata.csv, patches/patient_004_node_4/patch_patient_004_node_4_x_3328_y_21792.png
                    ranks `label` (normal, tumor) and `center` (hospitals, numbered from 0)

Splits: train, id_val, id_test (iWildCam only) are ID; val and test are OOD. `samples.root` is the folder that holds
metadata.csv; its columns tell which of the two it is.

Layout: https://github.com/p-lambda/wilds, wilds/datasets/iwildcam_dataset.py and camelyon17_dataset.py;
dataset_preprocessing/iwildcam/create_split.py (categories.csv: animals that occur in no split have y = 99999).
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from granularity.base.errors import GranularityError
from granularity.base.regular import read_regular
from granularity.stages.samples.options import Samples
from granularity.stages.samples.source import Source

if TYPE_CHECKING:
    import pandas as pd

IMAGES = 525_000
METADATA, CATEGORIES = "metadata.csv", "categories.csv"
COLUMNS = {
    "iWildCam": ["split", "location_remapped", "y", "filename"],
    "Camelyon17": ["patient", "node", "x_coord", "y_coord", "tumor", "center", "split"],
}
SPLITS = ("train", "val", "test", "id_val", "id_test")
SHIFTED = ("val", "test")
LARGEST = 256 << 20  # bytes of a table; the largest that is published has 60 MB
UNUSED = "99999"
VAL_CENTER, TEST_CENTER = "1", "2"


def files(samples: Samples) -> Iterator[Path]:
    yield from (samples.root / METADATA, samples.root / CATEGORIES)


def folders(samples: Samples) -> tuple[Path, ...]:
    return ()  # metadata.csv names the images


def read(params: Samples, threads: int = 1) -> Source:
    """All images, in the order of metadata.csv; `sample_id` is the file name.

    Raises:
        GranularityError: a missing table or column, a value that the publisher's have not, a class without a name, or
            an image that is there twice.
    """
    import numpy as np
    import pandas as pd

    file = params.root / METADATA
    table = _read(file)
    kind = next((kind for kind, columns in COLUMNS.items() if {*columns} <= {*table}), None)
    if kind is None:
        raise GranularityError(
            f"{file}: lacks columns of WILDS' metadata; it has {[*table]}, but iWildCam's has {COLUMNS['iWildCam']} "
            f"and Camelyon17's {COLUMNS['Camelyon17']}"
        )
    frame = (_iwildcam if kind == "iWildCam" else _camelyon17)(table, file)
    twice = frame["sample_id"].duplicated()
    if twice.any():
        row = int(np.argmax(twice))
        raise GranularityError(f"{file}: row {row + 1}: '{frame['sample_id'][row]}' stands in an earlier row already")
    shifted = frame["split"].isin(SHIFTED)
    frame.insert(2, "distribution", pd.Categorical.from_codes(shifted.astype(int), ["ID", "OOD"]))
    return Source(frame, notes={"wilds": kind})


def _iwildcam(table: pd.DataFrame, file: Path) -> pd.DataFrame:
    import pandas as pd

    from granularity.stages.samples.formats.columns import ordered

    _check(table, "filename", r"[^/\0]*\.\w+", file)
    _check(table, "location_remapped", r"\d+", file)
    locations = ordered(table["location_remapped"].unique())
    return pd.DataFrame(
        {
            "sample_id": table["filename"],
            "split": _classes(table, "split", {name: name for name in SPLITS}, file),
            "file": "train/" + table["filename"],
            "label": _classes(table, "y", _animals(file.with_name(CATEGORIES)), file),
            "location": _classes(table, "location_remapped", {name: name for name in locations}, file),
        }
    )


def _animals(file: Path) -> dict[str, str]:
    """The name of each number in column y."""
    from granularity.stages.samples.formats.columns import ordered

    table = _read(file)
    if not {"y", "name"} <= {*table}:
        raise GranularityError(f"{file}: needs the columns y and name; it has {[*table]}")
    _check(table, "y", r"\d+", file)
    _check(table, "name", ".+", file)
    table = table[table["y"] != UNUSED]
    for column in ("y", "name"):
        if table[column].duplicated().any():
            name = table[column][table[column].duplicated()].iloc[0]
            raise GranularityError(f"{file}: column {column} has '{name}' twice")
    names = dict(zip(table["y"], table["name"], strict=True))
    return {number: names[number] for number in ordered(names)}


def _camelyon17(table: pd.DataFrame, file: Path) -> pd.DataFrame:
    import pandas as pd

    for column in ("patient", "node", "x_coord", "y_coord"):
        _check(table, column, r"\d+", file)
    centers = {name: name for name in "01234"}
    center = _classes(table, "center", centers, file)
    split = _classes(table, "split", {"0": "train", "1": "id_val"}, file).set_categories(SPLITS[:4])
    split[center == VAL_CENTER] = "val"
    split[center == TEST_CENTER] = "test"
    slide = "patient_" + table["patient"] + "_node_" + table["node"]
    name = "patch_" + slide + "_x_" + table["x_coord"] + "_y_" + table["y_coord"] + ".png"
    return pd.DataFrame(
        {
            "sample_id": name,
            "split": split,
            "file": "patches/" + slide + "/" + name,
            "label": _classes(table, "tumor", {"0": "normal", "1": "tumor"}, file),
            "center": center,
        }
    )


def _read(file: Path) -> pd.DataFrame:
    """Read a CSV table as text; a missing value is empty."""
    import pandas as pd

    data = io.BytesIO(read_regular(file, LARGEST))
    try:
        table = pd.read_csv(data, dtype="str", keep_default_na=False).fillna("")
    except ValueError as error:
        raise GranularityError(f"{file}: is no CSV table in UTF-8 ({' '.join(str(error).split())})") from None
    if not len(table):
        raise GranularityError(f"{file}: has no rows")
    return table


def _check(table: pd.DataFrame, column: str, pattern: str, file: Path) -> None:
    import numpy as np

    good = table[column].str.fullmatch(pattern)
    if not good.all():
        row = int(np.argmin(good))
        raise GranularityError(f"{file}: row {row + 1}: {column} is {table[column].iloc[row]!r}")


def _classes(table: pd.DataFrame, column: str, names: dict[str, str], file: Path) -> pd.Categorical:
    """A column of known values, by the names of these."""
    import numpy as np
    import pandas as pd

    codes = pd.Index([*names], dtype="str").get_indexer(table[column])
    if (codes < 0).any():
        row = int(np.argmax(codes < 0))
        known = f"none of {[*names]}" if len(names) < 10 else f"none of the {len(names)} that there are"
        raise GranularityError(f"{file}: row {row + 1}: {column} is {table[column].iloc[row]!r}, {known}")
    return pd.Categorical.from_codes(codes, [*names.values()])
