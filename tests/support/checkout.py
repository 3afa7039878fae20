"""A copy of the repository in which a test may edit, kill and corrupt."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Checkout:
    """A copy of the repository in which commands run with the copy's own code."""

    def __init__(self, folder: Path):
        self.folder = folder
        for name in ("Snakefile", "rules", "config", "profiles", "report", "envs", "workflow"):
            source = ROOT / name
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, folder / name)
        bin_folder = str(Path(sys.executable).parent)
        self.environment = os.environ | {
            "PYTHONPATH": str(folder / "workflow"),
            "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        }

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

    def run(self, *command, code=0):
        process = self.start(*command)
        output, _ = process.communicate(timeout=1800)
        assert process.returncode == code, output[-4000:]
        return output

    def snakemake(self, *arguments, code=0):
        return self.run("snakemake", *arguments, code=code)

    def command_of(self, target, *arguments):
        """The shell command that the workflow runs for a result, as `snakemake -np` prints it, without its log."""
        folder = str(target).removesuffix("/manifest.json")
        output = self.snakemake("-np", "--force", f"{folder}/manifest.json", *arguments)
        mark = "Shell command: "
        commands = [line.removeprefix(mark) for line in output.splitlines() if line.startswith(mark)]
        return next(command for command in commands if f"--output {folder} " in command).split(" > ")[0]

    def path(self, name):
        return self.folder / name
