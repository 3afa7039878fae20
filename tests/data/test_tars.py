"""Members of tar archives: found where they lie; a broken archive is one line."""

import gzip
import io
import tarfile

import numpy as np
import pytest

from granularity.base.errors import GranularityError
from granularity.data import tars


def archive(files: dict[str, bytes], style: int = tarfile.PAX_FORMAT) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=style) as made:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            made.addfile(info, io.BytesIO(data))
    return stream.getvalue()


GOOD = archive({"n01/a.jpg": b"first", "n01/b.jpg": b"the second"}, tarfile.USTAR_FORMAT)


@pytest.mark.parametrize("style", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_lie_where_it_says(tmp_path, style):
    long = "/".join(["a folder of forty characters, or nearly"] * 3)  # beyond the header's 100 bytes
    files = {f"{long}/{i}.jpg": np.random.default_rng(i).bytes(500 + 13 * i) for i in range(5)} | {"empty.jpg": b""}
    whole = archive(files, style)
    (tmp_path / "set.tar").write_bytes(whole)
    found = tars.members(tmp_path / "set.tar")
    assert {name: whole[at : at + size] for name, at, size in zip(*found, strict=True)} == files


def test_links_and_devices_are_passed_over(tmp_path):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as made:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE):
            info = tarfile.TarInfo("n01/c.jpg")
            info.type, info.linkname = kind, "/etc/passwd"
            made.addfile(info)
    (tmp_path / "set.tar").write_bytes(stream.getvalue())
    assert tars.members(tmp_path / "set.tar").names == []


BROKEN = {
    "nothing": b"",
    "text": b"404: Not Found\n",
    "zip": b"PK\x03\x04" + bytes(600),
    "gzip": gzip.compress(GOOD),
    **{f"cut at {keep}": GOOD[:keep] for keep in (1, 511, 512, 514, 1024, 1536, 1540, 2048)},
    "rubbish after a member": GOOD[:2048] + b"rubbish".ljust(512, b"!"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_archive_is_one_line(tmp_path, what):
    (tmp_path / "set.tar").write_bytes(BROKEN[what])
    with pytest.raises(GranularityError, match=r"set\.tar: is truncated or no plain tar .* \(gunzip\) first") as error:
        tars.members(tmp_path / "set.tar")
    assert "\n" not in str(error.value)
