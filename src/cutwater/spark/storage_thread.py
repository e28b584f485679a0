"""The driver's storage work during an attempt, off the thread that answers the subtasks."""

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from cutwater.spark.storage_calls import SILENCE_SECONDS


class StorageThread(threading.Thread):
    """Storage work off the attempt's thread; results come back through ``results``."""

    def __init__(self) -> None:
        super().__init__(name="cutwater-driver-io", daemon=True)
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], Callable[[Any], None]] | None] = queue.SimpleQueue()
        self.results: queue.SimpleQueue[tuple[Callable[[Any], None], Any]] = queue.SimpleQueue()
        self.woken: Callable[[], None] = lambda: None
        self._done = 0
        self.start()

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self._work.put((work, done))

    def run(self) -> None:
        while (item := self._work.get()) is not None:
            work, done = item
            try:
                result: Any = work()
            except Exception as error:
                result = error
            self._done += 1
            self.results.put((done, result))
            self.woken()

    def deliver(self) -> None:
        """On the attempt's thread."""
        while not self.results.empty():
            done, result = self.results.get()
            done(result)

    def finish(self, may_give_up: Callable[[], bool], silence: float = SILENCE_SECONDS) -> None:
        """Let everything asked for be done; nobody listens to the results any more but ``deliver``.

        While it may be given up, a storage that gets nothing done for ``silence`` is left alone: what waits is dropped, and
        the thread ends with what it has begun.
        """
        self._work.put(None)
        while self.is_alive():
            before = self._done
            self.join(silence)
            if self.is_alive() and self._done == before and may_give_up():
                with suppress(queue.Empty):  # the thread takes from it too, should the storage answer just now
                    while True:
                        self._work.get_nowait()
                self._work.put(None)
                break
        self.deliver()
