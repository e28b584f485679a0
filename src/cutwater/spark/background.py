"""The threads beside a subtask's loop: one stores snapshots, one commits output."""

import os
import queue
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from cutwater.errors import ControlError

STOP_SECONDS = 2.0
"""How long a failed subtask waits for these threads before it closes what they may be using."""

STEPS_BACK = 8
"""By so much a thread is nicer than others that go before it: it gets a sixth of what they do of a processor that they want."""


class _Worker(threading.Thread):
    """Runs callables one after the other. ``steps_back``: others that want the processor go before it."""

    def __init__(self, name: str, failed: Callable[[BaseException], None], *, steps_back: bool = False) -> None:
        super().__init__(name=name, daemon=True)
        self._steps_back = steps_back
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._failed = failed
        self._stopped = False
        self.start()

    def run(self) -> None:
        if self._steps_back:
            _step_back()
        while (work := self._queue.get()) is not None and not self._stopped:
            try:
                work()
            except BaseException as error:
                self._failed(error)

    def submit(self, work: Callable[[], None]) -> None:
        self._queue.put(work)

    def finish(self) -> None:
        self._queue.put(None)
        self.join()

    def stop(self, seconds: float) -> None:
        """Begin nothing more, and let what runs come to its end, for a while."""
        self._stopped = True
        self._queue.put(None)
        self.join(seconds)


def _step_back() -> None:
    """Of this thread; where the system does not let it, it stays where it is."""
    if sys.platform == "linux":  # elsewhere only whole processes have a priority
        with suppress(OSError):
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, min(19, os.getpriority(os.PRIO_PROCESS, thread) + STEPS_BACK))


class BackgroundThreads:
    """The subtask's Background: a snapshot thread and a commit thread."""

    def __init__(self, may_commit: Callable[[], bool], *, barriers_first: bool = False) -> None:
        """``may_commit``: whether this process still has the right to touch the outside world.

        ``barriers_first``: storing steps back. Unaligned, many subtasks cut at once, and those whose barriers have come would
        take the processors from the others, whose barriers are still on their way.
        """
        self._may_commit = may_commit
        self._failed: Callable[[BaseException], None] = lambda error: None
        self._snapshots = _Worker("cutwater-snapshot", self._report, steps_back=barriers_first)
        self._commits = _Worker("cutwater-commit", self._report)

    def _report(self, error: BaseException) -> None:
        self._failed(error)

    def report_to(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed

    def snapshot(self, work: Callable[[], None]) -> None:
        self._snapshots.submit(work)

    def commit(self, work: Callable[[], None]) -> None:
        self._commits.submit(lambda: self._commit(work))

    def _commit(self, work: Callable[[], None]) -> None:
        """A process that stood still past its lease wakes up beside its successor: it must not commit any more (rule 30)."""
        if not self._may_commit():
            raise ControlError("The lease was lost: another attempt commits what is prepared.")
        work()

    def finish(self) -> None:
        self._snapshots.finish()
        self._commits.finish()

    def stop(self) -> None:
        self._snapshots.stop(STOP_SECONDS / 2)
        self._commits.stop(STOP_SECONDS / 2)
