"""Your own table (docs/datasets.md): one row per image, a column of paths and one per rank; and publishers' tables.

* `wilds`, iWildCam: metadata.csv, categories.csv (animals that occur in no split have y = 99999), train/*.jpg.
* `wilds`, Camelyon17: metadata.csv, patches/patient_004_node_4/patch_patient_004_node_4_x_3328_y_21792.png.
* `domainnet`: a list per domain and split, with lines such as "clipart/zebra/clipart_345_000001.jpg 344".
* `pacs`: the same, with lines such as "art_painting/dog/pic_001.jpg 1", in Dassl's layout, below images/ and splits/.

Sources: https://github.com/p-lambda/wilds, wilds/datasets/iwildcam_dataset.py and camelyon17_dataset.py,
dataset_preprocessing; http://ai.bu.edu/M3SDA/; https://github.com/KaiyangZhou/Dassl.pytorch, DATASETS.md.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from granularity.base.errors import GranularityError
from granularity.base.regular import check_regular, read_text
from granularity.data.columns import RESERVED
from granularity.stages.samples.options import LABELS, Condition, Samples
from granularity.stages.samples.source import Source, named

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

OPTIONS = {"labels": LABELS}
EXPECTED_IMAGES = {"wilds": 525_000, "domainnet": 586_575, "pacs": 9_991}
PATHS = ("path", "file", "filename", "image")  # the first that the table has is used
WILDS = ("metadata.csv", "categories.csv")
LISTS = {  # places of the list of a split (the first that exists), and the prefix of its paths
    "domainnet": (("{}.txt", "splits/{}.txt"), ""),
    "pacs": (("splits/{}_kfold.txt",), "images/"),
}
LINE = re.compile(r"(([^/]+)/([^/]+)/[^/]*[^/\s]) +[0-9]+\s*")
CENTERS = {  # Camelyon17's center and split -> WILDS' split
    **dict.fromkeys(("0 0", "3 0", "4 0"), "train"),
    **dict.fromkeys(("0 1", "3 1", "4 1"), "id_val"),
    **dict.fromkeys(("1 0", "1 1"), "val"),
    **dict.fromkeys(("2 0", "2 1"), "test"),
}


def check(samples: Samples, conditions: Sequence[Condition]) -> Iterator[str]:
    """Complain if `labels` is missing for `table`, or set for a source that knows its own files."""
    if samples.source != "table" and samples.labels is not None:
        yield f"labels: '{samples.source}' finds its own files; remove this key"
    elif samples.source == "table" and samples.labels is None:
        yield "labels: source 'table' needs the name of the CSV or Parquet table, relative to samples.root"


def files(samples: Samples) -> Iterator[Path]:
    if samples.source in LISTS:
        for place in LISTS[samples.source][0]:
            yield from (samples.root / place.format(split) for split in dict.fromkeys(named(samples).values()))
    else:
        names = [] if samples.labels is None else [samples.labels]
        yield from (samples.root / name for name in (WILDS if samples.source == "wilds" else names))


def folders(samples: Samples) -> tuple[Path, ...]:
    return ()  # the table names the images


def read(params: Samples, threads: int = 1) -> Source:
    """Return all images of the table, in its order. `sample_id` is the path."""
    import pandas as pd
    import pyarrow as pa

    from granularity.stages.samples.ranks import categorical

    if params.source == "table":
        file = params.root / params.labels
        check_regular(file)
        table = _own(file, params)
    else:
        frame = {"wilds": _wilds}.get(params.source, _lists)(params)
        file, table = params.root, pa.Table.from_pandas(frame, preserve_index=False)
    path, *names = _columns(table.column_names, file)
    paths = table[path].to_pandas()
    columns = {"sample_id": paths, "file": paths}
    for name in names:
        columns[name] = categorical(table[name])
        asked = name in (*params.ranks, "split", "distribution")
        odd = [text for text in columns[name].categories if "\n" in text and (asked or _rows_in(text, table))]
        if odd and file.suffix != ".parquet":
            raise GranularityError(f"{file}: the {name} {odd[0][:200]!r} spans several lines; is a quote missing?")
    if "distribution" in columns:
        columns["distribution"] = columns["distribution"].set_categories(["ID", "OOD"])
    return Source(pd.DataFrame(columns), table=file)


def _rows_in(text: str, table: pa.Table) -> bool:
    """Return whether a text may hold rows of its table: an unclosed quote swallows all up to the next quote."""
    return any(line.count(",") >= table.num_columns - 1 for line in text.splitlines()[1:])


def _own(file: Path, params: Samples) -> pa.Table:
    """Return the columns of paths and ranks; of a CSV file as text, with nothing missing (a class can be called NA)."""
    import pyarrow as pa
    import pyarrow.csv as csv
    import pyarrow.parquet as pq
    from pyarrow import types

    from granularity.stages.samples.ranks import is_text, no_class

    options = csv.ReadOptions(use_threads=False)  # otherwise messages do not name the row
    try:
        if file.suffix != ".parquet":
            with csv.open_csv(file, options) as stream:
                kept = _columns(stream.schema.names, file)
            kinds = {name: pa.dictionary(pa.int32(), pa.string()) for name in kept[1:]} | {kept[0]: pa.string()}
            convert = csv.ConvertOptions(column_types=kinds, include_columns=kept, strings_can_be_null=False)
            return csv.read_csv(file, options, convert_options=convert)
        schema = pq.read_schema(file)
        for field in schema:
            no_class(field, params, file)
        texts = [field.name for field in schema if is_text(field.type)]
        whole = [field.name for field in schema if types.is_integer(field.type) or types.is_boolean(field.type)]
        kept = _columns([name for name in schema.names if name in (*texts, *whole)], file)
        table = pq.ParquetFile(file, read_dictionary=[name for name in kept[1:] if name in texts]).read(columns=kept)
        table.validate(full=True)  # text may not be UTF-8
        return table.set_column(table.column_names.index(kept[0]), kept[0], table[kept[0]].cast(pa.string()))
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        problem = "is truncated or not a Parquet file" if file.suffix == ".parquet" else "is not a CSV table in UTF-8"
        raise GranularityError(f"{file}: {problem} ({' '.join(str(error).split())})") from None


def _columns(names: list[str], file: Path) -> list[str]:
    """Return the columns to read, with the column of paths first."""
    path = next((name for name in PATHS if name in names), None)
    if path is None:
        raise GranularityError(f"{file}: has no column of paths ({', '.join(PATHS)}); it has {names}")
    unread = {*PATHS, *RESERVED} - {"split", "distribution"}
    kept = [name for name in names if name not in unread and name and not name.startswith("__index_level_")]
    twice = [name for name in (path, *kept) if names.count(name) > 1]
    if twice:
        raise GranularityError(f"{file}: has two columns '{twice[0]}'")
    return [path, *kept]


def _wilds(params: Samples) -> pd.DataFrame:
    table = _csv(params.root / WILDS[0])
    try:
        if "filename" in table:  # iWildCam
            categories = _csv(params.root / WILDS[1])
            columns = {"split": table["split"], "path": "train/" + table["filename"]}
            columns["label"] = table["y"].map(dict(zip(categories["y"], categories["name"], strict=True)))
            columns["location"] = table["location_remapped"]
        else:
            slide = "patient_" + table["patient"] + "_node_" + table["node"]
            patch = "_x_" + table["x_coord"] + "_y_" + table["y_coord"] + ".png"
            columns = {"split": (table["center"] + " " + table["split"]).map(CENTERS)}
            columns |= {"path": "patches/" + slide + "/patch_" + slide + patch}
            columns |= {"label": table["tumor"].map({"0": "normal", "1": "tumor"}), "center": table["center"]}
    except KeyError as error:
        raise GranularityError(f"{params.root}: {' and '.join(WILDS)} have no column {error}") from None
    distribution = columns["split"].isin(["val", "test"]).map({True: "OOD", False: "ID"})
    return table.assign(**columns, distribution=distribution)[[*columns, "distribution"]]


def _csv(file: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        return pd.read_csv(io.StringIO(read_text(file, 256 << 20)), dtype="str", keep_default_na=False).fillna("")
    except ValueError as error:
        raise GranularityError(f"{file}: is not a CSV table ({str(error).strip()})") from None


def _lists(params: Samples) -> pd.DataFrame:
    """Return DomainNet's and PACS' lists, one for each named split; the domain trained on is ID."""
    import pandas as pd

    if params.train is None:
        raise GranularityError("samples.train: name the split to train on, such as real_train or photo_train")
    (places, above), rows = LISTS[params.source], []
    for split in dict.fromkeys(named(params).values()):
        candidates = [params.root / place.format(split) for place in places]
        file = next((file for file in candidates if file.is_file()), candidates[0])
        for number, line in enumerate(read_text(file).splitlines(), 1):
            match = LINE.fullmatch(line)
            if match is None:
                raise GranularityError(f"{file}: line {number}: {line[:100]!r} is not DOMAIN/LABEL/IMAGE and a number")
            path, domain, label = match.groups()
            shifted = domain != params.train.rpartition("_")[0]
            rows.append((above + path, domain, label, split, "OOD" if shifted else "ID"))
    return pd.DataFrame(rows, columns=["path", "domain", "label", "split", "distribution"], dtype="str")
