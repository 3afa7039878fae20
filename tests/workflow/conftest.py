"""What the tests of whole commands share."""

import contextlib
import os
import subprocess

import pytest
from filelock import FileLock

from support import tiny_chain
from support.checkout import SMOKE, Checkout
from support.stores import copied


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory):
    """Give a checkout with a finished run that a test may change: finished_run(name, prepare).

    Runs are made once, whichever of the processes that share the tests asks first, and each asker gets a copy.
    `prepare` writes the configuration into the checkout and returns what tells Snakemake of it. `cold`: its commands,
    and those of the copies, start as those of users do.
    """
    mine = tmp_path_factory.getbasetemp()
    ours = mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine

    def give(name, prepare, cold=False):
        made, half = ours / f"finished-{name}", tmp_path_factory.mktemp("half")
        with FileLock(f"{made}.lock"):
            if not made.exists():
                checkout = Checkout(half, cold=cold)
                checkout.snakemake(*prepare(checkout))
                half.rename(made)
        copy = copied(Checkout(made, there=True), tmp_path_factory.mktemp(name), cold)
        prepare(copy)
        return copy

    return give


@pytest.fixture(scope="module")
def smoke(finished_run):
    """A finished run of the smoke configuration."""
    return finished_run("smoke", lambda checkout: SMOKE)


@pytest.fixture(scope="module")
def tiny(finished_run):
    """A finished run of the smallest chain."""
    return finished_run("tiny", tiny_chain.configure)


@pytest.fixture
def checkout(tiny, tmp_path):
    """A copy of the finished run of the smallest chain; its configuration may be written anew."""
    made = copied(tiny, tmp_path / "checkout")
    tiny_chain.configure(made)
    return made


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
