"""Work that a kill interrupts: the bytes do not depend on it, and what was saved is believed where it is sound."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from granularity.base import interrupt
from granularity.base.errors import GranularityError
from granularity.store import resume
from granularity.store.artifact import Artifact
from granularity.store.resume import Layout, read_state, write_records, write_rows, write_state
from support import writing

RECORDS = [np.random.default_rng(i).bytes(1 + 7 * i % 23) for i in range(60)]
ROWS = np.random.default_rng(0).random((60, 3), dtype=np.float32)
SEVERAL, ONE = Layout("shards/{}.bin", b"head", limit=100), Layout("one.bin", b"head")


def make(output: Path, layout: Layout = SEVERAL, batch: int = 8, chunk: int = 1024, before: Callable = id) -> list[int]:
    """Write the records as a stage does; the first of each batch that was computed."""
    began = []

    def records_from(first: int):
        for start in range(first, len(RECORDS), batch):
            began.append(start)
            before(start)
            yield [(RECORDS[i], {"number": np.array(i)}) for i in range(start, min(start + batch, len(RECORDS)))]

    with writing.create(output, params={"name": output.name}, resumable=True) as out:
        index = write_records(out, layout, len(RECORDS), records_from, batch, chunk, "making", "batches")
        assert index["number"].tolist() == list(range(len(RECORDS)))
    for i, (number, offset, size) in enumerate(zip(index["file"], index["offset"], index["bytes"], strict=True)):
        data = (output / layout.name.format(number)).read_bytes()
        assert data[offset : offset + size] == RECORDS[i]
    return began


def contents(output: Path) -> dict[str, bytes]:
    names = [path for path in output.rglob("*.bin") if path.is_file()]
    return {path.relative_to(output).as_posix(): path.read_bytes() for path in names}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict[str, bytes]:
    output = tmp_path_factory.mktemp("whole") / "out"
    make(output)
    return contents(output)


def stopping_at(start: int, error: type[Exception] = RuntimeError) -> Callable[[int], None]:
    def before(first: int) -> None:
        if first >= start:
            raise error("stopped")

    return before


def stop_at(output: Path, start: int, error: type[Exception] = RuntimeError, **more) -> None:
    with pytest.raises(error):
        make(output, before=stopping_at(start, error), **more)


def test_files_are_their_head_and_the_records_in_a_row(tmp_path, whole):
    assert len(whole) > 5 and all(data.startswith(b"head") and len(data) <= 100 for data in whole.values())
    in_order = sorted(whole.items(), key=lambda item: int(item[0][7:-4]))
    assert b"".join(data[4:] for _, data in in_order) == b"".join(RECORDS)
    make(tmp_path / "one", ONE)
    assert contents(tmp_path / "one") == {"one.bin": b"head" + b"".join(RECORDS)}


@pytest.mark.parametrize("batches", [(4, 9), (9, 4), (7, 60), (1, 13)])
def test_a_resumed_job_goes_on_and_writes_the_same(tmp_path, whole, checkpoint_always, batches):
    first, second = batches
    stop_at(tmp_path / "out", 30, batch=first)
    assert make(tmp_path / "out", batch=second)[0] == -(-30 // first) * first
    assert contents(tmp_path / "out") == whole and writing.names(tmp_path) == ["out"]


@pytest.mark.parametrize(("error", "done"), [(RuntimeError, 48), (GranularityError, 56)])
def test_a_chunk_at_most_is_written_again_and_nothing_after_an_error_of_ours(tmp_path, whole, error, done):
    """Of an image that cannot be read, say; whatever the clock says."""
    stop_at(tmp_path / "out", 56, error, chunk=20)
    assert make(tmp_path / "out")[0] == done
    assert contents(tmp_path / "out") == whole


def test_a_signal_is_obeyed_after_the_batch(tmp_path, whole):
    with pytest.raises(interrupt.Stopped):
        make(tmp_path / "out", before=lambda start: start == 16 and interrupt.request("SIGTERM", 143))
    assert make(tmp_path / "out")[0] == 24
    assert contents(tmp_path / "out") == whole


@pytest.mark.parametrize("harm", ["flip", "truncate", "delete", "lengthen", "piece"])
def test_what_is_damaged_between_two_jobs_is_written_again(tmp_path, whole, checkpoint_always, harm, capfd):
    stop_at(tmp_path / "out", 48)
    work = writing.work(tmp_path / "out")
    file, piece = work / "shards/1.bin", work / "records.000000000016-000000000024"
    data = file.read_bytes()
    if harm == "delete":
        file.unlink()
    elif harm == "piece":
        piece.write_bytes(piece.read_bytes()[:-1])
    else:
        flipped = data[:20] + bytes([data[20] ^ 1]) + data[21:]
        file.write_bytes({"flip": flipped, "truncate": data[:30], "lengthen": data + b"more"}[harm])
    assert make(tmp_path / "out")[0] == {"lengthen": 48, "piece": 16}.get(harm, 8)
    assert contents(tmp_path / "out") == whole
    assert ("is recomputed" in capfd.readouterr().err) == (harm != "lengthen")


def test_what_was_published_is_not_written_to_again(tmp_path, whole, checkpoint_always):
    """A job that is killed after its result was published, and before its work was deleted."""
    stop_at(tmp_path / "out", 48)
    work, published = writing.work(tmp_path / "out"), tmp_path / "published.bin"
    os.link(work / "shards/0.bin", published)
    published.chmod(0o444)
    before = published.read_bytes()
    (work / "records.000000000000-000000000008").write_bytes(b"")
    make(tmp_path / "out")
    assert contents(tmp_path / "out") == whole
    assert published.read_bytes() == before and not published.samefile(tmp_path / "out/shards/0.bin")


def test_a_colleague_continues_a_killed_job_in_files_of_his_own(tmp_path, whole, checkpoint_always, monkeypatch):
    """Who may write in a file by its group may not change its permissions."""
    stop_at(tmp_path / "out", 48)
    theirs = {(file.stat().st_ino) for file in (writing.work(tmp_path / "out") / "shards").iterdir()}
    chmod = Path.chmod

    def refused(path, mode):
        if path.stat().st_ino in theirs:
            raise PermissionError(1, "Operation not permitted", str(path))
        chmod(path, mode)

    monkeypatch.setattr(Path, "chmod", refused)
    make(tmp_path / "out")
    assert contents(tmp_path / "out") == whole
    written = [file.stat() for file in (tmp_path / "out/shards").iterdir()]
    assert theirs.isdisjoint(one.st_ino for one in written) and not any(one.st_mode & 0o222 for one in written)


def rows(output: Path, before: Callable = id) -> list[int]:
    began = []

    def rows_from(first: int):
        for start in range(first, len(ROWS), 8):
            began.append(start)
            before(start)
            yield ROWS[start : start + 8]

    with writing.create(output, params={"name": output.name}, resumable=True) as out:
        write_rows(out, "rows.npy", ROWS.shape, rows_from, 8, 16, "making")
    return began


def test_an_array_is_what_numpy_writes_wherever_it_was_interrupted(tmp_path):
    with pytest.raises(RuntimeError):
        rows(tmp_path / "out", stopping_at(40))
    assert rows(tmp_path / "out") == [32, 40, 48, 56]
    np.save(tmp_path / "theirs.npy", ROWS)
    assert (tmp_path / "out/rows.npy").read_bytes() == (tmp_path / "theirs.npy").read_bytes()
    described = Artifact.open(tmp_path / "out").manifest["files"]["rows.npy"]
    assert (described["shape"], described["dtype"]) == ([60, 3], "float32")


def refused(number: int):
    def refuse(*args) -> None:
        raise OSError(number, os.strerror(number))

    return refuse


def test_space_is_reserved_before_the_work_is_done(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "posix_fallocate", refused(errno.ENOSPC))
    with pytest.raises(GranularityError, match="No space left on device"):
        rows(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_file_systems_without_links_or_reservations_will_do(tmp_path, whole, monkeypatch):
    monkeypatch.setattr(os, "posix_fallocate", refused(errno.EOPNOTSUPP))
    monkeypatch.setattr(resume.os, "link", refused(errno.EPERM))
    make(tmp_path / "out")
    rows(tmp_path / "rows")
    assert contents(tmp_path / "out") == whole


def test_a_corrupt_checkpoint_is_not_continued_from(tmp_path, capsys):
    file = tmp_path / "state"
    write_state(file, {"weights": np.arange(100.0)}, {"step": 3})
    whole = file.read_bytes()
    assert read_state(file)[1] == {"step": 3}
    for place in (3, 9, 40, len(whole) - 400, len(whole) - 1):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert read_state(file) is None, place
        assert not file.exists()
    file.write_bytes(whole[:100])
    assert read_state(file) is None
    assert "corrupt checkpoint; this part is recomputed" in capsys.readouterr().err


def test_half_a_file_is_not_gone_on_with(tmp_path):
    output = tmp_path / "thing"
    with pytest.raises(KeyboardInterrupt), writing.create(output, resumable=True) as out:
        (out.work / "x.done").touch()
        (out.work / ".torn.0123").touch()
        raise KeyboardInterrupt
    with writing.create(output, resumable=True) as out:
        assert [path.name for path in out.work.iterdir()] == ["x.done"]
        out.json("values.json", 1)
