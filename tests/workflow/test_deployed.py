"""The workflow where its package is not installed, as a module in another folder, and on systems that it is not for."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from support.checkout import ROOT, SMOKE, Checkout

ROOM = Path(sysconfig.get_paths()["purelib"])
SNAKEMAKE = [sys.executable, "-S", "-c", "from snakemake.cli import main; main()"]


@pytest.fixture
def without(tmp_path):
    """Run Snakemake with all that is installed here but this package, and what else is named."""

    def run(*arguments, cwd, lacks=()):
        packages = tmp_path / "packages"
        shutil.rmtree(packages, ignore_errors=True)
        packages.mkdir()
        for path in ROOM.iterdir():
            if "granularity" not in path.name and path.name.split(".")[0] not in lacks:
                (packages / path.name).symlink_to(path)
        known = {**os.environ, "PYTHONPATH": str(packages), "PATH": os.defpath}
        ended = subprocess.run(
            [*SNAKEMAKE, *arguments], cwd=cwd, env=known, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        return ended.returncode, ended.stdout

    return run


def test_it_is_linted_where_the_package_is_not_installed(repository, without):
    status, said = without("--lint", cwd=repository)
    assert status == 0 and "good condition" in said
    status, said = without("--cores", "1", cwd=repository)  # it can be read, but not run
    assert (
        status == 1
        and "the command `granularity`, which jobs run, is not on the PATH" in said
        and "Traceback" not in said
    )


def test_where_a_library_is_missing_one_line_says_what_to_install(repository, without):
    status, said = without("--lint", cwd=repository, lacks=["numpy", "pandas", "snakemake_executor_plugin_slurm"])
    assert status == 1 and "Traceback" not in said
    assert f"No module named 'numpy', needed to read this workflow: pip install '{repository}[cpu]'" in said


def test_in_a_deployed_folder_it_plans_or_says_what_to_install(repository, deployed, without):
    done = subprocess.run(["snakemake", "-n"], cwd=deployed, capture_output=True, text=True)
    assert done.returncode == 0 and "make_pretrain" in done.stdout + done.stderr
    status, said = without("-n", cwd=deployed)
    assert status == 1 and f"pip install 'granularity[cpu] @ git+file://localhost{repository}@v0'" in said


def test_without_a_shared_file_system_it_refuses():
    done = subprocess.run(["snakemake", "-n", "--shared-fs-usage", "none"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and "`granularity push`" in done.stdout and "Traceback" not in done.stdout


APPTAINER = """#!/bin/sh
[ "$1" = --version ] && exec echo apptainer version 1.4.0
echo "$@" >> asked
while [ "$1" != -c ]; do shift; done
exec bash -c "$2"
"""


def test_jobs_run_in_the_image_and_without_one_nothing_does(tmp_path):
    """A stand-in for Apptainer, which runs commands where they are."""
    checkout, tool = Checkout(tmp_path), tmp_path / "bin/apptainer"
    tool.parent.mkdir()
    tool.write_text(APPTAINER)
    tool.chmod(0o755)
    checkout.environment["PATH"] = f"{tool.parent}{os.pathsep}{checkout.environment['PATH']}"
    words = ("samples", "--sdm", "apptainer", *SMOKE)
    said, image = checkout.snakemake(*words, code=1), tmp_path / "envs/cpu.sif"
    assert f"--sdm apptainer: {image} does not exist; build it" in said and "Traceback" not in said
    image.touch()
    checkout.snakemake(*words)
    asked = (tmp_path / "asked").read_text()
    assert f" {image} " in asked and "granularity samples" in asked
    assert (tmp_path / "results/smoke/train-60/samples.stamp").is_file()


def test_on_windows_one_line_names_what_to_use():
    code = "import sys; sys.platform = 'win32'; import granularity"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and "WSL" in done.stderr
