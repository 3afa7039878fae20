"""Looking at every image before it is used (`samples.check_images`).

Errors: `missing`, `unreadable`, `empty`, `truncated` (the bytes end early), `corrupt`, `bomb` (too large to decode
safely: never decoded), `in_both_splits` (the bytes of a training image, in another split).
Notes: `not_ascii` (its name), `cmyk`, `palette`, `sixteen_bit`, `alpha`, `animated`, `rotated` (by EXIF), `duplicate`
and `conflicting_duplicate` (the bytes of an earlier image of its split; with another label in the finest rank).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import numpy as np
import pandas as pd

from granularity.base.errors import GranularityError
from granularity.base.progress import say, track
from granularity.data.columns import PLACE
from granularity.data.images import Reader
from granularity.stages.samples.look import look
from granularity.stages.samples.options import Samples

ERRORS = ("missing", "unreadable", "empty", "truncated", "corrupt", "bomb", "in_both_splits")
NOTES = ("not_ascii", "cmyk", "palette", "sixteen_bit", "alpha", "animated", "rotated", "duplicate")
FINDINGS = (*ERRORS, *NOTES, "conflicting_duplicate")
CHUNK = 4096  # images between two reports of progress
BATCH = 32  # images a thread takes at once


def run(
    frame: pd.DataFrame, params: Samples, reader: Reader, threads: int = 1, show: bool = False
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read and decode every image of a sample table.

    Args:
        frame: the table, numbered from 0, with the columns of places; `bytes` and `sha256` are filled in.
        params: `check_images` is `fail` or `skip`; `ranks` and `checksums` count too.
        reader: reads the images.
        threads: how many read and decode.
        show: put every finding into the log; otherwise errors that end the stage.

    Returns:
        The table without images that have errors; and the findings, in the order of the table: `sample_id`, `file`,
        `finding`, `severity` (error or note), `detail`.

    Raises:
        GranularityError: with `fail`, an image has an error; with `skip`, all images of a split have.
    """
    findings = _Findings()
    sizes, digests = _look_at_all(frame, reader, threads, findings)
    for row in np.flatnonzero(~frame["sample_id"].astype("str").str.isascii()):
        findings.add(int(row), "not_ascii", "its name has letters beyond ASCII")
    _compare(frame, digests, params.ranks[-1], findings)
    found = findings.table(frame)
    errors = found[found["severity"] == "error"]
    if show or params.check_images == "fail":
        for line in _lines(found if show else errors):
            say(line)
    counts = ", ".join(f"{count} {name}" for name, count in counted(found).items())
    say(f"checked {len(frame)} images: {counts or 'nothing found'}")
    if params.check_images == "fail" and len(errors):
        first = "; ".join(line.removeprefix("error: ") for line in _lines(errors.iloc[:3]))
        raise GranularityError(
            f"samples.check_images: {len(errors)} of {len(frame)} images cannot be used: {first}"
            f"{'; ...' if len(errors) > 3 else ''}. The log names each of them. Repair or remove them, or set "
            "samples.check_images to skip"
        )
    frame["bytes"] = sizes
    frame["sha256"] = _texts(digests) if params.checksums == "content" else pd.array([None] * len(frame), "str")
    kept = frame[~findings.has_error(len(frame))]
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


def _texts(digests: np.ndarray) -> pd.Series:
    """SHA-256 in hexadecimal, a chunk at a time: 12.7 million strings of Python's are 1.4 GB."""
    starts = range(0, len(digests), CHUNK)
    parts = ([digest.tobytes().hex() for digest in digests[start : start + CHUNK]] for start in starts)
    return pd.concat([pd.Series(part, dtype="str") for part in parts], ignore_index=True)


def _look_at_all(
    frame: pd.DataFrame, reader: Reader, threads: int, findings: _Findings
) -> tuple[np.ndarray, np.ndarray]:
    """Sizes, int64 of (images,), and SHA-256, uint8 of (images, 32)."""
    sizes = np.zeros(len(frame), dtype=np.int64)
    digests = np.zeros((len(frame), 32), dtype=np.uint8)
    starts = range(0, len(frame), CHUNK)
    with ThreadPoolExecutor(threads) as pool:
        for start in track(starts, len(starts), "checking", f"chunks of {CHUNK} images"):
            part = frame.iloc[start : start + CHUNK]
            places = list(zip(*(part[column].tolist() for column in PLACE), strict=True))
            batches = [places[i : i + BATCH] for i in range(0, len(places), BATCH)]
            looked = pool.map(lambda batch: [look(reader, *place) for place in batch], batches)
            for row, one in enumerate(chain.from_iterable(looked), start):
                sizes[row] = one.size
                digests[row] = np.frombuffer(one.sha256, dtype=np.uint8)
                for finding, detail in one.findings:
                    findings.add(row, finding, detail)
    return sizes, digests


def _compare(frame: pd.DataFrame, digests: np.ndarray, rank: str, findings: _Findings) -> None:
    """Find equal bytes among the images without errors."""
    start = digests[:, :8].copy().view(np.uint64)[:, 0]
    usable = np.flatnonzero(~findings.has_error(len(frame)))
    several = usable[pd.Series(start[usable]).duplicated(keep=False)]  # few, and only these are compared in full
    _, content = np.unique(digests[several].view("S32")[:, 0], return_inverse=True)
    part = frame.iloc[several]
    copies = pd.DataFrame({"row": several, "content": content, "split": part["split"].cat.codes.to_numpy()})
    training = copies[copies["split"] == part["split"].cat.categories.get_loc("train")]
    training = training.groupby("content")["row"].first().reindex(copies["content"], fill_value=-1).to_numpy()
    leaks = (training >= 0) & (part["split"] != "train").to_numpy()
    ids, labels = frame["sample_id"], frame[rank]
    for row, first in zip(several[leaks].tolist(), training[leaks].tolist(), strict=True):
        findings.add(row, "in_both_splits", f"the same bytes as the training image {ids.iat[first]}")
    rest = copies[~leaks]
    firsts = rest.groupby(["content", "split"])["row"].transform("first")
    for row, first in zip(rest["row"].tolist(), firsts.tolist(), strict=True):
        if row == first:
            continue
        same = f"the same bytes as {ids.iat[first]}"
        if labels.iat[row] == labels.iat[first]:
            findings.add(row, "duplicate", f"{same}, of the same {rank}")
        else:
            detail = f"{same}, whose {rank} is {labels.iat[first]}, not {labels.iat[row]}"
            findings.add(row, "conflicting_duplicate", detail)


class _Findings:
    """Findings as columns: as lists of Python's they would not fit where every image has some."""

    def __init__(self):
        self.rows, self.codes, self.details = array("q"), array("b"), []
        self.shared: dict[str, str] = {}

    def add(self, row: int, finding: str, detail: str) -> None:
        self.rows.append(row)
        self.codes.append(FINDINGS.index(finding))
        self.details.append(self.shared.setdefault(detail, detail))

    def has_error(self, images: int) -> np.ndarray:
        """Bool of (images,)."""
        codes = np.array(self.codes, dtype=int)
        errors = np.zeros(images, dtype=bool)
        errors[np.array(self.rows, dtype=int)[codes < len(ERRORS)]] = True
        return errors

    def table(self, frame: pd.DataFrame) -> pd.DataFrame:
        rows, codes = np.array(self.rows, dtype=int), np.array(self.codes, dtype=int)
        order = np.lexsort((codes, rows))
        rows, codes = rows[order], codes[order]
        return pd.DataFrame(
            {
                "sample_id": frame["sample_id"].astype("str").array.take(rows),
                "file": frame["file"].astype("str").array.take(rows),
                "finding": pd.Categorical.from_codes(codes, FINDINGS),
                "severity": pd.Categorical.from_codes((codes >= len(ERRORS)).astype(int), ("error", "note")),
                "detail": pd.array([self.details[i] for i in order], "str"),
            }
        )


def _lines(found: pd.DataFrame) -> Iterator[str]:
    columns = (found[name].tolist() for name in ("severity", "finding", "sample_id", "file", "detail"))
    for severity, finding, sample_id, file, detail in zip(*columns, strict=True):
        where = sample_id if sample_id == file else f"{sample_id} (in {file})"
        line = f"{severity}: {finding}: {where}: {detail}"
        yield "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)  # a name can hold a line break
