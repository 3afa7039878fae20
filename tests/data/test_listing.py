"""Digests of folders and files: what changes them, what does not, and folders that are not as they should be."""

import os

import pytest

from granularity.base.errors import GranularityError
from granularity.data.listing import ABSENT, names, stats

DIGESTS = pytest.mark.parametrize("digest", [names, stats])
OLD = 10**18  # a time in 2001, in nanoseconds


@pytest.fixture
def root(tmp_path):
    """Two classes of two images each, an archive and a hidden file."""
    folder = tmp_path / "root"
    for name in ("a/1.jpg", "a/2.JPG", "b/c/1.png", "b/c/2.png", "b/more.tar", ".cache/lock", "a/.thumbnail.jpg"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def touch(file, time=OLD):
    os.utime(file, ns=(time, time))


CHANGES = {  # whether names() sees it, and stats()
    "image added": (lambda root: (root / "b/c/3.png").write_text("3"), True, True),
    "image removed": (lambda root: (root / "a/2.JPG").unlink(), True, True),
    "image renamed": (lambda root: (root / "a/1.jpg").rename(root / "a/3.jpg"), True, True),
    "image in another folder": (lambda root: (root / "a/1.jpg").rename(root / "b/1.jpg"), True, True),
    "empty folder added": (lambda root: (root / "d").mkdir(), True, True),
    "folder renamed": (lambda root: (root / "b/c").rename(root / "b/d"), True, True),
    "image replaced": (lambda root: (root / "a/1.jpg").write_text("longer than before"), False, True),
    "image touched": (lambda root: touch(root / "a/1.jpg"), False, True),
    "archive longer": (lambda root: (root / "b/more.tar").write_text("longer than before"), True, True),
    "archive touched": (lambda root: touch(root / "b/more.tar"), True, True),
    "hidden file added": (lambda root: (root / "a/.DS_Store").write_text("x"), False, False),
    "hidden folder changed": (lambda root: (root / ".cache/more").write_text("x"), False, False),
    "folder touched": (lambda root: touch(root / "a"), False, False),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_a_digest(root, change):
    edit, seen_by_names, seen_by_stats = CHANGES[change]
    before = names(root), stats(root)
    assert (names(root), stats(root)) == before
    edit(root)
    assert (names(root) != before[0], stats(root) != before[1]) == (seen_by_names, seen_by_stats)


@DIGESTS
def test_a_digest_does_not_depend_on_the_place_or_the_order_of_the_disk(root, tmp_path, digest):
    before = digest(root)
    other = tmp_path / "elsewhere"
    for file in reversed(sorted(file for file in root.rglob("*") if file.is_file())):
        copy = other / file.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
        touch(copy, file.stat().st_mtime_ns)
    assert digest(other) == before


@DIGESTS
def test_links_are_followed_and_loops_end(root, tmp_path, digest):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "1.png").touch()
    before = digest(root)
    (root / "linked").symlink_to(outside)
    linked = digest(root)
    (outside / "2.png").touch()
    assert len({before, linked, digest(root)}) == 3
    loops = {"a/up": root, "b/c/self": root / "b/c", "round": root / "round", "no": root / "no.tar"}
    for name, target in loops.items():
        (root / name).symlink_to(target)
    assert digest(root) == digest(root)
    (root / "again").symlink_to(outside)  # two links to one folder are two classes
    with_both = digest(root)
    (root / "again").unlink()
    assert digest(root) != with_both


@DIGESTS
def test_no_folder(tmp_path, digest):
    assert digest(tmp_path / "nowhere") == ABSENT
    (tmp_path / "file").touch()
    with pytest.raises(GranularityError, match=r"file: cannot be read \(Not a directory\)"):
        digest(tmp_path / "file")
