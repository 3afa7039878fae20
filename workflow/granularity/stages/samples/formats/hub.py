"""Data sets of the Hugging Face hub: their Parquet files, and what their README.md says of classes.

Layout: https://github.com/huggingface/datasets, src/datasets/data_files.py (names of files) and features/features.py
(`_to_yaml_list`: the README.md, which numbers the names of classes).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from granularity.base import strict_yaml
from granularity.base.errors import GranularityError
from granularity.base.regular import MissingError, read_text

SHARD = re.compile(r"(?P<split>.+)-(?P<number>\d{4,})-of-(?P<total>\d{4,})(-[0-9a-f]{16})?")
README = "README.md"
CONVERTED = "refs/convert/parquet"  # the revision with the hub's own conversions of other formats


class Shard(NamedTuple):
    """One Parquet file of a split."""

    split: str
    number: int
    total: int | None  # files of the split, where the name says it
    folder: Path  # of the whole data set
    file: Path


def download(hub: str) -> Path:
    """The Parquet files of a data set, ORG/NAME or ORG/NAME@REVISION, in huggingface_hub's cache.

    Of a data set in another format, the hub's own conversion is taken.

    Returns:
        The folder of these files.

    Raises:
        GranularityError: no such data set or revision, no access, no network, or no Parquet files.
    """
    from huggingface_hub import snapshot_download

    name, _, revision = hub.partition("@")
    files = ["*.parquet", README]
    for tried in (revision,) if revision else (None, CONVERTED):
        try:
            root = Path(snapshot_download(name, repo_type="dataset", revision=tried, allow_patterns=files))
        except Exception as error:  # of half a dozen libraries beneath it
            reason = " ".join(str(error).split()) or type(error).__name__
            raise GranularityError(f"samples.hub: {hub}: cannot be had ({reason[:300]})") from None
        if any(root.rglob("*.parquet")):
            return root
    raise GranularityError(f"samples.hub: {hub}: holds no Parquet files")


def shards(root: Path) -> list[Shard]:
    """The Parquet files of a data set, by split and number.

    Raises:
        GranularityError: there are none, or those of several data sets.
    """
    found = []
    for file in (file for pattern in ("*.parquet", "*/*.parquet", "*/*/*.parquet") for file in root.glob(pattern)):
        if any(part.startswith(".") for part in file.relative_to(root).parts):
            continue
        if any("\ud800" <= character <= "\udfff" for character in str(file)):  # Python's stand-ins for such bytes
            raise GranularityError(f"{str(file)!r}: its name is not UTF-8; rename it")
        match = SHARD.fullmatch(file.stem)
        if match:
            found.append(Shard(match["split"], int(match["number"]), int(match["total"]), file.parent, file))
        elif file.stem.isdecimal():
            found.append(Shard(file.parent.name, int(file.stem), None, file.parent.parent, file))
        else:
            found.append(Shard(file.stem, 0, 1, file.parent, file))
    if not found:
        raise GranularityError(
            f"{root}: holds no Parquet files (train.parquet, data/train-00000-of-00002.parquet, ...)"
        )
    folders = sorted({str(shard.folder) for shard in found})
    if len(folders) > 1:
        raise GranularityError(f"{root}: holds several data sets; set samples.root to one of their folders, {folders}")
    return sorted(found, key=lambda shard: (shard.split, shard.number, shard.file))


def check_complete(split: list[Shard]) -> None:
    """Stop where a file of a split is missing, or there are those of two versions."""
    total = split[-1].total or len(split)
    missing = {*range(total)} - {shard.number for shard in split}
    if missing:
        raise GranularityError(
            f"{split[0].file.parent}: split '{split[0].split}' lacks file number {min(missing)} of {total} (from 0); "
            "download it again"
        )
    if len(split) > total or len({shard.total for shard in split}) > 1:
        raise GranularityError(
            f"{split[-1].file}: split '{split[0].split}' has files of two versions; remove those of one"
        )


def described(root: Path, config: str) -> dict[str, Any]:
    """The class names of each label column according to the README.md; none, if it does not say.

    They stand in its YAML header, for one data set or for several by their name:
    dataset_info: {features: [{name: label, dtype: {class_label: {names: {'0': cat, '1': dog}}}}]}

    Raises:
        GranularityError: the README.md is no text file, or its header no YAML, or one with aliases, or too large.
    """
    try:
        header = re.match(r"---[^\S\n]*\n(.*?)\n---", read_text(root / README), re.DOTALL)
    except MissingError:
        return {}
    if header is None or "dataset_info" not in header[1]:
        return {}
    values = strict_yaml.parse(header[1], str(root / README), aliases=False)
    try:
        info = values["dataset_info"]
        if isinstance(info, list):
            info = next(one for one in info if len(info) == 1 or one["config_name"] == config)
        kinds = {one["name"]: one.get("dtype") for one in info["features"]}
        return {name: kind["class_label"]["names"] for name, kind in kinds.items() if isinstance(kind, dict)}
    except (LookupError, TypeError, AttributeError, StopIteration):
        return {}
