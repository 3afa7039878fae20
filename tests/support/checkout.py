"""A copy of the repository in which a test may edit, kill and corrupt."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from support import warm

ROOT = Path(__file__).parents[2]
# What a command may take, counted in seconds that the machine had for it: while three others want each CPU, a second
# counts a quarter. However busy the machine, no command gets longer than MOST_TIMES as long.
SECONDS, MOST_TIMES = 900.0, 4.0
SECONDS_BETWEEN_LOOKS = 5.0
SMOKE = ["--configfile", "config/experiments/smoke.yaml"]
COLD = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
TAIL = 4000  # characters of the output that a failure shows


class Checkout:
    """A copy of the repository in which commands run with the copy's own code.

    Args:
        there: it has been made before.
        cold: its commands start as those of users do, and import everything (:mod:`support.warm`).
    """

    def __init__(self, folder: Path, there: bool = False, cold: bool = False):
        self.folder = folder
        for name in () if there else ("Snakefile", "rules", "config", "profiles", "report", "envs", "workflow"):
            source = ROOT / name
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, folder / name)
        path = COLD if cold else f"{warm.commands()}{os.pathsep}{COLD}"
        self.environment = os.environ | {"PYTHONPATH": str(folder / "workflow"), "PATH": path}

    def start(self, *command, **environment):
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *command, code=0, seconds=SECONDS):
        """Run a command to its end, and return what it printed.

        Raises:
            AssertionError: another exit status than `code`, unless that is None; or no end in time. It shows the end
                of the output.
        """
        process = self.start(*command)
        output, ended = wait(process, seconds)
        assert ended, f"{command} has not ended in {seconds:g} seconds of its own, and was killed:\n{output[-TAIL:]}"
        assert code is None or process.returncode == code, output[-TAIL:]
        return output

    def snakemake(self, *arguments, code=0):
        return self.run("snakemake", *arguments, code=code)

    def commands(self, *arguments):
        """The shell commands that a dry run prints, without their logs."""
        mark = "Shell command: "
        lines = self.snakemake("-np", *arguments).splitlines()
        return [line.removeprefix(mark).split(" > ")[0] for line in lines if line.startswith(mark)]

    def command_of(self, target, *arguments):
        """The shell command that the workflow runs for a result, as `snakemake -np` prints it, without its log."""
        folder = str(target).removesuffix(".stamp")
        return self.to_make(folder, self.commands("--force", f"{folder}.stamp", *arguments))

    @staticmethod
    def to_make(folder, commands):
        return next(command for command in commands if f"--output {folder} " in command)

    def path(self, name):
        return self.folder / name


def wait(process, seconds):
    """Wait for a process that leads its own session; kill its process group when its time is up.

    Args:
        seconds: its time, as SECONDS counts it.

    Returns:
        What it printed, and whether it ended by itself.
    """
    left, looked = seconds, time.monotonic()
    while left > 0:
        try:
            return process.communicate(timeout=min(SECONDS_BETWEEN_LOOKS, left))[0], True
        except subprocess.TimeoutExpired:
            now = time.monotonic()
            left, looked = left - (now - looked) / slowness(), now
    os.killpg(process.pid, signal.SIGKILL)
    try:
        return process.communicate(timeout=SECONDS_BETWEEN_LOOKS)[0], False
    except subprocess.TimeoutExpired as error:  # a child in a session of its own holds on to the output
        return (error.output or b"").decode(errors="replace"), False


def slowness():
    """How many times longer work takes here now than on an idle machine: the load per CPU, from 1 to MOST_TIMES."""
    return min(max(os.getloadavg()[0] / len(os.sched_getaffinity(0)), 1.0), MOST_TIMES)
