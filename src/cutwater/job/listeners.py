"""Those who want to hear of each checkpoint that ended: told in order, on a thread of their own.

On the job's thread a listener that waits for the job would wait for itself, and a slow one would hold up the next checkpoint.
"""

import queue
import threading
from collections.abc import Callable

from cutwater.checkpoint.statistics import CheckpointInfo

Listener = Callable[[CheckpointInfo], None]

LISTENERS_SECONDS = 5.0
"""How long those who end or answer wait for slow listeners."""


class Listeners:
    """``failed`` is told what a listener raised. The thread exists from the first listener on and ends with the process."""

    def __init__(self, failed: Callable[[str], None]) -> None:
        self._failed = failed
        self._listeners: list[Listener] = []
        self._queue: queue.SimpleQueue[CheckpointInfo] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._untold = 0
        self._waits_for_job = False
        self._thread: threading.Thread | None = None

    def add(self, listener: Listener) -> None:
        with self._changed:
            self._listeners.append(listener)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="cutwater-listeners", daemon=True)
                self._thread.start()

    def tell(self, info: CheckpointInfo) -> None:
        with self._changed:
            if self._listeners:
                self._untold += 1
                self._queue.put(info)

    def settle(self, seconds: float) -> None:
        """Wait until everybody was told everything, but for no listener that waits for the job itself."""
        if threading.current_thread() is self._thread:
            return
        with self._changed:
            self._changed.wait_for(lambda: self._untold == 0 or self._waits_for_job, seconds)

    def about_to_wait(self) -> None:
        """The caller is going to wait for the end of the job."""
        with self._changed:
            if threading.current_thread() is self._thread:
                self._waits_for_job = True
                self._changed.notify_all()

    def _run(self) -> None:
        while True:
            info = self._queue.get()
            for listener in self._listeners.copy():
                try:
                    listener(info)
                except BaseException as error:  # a sys.exit too: the others still want to hear
                    self._failed(f"on_checkpoint: {type(error).__name__}: {error}")
            with self._changed:
                self._untold -= 1
                self._waits_for_job = False
                self._changed.notify_all()
