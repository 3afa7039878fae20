"""Records in files: the bytes do not depend on kills, and what a killed job wrote is believed where it is sound."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

import numpy as np
import pytest

from granularity.base import interrupt
from granularity.base.errors import GranularityError
from granularity.store import records
from granularity.store.records import Layout, write_records
from support import writing

RECORDS = [np.random.default_rng(i).bytes(1 + 7 * i % 23) for i in range(60)]
SEVERAL, ONE = Layout("shards/{}.bin", b"head", limit=100), Layout("one.bin", b"head")


def make(output: Path, layout: Layout = SEVERAL, batch: int = 8, chunk: int = 1024, compute=None) -> list[tuple]:
    """Write the records as a stage does; the ranges that were computed."""
    ranges = []

    def computed(start: int, stop: int) -> list:
        ranges.append((start, stop))
        if compute is not None:
            compute(start)
        return [(RECORDS[i], {"number": np.array(i)}) for i in range(start, stop)]

    code = ("granularity.store.records",)
    with writing.create(output, "thing", code, {}, {"name": output.name}, resumable=True) as out:
        index = write_records(out, layout, len(RECORDS), computed, batch, chunk, "making")
        assert index["number"].tolist() == list(range(len(RECORDS)))
    for i, (number, offset, size) in enumerate(zip(index["file"], index["offset"], index["bytes"], strict=True)):
        data = (output / layout.name.format(number)).read_bytes()
        assert data[offset : offset + size] == RECORDS[i]
    return ranges


def contents(output: Path) -> dict[str, bytes]:
    names = [path for path in output.rglob("*.bin") if path.is_file()]
    return {path.relative_to(output).as_posix(): path.read_bytes() for path in names}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict[str, bytes]:
    output = tmp_path_factory.mktemp("whole") / "out"
    make(output)
    return contents(output)


def stop_at(output: Path, start: int, **more) -> None:
    def compute(first: int) -> None:
        if first >= start:
            raise RuntimeError

    with contextlib.suppress(RuntimeError):
        make(output, compute=compute, **more)


def test_files_are_their_head_and_the_records_in_a_row(tmp_path, whole):
    assert len(whole) > 5
    assert all(data.startswith(b"head") and len(data) <= 100 for data in whole.values())
    assert b"".join(data[4:] for _, data in sorted(whole.items(), key=lambda item: int(item[0][7:-4]))) == b"".join(
        RECORDS
    )
    make(tmp_path / "one", ONE)
    assert contents(tmp_path / "one") == {"one.bin": b"head" + b"".join(RECORDS)}


@pytest.mark.parametrize("batches", [(4, 9), (9, 4), (7, 60), (1, 13)])
def test_a_resumed_job_goes_on_and_writes_the_same(tmp_path, whole, checkpoint_always, batches):
    first, second = batches
    stop_at(tmp_path / "out", 30, batch=first)
    done = -(-30 // first) * first
    assert make(tmp_path / "out", batch=second)[0][0] == done
    assert contents(tmp_path / "out") == whole
    assert writing.names(tmp_path) == ["out"]


def test_at_most_a_chunk_is_written_again(tmp_path, whole):
    stop_at(tmp_path / "out", 56, chunk=20)
    assert make(tmp_path / "out") == [(48, 56), (56, 60)]
    assert contents(tmp_path / "out") == whole


def test_a_signal_is_obeyed_after_the_batch(tmp_path, whole):
    def signalled(start: int) -> None:
        if start == 16:
            interrupt.request("SIGTERM", 143)

    with pytest.raises(interrupt.Stopped):
        make(tmp_path / "out", compute=signalled)
    assert make(tmp_path / "out")[0] == (24, 32)
    assert contents(tmp_path / "out") == whole


@pytest.mark.parametrize("harm", ["flip", "truncate", "delete", "lengthen", "piece"])
def test_what_is_damaged_between_two_jobs_is_written_again(tmp_path, whole, checkpoint_always, harm, capfd):
    stop_at(tmp_path / "out", 48)
    work = writing.work(tmp_path / "out")
    file = work / "shards/1.bin"
    data = bytearray(file.read_bytes())
    if harm == "delete":
        file.unlink()
    elif harm == "piece":
        piece = work / "records.000000000016-000000000024"
        piece.write_bytes(piece.read_bytes()[:-1])
    else:
        data[20] ^= 1
        file.write_bytes({"flip": data, "truncate": data[:30], "lengthen": bytes(data) + b"more"}[harm])
        if harm == "lengthen":
            data[20] ^= 1
            file.write_bytes(bytes(data) + b"more")
    ranges = make(tmp_path / "out")
    assert contents(tmp_path / "out") == whole
    assert len(ranges) < 8  # and the rest is believed
    assert ("this part is done again" in capfd.readouterr().err) == (harm != "lengthen")


def test_what_was_published_is_not_written_to_again(tmp_path, whole, checkpoint_always, monkeypatch):
    """A job that is killed after its result was published, and before its work was deleted."""
    stop_at(tmp_path / "out", 48)
    work = writing.work(tmp_path / "out")
    published = tmp_path / "published.bin"
    os.link(work / "shards/0.bin", published)
    published.chmod(0o444)
    before = published.read_bytes()
    damaged = work / "records.000000000000-000000000008"
    damaged.write_bytes(b"")
    make(tmp_path / "out")
    assert contents(tmp_path / "out") == whole
    assert published.read_bytes() == before
    assert not published.samefile(tmp_path / "out/shards/0.bin")


def refused(number: int):
    def refuse(*args) -> None:
        raise OSError(number, os.strerror(number))

    return refuse


def test_space_is_reserved_before_the_work_is_done(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "posix_fallocate", refused(errno.ENOSPC))
    with pytest.raises(GranularityError, match="No space left on device"):
        make(tmp_path / "out", Layout("one.bin", reserve=1000))
    assert not (tmp_path / "out").exists()


def test_file_systems_without_links_or_reservations_will_do(tmp_path, whole, monkeypatch):
    monkeypatch.setattr(os, "posix_fallocate", refused(errno.EOPNOTSUPP))
    monkeypatch.setattr(records.os, "link", refused(errno.EPERM))
    make(tmp_path / "out")
    assert contents(tmp_path / "out") == whole
