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
SECONDS = 3600.0  # that a command may take, on a machine however busy
SMOKE = ["--configfile", "config/examples/smoke.yaml"]
COLD = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
TAIL = 4000  # characters of the output that a failure shows


class Checkout:
    """A copy of the repository in which commands run with the copy's own code; `there`: it has been made before.

    `cold`: its commands start as those of users do, and import everything (see :mod:`support.warm`).
    """

    def __init__(self, folder: Path, there: bool = False, cold: bool = False):
        self.folder = folder
        for name in () if there else ("rules", "config", "profiles", "envs", "studies", "workflow"):
            source = ROOT / name
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, folder / name)
        path = COLD if cold else f"{warm.commands()}{os.pathsep}{COLD}"
        self.environment = os.environ | {"PYTHONPATH": str(folder / "workflow"), "PATH": path}

    def start(self, *command, **environment):
        where = {"cwd": self.folder, "env": self.environment | environment, "start_new_session": True}
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **where)

    def run(self, *command, code=0, seconds=SECONDS):
        """Run a command to its end, in time and with the exit status `code` (None: any); returns what it printed."""
        process = self.start(*command)
        output, ended = wait(process, seconds)
        assert ended, f"{command} has not ended in {seconds:g} seconds, and was killed:\n{output[-TAIL:]}"
        assert code is None or process.returncode == code, output[-TAIL:]
        return output

    def snakemake(self, *arguments, code=0):
        return self.run("snakemake", *arguments, code=code)

    def command_of(self, target, *arguments):
        """The shell command that the workflow runs for a result, as `snakemake -np` prints it, without its log."""
        folder, mark = str(target).removesuffix(".stamp"), "Shell command: "
        lines = self.snakemake("-np", "--force", f"{folder}.stamp", *arguments).splitlines()
        commands = (line.removeprefix(mark).split(" > ")[0] for line in lines if line.startswith(mark))
        return next(command for command in commands if f"--output {folder} " in command)

    def path(self, name):
        return self.folder / name


def wait(process, seconds):
    """What a process that leads its own session printed, and whether it ended by itself; killed when its time is up."""
    try:
        return process.communicate(timeout=seconds)[0], True
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
    try:
        return process.communicate(timeout=5)[0], False
    except subprocess.TimeoutExpired as error:  # a child in a session of its own holds on to the output
        return (error.output or b"").decode(errors="replace"), False


def until(condition, driver):
    """What a condition gives once it holds, while a process goes on."""
    deadline = time.monotonic() + 300
    while not (found := condition()):
        assert driver.poll() is None and time.monotonic() < deadline, driver.communicate()[0][-3000:]
        time.sleep(0.001)
    return found
