"""Looking at every image before it is used (`samples.check_images`); docs/datasets.md says what the findings are."""

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from granularity.base.errors import GranularityError, printable
from granularity.base.progress import say, track
from granularity.base.regular import MissingError
from granularity.data.columns import PLACE
from granularity.data.decoding import ImageError, image_errors, open_image, upright
from granularity.data.images import Reader
from granularity.stages.samples.options import Samples

ERRORS = ("missing", "unreadable", "empty", "truncated", "corrupt", "bomb", "in_both_splits")
NOTES = ("not_ascii", "cmyk", "palette", "sixteen_bit", "alpha", "animated", "rotated", "duplicate")
FINDINGS = (*ERRORS, *NOTES, "conflicting_duplicate")
CHUNK = 4096  # images between two reports of progress
ORIENTATION = 0x0112  # EXIF

Finding = tuple[int, str, str]  # row of the table, name, detail


def in_chunks(frame: pd.DataFrame, work: Callable[[tuple], Any], threads: int, what: str) -> Iterator[tuple[int, list]]:
    """What several threads find out about each image, given its place: chunk by chunk, with the row it begins at."""
    starts = range(0, len(frame), CHUNK)
    with ThreadPoolExecutor(threads) as pool:
        for start in track(starts, len(starts), what, f"chunks of {CHUNK} images"):
            part = frame.iloc[start : start + CHUNK]
            yield start, list(pool.map(work, zip(*(part[column].tolist() for column in PLACE), strict=True)))


def run(
    frame: pd.DataFrame, params: Samples, reader: Reader, threads: int = 1, show: bool = False
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read and decode every image of a sample table, numbered from 0; `bytes` and `sha256` are filled in.

    Returns the table without images that have errors; and the findings, in the order of the table: `sample_id`, `file`,
    `finding`, `severity` (error or note), `detail`. With `show`, each is logged; else errors that end the stage. Raises
    GranularityError: with `fail`, an image has an error; with `skip`, all images of a split have.
    """
    findings: list[Finding] = []
    sizes, digests = np.zeros(len(frame), dtype=np.int64), np.zeros((len(frame), 32), dtype=np.uint8)
    for start, looks in in_chunks(frame, lambda place: look(reader, *place), threads, "checking"):
        for row, (data, found) in enumerate(looks, start):
            sizes[row], digests[row] = data
            findings += [(row, name, detail) for name, detail in found]
    for row in np.flatnonzero(~frame["sample_id"].astype("str").str.isascii()):
        findings.append((int(row), "not_ascii", "its name has letters beyond ASCII"))
    bad = np.isin(np.arange(len(frame)), [row for row, name, _ in findings if name in ERRORS])
    copies = list(_copies(frame, digests, params.ranks[-1], np.flatnonzero(~bad)))
    bad[[row for row, name, _ in copies if name in ERRORS]] = True
    found = _table(frame, findings + copies)
    errors = found[found["severity"] == "error"]
    if show or params.check_images == "fail":
        for line in _lines(found if show else errors):
            say(line)
    counts = ", ".join(f"{count} {name}" for name, count in counted(found).items())
    say(f"checked {len(frame)} images: {counts or 'nothing found'}")
    if params.check_images == "fail" and len(errors):
        first = "; ".join(line.removeprefix("error: ") for line in _lines(errors.iloc[:3]))
        what = f"{len(errors)} of {len(frame)} images cannot be used: {first}{'; ...' * (len(errors) > 3)}"
        remedy = "The log names each of them. Repair or remove them, or set samples.check_images to skip"
        raise GranularityError(f"samples.check_images: {what}. {remedy}")
    frame["bytes"] = sizes
    texts = (digest.tobytes().hex() if params.checksums == "content" else None for digest in digests)
    frame["sha256"] = pd.array(list(texts), "str")
    kept = frame[~bad]
    if len(errors):
        say(f"left out {len(errors)} of {len(frame)} images")
    for split in frame["split"].unique():
        if not (kept["split"] == split).any():
            raise GranularityError(f"samples.check_images: no image of the split '{split}' can be used")
    return kept, found


def counted(findings: pd.DataFrame) -> dict[str, int]:
    """Number of images with each finding that occurs."""
    counts = findings["finding"].value_counts(sort=False)
    return {name: int(count) for name, count in counts.items() if count}


def look(reader: Reader, *place) -> tuple[tuple[int, np.ndarray], list[tuple[str, str]]]:
    """Read and decode one image: its size in bytes and SHA-256 (uint8 [32]); its findings, each with a detail."""
    data, found = b"", []
    try:
        data = reader.read(*place)
        image = open_image(data)
        found = list(_notes(image))  # before it is decoded: Pillow keeps some of this only until then
        upright(image, "RGB")
        if image.format == "PNG":  # the one format with checksums, which Pillow does not look at to decode
            with image_errors():
                open_image(data).verify()
        if _has_frames(image):
            found.append(("animated", "the first of its frames is used"))
    except MissingError as error:
        found = [("missing", str(error))]
    except ImageError as error:
        found = [(error.finding, str(error))]
    except (GranularityError, OSError, ValueError, MemoryError) as error:
        found = [("unreadable", " ".join(str(error).split()))]
    return (len(data), np.frombuffer(hashlib.sha256(data).digest(), np.uint8)), found


def _notes(image: Image.Image) -> Iterator[tuple[str, str]]:
    mode = f"Pillow's mode {image.mode}"
    if image.mode == "CMYK":
        yield "cmyk", "converted by formula, without its colour profile"
    if image.mode in ("P", "PA"):
        yield "palette", mode
    if image.mode[0] in "IF" or ";16" in repr(image.tile):  # of RGB with 16 bits, Pillow keeps the upper 8
        yield "sixteen_bit", f"{mode}, of more than 8 bits a channel"
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        yield "alpha", f"{mode}: what is transparent shows its hidden colour"
    with image_errors():
        orientation = image.getexif().get(ORIENTATION, 1)
    if orientation in range(2, 9):
        yield "rotated", f"EXIF orientation {orientation}: it is turned upright"


def _has_frames(image: Image.Image) -> bool:
    with contextlib.suppress(Exception):  # a second frame that is broken is not used
        return bool(getattr(image, "is_animated", False))
    return True


def _copies(frame: pd.DataFrame, digests: np.ndarray, rank: str, usable: np.ndarray) -> Iterator[Finding]:
    parts = pd.DataFrame(digests.view(np.uint64)[usable], index=usable)
    parts = parts[parts.duplicated(keep=False)]
    ids, labels, split = frame["sample_id"], frame[rank], frame["split"].astype("str").to_numpy()
    for _, copies in parts.groupby(list(parts.columns), sort=False):
        firsts = {split[row]: row for row in copies.index[::-1]}
        for row in copies.index:
            first, train = firsts[split[row]], firsts.get("train")
            if split[row] != "train" and train is not None:
                yield row, "in_both_splits", f"the same bytes as the training image {ids.iat[train]}"
            elif row != first:
                name, detail = "duplicate", f"of the same {rank}"
                if labels.iat[row] != labels.iat[first]:
                    name, detail = f"conflicting_{name}", f"whose {rank} is {labels.iat[first]}, not {labels.iat[row]}"
                yield row, name, f"the same bytes as {ids.iat[first]}, {detail}"


def _table(frame: pd.DataFrame, findings: list[Finding]) -> pd.DataFrame:
    findings = sorted(findings, key=lambda finding: (finding[0], FINDINGS.index(finding[1])))
    rows, names, details = zip(*findings, strict=True) if findings else ((), (), ())
    columns = {name: frame[name].astype("str").array.take(np.array(rows, dtype=int)) for name in ("sample_id", "file")}
    severity = pd.Categorical(["error" if name in ERRORS else "note" for name in names], ("error", "note"))
    columns |= {"finding": pd.Categorical(names, FINDINGS), "severity": severity, "detail": pd.array(details, "str")}
    return pd.DataFrame(columns)


def _lines(found: pd.DataFrame) -> Iterator[str]:
    for sample_id, file, finding, severity, detail in found.itertuples(index=False):
        where = sample_id if sample_id == file else f"{sample_id} (in {file})"
        yield printable(f"{severity}: {finding}: {where}: {detail}")  # a name can hold a line break
