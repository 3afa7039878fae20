"""Arrays that are made batch by batch: saved often enough, taken up whatever was saved, and never a silent death."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

import numpy as np
import pytest

from granularity.base import interrupt
from granularity.base.errors import GranularityError
from granularity.store.artifacts import Artifact
from granularity.store.chunks import write_rows
from support import writing

ROWS = np.random.default_rng(0).random((60, 3), dtype=np.float32)


def make(output: Path, batch: int = 8, chunk: int = 1024, compute=None, rows: np.ndarray = ROWS) -> list[tuple]:
    """Write rows as a stage does; the ranges that were computed."""
    ranges = []

    def computed(start: int, stop: int) -> np.ndarray:
        ranges.append((start, stop))
        if compute is not None:
            compute(start)
        return rows[start:stop]

    with writing.create(
        output, "thing", ("granularity.store.chunks",), {}, {"name": output.name}, resumable=True
    ) as out:
        array = write_rows(out, "rows.npy", len(rows), computed, batch, chunk, "making")
        np.testing.assert_array_equal(array, rows)
    return ranges


def saved(output: Path) -> list[str]:
    pieces = writing.work(output).glob("rows.npy.*")
    return sorted(file.name.removeprefix("rows.npy.").replace("0000000000", "") for file in pieces)


@contextlib.contextmanager
def stops_at(start: int):
    """What raises in the batch that begins at a row."""

    def compute(first: int) -> None:
        if first >= start:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        yield compute


# ---------------------------------------------------------------- the bytes


@pytest.mark.parametrize("rows", [ROWS, ROWS[:1], ROWS.reshape(20, 3, 3), (255 * ROWS).astype(np.uint8)])
def test_the_file_is_what_numpy_writes(tmp_path, rows):
    make(tmp_path / "out", rows=rows)
    np.save(tmp_path / "theirs.npy", rows)
    assert (tmp_path / "out/rows.npy").read_bytes() == (tmp_path / "theirs.npy").read_bytes()
    described = Artifact.open(tmp_path / "out").manifest["files"]["rows.npy"]
    assert (described["shape"], described["dtype"]) == (list(rows.shape), str(rows.dtype))


# ---------------------------------------------------------------- what is saved, and taken up


def test_every_batch_is_saved_where_checkpoints_are_always_due(tmp_path, checkpoint_always):
    with stops_at(24) as compute:
        make(tmp_path / "out", compute=compute)
    assert saved(tmp_path / "out") == ["00-08", "08-16", "16-24"]
    assert make(tmp_path / "out")[0] == (24, 32)


def test_a_piece_holds_a_chunk_of_rows_at_most(tmp_path):
    with stops_at(56) as compute:
        make(tmp_path / "out", chunk=20, compute=compute)
    assert saved(tmp_path / "out") == ["00-16", "16-32", "32-48"]
    assert make(tmp_path / "out") == [(48, 56), (56, 60)]


def test_a_signal_is_obeyed_after_the_batch(tmp_path):
    def signalled(start: int) -> None:
        if start == 16:
            interrupt.request("SIGTERM", 143)

    with pytest.raises(interrupt.Stopped):
        make(tmp_path / "out", compute=signalled)
    assert saved(tmp_path / "out") == ["00-24"]
    assert make(tmp_path / "out")[0] == (24, 32)


def test_a_signal_is_obeyed_while_saved_work_is_read(tmp_path, checkpoint_always, monkeypatch):
    with stops_at(48) as compute:
        make(tmp_path / "out", compute=compute)
    with monkeypatch.context() as patch:
        patch.setattr(np, "concatenate", lambda *args: interrupt.request("SIGUSR1", 138) or ROWS[:8])
        with pytest.raises(interrupt.Stopped):
            make(tmp_path / "out")
    assert make(tmp_path / "out") == [(48, 56), (56, 60)]


@pytest.mark.parametrize("batches", [(4, 9), (9, 4), (60, 7), (7, 60), (1, 13)])
def test_pieces_of_other_lengths_are_taken_up(tmp_path, checkpoint_always, batches):
    first, second = batches
    if first < 30:
        with stops_at(30) as compute:
            make(tmp_path / "out", first, compute=compute)
    done = -(-30 // first) * first if first < 30 else 0
    ranges = make(tmp_path / "out", second)
    assert ranges[0][0] == done
    assert all(stop % second == 0 for _, stop in ranges[:-1])  # the grid of the batches stays where it was
    assert [start for start, _ in ranges] == [done, *(stop for _, stop in ranges[:-1])]


def test_pieces_that_are_damaged_overlap_or_do_not_belong_are_done_without(tmp_path, checkpoint_always, capfd):
    with stops_at(48) as compute:
        make(tmp_path / "out", compute=compute)
    work = writing.work(tmp_path / "out")
    piece = work / "rows.npy.000000000016-000000000024"
    piece.write_bytes(piece.read_bytes()[:-1])
    (work / "rows.npy.000000000002-000000000010").write_bytes(b"")  # nobody comes by there
    (work / "rows.npy.000000000048-000000000056").write_bytes(
        (work / "rows.npy.000000000008-000000000016").read_bytes()  # these are other rows
    )
    (work / "rows.npy.thing").write_bytes(b"")
    assert make(tmp_path / "out") == [(16, 24), (48, 56), (56, 60)]
    assert capfd.readouterr().err.count("a corrupt checkpoint; this part is done again") == 1


def test_the_longest_of_several_pieces_is_taken(tmp_path, checkpoint_always):
    for batch in (4, 12):
        with stops_at(24) as compute:
            make(tmp_path / str(batch), batch, compute=compute)
    work = writing.work(tmp_path / "4")
    next(writing.work(tmp_path / "12").glob("rows.npy.000000000000-*")).rename(
        work / "rows.npy.000000000000-000000000012"
    )
    for start in (4, 8):
        (work / f"rows.npy.{start:012d}-{start + 4:012d}").unlink()
    assert make(tmp_path / "4", 4)[0] == (24, 28)


def test_what_was_made_before_an_error_is_kept(tmp_path):
    """Of an image that cannot be read, say; whatever the clock says."""

    def compute(start: int) -> None:
        if start == 24:
            raise GranularityError("an image that cannot be read")

    with pytest.raises(GranularityError, match="cannot be read"):
        make(tmp_path / "out", compute=compute)
    assert saved(tmp_path / "out") == ["00-24"]
    assert make(tmp_path / "out")[0] == (24, 32)


# ---------------------------------------------------------------- a disk that is full


def refused(number: int):
    def fallocate(*args) -> None:
        raise OSError(number, os.strerror(number))

    return fallocate


def test_space_is_reserved_before_the_work_is_done(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "posix_fallocate", refused(errno.ENOSPC))
    ranges = []
    with pytest.raises(GranularityError, match="No space left on device"):
        make(tmp_path / "out", compute=ranges.append)
    assert ranges == [0]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL])
def test_a_file_system_that_reserves_nothing_will_do(tmp_path, monkeypatch, number):
    monkeypatch.setattr(os, "posix_fallocate", refused(number))
    make(tmp_path / "out")
    assert Artifact.open(tmp_path / "out").array("rows.npy").shape == ROWS.shape
