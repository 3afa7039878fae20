"""Start the processes that train one network together on one machine, with torch's launcher (docs/jobs.md)."""

import importlib
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from granularity.base import interrupt
from granularity.base.errors import GranularityError
from granularity.machine import leases
from granularity.store.task import Task

SECONDS_TO_SAVE = 100  # after a signal, before SIGKILL
# Otherwise Gloo, NCCL and NCCL's status service would listen on every interface.
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "NCCL_RAS_ENABLE": "0"}


def launch(task: Task, count: int, told: Callable[[Callable[[], None]], None]) -> int:
    """Run a job in several processes, with a leased GPU for each; return the exit status.

    `told` calls a function and, if it fails, ends the process with one line and a status, as the command does. Raise
    GranularityError if a process was killed and so could not report anything, or if there are too few GPUs.
    """
    os.environ |= LOOPBACK
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # hide torch's hints to its developers
    import torch
    from torch.multiprocessing import ProcessExitedException, start_processes

    work = partial(importlib.import_module(task.stage.module).run, task)  # imported here, so that all processes have it
    if task.device != "cpu" and torch.backends.cuda.is_built() and leases.candidates():
        leases.take(count)  # child processes inherit the locks as open files
    logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="granularity-") as folder:
        context = start_processes(_process, (count, Path(folder), work, told), count, join=False, start_method="fork")

        def pass_on(number: int, frame: object) -> None:
            for process in context.processes:
                if process.is_alive():
                    os.kill(process.pid, number)

        handlers = {number: signal.signal(number, pass_on) for number in interrupt.SIGNALS}
        try:
            while not context.join(grace_period=SECONDS_TO_SAVE):
                pass
        except ProcessExitedException:
            ended = [process.exitcode for process in context.processes]
            if min(ended) < 0 and not (Path(folder) / SAID).exists():
                raise GranularityError(
                    f"process {ended.index(min(ended))} of {count} was killed by {signal.Signals(-min(ended)).name}; "
                    "finished work is kept, and the next run continues from there"
                ) from None
            return max(ended)  # a process that lost another exits with 1
        finally:
            for process in context.processes:
                process.kill()  # in case of an error here
            for number, handler in handlers.items():
                signal.signal(number, handler)
    return 0


SAID = "said"  # created by the process that reports the error


def _process(rank: int, count: int, folder: Path, work: Callable, told: Callable) -> None:
    from granularity.machine import processes

    silent = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.__stderr__ if rank == 0 else silent

    def shared() -> None:
        try:
            with processes.joined(rank, count, folder):
                work()
        except BaseException as error:
            sys.stderr = sys.__stderr__ if _speaks(error, folder) else silent
            raise

    told(shared)


def _speaks(error: BaseException, folder: Path) -> bool:
    """Return whether this process should report an error: the first one that noticed it by itself."""
    from granularity.machine.processes import ELSEWHERE, PeerLost

    if isinstance(error, PeerLost) or (isinstance(error, interrupt.Stopped) and error.reason == ELSEWHERE):
        return False
    try:
        (folder / SAID).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
