"""What the system's clock knows of a thread that waits for a core."""

import os
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from cutwater.flow.clock import SystemClock

LONG_ENOUGH = 30.0


@pytest.fixture
def one_core() -> Iterator[None]:
    """This thread, and all that it starts, share one core."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    yield
    os.sched_setaffinity(0, allowed)


@pytest.mark.usefixtures("one_core")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems do not count it")
def test_a_thread_waits_that_shares_its_core_with_another_process() -> None:
    clock = SystemClock()
    before = clock.waited_for_core()
    other = os.fork()
    if other == 0:
        _work_for_long()
        os._exit(0)
    try:
        deadline = time.monotonic() + LONG_ENOUGH
        while clock.waited_for_core() - before < 0.01:
            assert time.monotonic() < deadline, "never waited beside another process"
    finally:
        os.kill(other, 9)
        os.waitpid(other, 0)


def test_each_thread_is_told_its_own() -> None:
    clock, told = SystemClock(), []
    clock.waited_for_core()
    thread = threading.Thread(target=lambda: told.append(clock.waited_for_core()))
    thread.start()
    thread.join()
    assert 0.0 <= told[0] < 1.0


def _work_for_long() -> None:
    until = time.monotonic() + LONG_ENOUGH
    while time.monotonic() < until:
        pass
