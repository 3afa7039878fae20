"""SHA-256 of files and the record of it: what was not hashed as it is now, is hashed."""

import hashlib
import json
import os
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


def known(folder: Path, names: list[str]) -> dict[str, str]:
    """What the record stands for as the files are now."""
    recorded = hashing._read(folder)
    return {name: recorded[name][1] for name in recorded if recorded[name][0] == hashing._state(folder / name)}


def test_what_is_no_file_is_refused_at_once(tmp_path):
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    found = {
        "link": "is a link",
        "folder": "is not a regular file",
        "pipe": "is not a regular file",
        "gone": "cannot be read",
    }
    for name, why in found.items():
        for paths in ([tmp_path / name], [tmp_path / "file", tmp_path / name]):
            with pytest.raises(GranularityError, match=f"{name}: {why}"):
                hashing.digests(paths)


def meddle(monkeypatch, change) -> None:
    """Let something happen to a file while it is hashed."""
    digest = hashlib.file_digest

    def slowly(stream, name):
        found = digest(stream, name)
        change()
        return found

    monkeypatch.setattr(hashing.hashlib, "file_digest", slowly)


def test_a_file_that_grows_while_it_is_read_is_refused_and_a_second_name_is_no_change(folder, monkeypatch, tmp_path):
    """Jobs share the files of runs by links, at any time."""
    expected = sha256(folder / "a")
    meddle(monkeypatch, lambda: os.link(folder / "a", tmp_path / "second"))
    assert hashing.digests([folder / "a"]) == [expected]
    meddle(monkeypatch, lambda: (folder / "a").write_bytes(os.urandom(99)))
    (tmp_path / "second").unlink()
    with pytest.raises(GranularityError, match="changed while it was read"):
        hashing.digests([folder / "a"])


def test_what_was_hashed_is_known_and_not_read_again(folder, cache, monkeypatch):
    assert known(folder, NAMES) == {}
    found = hashing.hashes(folder, NAMES)
    assert found == known(folder, NAMES) == {name: sha256(folder / name) for name in NAMES}
    read = []
    monkeypatch.setattr(hashing, "_digest", lambda path: read.append(path.name) or "0" * 64)
    assert hashing.hashes(folder, NAMES) == found and read == []
    assert hashing.hashes(folder, ["a"], anew=True) == {"a": "0" * 64} and read == ["a"]


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
    assert known(folder, NAMES).keys() == {*NAMES} - {"a"}


def test_a_file_that_has_just_changed_is_not_recorded(folder, monkeypatch):
    monkeypatch.setattr(hashing, "SETTLED_SECONDS", 2.0)
    (folder / "a").write_bytes(b"new")
    os.utime(folder / "a", ns=(OLD, OLD))  # its ctime is of now
    assert hashing.hashes(folder, NAMES)["a"] == sha256(folder / "a")
    assert known(folder, NAMES) == {}
    hashing.remember(folder, {"a": sha256(folder / "a")})  # its writer knows better
    assert known(folder, NAMES).keys() == {"a"}


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
    assert "a" not in known(folder, NAMES)
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
    "gone": Path.unlink,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_record_means_hashing_again(folder, cache, damage):
    hashing.hashes(folder, NAMES)
    damage(record(cache))
    assert known(folder, NAMES) == {}
    corrected(folder)


def test_a_cache_that_cannot_be_written_is_not_missed(folder, tmp_path, monkeypatch, capfd):
    (tmp_path / "taken").write_text("a file")
    for cache in (str(tmp_path / "taken"), "/proc/none", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", cache)
        monkeypatch.setenv("HOME", str(tmp_path / "taken"))
        corrected(folder)
        assert known(folder, NAMES) == {}
    assert capfd.readouterr() == ("", "")
