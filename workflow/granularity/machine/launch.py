"""Start a stage as several processes: `python -m granularity.machine.launch PROCESSES pretrain --samples ...`.

On several machines, start it once on each, with options before the number of processes, which is that of each machine:
`--machines M --machine I --meet FOLDER`, where I counts from 0. The processes meet through a file in a private folder,
so nobody else can tell them anything. What goes wrong is one line, and all signals of a scheduler reach the processes.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from granularity.base.errors import GranularityError

LAUNCHER = "GRANULARITY_LAUNCHER"  # the launcher's process ID; set in the processes
MEETING = "GRANULARITY_MEETING"  # the file through which they meet; likewise
SECONDS_BETWEEN_LOOKS = 0.05
SECONDS_TO_SPEAK = 3
SECONDS_TO_SAVE = 100  # after a signal, before SIGKILL
SECONDS_TO_COME = 600  # for the other machines; a directory on NFS may look as it did a minute ago
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
USAGE = (
    "usage: python -m granularity.machine.launch [--machines M --machine I --meet FOLDER] PROCESSES STAGE ... "
    "(I counts from 0)"
)
PR_SET_PDEATHSIG = 1  # of Linux's prctl


def launch(processes: int, command: list[str], machines: int = 1, machine: int = 0, meet: Path | None = None) -> int:
    """Run `granularity` with these words in several processes; returns the exit status.

    Args:
        processes: how many of them on this machine, and on every other.
        machine: which of the machines this is, from 0.
        meet: a private folder that all machines see; None on a single one.

    Raises:
        GranularityError: a process was killed, so that it could not say anything itself; the folder is not private,
            or was used before; another machine does not come.
    """
    with _private(meet) as folder:
        if machines > 1:
            _wait_for_all(folder, meet, f"of {machines} with {processes} processes", machines, machine)
        asked: list[int] = []
        handlers = {number: signal.signal(number, lambda number, frame: asked.append(number)) for number in SIGNALS}
        workers: list[subprocess.Popen] = []
        try:
            for local in range(processes):
                about = {
                    LAUNCHER: os.getpid(),
                    MEETING: f"/proc/self/fd/{folder}/meeting",  # whatever is done to the folder's name meanwhile
                    "RANK": machine * processes + local,
                    "WORLD_SIZE": machines * processes,
                    "LOCAL_RANK": local,
                    "LOCAL_WORLD_SIZE": processes,
                    "GROUP_RANK": machine,
                }
                environment = os.environ | {name: str(value) for name, value in about.items()}
                environment.setdefault("OMP_NUM_THREADS", "1")  # each sets its own number of threads
                environment.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # not torch's hints to its own developers
                words = [sys.executable, "-m", "granularity.machine.launch", str(processes), *command]
                # In a session of its own, so that what a terminal sends comes once, from here.
                workers.append(subprocess.Popen(words, env=environment, pass_fds=[folder], start_new_session=True))
            return _status(workers, asked, machine * processes, machines * processes)
        finally:
            for worker in workers:
                worker.kill()  # where something went wrong here
                worker.wait()
            for number, handler in handlers.items():
                signal.signal(number, handler)  # whoever called this goes on, and is to hear them


def threads_each(threads: int, processes: int) -> int:
    """The CPU threads of each process of a job that has so many on this machine, and as many processes in all."""
    return max(1, threads // (int(os.environ["LOCAL_WORLD_SIZE"]) if LAUNCHER in os.environ else processes))


def _status(workers: list[subprocess.Popen], asked: list[int], first_rank: int, size: int) -> int:
    """Wait for all processes, pass signals on, end the rest when one fails; returns the exit status.

    Args:
        asked: signals for all of them; grows while this waits.
    """
    failed: list[int] = []  # in the order in which they ended
    signalled: int | None = None
    sent: set[int] = set()
    end_by = float("inf")
    while running := [worker for worker in workers if worker.returncode is None]:
        found = [worker for worker in running if worker.poll()]
        # At one look, the killed come first: it is they whom the others miss. Then those that were asked to stop.
        found.sort(key=lambda worker: (worker.returncode > 0, -worker.returncode))
        failed += map(workers.index, found)
        if asked and signalled is None:
            signalled = asked[0]
        numbers = [asked.pop(0) for _ in range(len(asked))]
        if failed and not sent:
            numbers.append(signal.SIGTERM)
        if numbers and not sent:
            end_by = time.monotonic() + SECONDS_TO_SAVE
        if time.monotonic() > end_by:
            numbers.append(signal.SIGKILL)
        for number in numbers:
            sent.add(number)
            for worker in running:
                if worker.returncode is None:  # not reaped, so the number is still its own
                    os.killpg(worker.pid, number)
        time.sleep(SECONDS_BETWEEN_LOOKS)
    if signalled is not None:
        return 128 + signalled if failed else 0
    for rank in failed:
        number = -workers[rank].returncode
        if number > 0 and (rank == failed[0] or number not in sent):
            raise GranularityError(
                f"process {first_rank + rank} of {size} was killed by {signal.Signals(number).name}; "
                "finished work is kept, and the next run goes on from there"
            )
    return workers[failed[0]].returncode if failed else 0


@contextlib.contextmanager
def _private(folder: Path | None) -> Iterator[int]:
    """Open a folder, or a new one, that nobody else can enter; yields its descriptor.

    Raises:
        GranularityError: there is no such folder, or it belongs to somebody else or can be entered by others.
    """
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="granularity-")))
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            raise GranularityError(f"--meet {folder}: {error.strerror}; make one with mktemp -d") from None
        stack.callback(os.close, descriptor)
        about = os.fstat(descriptor)
        if about.st_uid != os.geteuid():
            raise GranularityError(f"--meet {folder}: belongs to another user; make one with mktemp -d")
        if about.st_mode & 0o077:
            raise GranularityError(f"--meet {folder}: others may enter it; make one with mktemp -d (or chmod 700)")
        yield descriptor


def _wait_for_all(folder: int, name: Path, kind: str, machines: int, machine: int) -> None:
    """Wait until every machine's launcher is here, each of them for the first time.

    Args:
        folder: descriptor of the folder called `name`.
        kind: what all machines have to agree on.
    """
    try:
        os.close(os.open(f"machine {machine} {kind}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600, dir_fd=folder))
    except FileExistsError:
        raise GranularityError(
            f"--meet {name}: machine {machine} was here before; make a new folder for every start, "
            "and give each machine its own number"
        ) from None
    last = time.monotonic() + SECONDS_TO_COME
    while missing := [one for one in range(machines) if f"machine {one} {kind}" not in os.listdir(folder)]:
        if time.monotonic() > last:
            raise GranularityError(
                f"--meet {name}: machine {missing[0]} {kind} did not come within {SECONDS_TO_COME} seconds; start this "
                "on every machine, with a folder that all of them see"
            )
        time.sleep(SECONDS_BETWEEN_LOOKS)


def work(command: list[str]) -> None:
    """Run one of the processes. Until they meet, all print equal lines, so only a machine's first one is heard."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # who kills the launcher kills the processes
    if os.getppid() != int(os.environ[LAUNCHER]):
        sys.exit(1)
    silent = os.environ["LOCAL_RANK"] != "0"
    if silent:
        sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.argv[1:] = command
    try:
        runpy.run_module("granularity", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if silent and end.code == 1:  # the first one is about to say why, and would be ended at once
            time.sleep(SECONDS_TO_SPEAK)
        raise


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.error = lambda message: sys.exit(USAGE)
    parser.add_argument("--machines", type=int, default=1)
    parser.add_argument("--machine", type=int, default=0)
    parser.add_argument("--meet", type=Path)
    parser.add_argument("processes", type=int)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    if LAUNCHER in os.environ:
        work(given.command)
        return
    several = given.machines > 1
    if (
        given.processes < 1
        or not given.command
        or not 0 <= given.machine < given.machines
        or several != bool(given.meet)
    ):
        sys.exit(USAGE)
    try:
        sys.exit(launch(**vars(given)))
    except GranularityError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        sys.exit(f"error: {error.filename or 'cannot start a process'}: {error.strerror}")


if __name__ == "__main__":
    main()
