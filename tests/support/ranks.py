"""Runs lines of Python in several processes that train together, as the launcher would start them.

A program of its own, so that what is slow to import (its arguments) is imported once; each job is forked from it. Jobs
come as lines of JSON on standard input; the answers, with every process's exit status and standard error, go to
standard output.
The launcher kills the rest when one process dies; here nobody does, so they must end by themselves.
"""

import importlib
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

from granularity.machine.launch import MEETING


def child(job: dict, rank: int, meeting: Path, errors: Path) -> None:
    signal.alarm(120)  # a test that hangs ends as one that fails
    size = str(job["size"])
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    os.environ |= {"GROUP_RANK": "0", MEETING: str(meeting), **job["environment"]}
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)
    from granularity import cli

    cli.app = lambda: exec(compile(job["code"], "<job>", "exec"), {"rank": rank})
    status = 0
    try:
        cli.main()
    except SystemExit as end:
        status = end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 99
    sys.stderr.flush()
    os._exit(status)


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    for name in sys.argv[1:]:
        importlib.import_module(name)
    print("ready", flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder, str(rank)) for rank in range(job["size"])]
            pids = []
            for rank in range(job["size"]):
                pids.append(os.fork())
                if pids[-1] == 0:
                    child(job, rank, Path(folder, "meeting"), files[rank])
            status = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
            print(json.dumps({"status": status, "errors": [file.read_text() for file in files]}), flush=True)


main()
