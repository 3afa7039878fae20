"""A skip that is a failure where the variable is set."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import skips

FAILING = {
    "call": "def test_it(): pytest.skip('no such tool')",
    "mark": "@pytest.mark.skipif(True, reason='no such tool')\ndef test_it(): pass",
    "setup": "@pytest.fixture\ndef tool(): pytest.skip('no such tool')\ndef test_it(tool): pass",
    "module": "pytest.skip('no such tool', allow_module_level=True)",
    "import": "no_such_tool = pytest.importorskip('no_such_tool', reason='no such tool')\ndef test_it(): pass",
}
FORGIVEN = {
    "file_system": "def test_it(): pytest.skip('this file system has UTF-8 names only')",
    "kernel": "@pytest.mark.skipif(True, reason='this kernel lets nobody mount anything')\ndef test_it(): pass",
    "expected": "@pytest.mark.xfail(reason='known')\ndef test_it(): assert False",
    "passing": "def test_it(): pass",
}


@pytest.mark.parametrize("strict", ["", "1"])
def test_a_skip_is_a_failure_where_the_variable_is_set_but_where_nobody_can_mend_it(tmp_path, strict):
    for name, code in (FAILING | FORGIVEN).items():
        (tmp_path / f"test_{name}.py").write_text(f"import pytest\n\n{code}\n")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent), skips.VARIABLE: strict}
    words = [sys.executable, "-m", "pytest", "-q", "-rfEs", "-p", "support.skips", "-p", "no:cacheprovider"]
    words += ["--continue-on-collection-errors"]
    output = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True).stdout
    failed = set(re.findall(r"^(?:FAILED|ERROR) test_(\w+)\.py", output, re.MULTILINE))
    assert failed == (set(FAILING) if strict else set()), output
    assert "no such tool" in output and (skips.VARIABLE in output) == bool(strict)
