"""Names and stamps that do not belong together: what a kill between the two, or somebody's hand, has left.

A stamp is what Snakemake has taken for the result, so a name follows its stamp. A stamp that tells of no result which
is there is deleted: then Snakemake makes the result again as soon as something needs it, which takes a moment if the
store has it. What cannot be read, as a colleague may have closed it, is named, and nothing is deleted for it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.base.regular import MissingError, open_regular
from granularity.store import generations
from granularity.store.artifacts import Artifact
from granularity.store.generations import MANIFEST, STORE

SECONDS_TO_STAMP = 2.0  # a job between name and stamp has certainly written the stamp after this
TAIL_BYTES = 512
DIGEST = re.compile(rb'^  "digest": "([0-9a-f]{64})",?$', re.MULTILINE)


def tell(outputs: Iterable[tuple[Path, str]]) -> None:
    """Say what :func:`mend` would mend, and change nothing."""
    for output, _ in _wrong(outputs):
        say(f"{output}: does not lead where its stamp says; the next run mends it")


def mend(outputs: Iterable[tuple[Path, str]]) -> None:
    """Let names follow their stamps, and delete stamps without a result; where there is no stamp, nothing is done.

    Args:
        outputs: names, and the kinds of their results.
    """
    wrong = list(_wrong(outputs))
    if wrong:
        time.sleep(SECONDS_TO_STAMP)
    for output, kind in wrong:
        try:
            if not _fits(output, kind):
                _mend(output, kind)
        except OSError as error:
            say(f"{error.filename or output}: cannot be mended ({error.strerror or error})")
        except GranularityError as error:
            say(f"{error}; {output} is left as it is")


def _wrong(outputs: Iterable[tuple[Path, str]]) -> Iterator[tuple[Path, str]]:
    for output, kind in outputs:
        try:
            if not _fits(output, kind):
                yield output, kind
        except (OSError, GranularityError) as error:
            say(f"{error}; {output} is left as it is")


def _mend(output: Path, kind: str) -> None:
    stamp, store = generations.stamp_of(output), generations.store_of(output)
    text, unreadable = _read(stamp, kind), None
    for folder in generations.all_of(store) if text else ():
        try:
            if folder.parent.name == kind and _text_of(folder) == text:
                generations.lead(output, folder)
                say(f"{output}: led elsewhere than its stamp says; mended")
                return
        except GranularityError as error:  # it may be the one
            unreadable = error
    if unreadable:
        raise unreadable
    stamp.unlink()
    say(f"{stamp}: tells of no result that is here; deleted: `snakemake {stamp}`, or what needs it, makes it again")


def _fits(output: Path, kind: str) -> bool:
    """Whether a stamp is that of the result which the name leads to; or there is no stamp, or no name but a folder.

    Raises:
        GranularityError: one of the two cannot be read.
    """
    stamp = generations.stamp_of(output)
    if not os.path.lexists(stamp) or (os.path.lexists(output) and not output.is_symlink()):
        return True
    text = _read(stamp, kind)
    return text is not None and text == _text_of(Path(os.path.realpath(output)))


def _read(stamp: Path, kind: str) -> bytes | None:
    """A stamp, if it is one of a result of that kind."""
    try:
        with open_regular(stamp) as stream:
            text = stream.read(TAIL_BYTES)
    except MissingError:
        return None
    return text if text.startswith(f"{kind} ".encode()) else None


def _text_of(folder: Path) -> bytes | None:
    """The stamp of a generation, from the end of its manifest: every dry run waits for it."""
    if folder.parents[1].name != STORE:
        return None
    try:
        with open_regular(folder / MANIFEST) as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - TAIL_BYTES))
            found = DIGEST.search(stream.read())
    except MissingError:
        return None
    try:
        digest = found[1].decode() if found else Artifact.peek(folder).digest
    except GranularityError:  # damaged
        return None
    return generations.stamp_text(folder.parent.name, digest).encode()
