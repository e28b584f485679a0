"""The threads beside a subtask's loop: one stores snapshots, one commits output."""

import queue
import threading
import time
from collections.abc import Callable

from cutwater.errors import ControlError

STOP_SECONDS = 2.0
"""How long a failed subtask waits for these threads before it closes what they may be using."""


class _Worker(threading.Thread):
    """Runs callables one after the other."""

    def __init__(self, name: str, failed: Callable[[BaseException], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._failed = failed
        self._stopped = False
        self.start()

    def run(self) -> None:
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


class BackgroundThreads:
    """The subtask's Background: a snapshot thread and a commit thread."""

    def __init__(self, may_commit: Callable[[], bool]) -> None:
        """``may_commit``: whether this process still has the right to touch the outside world."""
        self._may_commit = may_commit
        self._failed: Callable[[BaseException], None] = lambda error: None
        self._snapshots = _Worker("cutwater-snapshot", self._report)
        self._commits = _Worker("cutwater-commit", self._report)

    def _report(self, error: BaseException) -> None:
        self._failed(error)

    def report_to(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed

    def snapshot(self, work: Callable[[], None], pause: float = 0.0) -> None:
        if pause:
            self._snapshots.submit(lambda: time.sleep(pause))
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
