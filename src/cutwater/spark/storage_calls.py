"""Storage work that the job's thread waits for, but not for ever: a hung disk answers nobody, and a cancel must get through."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from cutwater.errors import StorageError

SILENCE_SECONDS = 10.0
"""How long a storage may take over one call once somebody wants to leave."""
_LOOK_SECONDS = 0.1

T = TypeVar("T")


class StorageCalls:
    """Used by one thread. What was given up runs on until the storage answers; only then is the job's lock let go, so that
    nothing of this driver reaches the storage beside the next one."""

    def __init__(self, silence: float = SILENCE_SECONDS) -> None:
        self._silence = silence
        self._given_up: list[threading.Thread] = []

    def call(self, work: Callable[[], T], *, may_give_up: Callable[[], bool]) -> T:
        """What ``work`` returns or raises. StorageError if it has not ended ``silence`` after it may be given up."""
        results: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(work())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run, name="cutwater-storage-call", daemon=True)
        thread.start()
        if not self._ends(thread, may_give_up):
            self.give_up(thread)
            raise StorageError(
                f"The storage has not answered for {self._silence:g} s. Check that the disk or the network mount is healthy."
            )
        if errors:
            raise errors[0]
        return results[0]

    def give_up(self, thread: threading.Thread) -> None:
        """Somebody else's storage work that did not end in time."""
        self._given_up.append(thread)

    def await_answers(self, may_give_up: Callable[[], bool]) -> None:
        """Returns when nothing that was given up is still under way, or when the waiting is given up too."""
        while self._unanswered() and not may_give_up():
            self._unanswered()[0].join(_LOOK_SECONDS)

    def release(self, lock: Callable[[], None]) -> bool:
        """Call ``lock`` when the storage has answered everything. False: that is not now, but will be on another thread."""
        waiting = self._unanswered()
        if not waiting:
            lock()
            return True

        def release_later() -> None:
            for thread in waiting:
                thread.join()
            lock()

        threading.Thread(target=release_later, name="cutwater-late-release", daemon=True).start()
        return False

    def _unanswered(self) -> list[threading.Thread]:
        return [thread for thread in self._given_up if thread.is_alive()]

    def _ends(self, thread: threading.Thread, may_give_up: Callable[[], bool]) -> bool:
        until: float | None = None
        while True:
            thread.join(_LOOK_SECONDS)
            if not thread.is_alive():
                return True
            if until is None and may_give_up():
                until = time.monotonic() + self._silence
            if until is not None and time.monotonic() >= until:
                return False
