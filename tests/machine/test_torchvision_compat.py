"""The libraries that import torchvision can be imported in the installed environment, outside this package, too."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("name", ["torchvision", "timm", "open_clip"])
def test_it_can_be_imported_anywhere(name):
    code = f"import sys, {name}; assert 'granularity.learning' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
