"""The thin edge to RocksDB: one database for the state of one operator in one subtask, a column family for each state.

Nothing in it outlives the process: checkpoints are what survives. So there is no write-ahead log, and no sync.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import rocksdict

from cutwater.errors import StorageError

Entry = tuple[bytes, bytes]

MAX_OPEN_FILES = 256


@dataclass(frozen=True, slots=True)
class Tuning:
    """What of the user's settings RocksDB hears."""

    write_buffer: int
    block_cache: int
    compression: str


class Database:
    def __init__(self, uid: str, folder: str, tuning: Tuning) -> None:
        self._where = f"{uid}: RocksDB in {folder}"
        self._tuning = tuning
        self._cache = rocksdict.Cache(tuning.block_cache)
        options = self._options()
        options.create_if_missing(True)
        options.set_db_write_buffer_size(tuning.write_buffer)
        options.set_max_open_files(MAX_OPEN_FILES)
        options.set_keep_log_file_num(1)
        options.set_stats_dump_period_sec(0)
        try:
            self._database = rocksdict.Rdict(folder, options)
        except Exception as error:
            raise StorageError(f"{self._where} cannot be opened: {error}") from error
        self._families: list[Any] = []

    def family(self, name: str, kind: "type[Family] | None" = None) -> "Family":
        created = self._database.create_column_family(name, self._options())
        without_log: Any = rocksdict.WriteOptions()  # its stubs have a method where there is an attribute
        without_log.disable_wal = True
        created.set_write_options(without_log)
        self._families.append(created)
        return (kind or Family)(self._where, created, self._database.get_column_family_handle(name))

    def close(self) -> None:
        """Cuts that were taken can still be read: they keep what they need."""
        for family in self._families:
            family.close()
        self._database.close()

    def _options(self) -> Any:
        # Raw: keys and values are bytes. Else rocksdict would pickle what it does not know.
        options = rocksdict.Options(raw_mode=True)
        options.set_write_buffer_size(self._tuning.write_buffer)
        options.set_compression_type(getattr(rocksdict.DBCompressionType, self._tuning.compression)())
        blocks = rocksdict.BlockBasedOptions()
        blocks.set_block_cache(self._cache)
        blocks.set_bloom_filter(10, False)
        options.set_block_based_table_factory(blocks)
        return options


class Family:
    """One state. Written by the loop; a cut is read on the snapshot thread."""

    def __init__(self, where: str, family: Any, handle: Any) -> None:
        self._where = where
        self._family = family
        self._handle = handle
        self.is_empty = True
        """Until something is written: what was never there need not be looked for."""

    def get(self, keys: list[bytes]) -> list[bytes | None]:
        found: list[bytes | None] = [None] * len(keys) if self.is_empty else self._family.get(keys)
        return found

    def write(self, keys: Sequence[bytes], values: Sequence[bytes], deleted: Iterable[bytes] = ()) -> None:
        batch = rocksdict.WriteBatch(raw_mode=True)
        batch.set_default_column_family(self._handle)
        deque(map(batch.put, keys, values), maxlen=0)
        for key in deleted:
            batch.delete(key)
        self._apply(batch)
        self.is_empty = False

    def drop(self, prefixes: Iterable[bytes]) -> None:
        """Every key that begins with one of them."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        for prefix in prefixes:
            batch.delete_range(prefix, after(prefix), self._handle)
        self._apply(batch)

    def scan(self, prefix: bytes) -> Iterator[Entry]:
        """In the order of the keys."""
        # Not by an upper bound in ReadOptions: rocksdict frees it with them, while its iterator still goes by it.
        for entry in self._family.items(from_key=prefix):
            if not entry[0].startswith(prefix):
                return
            yield entry

    def cut(self) -> Iterator[Entry]:
        """Everything as it is now, to be read later, on any thread, once.

        An iterator sees what was there when it was made. (A ``Snapshot`` of rocksdict does so for single keys only: its
        iterators see what was written since.)
        """
        entries: Iterator[Entry] = iter(()) if self.is_empty else self._family.items()
        return entries

    def _apply(self, batch: Any) -> None:
        try:
            self._family.write(batch)
        except Exception as error:
            raise StorageError(
                f"{self._where} cannot be written: {error}. Is the disk full? "
                "cw.RocksDB(local_directories=[...]) says where it writes."
            ) from error


def after(prefix: bytes) -> bytes:
    """The first key behind all that begin with ``prefix``, which is not all 0xff."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1])
