"""Rows that are gone from a state, while they and what says that they are gone are still in its files.

Whoever goes through the state steps over each of them, and keeps the interpreter meanwhile: the next row behind a million that are
gone would be found after a quarter of a second, and the loop stood still. RocksDB counts bytes, which they hardly have. So where
they are many, all files are joined beside the loop.
"""

import re
import threading
from collections.abc import Callable

FEW = 20_000
"""Are stepped over within milliseconds."""
MOST_SHARE = 0.5
"""Of the rows that are there, so many more may be gone: joining writes no more than twice as many rows as it lets go. Those of one
key group stand together, and have their part of both: however many there are, few follow each other."""

ABOUT_FILES = "rocksdb.aggregated-table-properties"
"""The property that ``deletions_of`` understands."""
_DELETIONS = re.compile(r"# deletions=(\d+)")


def are_many(gone: float, rows: int) -> bool:
    return gone > max(FEW, MOST_SHARE * rows)


def deletions_of(files: str) -> int:
    """How many there are in files, from what RocksDB tells of them."""
    found = _DELETIONS.search(files)
    return int(found.group(1)) if found else 0


class Sweep:
    """Of one state, which has ``about`` so many rows. ``join_files`` is called on a thread of its own, and raises nothing."""

    def __init__(self, join_files: Callable[[], None], about: Callable[[], int]) -> None:
        self._join_files = join_files
        self._about = about
        self._lock = threading.Lock()
        self._gone = 0.0
        self._is_under_way = False
        self._thread: threading.Thread | None = None

    def count(self, gone: float) -> None:
        """By the loop: so many rows more are gone."""
        with self._lock:
            self._gone += gone
            if self._is_under_way or not self._is_due():
                return
            self._gone, self._is_under_way = 0.0, True
        thread = threading.Thread(target=self._run, name="cutwater-rocksdb-sweep", daemon=True)
        thread.start()
        self._thread = thread

    def wait(self) -> None:
        """Until none is under way. Takes no lock: Python may forget a database, and call this, in the middle of anything."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._join_files()
            with self._lock:
                # What went meanwhile may have been the last to go.
                if not self._is_due():
                    self._is_under_way = False
                    return
                self._gone = 0.0

    def _is_due(self) -> bool:
        return self._gone > FEW and are_many(self._gone, self._about())
