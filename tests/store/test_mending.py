"""Names and stamps that do not belong together are mended, and what cannot be read is left alone."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from granularity.store import generations, mending
from support import writing

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
NOBODY = 65534


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(mending, "SECONDS_TO_STAMP", 0.0)


def make(output: Path, value: int) -> Path:
    with writing.create(output, params={"value": value}) as out:
        out.text("value.txt", str(value))
    return output.resolve()


def test_a_name_follows_its_stamp(tmp_path, capsys):
    name = tmp_path / "results/thing"
    first, _ = make(name, 1), make(name, 2)
    generations.stamp_of(name).write_bytes(mending._text_of(first))
    mending.tell([(name, "thing")])
    assert "the next run mends it" in capsys.readouterr().err and name.resolve() != first
    mending.mend([(name, "thing")])
    assert "mended" in capsys.readouterr().err and name.resolve() == first


def test_a_stamp_without_a_result_goes_and_says_how_the_result_is_made_again(tmp_path, capsys):
    name = tmp_path / "results/thing"
    shutil.rmtree(make(name, 1))
    mending.mend([(name, "thing")])
    stamp = generations.stamp_of(name)
    assert not stamp.exists()
    assert f"deleted: `snakemake {stamp}`, or what needs it, makes it again" in capsys.readouterr().err


@needs_root
@pytest.mark.parametrize("what", ["stamp", "manifest", "the result that the stamp tells of"])
def test_what_a_colleague_has_closed_is_named_and_nothing_is_deleted(open_folder, what, capsys):
    name, other = open_folder / "results/closed", open_folder / "results/other"
    closed = make(name, 1) / "manifest.json"
    make(other, 2)
    if what == "stamp":
        closed = generations.stamp_of(name)
    elif what != "manifest":  # the name leads elsewhere
        name.unlink()
        name.symlink_to(os.readlink(other))
    closed.chmod(0o600)
    for folder in (path for path in (open_folder / "results", *open_folder.rglob("*")) if path.is_dir()):
        folder.chmod(0o777)
    before = {path: os.lstat(path).st_ino for path in open_folder.rglob("*")}
    for act in (mending.mend, mending.tell) if what != "the result that the stamp tells of" else (mending.mend,):
        os.seteuid(NOBODY)
        try:
            act([(name, "thing")])
        finally:
            os.seteuid(0)
        there = f"cannot be read (Permission denied); {name} is left as it is"
        assert capsys.readouterr().err.endswith(there + "\n")
        assert {path: os.lstat(path).st_ino for path in open_folder.rglob("*")} == before


@pytest.fixture
def open_folder():
    """A folder that other users may look into; pytest's own are closed to them."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_a_stamp_that_is_no_file_is_named(tmp_path, capsys):
    name = tmp_path / "results/thing"
    make(name, 1)
    stamp = generations.stamp_of(name)
    stamp.unlink()
    os.mkfifo(stamp)
    mending.mend([(name, "thing")])
    assert f"{stamp}: is a FIFO where a file should be; {name} is left as it is" in capsys.readouterr().err
    assert stamp.exists()
