"""Members of tar archives: found where they lie, and nothing that an archive claims is believed."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from granularity.base.errors import GranularityError
from granularity.data import tars

BLOCK = 512


def header(name: str | bytes, size: int = 0, type: bytes = tarfile.REGTYPE, **fields) -> bytes:
    """One header as tarfile writes it, with any size and name put in afterwards."""
    info = tarfile.TarInfo("x")
    info.type = type
    for key, value in fields.items():
        setattr(info, key, value)
    raw = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    name = name if isinstance(name, bytes) else name.encode()
    raw[0:100] = name.ljust(100, b"\0")
    raw[124:136] = tarfile.itn(size, 12, tarfile.GNU_FORMAT)
    raw[148:156] = b"        "
    raw[148:156] = b"%06o\0 " % sum(raw)
    return bytes(raw)


def member(name: str | bytes, data: bytes = b"", type: bytes = tarfile.REGTYPE, **fields) -> bytes:
    return header(name, len(data), type, **fields) + data + bytes(-len(data) % BLOCK)


def pax(records: dict[str, bytes], type: bytes = tarfile.XHDTYPE) -> bytes:
    """An extended header of POSIX.1-2001: records of "LENGTH KEY=VALUE" and a newline, which LENGTH counts too."""
    text = b""
    for key, value in records.items():
        rest = b" " + key.encode() + b"=" + value + b"\n"
        length = next(n for n in range(len(rest), len(rest) + 20) if len(str(n)) + len(rest) == n)
        text += str(length).encode() + rest
    return member("pax", text, type)


END = bytes(2 * BLOCK)
GOOD = member("n01/a.jpg", b"first") + member("n01/b.jpg", b"the second")


@pytest.fixture
def scan(tmp_path):
    """The members of an archive of these bytes, as {name: what lies at its offset}."""

    def of(data: bytes, end: bytes = END) -> dict[str, bytes]:
        file = tmp_path / "set.tar"
        file.write_bytes(data + end)
        found = tars.members(file)
        whole = data + end
        return {name: whole[at : at + size] for name, at, size in zip(*found, strict=True)}

    return of


@pytest.fixture
def refused(scan):
    def with_message(message: str, data: bytes, end: bytes = END) -> None:
        with pytest.raises(GranularityError, match=message) as error:
            scan(data, end)
        text = str(error.value)
        assert "set.tar: " in text
        assert "\n" not in text and "\x1b" not in text
        text.encode()  # what cannot be printed would end the command in a traceback

    return with_message


# ---------------------------------------------------------------- good archives


@pytest.mark.parametrize("style", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_lie_where_it_says(tmp_path, style):
    long = "/".join(["a folder of forty characters, or nearly"] * 3)  # beyond the header's 100 bytes
    files = {f"{long}/{i}.jpg": np.random.default_rng(i).bytes(500 + 13 * i) for i in range(5)} | {"empty.jpg": b""}
    with tarfile.open(tmp_path / "set.tar", "w", format=style) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    whole = (tmp_path / "set.tar").read_bytes()
    found = tars.members(tmp_path / "set.tar")
    assert {name: whole[at : at + size] for name, at, size in zip(*found, strict=True)} == files
    assert found.names == list(files)


def test_gnu_tar_writes_what_is_read(tmp_path):
    (tmp_path / "in" / ("d" * 120)).mkdir(parents=True)
    (tmp_path / "in" / ("d" * 120) / "größe.jpg").write_bytes(b"from GNU tar")
    try:
        subprocess.run(["tar", "-C", tmp_path / "in", "-cf", tmp_path / "set.tar", "."], check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no tar here")
    found = tars.members(tmp_path / "set.tar")
    assert found.names == [f"./{'d' * 120}/größe.jpg"]
    assert (tmp_path / "set.tar").read_bytes()[found.offsets[0] :][: found.sizes[0]] == b"from GNU tar"


def test_several_archives_keep_their_order(tmp_path):
    files = []
    for i in range(5):
        files.append(tmp_path / f"{i}.tar")
        files[-1].write_bytes(member(f"{i}.jpg", b"x" * i) + END)
    one, two = ([found.names + found.sizes for found in tars.scan(files, threads)] for threads in (1, 2))
    assert one == two == [[f"{i}.jpg", i] for i in range(5)]


def test_an_error_comes_through_other_processes(tmp_path):
    for i, data in enumerate([GOOD + END, GOOD]):
        (tmp_path / f"{i}.tar").write_bytes(data)
    with pytest.raises(GranularityError, match=r"1\.tar: truncated"):
        list(tars.scan([tmp_path / "0.tar", tmp_path / "1.tar"], 2))


def test_an_archive_of_nothing_has_no_members(scan):
    assert scan(b"") == {}


def test_a_path_as_long_as_a_file_system_has_them(scan):
    name = "ä" * 2000 + ".jpg"
    assert scan(pax({"path": name.encode()}) + member("short", b"data")) == {name: b"data"}


@pytest.mark.parametrize(
    "name", ["new\nline.jpg", "q\"uo'te.jpg", "$(touch x).jpg", "`id`;.jpg", "\x1b[31m.jpg", "a\\..\\b.jpg", "-rf.jpg"]
)
def test_odd_names_are_only_names(scan, name):
    assert scan(member(name, b"data")) == {name: b"data"}


# ---------------------------------------------------------------- members that are no images


@pytest.mark.parametrize(
    "type", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE]
)
@pytest.mark.parametrize("target", ["/etc/passwd", "../../secret", "n01/a.jpg"])
def test_links_and_devices_are_not_followed(scan, type, target):
    assert set(scan(GOOD + header("n01/c.jpg", type=type, linkname=target))) == {"n01/a.jpg", "n01/b.jpg"}


def test_sparse_files_are_passed_over(scan):
    """Their bytes are not the file's: GNU tar's own format, and its formats 0.1 and 1.0 in extended headers."""
    old = bytearray(header("old.jpg", 5, tarfile.GNUTYPE_SPARSE))
    old[386:410] = b"%011o\0%011o\0" % (1000, 5)
    old[483:495] = b"%011o\0" % 1005
    old[148:156] = b"        "
    old[148:156] = b"%06o\0 " % sum(old)
    middle = pax({"GNU.sparse.map": b"1000,5", "GNU.sparse.size": b"1005"}) + member("middle.jpg", b"bytes")
    new = pax({"GNU.sparse.major": b"1", "GNU.sparse.minor": b"0", "GNU.sparse.realsize": b"1005"})
    new += member("new.jpg", b"1\n1000\n5\n".ljust(BLOCK, b"\0") + b"bytes")
    sparse = bytes(old) + b"bytes".ljust(BLOCK, b"\0") + middle + new
    assert scan(GOOD + sparse + member("last.jpg", b"end")) == {
        "n01/a.jpg": b"first",
        "n01/b.jpg": b"the second",
        "last.jpg": b"end",
    }


def test_an_archive_in_an_archive_is_a_member(scan, tmp_path):
    inner = GOOD + END
    assert scan(member("n01.tar", inner)) == {"n01.tar": inner}
    (tmp_path / "n01.tar").write_bytes(inner[: len(inner) // 3])
    with pytest.raises(GranularityError, match=r"n01\.tar: "):
        tars.members(tmp_path / "n01.tar")


# ---------------------------------------------------------------- paths and names


@pytest.mark.parametrize("name", ["../a.jpg", "n01/../../a.jpg", "..", "/a.jpg", "/etc/passwd", "//a.jpg"])
def test_a_path_that_leaves_the_archive_is_refused(refused, name):
    refused("has a path that leaves the archive", GOOD + member(name, b"x"))
    refused("has a path that leaves the archive", pax({"path": name.encode()}) + member("safe.jpg", b"x"))


def test_such_a_name_with_a_line_break_is_told_in_one_line(refused):
    refused(r"'/a\\nerror: \\x1b\[2Jfine'", member("/a\nerror: \x1b[2Jfine", b"x"))


@pytest.mark.parametrize("name", [b"\xff.jpg", b"caf\xe9.jpg", b"\xed\xa0\x80.jpg"])
def test_a_name_that_is_not_utf8_is_refused(refused, name):
    refused(r"the name of the member '.*\\udc.*' is not UTF-8", GOOD + member(name, b"x"))
    refused(r"is not UTF-8", pax({"path": name}) + member("safe.jpg", b"x"))


# ---------------------------------------------------------------- claims


@pytest.mark.parametrize("size", [513, 10 * 2**40, 2**62, 2**80])
def test_a_member_that_claims_more_than_there_is(refused, size):
    refused("truncated in the member 'big.jpg'", GOOD + header("big.jpg", size) + b"small".ljust(BLOCK, b"\0"), b"")
    refused("truncated in the member 'big.jpg'", pax({"size": b"%d" % (size + 2000)}) + member("big.jpg", b"small"))


@pytest.mark.parametrize("type", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE])
@pytest.mark.parametrize("size", [2**16 + 1, 10 * 2**40, 2**80, -512])
def test_a_header_that_claims_terabytes_is_not_read(refused, type, size):
    refused("no plain tar archive", GOOD + header("x", size, type) + member("a.jpg", b"x"))


def test_a_huge_path_is_refused(refused):
    refused("no plain tar archive", pax({"path": b"a" * 10**6}) + member("a.jpg", b"x"))


@pytest.mark.parametrize("type", [tarfile.REGTYPE, b"?"])
@pytest.mark.parametrize("size", [-512, -1024, -1536, -(2**40)])
def test_a_negative_size_does_not_go_round_in_circles(refused, type, size):
    refused("set.tar: ", GOOD + header("back.jpg", size, type))
    refused("set.tar: ", header("back.jpg", size, type))
    refused("set.tar: ", GOOD + pax({"size": b"%d" % size}) + header("back.jpg", 0, type))


def test_headers_of_headers_of_headers(refused):
    refused("no plain tar archive", pax({"comment": b"again"}) * 3000 + member("a.jpg", b"x"))
    refused("no plain tar archive", member("x", b"name", tarfile.GNUTYPE_LONGNAME) * 3000 + member("a.jpg", b"x"))


def test_a_sparse_map_that_never_ends(refused):
    refused(
        "no plain tar archive", pax({"GNU.sparse.major": b"1", "GNU.sparse.minor": b"0"}) + member("a.jpg", b"9\n1")
    )
    old = bytearray(header("old.jpg", 5, tarfile.GNUTYPE_SPARSE))
    old[482] = 1  # "goes on in another block", of which there is none
    old[148:156] = b"        "
    old[148:156] = b"%06o\0 " % sum(old)
    refused("no plain tar archive", bytes(old), b"")


# ---------------------------------------------------------------- broken archives


@pytest.mark.parametrize("keep", [1, 100, 511, 512, 514, 1023, 1024, 1536, 1540, 2047, 2048])
def test_an_archive_cut_anywhere_is_refused(refused, keep):
    refused("truncated", (GOOD + END)[:keep], b"")


def test_an_archive_cut_in_an_archive_within_is_refused(refused):
    refused("truncated in the member 'n01.tar'", member("n01.tar", GOOD + END)[:1200], b"")


def test_rubbish_after_the_first_member_is_refused(refused):
    refused("truncated", GOOD + b"rubbish".ljust(BLOCK, b"!"))


@pytest.mark.parametrize(
    "data", [b"", b"not a tar", b"PK\x03\x04" + bytes(600), np.random.default_rng(0).bytes(2048), b"\xff" * 5000]
)
def test_what_is_no_archive_is_refused(refused, data):
    refused("no plain tar archive", data, b"")


def test_a_compressed_archive_is_to_be_unpacked_first(refused):
    refused(r"unpack a compressed one \(gunzip\) first", gzip.compress(GOOD + END), b"")


def test_a_missing_archive_and_a_folder(tmp_path):
    with pytest.raises(GranularityError, match=r"gone\.tar: cannot be read \(No such file"):
        tars.members(tmp_path / "gone.tar")
    with pytest.raises(GranularityError, match=r"is a folder where a file should be"):
        tars.members(tmp_path)


def test_no_broken_byte_escapes_as_another_error(tmp_path):
    """Whatever bytes are broken, the answer is members that lie within the file, or the one error."""
    rng = np.random.default_rng(0)
    whole = pax({"path": b"long.jpg", "size": b"5"}) + member("a", b"first") + GOOD
    whole += member("x", b"name", tarfile.GNUTYPE_LONGNAME) + member("b.jpg", b"x") + END
    file = tmp_path / "set.tar"
    refused = 0
    for _ in range(400):
        data = bytearray(whole)
        for place in rng.integers(0, len(whole), 3):
            data[place] = rng.integers(256)
        for start in range(0, len(data), BLOCK):  # half of them with checksums that hold, or all would end there
            block = data[start : start + BLOCK]
            if rng.random() < 0.5 and block[257:262] == b"ustar":
                block[148:156] = b"        "
                data[start + 148 : start + 156] = b"%06o\0 " % sum(block)
        file.write_bytes(data)
        try:
            found = tars.members(file)
        except GranularityError as error:
            assert "set.tar: " in str(error) and "\n" not in str(error)
            refused += 1
        else:
            assert all(min(at, n, len(data) - at - n) >= 0 for at, n in zip(*found[1:], strict=True))
            "".join(found.names).encode()
    assert 0 < refused < 400


def test_an_archive_of_terabytes_is_scanned_without_reading_it(tmp_path):
    """A file with a hole, as a file system gives it: the sizes are true, and none of it may be read."""
    file = Path(tmp_path / "set.tar")
    size = 2**40
    try:
        with file.open("wb") as stream:
            stream.write(header("big.jpg", size))
            stream.seek(size, os.SEEK_CUR)
            stream.write(member("small.jpg", b"x") + END)
    except OSError:
        pytest.skip("this file system has no such large files")
    assert sys.getsizeof(tars.members(file)) < 1000
    assert tars.members(file).sizes == [size, 1]
