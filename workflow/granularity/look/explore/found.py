"""The results in the folder of one configuration: each artifact, verified, or what is wrong with it."""

import shlex
from pathlib import Path
from typing import NamedTuple

from granularity.base.errors import GranularityError
from granularity.look import inspection
from granularity.stages import STAGES
from granularity.store import place
from granularity.store.artifact import Artifact, OtherVersionError

SOUND, OTHER_CODE, CORRUPT = "sound", "sound, of other code", "corrupt"
MISSING, OTHER_VERSION, LEFT = "missing", "of another version", "left from earlier settings"
NOT_ONE = (
    "{}: is not the folder of one configuration, such as results/digits, or of a study's cell, such as "
    "results/digits/draw-0"
)


class Result(NamedTuple):
    """A named result: its path below the folder, its kind, its state (see above) with the reason, and its artifact."""

    name: str
    kind: str
    state: str
    why: str
    artifact: Artifact | None  # None if it must not be used

    @property
    def condition(self) -> str:
        """The condition that it belongs to; empty if none."""
        of_one = self.kind in STAGES and "{condition}" in STAGES[self.kind].place
        return self.name.partition("/")[0] if of_one else ""

    @property
    def about(self) -> str:
        """Its manifest and its lineage, as text."""
        return inspection.describe(self.artifact.path, closely=False)

    @property
    def command(self) -> str:
        return shlex.join(self.artifact.manifest["command"])


def read(root: Path) -> list[Result]:
    """Return every named result below a folder, in the order of the stages; GranularityError if there is none."""
    names = sorted({*place.find(root), *place.find_lost(root)})
    if not names:
        raise GranularityError(
            f"{root}: contains no results; name the folder of a configuration, such as results/digits"
        )
    left = {*inspection.left_over(names, root)}
    results = [_result(root, name, name in left) for name in names]
    if any(result.kind == "samples" and result.name.count("/") != 1 for result in results):
        raise GranularityError(NOT_ONE.format(root))
    order = {kind: number for number, kind in enumerate(STAGES)}
    return sorted(results, key=lambda result: order.get(result.kind, len(order)))


def _result(root: Path, name: Path, left: bool) -> Result:
    stamp = place.stamp_of(name)
    kind = stamp.read_text(errors="replace").partition(" ")[0] if stamp.is_file() else "unknown"
    artifact, short = None, name.relative_to(root).as_posix()
    try:
        artifact, why = Artifact.open(name), ""
        state = SOUND if inspection.is_current(artifact) else OTHER_CODE
    except OtherVersionError as error:
        state, why = OTHER_VERSION, str(error)
    except GranularityError as error:
        state, why = CORRUPT if (name / place.MANIFEST).exists() else MISSING, str(error)
    if artifact and left:
        artifact, state = None, LEFT
        why = f"{name}: the newest report or page of the study does not use it; to remove it, delete it and its stamp"
    return Result(short, artifact.kind if artifact else kind, state, why, artifact)
