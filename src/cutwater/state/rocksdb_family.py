"""One state in RocksDB: keys and values as bytes, in the order of the keys."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import rocksdict

from cutwater.errors import StorageError
from cutwater.state.rocksdb_keys import PREFIX_BYTES, prefix_parts
from cutwater.state.rocksdb_runs import EARLY, FILES, joining_of, runs_of
from cutwater.state.rocksdb_sweep import ABOUT_FILES, Sweep, deletions_of

Entry = tuple[bytes, bytes]
Entries = tuple[Sequence[bytes], Sequence[bytes]]
"""Keys, and their values."""

READ_AT_ONCE = 4096
"""Keys: what RocksDB keeps of each until all are found stays in the processor's caches."""
READ_BYTES = 8 << 20
"""So many bytes of values, as they are stored, and one value more, are in a list at most: it is in memory beside the caches, and
becomes one batch."""
_STALLED = "Write stall"
_STALL_SECONDS = 0.01


class Family:
    """One state. Written by the loop; a cut is read on the snapshot thread."""

    def __init__(
        self,
        where: str,
        family: Any,
        handle: Any,
        options: Any,
        new_file: Callable[[], str],
        background_errors: Callable[[], int],
    ) -> None:
        """``new_file`` names files that can be moved into the database; ``background_errors`` tells how often one could not
        be written, or joined: RocksDB says so of the database, and 0 of each family."""
        self._where = where
        self._family = family
        self._handle = handle
        self._options = options
        self._new_file = new_file
        self._background_errors = background_errors
        self.is_empty = True
        """Until something is written: what was never there need not be looked for."""
        self.joining = EARLY
        self.whole = math.inf
        """The least that its files had together in a checkpoint, if there was one."""
        self.failure: StorageError | None = None
        """Why RocksDB takes nothing more: what it had in memory could not be written."""
        self.sweep = self._new_sweep()

    def begin_anew(self, family: Any, handle: Any) -> None:
        self._family, self._handle, self.is_empty = family, handle, True
        self.sweep = self._new_sweep()
        self.joining, self.whole = EARLY, math.inf

    def get(self, keys: list[bytes]) -> list[bytes | None]:
        """In the order of the keys it is fastest."""
        if self.is_empty:
            return [None] * len(keys)
        found: list[bytes | None] = []
        try:
            for start in range(0, len(keys), READ_AT_ONCE):
                found += self._family.get(keys[start : start + READ_AT_ONCE])
        except Exception as error:
            raise _not_read(self._where, error) from error
        return found

    def write(self, keys: Sequence[bytes], values: Sequence[bytes], deleted: Iterable[bytes] = ()) -> None:
        gone = list(deleted)

        def fill(batch: Any) -> None:
            batch.set_default_column_family(self._handle)
            deque(map(batch.put, keys, values), maxlen=0)
            for key in gone:
                batch.delete(key)

        self._apply(fill)
        self.is_empty = False
        if gone:
            self.sweep.count(len(gone))

    def ingest(self, entries: Iterable[Entries]) -> None:
        """Very many keys and values, in the order of the keys: as a file of RocksDB, past its write buffer."""
        path = self._new_file()
        try:
            file = rocksdict.SstFileWriter(self._options)
            file.open(path)
            for keys, values in entries:
                deque(map(file.__setitem__, keys, values), maxlen=0)
            file.finish()
            # Else what was written before would be flushed by the next line, which keeps the interpreter.
            self.flush()
            moving = rocksdict.IngestExternalFileOptions()
            moving.set_move_files(True)
            self._family.ingest_external_file([path], moving)
        except Exception as error:
            raise self._not_written(error) from error
        finally:
            Path(path).unlink(missing_ok=True)
        self.is_empty = False

    def flush(self) -> None:
        """What was written goes to files. Others run meanwhile."""
        try:
            # RocksDB would wait by itself: for ever, if it cannot join files because the disk is full.
            while self.joining.slows_down(len(runs_of(self._family.property_value(FILES)))):
                if self._background_errors():
                    raise StorageError("its files are too many, and cannot be joined")
                time.sleep(_STALL_SECONDS)
            self._family.flush()
        except Exception as error:
            self.failure = self._not_written(error)
            raise self.failure from error

    def keep_runs(self) -> None:
        """For checkpoints, from now on. What RocksDB is joining already comes to its end."""
        joining = joining_of(runs_of(self._family.property_value(FILES)), self.whole)
        if joining == self.joining:
            return
        try:
            self._family.set_options(joining.changed())
        except Exception as error:
            raise self._not_written(error) from error
        self.joining = joining

    def note_size(self) -> None:
        """All of it goes into a checkpoint."""
        self.whole = min(self.whole, self._family.property_int_value("rocksdb.live-sst-files-size") or 0)

    def look_for_gone(self) -> None:
        """In the files that it was opened with: the loop may never let go of a row again."""
        self.sweep.count(deletions_of(self._family.property_value(ABOUT_FILES) or ""))

    def close(self) -> None:
        self.sweep.wait()
        self._family.close()

    @property
    def about(self) -> int:
        """How many rows there are, roughly; 0 only if there are none."""
        return 0 if self.is_empty else max(_about(self._family), 1)

    def namespaces(self) -> dict[int, set[int]]:
        """The key groups of each pane or bucket in it, found without going through all keys."""
        found: dict[int, set[int]] = {}
        keys = self._family.iter()
        keys.seek_to_first()
        while keys.valid():
            prefix = keys.key()[:PREFIX_BYTES]
            group, namespace = prefix_parts(prefix)
            found.setdefault(namespace, set()).add(group)
            keys.seek(after(prefix))
        _check_end(keys, self._where)
        return found

    def drop(self, prefixes: Iterable[bytes], share: float = 0) -> None:
        """Every key that begins with one of them: about such a share of all that it has."""
        ranges = [(prefix, after(prefix)) for prefix in prefixes]

        def fill(batch: Any) -> None:
            for first, end in ranges:
                batch.delete_range(first, end, self._handle)

        self._apply(fill)
        if share:
            self.sweep.count(share * self.about)

    def scan(self, prefix: bytes) -> Iterator[Entry]:
        """In the order of the keys."""
        # Not by an upper bound in ReadOptions: rocksdict frees it with them, while its iterator still goes by it.
        for entry in self._entries(prefix):
            if not entry[0].startswith(prefix):
                return
            yield entry

    def first_behind(self, key: bytes, rows: int) -> Entries | None:
        """The entries whose keys follow next, so many at most, as they are now."""
        return next(in_lists(self._entries(key + b"\0"), rows), None)

    def keys(self) -> Iterator[bytes]:
        """All of them, in their order. To be read at once: it holds files."""
        if self.is_empty:
            return
        found = self._family.iter()
        found.seek_to_first()
        while found.valid():
            yield found.key()
            found.next()
        _check_end(found, self._where)

    def cut(self) -> Iterator[Entry]:
        """Everything as it is now, to be read later, on any thread, once.

        An iterator sees what was there when it was made. (A ``Snapshot`` of rocksdict does so for single keys only: its
        iterators see what was written since.)
        """
        # The first one is looked for when it is read, at no cost to the cut.
        return iter(()) if self.is_empty else self._entries(b"")

    def _new_sweep(self) -> Sweep:
        # Of no part of it is this object: one that refers to itself is let go when Python's collector comes by.
        return Sweep(partial(_join_files, self._family), partial(_about, self._family))

    def _entries(self, first: bytes) -> Iterator[Entry]:
        """From the key ``first`` on, of all that is there now. Does not hold this object, and with it an open database."""
        return entries_from(self._family, first, self._where)

    def _apply(self, fill: Callable[[Any], None]) -> None:
        """``fill`` is called for each try: a batch can be written once.

        What waits for files to be written or joined is told so (``no_slowdown``), and tries again. RocksDB itself would wait as
        long as it takes: for ever, if the disk is full.
        """
        while True:
            batch = rocksdict.WriteBatch(raw_mode=True)
            fill(batch)
            try:
                self._family.write(batch)
                return
            except Exception as error:
                if _STALLED not in str(error) or self._background_errors():
                    raise self._not_written(error) from error
            time.sleep(_STALL_SECONDS)

    def _not_written(self, error: Exception) -> StorageError:
        return StorageError(
            f"{self._where} cannot be written: {error}. Is the disk full? "
            "cw.RocksDB(local_directories=[...]) says where it writes."
        )


def entries_from(family: Any, first: bytes, where: str) -> Iterator[Entry]:
    """What there is now from the key ``first`` on, of a column family of rocksdict, whose ``items`` do not say why they end."""
    return _to_the_end(family.iter(), first, where)


def _to_the_end(found: Any, first: bytes, where: str) -> Iterator[Entry]:
    found.seek(first)
    while found.valid():
        yield found.key(), found.value()
        found.next()
    _check_end(found, where)


def _check_end(found: Any, where: str) -> None:
    """It also ends where it cannot read on: all that follows would be missing."""
    try:
        found.status()
    except Exception as error:
        raise _not_read(where, error) from error


def _not_read(where: str, error: Exception) -> StorageError:
    return StorageError(
        f"{where} cannot be read: {error}. What is on the local disk is not what was written: look after the disk. A job that "
        "begins anew has its state from its last checkpoint. If that stored the damaged file, which one with incremental=True does "
        "as it is, restore an earlier one, or a savepoint: restore=..."
    )


def _about(family: Any) -> int:
    return family.property_int_value("rocksdb.estimate-num-keys") or 0


def _join_files(family: Any) -> None:
    """All of them. Nothing that is gone is in what comes of it."""
    beside_others = rocksdict.CompactOptions()
    beside_others.set_exclusive_manual_compaction(False)
    with suppress(Exception):  # if nothing can be written, whoever writes next is told, or the next cut
        family.flush()
        family.compact_range(None, None, beside_others)


def in_lists(entries: Iterator[Entry], rows: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """So many keys and their values at a time, fewer where values are wide. Pairs are not kept: Python's collector would go
    through them again and again, which takes longer than to read them."""
    while True:
        keys: list[bytes] = []
        values: list[bytes] = []
        left = READ_BYTES
        for key, value in islice(entries, rows):
            keys.append(key)
            values.append(value)
            left -= len(value)
            if left <= 0:
                break
        if not keys:
            return
        yield keys, values


def after(prefix: bytes) -> bytes:
    """The first key behind all that begin with ``prefix``, which is not all 0xff."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1])
