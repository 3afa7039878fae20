"""Decide from its manifest whether an existing result is the planned one."""

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from granularity.base.errors import GranularityError
from granularity.base.regular import MissingError
from granularity.base.stage import Job
from granularity.machine.device import variables
from granularity.plan.commands import listing
from granularity.plan.graph import Plan
from granularity.stages import STAGES
from granularity.store import hashing
from granularity.store.artifact import Artifact, OtherVersionError, canonical_json
from granularity.store.place import stamp_of
from granularity.store.task import Task

OTHER_INPUTS = "made from other inputs"
REASONS = {  # for running again, by the entry that differs
    "made_from": OTHER_INPUTS,
    "code": "made by other code",
    "packages": "made with other versions of packages",
    "options": "made with other parameters",
    "seed": "made with other parameters",
    "machine": "made on another device, or with other variables",
    "outside": "made from other files of yours",
}
OTHER_VERSION = "written by another version of this program"


class Results:
    """The existing results of a plan, compared with what it asks for.

    Args:
        place: returns where a job's result lies, if not where planned.
    """

    def __init__(self, plan: Plan, place: Callable[[Job], Path] | None = None):
        self.plan, self.place = plan, place or plan.folder
        self._found: dict[Path, Artifact | GranularityError] = {}

    def open(self, job: Job) -> Artifact:
        """Return a job's result, unverified. Raise GranularityError if it is missing or unreadable."""
        return self._peek(self.place(job))

    def _peek(self, folder: Path) -> Artifact:
        if folder not in self._found:
            try:
                self._found[folder] = Artifact.peek(folder)
            except GranularityError as error:
                self._found[folder] = error
        if isinstance(found := self._found[folder], GranularityError):
            raise found
        return found

    def outdated(self, job: Job) -> str | None:
        """Return why a job with a stamp must run again, or None."""
        stamp = stamp_of(self.place(job))
        if not os.path.lexists(stamp):
            return None
        try:
            wrong = self.open(job).unlike(stamp) if self.place(job).is_symlink() else None
            return "its stamp belongs to another result" if wrong else self.unlike(job)
        except OtherVersionError:
            return OTHER_VERSION
        except MissingError:
            return "its result is gone"
        except GranularityError as error:  # an unreadable user's file is reported by the job itself
            return str(error) if error is self._found[self.place(job)] else None

    def unlike(self, job: Job) -> str | None:
        """Return in words how a result's origin differs from the plan, or None; raise errors like :meth:`open`."""
        return next((REASONS[name] for name in self.differing(job)), None)

    def differing(self, job: Job) -> Iterator[str]:
        """Yield the REASONS why a result differs from the plan (:meth:`granularity.store.task.Task.states`)."""
        made, task = self.open(job).manifest, self.task(job)
        for name in REASONS:
            if name == "outside":
                same = self._same_outside(job, task, made[name])
            elif name == "made_from":
                same = all(made[name].get(role) == digests for role, digests in self._there(task).items())
                same &= made[name].keys() <= {role for role, paths in task.inputs.items() if paths}
            elif name == "code":
                same = made[name]["digest"] == task.states(name)["digest"]
            else:
                same = made[name] == (asked := task.states(name)) or canonical_json(made[name]) == canonical_json(asked)
            if not same:
                yield name

    def task(self, job: Job) -> Task:
        """Return the task of a job, on the machine that made its result, unless the configuration sets the device."""
        place, inputs = self.place(job), {role: tuple(map(self.place, jobs)) for role, jobs in job.inputs.items()}
        stage, made = STAGES[job.stage], self.open(job).manifest["machine"]
        device = self.plan.config.device if stage.needs.gpu else "cpu"
        on_gpu = device == "cuda" or (device == "auto" and "gpu" in made)
        machine: dict[str, Any] = {"gpu": made.get("gpu")} if on_gpu else {}  # any model
        if device != "cuda":
            machine |= {"cpu": made.get("cpu")} | ({"variables": found} if (found := variables()) else {})
        options, seed = self.plan.options(job), self.plan.config.seeds.base
        return Task(stage, place, options, inputs, seed, machine=machine, peek=self._peek)

    def _there(self, task: Task) -> dict[str, list]:
        """Return the digests of existing inputs, by role; missing ones are made first."""
        found = {}
        for role, paths in task.inputs.items():
            with contextlib.suppress(GranularityError):
                found |= {role: task.made_from(role)} if paths else {}
        return found

    def _same_outside(self, job: Job, task: Task, outside: dict[str, str]) -> bool:
        """Return whether a job's user files are those of its result: once by a full walk, later by a quick look."""
        looked = listing(job)
        if looked is None:
            return True
        places = [os.path.abspath(path) for path in (*job.folders, *job.files)]
        known_by = hashlib.sha256(canonical_json([outside, looked, places]).encode()).hexdigest()
        if hashing.recall("outside", f"{known_by}.json"):
            return True
        same = task.states("outside") == outside
        if same:
            hashing.note(True, "outside", f"{known_by}.json")
        return same
