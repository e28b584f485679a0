"""One cut of all states of an operator, on its way into a checkpoint: what was in memory is written to RocksDB, then the files
of the database are linked and those that no confirmed checkpoint has are copied.

Nothing newer than the cut may be in those files (rule 40): from the freeze until the links are made, the loop does not write to
RocksDB. If its memory is full before, it makes them itself: it must not wait for a storage that hangs.
"""

import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cutwater.state.frozen import FilePlace, FrozenTable, too_large
from cutwater.state.rocksdb_database import Database, bytes_of_families
from cutwater.state.stored import Form, StoredFile, StoredTable

FAMILIES = "families"
LINEAGE = "lineage"
"""Among what a stored table tells beside its files: the states that are in them, and what all have in common that one database
was stored as, over all attempts that went on with its files."""
KEYS = "keys"
"""The same, where each key stands once: how many there are."""
Json = Any
MOST_SHARES = 2
"""Of its share of the cache a table holds at most so many in memory, while a cut keeps the loop from writing."""
WHILE_LINKED = 8 << 20
"""So many bytes more while another thread links: two shares of a small cache are full before that ends, and the loop would wait."""
_NOT_NEEDED = ".log"
"""A write-ahead log: it is empty, as none is written."""
_COPIED_AT_ONCE = 4
"""Most files are small, and each waits for the disk: those that wait together are written in one turn of it."""


class Gate:
    """Whether the loop may write to RocksDB. Each cut shuts it, until it is linked or given up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cuts: list[StoreCut] = []
        self._linking = threading.Lock()
        self._let_go: list[StoreCut] = []
        """These end when nobody links."""

    @property
    def is_shut(self) -> bool:
        return bool(self._cuts)

    def shut(self, cut: "StoreCut") -> None:
        with self._lock:
            self._cuts.append(cut)

    def open(self, cut: "StoreCut") -> None:
        with self._lock:
            self._cuts.remove(cut)

    def lets_write(self, held: int, share: int) -> bool:
        """Asked by the loop, for a table that holds so many bytes in memory and may have ``share``."""
        most = MOST_SHARES * share + (WHILE_LINKED if self._linking.locked() else 0)
        if self.is_shut and held > most:
            # It waits for those who link, or does it in their place: they may themselves wait for the storage.
            self.link(None)
        return not self.is_shut

    def link(self, last: "StoreCut | None") -> None:
        """All that wait, up to ``last``, in order: each brings all that was in memory at its cut, and would undo what a later
        one brought."""
        with self._linking:
            self._end_let_go()  # what they froze may not be as it was any more
            with self._lock:
                cuts = self._cuts.copy()
            for cut in cuts if last is None or last in cuts else ():
                cut.link_alone()
                if cut is last:
                    break
        self._try_to_end()

    def forget(self, cut: "StoreCut") -> None:
        """By any thread, the loop among them: it does not wait for whoever links."""
        self._let_go.append(cut)
        self._try_to_end()

    def _try_to_end(self) -> None:
        # Whoever finds it locked leaves it to the one who links, who looks here after that.
        while self._let_go and self._linking.acquire(blocking=False):
            try:
                self._end_let_go()
            finally:
                self._linking.release()

    def _end_let_go(self) -> None:
        while self._let_go:
            self._let_go.pop().end()


class StoreCut:
    """Shared by the tables of one freeze; each lets go of it in the end."""

    def __init__(self, database: Database, lineage: str, gate: Gate, folder: str) -> None:
        self._database = database
        self._lineage = lineage
        self._gate = gate
        self._folder = folder
        self._writers: list[Callable[[], None]] = []
        self._users = 0
        self._rows: list[FrozenTable] = []
        """Of tables that let go of it."""
        self._files: tuple[StoredFile, ...] | None = None
        self._failure: Exception | None = None
        self.is_over = False
        """Whether it is linked, or given up."""
        self.is_linked = False
        """Whether all that was frozen is in RocksDB; the loop may ask when it is over."""
        gate.shut(self)

    def details(self) -> Json:
        """To be told with each of its tables."""
        return {FAMILIES: self._database.families, LINEAGE: self._lineage}

    def join(self) -> None:
        """A table that is stored with it, and lets go of it in the end."""
        self._users += 1

    def before_link(self, write: Callable[[], None]) -> None:
        """``write`` brings to RocksDB what was frozen in memory. In the order of these calls."""
        self._writers.append(write)

    def files(self, place: FilePlace) -> tuple[StoredFile, ...]:
        """The database as it was at the cut, in the storage."""
        if self._files is None:
            self.link()
            self._check_sizes(place.most_bytes)
            self._files = self._stored(place)
        return self._files

    def link(self) -> None:
        """All that was frozen goes to RocksDB, and its files are kept as they are then, if nobody did that yet."""
        self._gate.link(self)
        if self._failure is not None:
            raise self._failure

    def link_alone(self) -> None:
        """For ``Gate``. Whoever stores the checkpoint says why it could not be."""
        try:
            self._database.keep_runs()
            for write in self._writers:
                write()
            shutil.rmtree(self._folder, ignore_errors=True)
            self._database.link(self._folder)
            self.is_linked = True
        except Exception as error:
            self._failure = error
        finally:
            self._open_gate()

    def release(self, rows: FrozenTable) -> None:
        """By a table. Its ``rows`` go with the cut: until that is given up, the loop may link it, and goes through them."""
        self._rows.append(rows)
        self._users -= 1
        if self._users == 0:
            self._gate.forget(self)

    def end(self) -> None:
        """For ``Gate``: nobody needs it any more."""
        if not self.is_over:
            self._open_gate()
        for rows in self._rows:
            rows.release()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _open_gate(self) -> None:
        self._writers.clear()
        self.is_over = True
        self._gate.open(self)

    def _check_sizes(self, most_bytes: int | None) -> None:
        """Before anything is copied: to the driver's memory, if there is a limit."""
        if most_bytes is None:
            return
        for state, size in bytes_of_families(self._folder).items():
            if size > most_bytes:
                raise too_large(state, most_bytes)

    def _stored(self, place: FilePlace) -> tuple[StoredFile, ...]:
        names = [name for name in sorted(os.listdir(self._folder)) if not name.endswith(_NOT_NEEDED)]
        base = place.base if place.base is not None and self._is_earlier(place.base) else None
        earlier = {} if base is None else {file.name: file for file in base.files}
        known = {name: file for name, file in earlier.items() if _is_data(name)}
        is_same = base is not None and base.details[FAMILIES] == self._database.families
        if base is not None and is_same and {*filter(_is_data, names)} == known.keys():
            # All data is in those files, and they never change: the others only tell how RocksDB has arranged them.
            return base.files
        stored = known | self._copied(place, [name for name in names if name not in known], earlier)
        return tuple(stored[name] for name in names)

    def _copied(
        self, place: FilePlace, names: Sequence[str], earlier: Mapping[str, StoredFile]
    ) -> dict[str, StoredFile]:
        paths = {name: os.path.join(self._folder, name) for name in names}

        def copied(name: str) -> StoredFile:
            return place.copy(name, paths[name], earlier.get(name))

        # Those of another size wait for the storage. Most often they are two: one is copied here, and waits for no thread to begin.
        waiting = [name for name in names if name not in earlier or os.path.getsize(paths[name]) != earlier[name].size]
        with ThreadPoolExecutor(_COPIED_AT_ONCE - 1) as pool:
            others = {name: pool.submit(copied, name) for name in waiting[1:]}
            here = {name: copied(name) for name in names if name not in others}
            return here | {name: other.result() for name, other in others.items()}

    def _is_earlier(self, table: StoredTable) -> bool:
        """Another database gives the same names to other files."""
        return table.form is Form.ROCKSDB and table.details[LINEAGE] == self._lineage


def _is_data(name: str) -> bool:
    return name.endswith(".sst")
