"""SHA-256 of files and the record of it: what was not hashed as it is now, is hashed."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from granularity.base.errors import GranularityError
from granularity.store import hashing

OLD = time.time_ns() - 10**11
NAMES = ["a", "b/c", "empty", "Ü \n"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Files at rest: as if those who wait had waited."""
    made = tmp_path / "result"
    for i, name in enumerate(NAMES):
        file = made / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"" if name == "empty" else os.urandom(1000 + i))
    monkeypatch.setattr(hashing, "SETTLED_SECONDS", 0.0)
    time.sleep(0.02)
    return made


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def record(cache: Path) -> Path:
    (found,) = cache.rglob("*.json")
    return found


def corrected(folder: Path, name: str = "a") -> None:
    """Reading goes on and gives what the files hold."""
    assert hashing.hashes(folder, NAMES) == {name: sha256(folder / name) for name in NAMES}


@pytest.mark.parametrize("cpus", [1, 3])
def test_digests_are_those_of_the_files_in_their_order(tmp_path, monkeypatch, cpus):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cpus)))
    monkeypatch.setattr(hashing, "BUFFER_BYTES", 1000)
    hashing._buffers.__dict__.clear()
    sizes = [0, 1, 999, 1000, 1001, 5000, 0, 70000, 3]
    files = [tmp_path / str(i) for i in range(len(sizes))]
    for file, size in zip(files, sizes, strict=True):
        file.write_bytes(os.urandom(size))
    try:
        assert hashing.digests(files) == [sha256(file) for file in files]
        assert hashing.digests([]) == []
    finally:
        hashing._buffers.__dict__.clear()


def test_what_is_no_file_is_refused_at_once(tmp_path):
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    found = {"link": "a link", "folder": "no regular file", "pipe": "no regular file", "gone": "cannot be read"}
    for name, why in found.items():
        for paths in ([tmp_path / name], [tmp_path / "file", tmp_path / name]):
            with pytest.raises(GranularityError, match=f"{name}: {why}"):
                hashing.digests(paths)


def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path, monkeypatch):
    file, of_file = tmp_path / "file", hashing._digest_of

    def slow(opened):
        found = of_file(opened)
        with file.open("ab") as stream:
            stream.write(b"more")
        return found

    file.write_bytes(b"some")
    monkeypatch.setattr(hashing, "_digest_of", slow)
    with pytest.raises(GranularityError, match="changed while it was read"):
        hashing.digests([file])


def test_what_was_hashed_is_known_and_not_read_again(folder, cache, monkeypatch):
    assert hashing.known(folder, NAMES) == {}
    found = hashing.hashes(folder, NAMES)
    assert found == hashing.known(folder, NAMES) == {name: sha256(folder / name) for name in NAMES}
    read = []
    monkeypatch.setattr(hashing, "_digest", lambda path: read.append(path.name) or "0" * 64)
    assert hashing.hashes(folder, NAMES) == found and read == []
    assert hashing.hashes(folder, ["a"], anew=True) == {"a": "0" * 64} and read == ["a"]


def test_the_record_is_private(folder, cache):
    before = os.umask(0)
    try:
        hashing.hashes(folder, NAMES)
    finally:
        os.umask(before)
    assert stat.S_IMODE(record(cache).stat().st_mode) == 0o600
    assert {stat.S_IMODE(place.stat().st_mode) for place in record(cache).parents[:3]} == {0o700}
    assert record(cache).parents[2] == cache / "granularity"


def test_another_path_to_the_folder_has_the_same_record(folder, tmp_path):
    hashing.hashes(folder, NAMES)
    (tmp_path / "alias").symlink_to(folder)
    assert len(hashing.known(tmp_path / "alias", NAMES)) == len(NAMES)


def changed(file: Path) -> None:
    """One bit, the same size, and the time of the last change set back: only ctime tells."""
    before = file.stat()
    data = bytearray(file.read_bytes())
    data[0] ^= 1
    file.write_bytes(data)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def replaced(file: Path) -> None:
    other = file.with_name("other")
    other.write_bytes(os.urandom(file.stat().st_size))
    other.replace(file)


def relinked(file: Path) -> None:
    file.unlink()
    file.symlink_to("b/c")


CHANGES = {
    "changed": changed,
    "replaced": replaced,
    "longer": lambda file: file.write_bytes(file.read_bytes() + b"1"),
    "touched": lambda file: os.utime(file),
    "gone": Path.unlink,
    "a link": relinked,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_file_is_not_known(folder, change):
    hashing.hashes(folder, NAMES)
    time.sleep(0.02)
    change(folder / "a")
    assert hashing.known(folder, NAMES).keys() == {*NAMES} - {"a"}


def test_a_file_that_has_just_changed_is_not_recorded(folder, monkeypatch):
    monkeypatch.setattr(hashing, "SETTLED_SECONDS", 2.0)
    (folder / "a").write_bytes(b"new")
    os.utime(folder / "a", ns=(OLD, OLD))  # its ctime is of now
    assert hashing.hashes(folder, NAMES)["a"] == sha256(folder / "a")
    assert hashing.known(folder, NAMES) == {}
    hashing.remember(folder, {"a": sha256(folder / "a")})  # its writer knows better
    assert hashing.known(folder, NAMES).keys() == {"a"}


def test_a_second_name_given_while_a_file_is_hashed_is_no_change(folder, monkeypatch, tmp_path):
    """Jobs share the files of runs by links, at any time."""
    (name, *_) = sorted(path.name for path in folder.iterdir() if path.is_file())
    expected, original = hashing.digest_of(folder / name), hashing._digest_of

    def linked(opened: int) -> str:
        os.link(folder / name, tmp_path / "second")
        return original(opened)

    monkeypatch.setattr(hashing, "_digest_of", linked)
    assert hashing.digests([folder / name]) == [expected] and (tmp_path / "second").exists()


def test_a_change_between_hashing_and_recording_is_not_covered(folder, monkeypatch):
    digests = hashing.digests

    def then_changed(paths):
        found = digests(paths)
        time.sleep(0.02)
        changed(folder / "a")
        return found

    monkeypatch.setattr(hashing, "digests", then_changed)
    hashing.hashes(folder, NAMES)
    monkeypatch.undo()
    assert "a" not in hashing.known(folder, NAMES)
    corrected(folder)


DAMAGES = {
    "empty": lambda file: file.write_text(""),
    "cut": lambda file: file.write_bytes(file.read_bytes()[:100]),
    "another form": lambda file: file.write_text("[1, 2]"),
    "no files": lambda file: file.write_text('{"value": 3}'),
    "deep": lambda file: file.write_text("[" * 100_000),
    "a digest": lambda file: file.write_text(
        json.dumps(json.loads(file.read_text()) | {"value": {name: [[0] * 5, "0" * 64] for name in NAMES}})
    ),
    "writable": lambda file: file.chmod(0o620),
    "writable folder": lambda file: file.parent.chmod(0o777),
    "a link": lambda file: (file.rename(file.with_name("x")), file.symlink_to("x")),
    "gone": Path.unlink,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_record_means_hashing_again(folder, cache, damage):
    hashing.hashes(folder, NAMES)
    damage(record(cache))
    assert hashing.known(folder, NAMES) == {}
    corrected(folder)


def test_any_flipped_byte_of_the_record_is_noticed_or_harmless(folder, cache):
    right = hashing.hashes(folder, NAMES)
    file = record(cache)
    data = file.read_bytes()
    for at in range(0, len(data), 7):
        file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert hashing.known(folder, NAMES).items() <= right.items()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be two users")
def test_the_record_of_another_user_does_not_count(folder, cache):
    hashing.hashes(folder, NAMES)
    os.chown(record(cache), 65534, 65534)
    assert hashing.known(folder, NAMES) == {}
    hashing.hashes(folder, NAMES)
    assert hashing.known(folder, NAMES) != {}
    os.chown(record(cache).parents[1], 65534, 65534)
    assert hashing.known(folder, NAMES) == {}
    corrected(folder)


def test_a_cache_that_cannot_be_written_is_not_missed(folder, tmp_path, monkeypatch, capfd):
    (tmp_path / "taken").write_text("a file")
    for cache in (str(tmp_path / "taken"), "/proc/none", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", cache)
        monkeypatch.setenv("HOME", str(tmp_path / "taken"))
        corrected(folder)
        assert hashing.known(folder, NAMES) == {}
    assert capfd.readouterr() == ("", "")


def test_two_processes_may_record_at_once(folder, cache):
    code = "import sys; from pathlib import Path; from granularity.store import hashing\n"
    code += "for _ in range(50): hashing.remember(Path(sys.argv[1]), {sys.argv[2]: sys.argv[3]})"
    words = [[sys.executable, "-c", code, folder, name, sha256(folder / name)] for name in ("a", "b/c")]
    writers = [subprocess.Popen(one) for one in words]
    assert [one.wait(60) for one in writers] == [0, 0]
    found = hashing.known(folder, NAMES)
    assert found and all(found[name] == sha256(folder / name) for name in found)
    assert [file.name for file in record(cache).parent.iterdir()] == [record(cache).name]
