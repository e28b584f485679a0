"""Which freezes of a table are still being read."""

import threading
from collections.abc import Callable


class Snapshots:
    """Counts freezes. The loop asks; any thread freezes, but not while the loop writes, and releases."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._alive: set[int] = set()
        self.epoch = 0

    def freeze(self) -> int:
        with self._lock:
            self.epoch += 1
            self._alive.add(self.epoch)
            return self.epoch

    def release(self, epoch: int, when_unread: Callable[[], None] = lambda: None) -> None:
        """``when_unread`` is called if no other freeze is read, and before there is a new one."""
        with self._lock:
            if epoch in self._alive:
                self._alive.remove(epoch)
                if not self._alive:
                    when_unread()

    @property
    def latest(self) -> int:
        """The latest freeze that is still read; 0: none."""
        with self._lock:
            return max(self._alive, default=0)

    @property
    def being_read(self) -> tuple[int, ...]:
        """The freezes that are still read, oldest first."""
        with self._lock:
            return tuple(sorted(self._alive))
