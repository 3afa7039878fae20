"""Decoded images: what a killed or stopped job had decoded is kept, and a disk that is full is a line."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from granularity.base import interrupt
from granularity.data.images import Images
from granularity.stages.pixels import stage as pixels
from granularity.store import artifacts
from granularity.store.artifacts import Artifact
from support import tasks


@pytest.mark.parametrize("signal", [False, True])
def test_decoding_saves_its_work_before_a_chunk_is_full(
    tmp_path, digits, digits_pixels, kill_at, monkeypatch, request, signal
):
    monkeypatch.setattr(pixels, "BATCH", 50)
    hashed = Images.hashed

    def signalled(self, index, mode):
        if index == 120:
            interrupt.request("SIGTERM", 143)
        return hashed(self, index, mode)

    if signal:
        monkeypatch.setattr(Images, "hashed", signalled)
    else:
        request.getfixturevalue("checkpoint_always")
        kill_at(Images, "hashed", 120)
    with pytest.raises(interrupt.Stopped if signal else kill_at.Killed):
        tasks.run("pixels", tmp_path / "pixels", samples=digits)
    monkeypatch.setattr(Images, "hashed", hashed)
    calls = kill_at(Images, "hashed", None)
    tasks.run("pixels", tmp_path / "pixels", samples=digits)
    assert sorted(index for _, index, _ in calls) == list(range(150 if signal else 100, 180))
    assert Artifact.open(tmp_path / "pixels").digest == Artifact.open(digits_pixels).digest


def test_pixels_of_images_that_nobody_hashed_are_those_of_their_folder(
    tmp_path, make_samples, kill_at, checkpoint_always, monkeypatch
):
    """Two folders of the same names and sizes: what was begun for one is not gone on with for the other.

    Without hashes of its images, where they lie is a fact of a sample table.
    """
    monkeypatch.setattr(pixels, "BATCH", 5)
    tables = [unhashed(tmp_path / name, make_samples, seed) for seed, name in enumerate(("one", "other"))]
    assert Artifact.open(tables[0]).digest != Artifact.open(tables[1]).digest
    monkeypatch.setattr(pixels, "CHUNK", 5)
    kill_at(Images, "hashed", 12)
    with pytest.raises(kill_at.Killed):
        tasks.run("pixels", tmp_path / "pixels", samples=tables[0])
    calls = kill_at(Images, "hashed", None)
    tasks.run("pixels", tmp_path / "pixels", samples=tables[1])
    assert len(calls) == 16
    tasks.run("pixels", tmp_path / "clean", samples=tables[1])
    assert Artifact.open(tmp_path / "pixels").digest == Artifact.open(tmp_path / "clean").digest


def unhashed(folder: Path, make_samples, seed: int) -> Path:
    """A table of 16 noisy images of equal sizes, without their hashes."""
    folder.mkdir()
    files = [f"{i}.png" for i in range(16)]
    for i, file in enumerate(files):
        noise = np.random.default_rng([seed, i]).integers(256, size=(8, 8), dtype=np.uint8)
        Image.fromarray(noise).save(folder / file, compress_level=0)
    sizes = [(folder / file).stat().st_size for file in files]
    columns = {"file": files, "bytes": sizes} | dict.fromkeys(("row", "offset", "sha256"))
    over = {"columns": columns, "root": str(folder), "checksums": "size"}
    return make_samples(folder / "samples", ["train", "val"] * 8, {"kind": ["a", "b"] * 8}, "kind", **over)


# ---------------------------------------------------------------- a disk that is full


FULL = """
import errno, os, sys
from pathlib import Path
from granularity.base.errors import GranularityError
from granularity.stages import STAGES
from granularity.stages.pixels import stage
from granularity.store.task import Task

def unsupported(*args):
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

samples, output, reserve = sys.argv[1:]
if reserve == "no":
    os.posix_fallocate = unsupported
record = STAGES["pixels"]
jpeg = {"format": "jpeg", "quality": 100} if reserve == "jpeg" else {}
try:
    stage.run(Task(record, Path(output), record.options(size=64, mode="RGB", **jpeg), {"samples": (Path(samples),)}))
except GranularityError as error:
    print(error)
"""


@pytest.mark.parametrize("reserve", ["yes", "no", "jpeg"])
def test_a_full_disk_is_a_line_and_no_dead_process(tmp_path, digits, reserve):
    """2.2 MB of pixels, 0.7 of JPEGs, on a disk without room for them; on one with room for them once, they fit."""
    small, large = ("256k", "1280k") if reserve == "jpeg" else ("1536k", "3m")
    for size in (small, large):
        with disk(tmp_path / size, size) as folder:
            command = [sys.executable, "-c", FULL, digits, folder / "out", reserve]
            environment = os.environ | {"PYTHONPATH": str(Path(artifacts.__file__).parents[2])}
            ended = subprocess.run(command, capture_output=True, text=True, env=environment)
            assert ended.returncode == 0, (ended.returncode, ended.stderr)
            full = "cannot be written (No space left on device); nothing was published" in ended.stdout
            assert full == (size == small) != (folder / "out").exists(), ended.stdout


@contextlib.contextmanager
def disk(folder: Path, size: str) -> Iterator[Path]:
    """A disk of a size."""
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("mounting needs root" if os.geteuid() else "this kernel lets nobody mount anything here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
