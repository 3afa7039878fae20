"""Several processes that run together, for the tests of what they do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import tasks
from support.several import Ended


@pytest.fixture(scope="module")
def processes():
    """Run lines of Python in several processes at once: processes(size, code)."""
    command = [sys.executable, str(Path(tasks.__file__).with_name("ranks.py"))]
    environment = os.environ | {"TORCH_CPP_LOG_LEVEL": "ERROR"}  # as the launcher sets it
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout.readline() == "ready\n"

        def go(size: int, code: str, **environment: str) -> Ended:
            job = {"size": size, "code": code, "environment": environment}
            server.stdin.write(json.dumps(job) + "\n")
            server.stdin.flush()
            return Ended(**json.loads(server.stdout.readline()))

        yield go
        server.stdin.close()
