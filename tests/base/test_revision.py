"""Which workflow made a page."""

import importlib.metadata
import shutil
import subprocess
import sys
from pathlib import Path

from granularity.base import revision


def test_a_page_says_the_version_and_in_a_checkout_the_commit(tmp_path):
    package = tmp_path / "granularity"
    (package / "base").mkdir(parents=True)
    for file in (package / "__init__.py", package / "base/__init__.py"):
        file.touch()
    shutil.copy(revision.__file__, package / "base")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path)]

    def run(*command: str) -> str:
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()

    def said() -> str:
        return run(sys.executable, "-c", "from granularity.base import revision; print(revision.revision())")

    version = f"version {importlib.metadata.version('granularity')}"
    assert said() == version
    run(*git, "init", "--quiet")
    assert said() == version  # someone else's repository
    run(*git, "add", ".")
    run(*git, "commit", "--quiet", "-m", "one")
    assert said() == f"{version}, commit {run(*git, 'rev-parse', '--short=10', 'HEAD')}"
    Path(package / "__init__.py").write_text("# edited")
    assert said().endswith(" + changes")
