"""Checks of every image before it is used (`samples.check_images`); docs/datasets.md explains the findings."""

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
from granularity.data.decoding import ImageError, image_errors, open_image, orientation, upright
from granularity.data.images import Reader
from granularity.stages.samples.options import Samples

ERRORS = ("missing", "unreadable", "empty", "truncated", "corrupt", "bomb", "in_both_splits", "untrained_class")
NOTES = ("not_ascii", "cmyk", "palette", "sixteen_bit", "narrow_range", "alpha", "animated", "rotated", "duplicate")
FINDINGS = (*ERRORS, *NOTES, "conflicting_duplicate", "untrained_subclass", "similar_names")
CHUNK = 4096  # images between two progress reports

Finding = tuple[int, str, str]  # row of the table, name, detail


def in_chunks(frame: pd.DataFrame, work: Callable[[tuple], Any], threads: int, what: str) -> Iterator[tuple[int, list]]:
    """Yield what several threads compute for each image from its place: chunk by chunk, with the chunk's first row."""
    starts = range(0, len(frame), CHUNK)
    with ThreadPoolExecutor(threads) as pool:
        for start in track(starts, len(starts), what, f"chunks of {CHUNK} images"):
            part = frame.iloc[start : start + CHUNK]
            yield start, list(pool.map(work, zip(*(part[column].tolist() for column in PLACE), strict=True)))


def run(
    frame: pd.DataFrame, params: Samples, reader: Reader, threads: int = 1, show: bool = False
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read and decode every image of a sample table, numbered from 0; fill in `bytes` and `sha256`.

    Returns the table without images that have errors; and the findings, in the order of the table: `sample_id`, `file`,
    `finding`, `severity` (error or note), `detail`. With `show`, all are logged; otherwise only errors that end the
    stage. Raises GranularityError: with `fail`, an image has an error; with `skip`, all images of a split have one.
    """
    findings: list[Finding] = []
    sizes, digests = np.zeros(len(frame), dtype=np.int64), np.zeros((2, len(frame), 32), dtype=np.uint8)
    for start, looks in in_chunks(frame, lambda place: look(reader, *place), threads, "checking"):
        for row, (size, hashes, report) in enumerate(looks, start):
            sizes[row], digests[:, row] = size, hashes
            findings += [(row, name, detail) for name, detail in report]
    for row in np.flatnonzero(~frame["sample_id"].astype("str").str.isascii()):
        findings.append((int(row), "not_ascii", "its name has letters beyond ASCII"))
    bad = np.isin(np.arange(len(frame)), [row for row, name, _ in findings if name in ERRORS])
    for more in (copies(frame, *digests, params.ranks[-1], np.flatnonzero(~bad)), of_classes(frame, params, ~bad)):
        findings += (more := list(more))
        bad[[row for row, name, _ in more if name in ERRORS]] = True
    report = table(frame, findings)
    errors = report[report["severity"] == "error"]
    if show or params.check_images == "fail":
        for line in _lines(report if show else errors):
            say(line)
    counts = ", ".join(f"{count} {name}" for name, count in counted(report).items())
    say(f"checked {len(frame)} images: {counts or 'nothing found'}")
    if params.check_images == "fail" and len(errors):
        first = "; ".join(line.removeprefix("error: ") for line in _lines(errors.iloc[:3]))
        problem = f"{len(errors)} of {len(frame)} images cannot be used: {first}{'; ...' * (len(errors) > 3)}"
        remedy = "The log lists them all. Repair or remove them, or set samples.check_images to skip"
        raise GranularityError(f"samples.check_images: {problem}. {remedy}")
    frame["bytes"] = sizes
    texts = (digest.tobytes().hex() if params.checksums == "content" else None for digest in digests[0])
    frame["sha256"] = pd.array(list(texts), "str")
    kept = frame[~bad]
    if len(errors):
        say(f"left out {bad.sum()} of {len(frame)} images")
    for split in frame["split"].unique():
        if not (kept["split"] == split).any():
            raise GranularityError(f"samples.check_images: no image of the split '{split}' can be used")
    return kept, report


def unchecked(frame: pd.DataFrame, params: Samples) -> pd.DataFrame:
    """Return the findings, as :func:`run` does, that need no decoding: equal files, and classes.

    No image is left out because of them. They are logged, at most three of each kind.
    """
    findings = list(of_classes(frame, params, np.ones(len(frame), dtype=bool)))
    if frame["sha256"].notna().all():
        files = np.frombuffer(bytes.fromhex("".join(frame["sha256"])), np.uint8).reshape(-1, 32)
        findings += copies(frame, files, files, params.ranks[-1], np.arange(len(frame)))
    report = table(frame, findings)
    for name, count in counted(report).items():
        for line in _lines(report[report["finding"] == name].iloc[:3]):
            say(line)
        if count > 3:
            say(f"... and {count - 3} more of {name}; findings.parquet has all")
    return report


def counted(findings: pd.DataFrame) -> dict[str, int]:
    """Return the number of images with each finding that occurs."""
    counts = findings["finding"].value_counts(sort=False)
    return {name: int(count) for name, count in counts.items() if count}


def look(reader: Reader, *place) -> tuple[int, np.ndarray, list[tuple[str, str]]]:
    """Read and decode one image. Return its size in bytes; the SHA-256 of its bytes and of its upright pixels in RGB
    (uint8 [2, 32]; equal if it cannot be decoded); and its findings, each with a detail.
    """
    data, pixels, notes = b"", None, []
    try:
        data = reader.read(*place)
        image = open_image(data)
        notes = list(_notes(image))  # before decoding, which makes Pillow forget some of this
        pixels = upright(image, "RGB")
        if image.format == "PNG":  # the only format with checksums, which Pillow ignores when decoding
            with image_errors():
                open_image(data).verify()
        if _has_frames(image):
            notes.append(("animated", "the first of its frames is used"))
        largest = max(high for _, high in pixels.getextrema())
        if "sixteen_bit" in dict(notes) and largest < 64:
            notes.append(
                ("narrow_range", f"no value is above {largest} of 255: does it use at most 14 of its 16 bits?")
            )
    except MissingError as error:
        notes = [("missing", str(error))]
    except ImageError as error:
        notes = [(error.finding, str(error))]
    except (GranularityError, OSError, ValueError, MemoryError) as error:
        notes = [("unreadable", " ".join(str(error).split()))]
    file = hashlib.sha256(data)
    shown = file if pixels is None else hashlib.sha256(b"%d %d " % pixels.size + pixels.tobytes())
    return len(data), np.frombuffer(file.digest() + shown.digest(), np.uint8).reshape(2, 32), notes


def _notes(image: Image.Image) -> Iterator[tuple[str, str]]:
    mode = f"Pillow's mode {image.mode}"
    if image.mode == "CMYK":
        yield "cmyk", "converted by formula, without its colour profile"
    if image.mode in ("P", "PA"):
        yield "palette", mode
    if image.mode[0] in "IF" or ";16" in repr(image.tile):  # Pillow keeps only the upper 8 bits of RGB with 16 bits
        yield "sixteen_bit", f"{mode}, with more than 8 bits per channel"
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        yield "alpha", f"{mode}: transparent pixels show their hidden colour"
    with image_errors():
        image.load()  # otherwise reading a PNG's orientation would load it, and hide errors in the pixels
    if (turn := orientation(image)) != 1:
        yield "rotated", f"EXIF orientation {turn}; the image is turned upright"


def _has_frames(image: Image.Image) -> bool:
    with contextlib.suppress(Exception):  # a broken second frame is not used
        return bool(getattr(image, "is_animated", False))
    return True


def copies(
    frame: pd.DataFrame, files: np.ndarray, pixels: np.ndarray, rank: str, usable: np.ndarray
) -> Iterator[Finding]:
    """Yield images equal to another one, given SHA-256 of files and of pixels, uint8 [N, 32] each."""
    parts = pd.DataFrame(np.ascontiguousarray(pixels).view(np.uint64)[usable], index=usable)
    parts = parts[parts.duplicated(keep=False)]
    ids, labels, split = frame["sample_id"], frame[rank], frame["split"].astype("str").to_numpy()
    for _, group in parts.groupby(list(parts.columns), sort=False):
        firsts = {split[row]: row for row in group.index[::-1]}
        for row in group.index:
            train = firsts.get("train") if split[row] != "train" else None
            first = firsts[split[row]] if train is None else train
            same = "bytes" if (files[row] == files[first]).all() else "pixels"
            if train is not None:
                yield row, "in_both_splits", f"the same {same} as the training image {ids.iat[train]}"
            elif row != first:
                name, detail = "duplicate", f"of the same {rank}"
                if labels.iat[row] != labels.iat[first]:
                    name, detail = f"conflicting_{name}", f"whose {rank} is {labels.iat[first]}, not {labels.iat[row]}"
                yield row, name, f"the same {same} as {ids.iat[first]}, {detail}"


def finer(frame: pd.DataFrame, rank: str, other: str) -> bool:
    """Return whether each class of a rank lies in one class of another rank, which has fewer classes."""
    pairs = frame[[rank, other]].drop_duplicates()
    return len(pairs) == pairs[rank].nunique() > pairs[other].nunique()


def remarks(frame: pd.DataFrame, params: Samples) -> Iterator[str]:
    """Yield possible mistakes in a sample table. GranularityError: networks are to learn a target of one class."""
    target, classes = params.target, frame[params.target].unique()
    if len(classes) == 1 and params.asks:
        raise GranularityError(f"samples.target: '{target}' has only one class, {classes[0]!r}; choose another rank")
    if not any(finer(frame, rank, target) for rank in params.ranks if rank != target):
        yield f"samples.target: no rank of {params.ranks} is finer than the target '{target}'"
    for at, rank in enumerate(params.ranks):
        for later in params.ranks[at + 1 :]:
            if finer(frame, rank, later):
                yield f"samples.ranks: '{rank}' is finer than '{later}' after it; order them from coarse to fine"
        counts = frame.loc[frame["split"] == "train", rank].value_counts()
        if single := int((counts == 1).sum()):
            yield f"samples.ranks: {single} of {int((counts > 0).sum())} classes of '{rank}' have one training image"


def of_classes(frame: pd.DataFrame, params: Samples, usable: np.ndarray) -> Iterator[Finding]:
    """Yield classes that only validation images have (each such image for the target, the first for a finer rank), and
    class names that differ only in case or blanks.
    """
    split = frame["split"].to_numpy()
    train, val = (usable & (split == name) for name in ("train", "val"))
    for rank in params.ranks:
        column, counts = frame[rank], frame.loc[usable, rank].value_counts()
        for label in sorted({*column[val].unique()} - {*column[train].unique()}):
            rows = np.flatnonzero(val & (column == label).to_numpy())
            detail = f"the {rank} {label!r} has {len(rows)} images in val and none in train"
            if rank == params.target:
                yield from ((int(row), "untrained_class", f"{detail}, so each can only be an error") for row in rows)
            else:
                yield int(rows[0]), "untrained_subclass", detail
        alike: dict[str, str] = {}
        for label in counts.index[counts > 0].sort_values():
            first = alike.setdefault(" ".join(label.split()).casefold(), label)
            if first != label:
                row = int(np.flatnonzero(usable & (column == label).to_numpy())[0])
                names = f"the {rank} {first!r} ({counts[first]} images) and {label!r} ({counts[label]})"
                yield row, "similar_names", f"{names} are two classes, but differ only in case or blanks"


def table(frame: pd.DataFrame, findings: list[Finding]) -> pd.DataFrame:
    findings = sorted(findings, key=lambda finding: (finding[0], FINDINGS.index(finding[1])))
    rows, names, details = zip(*findings, strict=True) if findings else ((), (), ())
    columns = {name: frame[name].astype("str").array.take(np.array(rows, dtype=int)) for name in ("sample_id", "file")}
    severity = pd.Categorical(["error" if name in ERRORS else "note" for name in names], ("error", "note"))
    columns |= {"finding": pd.Categorical(names, FINDINGS), "severity": severity, "detail": pd.array(details, "str")}
    return pd.DataFrame(columns)


def _lines(found: pd.DataFrame) -> Iterator[str]:
    for sample_id, file, finding, severity, detail in found.itertuples(index=False):
        where = sample_id if sample_id == file else f"{sample_id} (in {file})"
        yield printable(f"{severity}: {finding}: {where}: {detail}")  # a name can contain a line break
