"""Stop cleanly at a scheduler's signal: resumable work at its next checkpoint, everything else at once."""

import contextlib
import signal
from collections.abc import Iterator

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)

_reason: str | None = None
_status = 1
_resumable = 0


class Stopped(SystemExit):
    """Raised if the process was asked to stop. The exit status is 128 plus the signal's number, as in a shell."""

    def __init__(self, reason: str, status: int, kept: bool):
        super().__init__(status)
        self.reason = reason
        then = "finished work is kept, and the next run continues from there" if kept else "the next run repeats this"
        self.sentence = f"stopped: {reason}; {then}"


def install() -> None:
    """Handle the signals of a scheduler from now on."""
    for number in SIGNALS:
        signal.signal(number, _on_signal)


def _on_signal(number: int, frame: object) -> None:
    request(signal.Signals(number).name, 128 + number)
    if not _resumable:
        stop_if_requested()


def request(reason: str, status: int = 1) -> None:
    """Ask this process to stop at the next checkpoint."""
    global _reason, _status
    _reason, _status = reason, status


def withdraw(reason: str) -> None:
    """Withdraw a request to stop, unless another one came later."""
    global _reason
    if _reason == reason:
        _reason = None


def requested() -> bool:
    """Return whether the process was asked to stop, so that a checkpoint is due."""
    return _reason is not None


def stop_if_requested() -> None:
    """Raise :class:`Stopped` if the process was asked to stop; call it after everything done so far is saved."""
    global _reason
    if requested():
        reason, _reason = _reason, None
        raise Stopped(reason, _status, kept=_resumable > 0)


@contextlib.contextmanager
def resumable() -> Iterator[None]:
    """Run work that stops only where it calls :func:`stop_if_requested`."""
    global _resumable
    _resumable += 1
    try:
        yield
    finally:
        _resumable -= 1
