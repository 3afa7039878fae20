"""A cache between workflows: what is served is verified and believed, and edited code or a spoilt entry never is."""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest

from granularity.base.errors import GranularityError
from granularity.store.artifact import Artifact
from granularity.store.task import _entry, fetch, share, trusted
from support import writing


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("GRANULARITY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def made(output: Path, value: int = 7, param: int = 1) -> Artifact:
    """What a workflow has in its own store."""
    with writing.create(output, "cluster", params={"param": param}, facts=()) as out:
        out.array("values.npy", np.full(1000, value))
        out.summary["value"] = value
    return Artifact.open(output)


def shared(output: Path, **how) -> Path:
    """What it puts into the cache; returns the entry."""
    artifact = made(output, **how)
    share(artifact)
    return _entry("cluster", artifact.manifest["key"])


def served(folder: Path, param: int = 1) -> Artifact | None:
    """What another workflow is served, in its own store."""
    return fetch(folder / ".store", "cluster", writing.key("cluster", {"param": param}))


def test_the_second_workflow_is_served(tmp_path, cache):
    shared(tmp_path / "mine" / "thing")
    first, second = Artifact.open(tmp_path / "mine" / "thing"), served(tmp_path / "yours")
    assert second.folder.is_relative_to(tmp_path / "yours")
    assert (second.digest, second.summary) == (first.digest, {"value": 7})
    assert second.manifest["cost"] == first.manifest["cost"]


def test_without_the_variable_nothing_is_shared(tmp_path):
    share(made(tmp_path / "mine"))
    assert served(tmp_path / "yours") is None


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    write(file, bytes(data))


def write(file: Path, data: bytes) -> None:
    file.chmod(0o644)
    file.write_bytes(data)


def link(file: Path) -> None:
    file.unlink()
    file.symlink_to("/dev/zero")


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize("file", ["values.npy", "manifest.json"])
@pytest.mark.parametrize("spoil", [flip, Path.unlink, lambda file: write(file, file.read_bytes()[:-8]), link, pipe])
def test_a_spoilt_entry_is_never_served_and_is_named(tmp_path, cache, capsys, file, spoil):
    entry = shared(tmp_path / "mine")
    spoil(entry / file)
    assert served(tmp_path / "yours") is None
    assert f"{entry}" in capsys.readouterr().err
    shared(tmp_path / "mine")
    assert served(tmp_path / "yours")  # the entry, one's own, was replaced by a sound one


def test_an_entry_under_the_wrong_name_is_never_served(tmp_path, cache, capsys):
    one, two = shared(tmp_path / "mine", value=1, param=1), shared(tmp_path / "yours", value=2, param=2)
    shutil.rmtree(two)
    one.rename(two)
    assert served(tmp_path / "again", param=2) is None
    assert "is another result than its place says" in capsys.readouterr().err


def test_a_cache_that_cannot_be_written_is_no_failure(tmp_path, monkeypatch, capsys):
    (tmp_path / "cache").write_text("a file, not a folder")
    monkeypatch.setenv("GRANULARITY_CACHE", str(tmp_path / "cache"))
    shared(tmp_path / "mine")
    assert "the result is not shared" in capsys.readouterr().err


# ---------------------------------------------------------------- users

NEIGHBOUR = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")


@contextlib.contextmanager
def neighbour():
    os.seteuid(NEIGHBOUR)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def town(monkeypatch):
    """A cache that all may write, a folder of root's and one of a neighbour's."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    for name, mode in {"cache": 0o1777, "mine": 0o755, "yours": 0o777}.items():
        (folder / name).mkdir()
        (folder / name).chmod(mode)
    monkeypatch.setenv("GRANULARITY_CACHE", str(folder / "cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "yours"))
    yield folder
    shutil.rmtree(folder)


@needs_root
def test_a_cache_that_may_not_be_looked_into_costs_no_result(town):
    (town / "cache").chmod(0o700)
    with neighbour():
        assert served(town / "yours") is None
        assert shared(town / "yours" / "thing")


@needs_root
def test_an_entry_of_another_user_is_served_to_those_who_trust_its_owner(town, monkeypatch, capsys):
    before = os.umask(0o077)
    try:
        entry = shared(town / "mine" / "thing")
    finally:
        os.umask(before)
    with neighbour():
        assert served(town / "yours") is None
        assert f"{entry / 'manifest.json'}: belongs to user root, whom GRANULARITY_TRUST" in capsys.readouterr().err
        monkeypatch.setenv("GRANULARITY_TRUST", "daemon, root")
        found = served(town / "yours")
        assert found.summary == {"value": 7}
        assert found.folder.stat().st_uid == NEIGHBOUR
        shutil.rmtree(found.folder)
        monkeypatch.setenv("GRANULARITY_TRUST", "nobody_of_that_name")
        with pytest.raises(GranularityError, match="there is no user 'nobody_of_that_name'; write names with commas"):
            trusted()
    monkeypatch.delenv("GRANULARITY_TRUST")
    assert not any(path.stat().st_mode & 0o022 for path in entry.rglob("*"))  # others may read it, and nobody write it
    (entry / "manifest.json").chmod(0o664)
    assert served(town / "mine") is None
    assert "others can write it (mode 0664)" in capsys.readouterr().err
