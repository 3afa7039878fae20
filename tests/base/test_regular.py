"""Files that are none: a reader neither waits for them nor reads them without end."""

import os

import pytest

from granularity.base.errors import GranularityError
from granularity.base.regular import MissingError, check_regular, open_regular, read_regular, read_text


def test_files_and_links_to_them_are_read(tmp_path):
    (tmp_path / "one").write_bytes(b"\xef\xbb\xbf12\r\n")
    (tmp_path / "link").symlink_to("one")
    assert read_regular(tmp_path / "link", 7)[3:] == b"12\r\n" and read_text(tmp_path / "link") == "12\n"
    with pytest.raises(GranularityError, match="larger than 4 bytes"):
        read_regular(tmp_path / "one", 4)


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("folder", GranularityError, "is a folder, not a file"),
        ("pipe", GranularityError, "is a pipe or a device, not a file"),
        ("gone", MissingError, "cannot be read"),
        ("one/below", MissingError, "cannot be read"),
        ("a\0b", GranularityError, "cannot be read"),
        ("loop", GranularityError, "cannot be read"),
    ],
)
def test_what_is_no_file_is_one_line(name, kind, words, tmp_path):
    (tmp_path / "one").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    for read in (open_regular, check_regular):
        with pytest.raises(kind, match=words):
            read(f"{tmp_path}/{name}")
