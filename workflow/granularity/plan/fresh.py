"""Whether a result that lies there is the one that is asked for, by its own manifest."""

import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from granularity.base.errors import GranularityError
from granularity.base.regular import MissingError
from granularity.base.stage import Job
from granularity.plan.commands import listing
from granularity.plan.graph import Plan
from granularity.stages import STAGES
from granularity.store import hashing
from granularity.store.artifact import Artifact, OtherVersionError, canonical_json
from granularity.store.code import code_digest, packages
from granularity.store.place import stamp_of

OTHER_INPUTS = "made from other inputs"
OTHER_VERSION = "written by another version of this program"


class Results:
    """The results of a plan, held against what it asks for; `place`: where that of a job lies, if not where planned."""

    def __init__(self, plan: Plan, place: Callable[[Job], Path] | None = None):
        self.plan, self.place = plan, place or plan.folder
        self._found: dict[Path, Artifact | GranularityError] = {}

    def open(self, job: Job) -> Artifact:
        """The result of a job, not verified; a GranularityError where none lies there, or it cannot be read."""
        folder = self.place(job)
        if folder not in self._found:
            try:
                self._found[folder] = Artifact.peek(folder)
            except GranularityError as error:
                self._found[folder] = error
        if isinstance(found := self._found[folder], GranularityError):
            raise found
        return found

    def outdated(self, job: Job) -> str | None:
        """Why a job has to be made again though it has a stamp; None where it need not."""
        stamp = stamp_of(self.place(job))
        if not os.path.lexists(stamp):
            return None
        try:
            wrong = self.open(job).unlike(stamp) if self.place(job).is_symlink() else None
            return "its stamp is of another result" if wrong else self.unlike(job)
        except OtherVersionError:
            return OTHER_VERSION
        except MissingError:
            return "its result is gone"
        except GranularityError as error:  # or a file of the user's cannot be read, which is for the job to say
            return str(error) if error is self._found[self.place(job)] else None

    def unlike(self, job: Job) -> str | None:
        """What a result was made of that is not what is asked for, in words; raises as :meth:`open` does."""
        made, code, stage = self.open(job).manifest, self.plan.code(job), STAGES[job.stage]
        now: dict[str, list[str]] = {}
        for role, sources in job.inputs.items():
            with contextlib.suppress(GranularityError):  # one is not there: it is made first
                now[role] = [self.open(source).digest for source in sources]
        digests = {
            role: [entry[-1] if isinstance(entry, list) else entry for entry in entries]
            for role, entries in made["made_from"].items()
        }
        if any(digests.get(role, []) != found for role, found in now.items()):
            return OTHER_INPUTS
        if made["code"]["digest"] != code_digest(*code):
            return "made by other code"
        if made["packages"] != packages(*code):
            return "made with other versions of packages"
        options = stage.model.model_validate(job.options)
        counted = stage.asked(options).keys() & job.options.keys()
        same = all(key in made["options"] and made["options"][key] == job.options[key] for key in counted)
        if not same or made["seed"] not in (None, self.plan.config.seeds.base):
            return "made with other parameters"
        asked = {"cuda": True, "cpu": False}.get(self.plan.config.device)
        if stage.needs.gpu and made["machine"] and asked not in (None, "gpu" in made["machine"]):
            return "made on another device"
        return None if self._same_outside(job, made["outside"]) else "made from other files of yours"

    def _same_outside(self, job: Job, outside: dict[str, str]) -> bool:
        """Whether the user's files that a job reads are those of a result: by a walk once, then by a quick look."""
        looked = listing(job)
        if looked is None:
            return True
        places = [os.path.abspath(path) for path in (*job.folders, *job.files)]
        known_by = hashlib.sha256(canonical_json([outside, looked, places]).encode()).hexdigest()
        if hashing.recall("outside", f"{known_by}.json"):
            return True
        stage = STAGES[job.stage]
        same = dict(stage.outside(stage.model.model_validate(job.options))) == outside
        if same:
            hashing.note(True, "outside", f"{known_by}.json")
        return same
