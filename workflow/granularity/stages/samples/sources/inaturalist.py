"""iNaturalist competition data sets of 2017, 2018, 2019 and 2021: one JSON file per split, in the style of COCO.

{"images": [{"id", "file_name", ...}], "annotations": [{"image_id", "category_id", ...}], "categories": [{"id", ...}]}:
a split is named after its file (`train_mini`, `val`, `train2018`), `file_name` is relative to root. Categories have
`name` and `supercategory` (2017), also `kingdom` to `genus` (2018; 2019 without `supercategory`), also
`specific_epithet` (2021).

Source: "Annotation Format" and "Data" in 2017/README.md to 2021/README.md of github.com/visipedia/inat_comp.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from granularity.base.errors import GranularityError
from granularity.base.regular import MissingError, read_text
from granularity.base.strict_json import parse_json
from granularity.stages.samples.options import LABELS, Samples
from granularity.stages.samples.source import Source

if TYPE_CHECKING:
    import pandas as pd

EXPECTED_IMAGES = {"inaturalist": 2_786_843, "train_mini": 600_000}  # including the 100,000 of val
OPTIONS = {"labels": LABELS}
LARGEST = 4 << 30  # bytes of an annotation file; the largest published one has 1.2 GB
TAXONOMY = ("kingdom", "phylum", "class", "order", "family", "genus", "specific_epithet")
FIELDS = ("kingdom", "supercategory", *TAXONOMY[1:])  # these are ranks, and `name` as `species`
MISSING = "NA"


def files(samples: Samples) -> Iterator[Path]:
    yield from (samples.root / f"{name}.json" for name in _splits(samples))
    if samples.labels is not None:
        yield samples.root / samples.labels


def folders(samples: Samples) -> tuple[Path, ...]:
    return ()  # the JSON files name the images


def _splits(params: Samples) -> list[str]:
    val = params.val or ("val" if (params.root / "val.json").exists() else None)  # None: the stage holds some out
    return [*dict.fromkeys(name for name in (params.train or "train", val, *params.extra_splits) if name)]


def read(params: Samples, threads: int = 1) -> Source:
    """Return the images of the requested splits, by path; `ranks` and their numbers of classes are in the notes."""
    import pandas as pd

    categories, first, parts = None, None, []
    if params.labels is not None:
        first = params.root / params.labels
        data = _load(first, params.root)
        categories = _checked(first, data.get("categories") if isinstance(data, dict) else data)
    for name in _splits(params):
        file = params.root / f"{name}.json"
        part, listed = _parse(file, params.root)
        categories, first = categories or listed, first or file
        if params.labels is None and listed != categories:
            raise GranularityError(f"{file}: its categories differ from {first}; use files of one data set")
        part["category"] = part["category"].map({category["id"]: row for row, category in enumerate(categories)})
        if part["category"].isna().any():
            raise GranularityError(f"{file}: annotations: a category_id is not among the categories")
        parts.append(part.assign(split=name))
    frame = pd.concat(parts, ignore_index=True)
    rows = frame["category"].astype(int).to_numpy()
    frame = frame.assign(sample_id=frame["file"])[["sample_id", "split", "file"]]
    table = ranks(categories)
    for rank in table:
        column = table[rank].cat
        frame[rank] = pd.Categorical.from_codes(column.codes.to_numpy()[rows], column.categories)
    return Source(frame, notes={"distinct": distinct(table), "pairs": pairs(categories)}, table=params.root)


def _parse(file: Path, root: Path) -> tuple[pd.DataFrame, list[dict]]:
    """Return the `file` and `category` of each image of an annotation file, in its order; and its categories."""
    import pandas as pd

    names, ids, image_ids, category_ids = [], array("q"), array("q"), array("q")

    def keep(item: dict) -> dict | None:
        # called for each object as soon as it is read: as dicts, 2.7 million images of 2021 would take 5 GB
        if "file_name" in item:
            names.append(item["file_name"])
            ids.append(item["id"])
        elif "image_id" in item:
            image_ids.append(item["image_id"])
            category_ids.append(item["category_id"])
        else:
            return item
        return None

    data = _load(file, root, keep)
    if not isinstance(data, dict) or not {"images", "categories"} <= data.keys() or not names:
        raise GranularityError(f"{file}: has no lists of images and categories; it is not an annotation file")
    if "annotations" not in data:
        raise GranularityError(f"{file}: has no annotations (those of the test set are not published)")
    images, annotated = pd.Index(ids), pd.Index(image_ids)
    twice = [*images[images.duplicated()], *annotated[annotated.duplicated()]]
    if odd := [*twice, *images.symmetric_difference(annotated)]:
        raise GranularityError(f"{file}: images and annotations are not one to one; see the image {odd[0]}")
    category = pd.Index(category_ids)[annotated.get_indexer(images)]
    part = pd.DataFrame({"file": pd.Series(names, dtype="str"), "category": category})
    return part, _checked(file, data["categories"])


def _checked(file: Path, categories: Any) -> list[dict]:
    if not isinstance(categories, list) or not categories or not all(isinstance(entry, dict) for entry in categories):
        raise GranularityError(f"{file}: categories: is not a list of categories")
    ids = [category.get("id") for category in categories]
    for category, key in zip(categories, ids, strict=True):
        texts = [category.get(field) for field in ("name", *FIELDS)]
        if not texts[0] or not all(text is None or isinstance(text, str) for text in texts):
            raise GranularityError(f"{file}: categories: id {key} has no name, or a rank that is not text")
        if not isinstance(key, int):
            raise GranularityError(f"{file}: categories: the id {key!r} is not a whole number")
    if len({*ids}) < len(ids):
        raise GranularityError(f"{file}: categories: an id appears twice")
    return categories


def _load(file: Path, root: Path, keep: Callable[[dict], dict | None] | None = None) -> Any:
    try:
        return parse_json(read_text(file, LARGEST), str(file), "JSON file", keep)
    except MissingError:
        names = sorted(path.stem for path in root.glob("*.json"))
        raise GranularityError(f"{file}: is missing; samples.train and val name annotation files: {names}") from None
    except (KeyError, TypeError, OverflowError) as error:  # from `keep`
        raise GranularityError(f"{file}: an image or annotation lacks a whole number as its id ({error})") from None


def ranks(categories: list[dict]) -> pd.DataFrame:
    """Return one row per category, with one categorical column per rank, in the list's order.

    Ranks are the FIELDS that exist, and `species`, the `name`; with the fields from `kingdom` down, also `phylum_path`
    to `specific_epithet_path`, the names joined by `/`, which keep equal names apart. An empty or `NA` field (orders of
    snails in 2018) is no class; in a path it is a step called NA.
    """
    import pandas as pd

    texts = pd.DataFrame(categories).reindex(columns=[*FIELDS, "name"]).dropna(axis="columns", how="all")
    texts = texts.astype("str").fillna(MISSING).replace("", MISSING)
    table = texts.mask(texts == MISSING).dropna(axis="columns", how="all").rename(columns={"name": "species"})
    path = texts.get(TAXONOMY[0])
    for field in TAXONOMY[1:]:
        if path is None or field not in texts:
            break
        path = path + "/" + texts[field]
        table[f"{field}_path"] = path
    for rank in table:
        codes, names = pd.factorize(table[rank])
        table[rank] = pd.Categorical.from_codes(codes, names)
    return table


def distinct(table: pd.DataFrame) -> dict[str, dict[str, int]]:
    """Return for each rank its numbers of distinct `names`, and of `paths`: names with all those above them."""
    counts = {}
    for rank in (rank for rank in table if not rank.endswith("_path")):
        above = "genus_path" if rank == "species" else f"{rank}_path"
        steps = table.loc[table[rank].notna(), [column for column in (above, rank) if column in table]]
        counts[rank] = {"names": int(table[rank].nunique()), "paths": len(steps.drop_duplicates())}
    return counts


def pairs(categories: list[dict]) -> dict[str, int]:
    """Return the number of distinct pairs of values of any two text fields, to explain published counts."""
    import pandas as pd

    texts = pd.DataFrame(categories).select_dtypes(exclude="number").drop(columns="image_dir_name", errors="ignore")
    return {f"{one} + {other}": len(texts[[one, other]].drop_duplicates()) for one, other in combinations(texts, 2)}
