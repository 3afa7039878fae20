"""What the tests of whole commands share."""

import contextlib
import os
import subprocess

import pytest


@pytest.fixture(scope="module")
def chain(tiny_results):
    folder, made = tiny_results
    with contextlib.chdir(folder):
        yield made


@pytest.fixture
def disk(tmp_path):
    """A small disk."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", place], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting needs root" if os.geteuid() else "this kernel lets nobody mount anything here")
    yield place
    subprocess.run(["umount", "-l", place], check=True)
