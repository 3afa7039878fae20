"""The libraries that import torchvision can be imported beside this package, and other programs are left alone."""

import subprocess
import sys

import pytest


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


@pytest.mark.parametrize("name", ["torchvision", "timm", "open_clip"])
def test_it_can_be_imported_once_this_package_is(name):
    done = run(f"import granularity, sys; assert 'torch' not in sys.modules; import {name}")
    assert done.returncode == 0, done.stderr


def test_a_program_without_this_package_does_not_meet_it():
    done = run("import sys, torch; assert 'granularity' not in sys.modules")
    assert done.returncode == 0, done.stderr
