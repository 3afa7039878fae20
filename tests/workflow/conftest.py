"""What the tests of whole commands share."""

import contextlib
import os
import shutil
import subprocess
import sys

import pytest
from filelock import FileLock

from support import tiny_chain
from support.checkout import ROOT, SMOKE, Checkout
from support.stores import copied


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory):
    """Give a checkout with a finished run that a test may change: finished_run(name, prepare).

    Runs are made once, whichever of the processes that share the tests asks first, and each asker gets a copy.
    `prepare` writes the configuration into the checkout and returns what tells Snakemake of it.
    """
    mine = tmp_path_factory.getbasetemp()
    ours = mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine

    def give(name, prepare):
        made, half = ours / f"finished-{name}", tmp_path_factory.mktemp("half")
        with FileLock(f"{made}.lock"):
            if not made.exists():
                checkout = Checkout(half)
                checkout.snakemake(*prepare(checkout))
                half.rename(made)
        copy = copied(Checkout(made, there=True), tmp_path_factory.mktemp(name))
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


GIT = ["git", "-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "init.defaultBranch=main"]
# As `snakedeploy deploy-workflow` writes it.
DEPLOYED = """configfile: "config/config.yaml"
module granularity:
    snakefile: "git+file://{}/workflow/Snakefile@v0"
    config: config
use rule * from granularity
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A repository with the workflow, tagged, as the driver of another folder would name it."""
    folder = tmp_path_factory.mktemp("repository")
    Checkout(folder)
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"], ["tag", "v0"]):
        subprocess.run([*GIT, *words], cwd=folder, check=True)
    return folder


@pytest.fixture(scope="module")
def deployed(repository, tmp_path_factory):
    """A folder with configurations and profiles alone, which takes the workflow from the repository."""
    folder = tmp_path_factory.mktemp("deployed")
    for name in ("config", "profiles"):
        shutil.copytree(ROOT / name, folder / name)
    (folder / "workflow").mkdir()
    (folder / "workflow/Snakefile").write_text(DEPLOYED.format(repository))
    return folder


@pytest.fixture(scope="module")
def installed(deployed, tmp_path_factory):
    """The same folder, whose configuration is given by path; commands run with the package from a wheel."""
    snakefile = deployed / "workflow/Snakefile"
    snakefile.write_text(snakefile.read_text().replace('configfile: "config/config.yaml"\n', ""))
    tmp_path = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "workflow", tmp_path / "source/workflow", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / "source")
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path, "."]
    subprocess.run(build, cwd=tmp_path / "source", check=True)
    (wheel,) = tmp_path.glob("*.whl")
    shutil.unpack_archive(wheel, tmp_path / "installed", "zip")
    made = Checkout(deployed, there=True)
    made.environment["PYTHONPATH"] = str(tmp_path / "installed")
    return made


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
