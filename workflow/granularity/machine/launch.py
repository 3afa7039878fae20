"""Start a stage as several processes on this machine: `python -m granularity.machine.launch N pretrain --samples ...`.

This is torchrun (torch.distributed.launcher) without its pages of log: what goes wrong is one line, and all signals of
a scheduler reach the processes. For several machines, use torchrun itself.
"""

from __future__ import annotations

import logging
import os
import runpy
import signal
import sys
import tempfile
import time
import uuid

from granularity.base.errors import GranularityError

LAUNCHER = "GRANULARITY_LAUNCHER"  # set in the processes
SECONDS_TO_SPEAK = 3
SECONDS_TO_SAVE = 100  # after a signal, before SIGKILL
SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1"


def launch(processes: int, command: list[str]) -> int:
    """Run `granularity` with these words in several processes; returns the exit status.

    Raises:
        GranularityError: a process was killed, so that it could not say anything itself.
    """
    os.environ[LAUNCHER] = str(os.getpid())
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # each sets its own number of threads
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.disable()  # the processes and this function say it in one line
    logs = tempfile.TemporaryDirectory()  # torchrun wants some, and would leave them
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=str(uuid.uuid4()),
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
        signals_to_handle=SIGNALS,
        shutdown_timeout=SECONDS_TO_SAVE,
        logs_specs=DefaultLogsSpecs(log_dir=logs.name),
    )
    try:
        elastic_launch(config, sys.executable)("-m", "granularity.machine.launch", str(processes), *command)
    except SignalException as stopped:
        return 128 + stopped.sigval
    except ChildFailedError as failed:
        _, cause = failed.get_first_failure()
        if cause.exitcode < 0:
            raise GranularityError(
                f"process {cause.local_rank} of {processes} was killed by {signal.Signals(-cause.exitcode).name}; "
                "finished work is kept, and the next run goes on from there"
            ) from None
        return cause.exitcode
    finally:
        logs.cleanup()
    return 0


def work(command: list[str]) -> None:
    """Run one of the processes. Until they meet, all print equal lines, so only the first one is heard."""
    if os.environ["RANK"] != "0":
        sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.argv[1:] = command
    try:
        runpy.run_module("granularity", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if os.environ["RANK"] != "0" and end.code == 1:  # the first one is about to say why, and would be ended at once
            time.sleep(SECONDS_TO_SPEAK)
        raise


def main() -> None:
    number, *command = sys.argv[1:] or [""]
    if not number.isdecimal() or int(number) < 1 or not command:
        sys.exit("usage: python -m granularity.machine.launch PROCESSES STAGE ...")
    if LAUNCHER in os.environ:
        work(command)
        return
    try:
        sys.exit(launch(int(number), command))
    except GranularityError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
