"""Files that are none: a reader neither waits for them nor reads them without end."""

import os
import signal
import socket

import pytest

from granularity.base.errors import GranularityError
from granularity.base.regular import MissingError, check_regular, open_regular, read_regular


@pytest.fixture(autouse=True)
def no_patience():
    """Whoever waits is killed."""
    signal.alarm(20)
    yield
    signal.alarm(0)


def make(kind, path):
    if kind == "a FIFO":
        os.mkfifo(path)
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(os.path.relpath(path))  # its address has room for some 100 bytes
    elif kind == "a device":
        path.symlink_to("/dev/zero")
    elif kind == "a folder":
        path.mkdir()


@pytest.mark.parametrize("read", [open_regular, check_regular, lambda path: read_regular(path, 10)])
@pytest.mark.parametrize("kind", ["a FIFO", "a socket", "a device", "a folder"])
def test_what_is_no_file_is_not_read(kind, read, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make(kind, tmp_path / "one")
    (tmp_path / "link").symlink_to("one")
    for name in ("one", "link"):
        with pytest.raises(GranularityError, match=f"{name}: (is {kind} where a file should be|cannot be read)"):
            read(tmp_path / name)


def test_files_and_links_to_them_are_read(tmp_path):
    (tmp_path / "one").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("one")
    assert read_regular(tmp_path / "link", 5) == b"12345"
    with open_regular(tmp_path / "one") as stream:
        assert stream.read(2) == b"12"
    with pytest.raises(GranularityError, match="larger than 4 bytes"):
        read_regular(tmp_path / "one", 4)
    with pytest.raises(GranularityError, match="larger than 4 bytes"):  # whose size is said to be 0
        read_regular("/proc/self/status", 4)


@pytest.mark.parametrize("name", ["gone", "one/below", "link to nothing"])
def test_missing_files(name, tmp_path):
    (tmp_path / "one").write_bytes(b"")
    (tmp_path / "link to nothing").symlink_to("gone")
    with pytest.raises(MissingError, match="cannot be read"):
        open_regular(tmp_path / name)


@pytest.mark.parametrize("name", ["a\0b", "x" * 300, "loop"])
def test_names_that_no_file_can_have(name, tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    for read in (open_regular, check_regular):
        with pytest.raises(GranularityError, match="cannot be read"):
            read(f"{tmp_path}/{name}")
