"""The driver's storage work during an attempt, off the thread that answers the subtasks."""

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from cutwater.errors import StorageError
from cutwater.spark.storage_calls import SILENCE_SECONDS


class StorageThread(threading.Thread):
    """Results come back through ``results``, and ``arrived`` is called behind each, on this thread. All but ``run`` is
    called on the attempt's thread."""

    def __init__(self, arrived: Callable[[], None] = lambda: None) -> None:
        super().__init__(name="cutwater-driver-io", daemon=True)
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], Callable[[Any], None]] | None] = queue.SimpleQueue()
        self.results: queue.SimpleQueue[tuple[Callable[[Any], None], Any]] = queue.SimpleQueue()
        self._arrived = arrived
        self._asked = 0
        self._done = 0
        self._progress = threading.Condition()
        self.start()

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self._asked += 1
        self._work.put((work, done))

    def run(self) -> None:
        while (item := self._work.get()) is not None:
            work, done = item
            try:
                result: Any = work()
            except Exception as error:
                result = error
            except BaseException as error:
                # A sys.exit in a sink's code, say: this thread lives on, or nobody would ever hear of the rest.
                result = StorageError(f"{type(error).__name__}: {error}")
            self.results.put((done, result))
            with self._progress:
                self._done += 1
                self._progress.notify()
            self._arrived()

    def deliver(self) -> None:
        while not self.results.empty():
            done, result = self.results.get()
            done(result)

    def finish(self, may_give_up: Callable[[], bool], silence: float = SILENCE_SECONDS) -> None:
        """Let everything asked for be done, and what its results lead to: files to delete, say.

        While it may be given up, a storage that gets nothing done for ``silence`` is left alone: what waits is dropped, and
        the thread ends with what it has begun.
        """
        delivered = 0
        while delivered < self._asked:
            answered = self._wait_for_more(delivered, silence)
            delivered = self._done
            self.deliver()
            if not answered and may_give_up():
                with suppress(queue.Empty):  # the thread takes from it too, should the storage answer just now
                    while True:
                        self._work.get_nowait()
                break
        self._work.put(None)
        if delivered == self._asked:
            self.join()

    def _wait_for_more(self, than: int, seconds: float) -> bool:
        with self._progress:
            return self._progress.wait_for(lambda: self._done > than, seconds)
