"""What a process says that was asked to stop."""

import os
import signal

import pytest

from granularity.base import interrupt


@pytest.fixture
def handled():
    handlers = {number: signal.getsignal(number) for number in interrupt.SIGNALS}
    interrupt.install()
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_only_work_that_can_be_resumed_is_said_to_be_kept(handled):
    with pytest.raises(interrupt.Stopped) as stopped:
        os.kill(os.getpid(), signal.SIGTERM)
    assert stopped.value.sentence == "stopped: SIGTERM; the next run repeats this"
    with pytest.raises(interrupt.Stopped) as stopped, interrupt.resumable():
        os.kill(os.getpid(), signal.SIGTERM)
        interrupt.stop_if_requested()
    assert stopped.value.sentence == "stopped: SIGTERM; finished work is kept, and the next run continues from there"
    assert stopped.value.code == 128 + signal.SIGTERM
