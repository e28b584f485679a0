"""The thin edge to RocksDB: one database for the state of one operator in one subtask, a column family for each state.

Nothing in it outlives the process: checkpoints are what survives. So there is no write-ahead log, and no sync.
"""

import os
import tempfile
import uuid
import weakref
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rocksdict

from cutwater.errors import StorageError
from cutwater.state.rocksdb_family import Entries, Family, entries_from, in_lists
from cutwater.state.rocksdb_runs import EARLY, Joining
from cutwater.state.rocksdb_sweep import Sweep

_OWN, _NAMED_DEFAULT = "default", "state default"
"""A column family that each database has, and what the family of a state of that name is called."""
MAX_OPEN_FILES = 256
MANIFEST_BYTES = 64 << 10
"""RocksDB writes down there what became of each file, and begins anew where it is larger: every checkpoint stores it whole."""
WRITE_BUFFER_FILTER = 0.01
"""Of the write buffer, for each state, whether or not it has anything in it: about ten bits a row."""
_IN_SILENCE = {
    "rocksdict-config.json": '{"raw_mode":true,"prefix_extractors":{}}',
    "OPTIONS-000001": """\
[Version]
  rocksdb_version=1.0.0
  options_file_version=1.1
[DBOptions]
  avoid_flush_during_shutdown=true
  info_log_level=FATAL_LEVEL
[CFOptions "default"]
[TableOptions/BlockBasedTable "default"]
""",
}
"""Options as RocksDB keeps them in files: rocksdict cannot set these otherwise. When it ends, a database does not write what is in
memory. Nor does it ever tell of its work, which nobody would read: where that file is full and another one cannot be made, as the
folder is gone before the last cut is, RocksDB crashes the process."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """What of the user's settings RocksDB hears."""

    write_buffer: int
    block_cache: int
    compression: str


class Database:
    """One operator's in one subtask. If ``folder`` has the files of one, it goes on with them, and joins them by ``joining``."""

    def __init__(self, uid: str, folder: str, tuning: Tuning, joining: Joining = EARLY) -> None:
        self._where = f"{uid}: RocksDB in {folder}"
        self._tuning = tuning
        self._cache = rocksdict.Cache(tuning.block_cache)
        self._folder = folder
        try:
            options = self._tuned(_in_silence(os.path.dirname(folder)), EARLY)
            options.create_if_missing(True)
            options.set_db_write_buffer_size(tuning.write_buffer)
            options.set_max_open_files(MAX_OPEN_FILES)
            options.set_max_manifest_file_size(MANIFEST_BYTES)
            options.set_stats_dump_period_sec(0)
            self._unclaimed = set(families_in(folder))
            self._database = rocksdict.Rdict(
                folder, options, {_family_of(name): self._options(joining) for name in self._unclaimed}
            )
        except Exception as error:
            raise StorageError(f"{self._where} cannot be opened: {error}") from error
        self._sweeps: list[Sweep] = []
        """Of all families that there are, or were."""
        # Also if it is merely forgotten: else what is in memory would be written, perhaps to a folder that is gone, and one such
        # failure keeps every other database of the process from writing for a second.
        self._end_writing = weakref.finalize(self, _end_writing, self._database, self._sweeps)
        self._families: dict[str, Family] = {}
        self._joining = joining

    def family(self, name: str, kind: type[Family] = Family) -> Family:
        """For the state ``name``, which is declared now."""
        is_present = name in self._unclaimed
        self._unclaimed.discard(name)
        opened = self._database.get_column_family(_family_of(name)) if is_present else self._create(name)
        used = self._for_use(name, opened)
        family = kind(self._where, *used, self._options(), self._new_file, self._background_errors)
        self._sweeps.append(family.sweep)
        family.is_empty = not is_present
        if is_present:
            # How much of it is replaced by now is not known.
            family.joining, family.whole = self._joining, 0
            family.look_for_gone()
        self._families[name] = family
        return family

    @property
    def families(self) -> list[str]:
        return sorted(self._families)

    def renew(self, family: Family, name: str) -> None:
        """Let go of all that it holds."""
        family.close()
        self._database.drop_column_family(_family_of(name))
        family.begin_anew(*self._for_use(name, self._create(name)))
        self._sweeps.append(family.sweep)

    def drop_unclaimed(self) -> None:
        """What it was opened with and nobody declared."""
        for name in self._unclaimed:
            self._database.drop_column_family(_family_of(name))
        self._unclaimed.clear()

    def _create(self, name: str) -> Any:
        return self._database.create_column_family(_family_of(name), self._options())

    def _for_use(self, name: str, opened: Any) -> tuple[Any, Any]:
        writing: Any = rocksdict.WriteOptions()  # its stubs have methods where there are attributes
        writing.disable_wal = True
        writing.no_slowdown = True
        opened.set_write_options(writing)
        return opened, self._database.get_column_family_handle(_family_of(name))

    def check(self) -> None:
        """StorageError if it is known to take nothing more."""
        for family in self._families.values():
            if family.failure is not None:
                raise StorageError(str(family.failure)) from family.failure

    def keep_runs(self) -> None:
        """What is there, and what comes, goes into a checkpoint: it is left as it is while that does not make too much of it."""
        for family in self._families.values():
            family.keep_runs()

    def link(self, folder: str) -> None:
        """The files of the database as it is now, in a new folder, without copying them."""
        # Else it would flush by itself, and keep the interpreter from everybody meanwhile.
        for family in self._families.values():
            family.flush()
            family.note_size()
        try:
            rocksdict.Checkpoint(self._database).create_checkpoint(folder)
        except Exception as error:
            raise StorageError(f"{self._where} cannot be linked to {folder}: {error}") from error

    def close(self) -> None:
        """Cuts that were taken can still be read: they keep what they need."""
        self._end_writing()
        opened: list[Family | rocksdict.Rdict] = [*self._families.values(), self._database]
        for each in opened:
            # It says that it could not write what is in memory, which nobody reads any more.
            with suppress(Exception):
                each.close()

    def _new_file(self) -> str:
        """Of a name that nobody has, where it can be moved into the database."""
        return f"{self._folder}.{uuid.uuid4().hex}"

    def _background_errors(self) -> int:
        return self._database.property_int_value("rocksdb.background-errors") or 0

    def _options(self, joining: Joining = EARLY) -> Any:
        # Raw: keys and values are bytes. Else rocksdict would pickle what it does not know.
        return self._tuned(rocksdict.Options(raw_mode=True), joining)

    def _tuned(self, options: Any, joining: Joining) -> Any:
        options.set_write_buffer_size(self._tuning.write_buffer)
        options.set_compression_type(getattr(rocksdict.DBCompressionType, self._tuning.compression)())
        blocks = rocksdict.BlockBasedOptions()
        blocks.set_block_cache(self._cache)
        blocks.set_bloom_filter(10, False)
        options.set_block_based_table_factory(blocks)
        # Most keys that are asked for were written long ago: a filter says so sooner than a search of what was written lately.
        options.set_memtable_whole_key_filtering(True)
        options.set_memtable_prefix_bloom_ratio(WRITE_BUFFER_FILTER)
        joining.tell(options)
        return options


def _end_writing(database: Any, sweeps: Iterable[Sweep]) -> None:
    """For a database that nobody writes to any more. A thread that was still in it when Python ends would crash the process."""
    database.cancel_all_background(True)
    for sweep in sweeps:
        sweep.wait()


def _in_silence(folder: str) -> Any:
    """Options of a database that says and writes nothing of its own."""
    with tempfile.TemporaryDirectory(dir=folder) as told:
        for name, content in _IN_SILENCE.items():
            (Path(told) / name).write_text(content)
        return rocksdict.Options.load_latest(told)[0]


def _family_of(state: str) -> str:
    """The name of its column family."""
    return _NAMED_DEFAULT if state == _OWN else state


def families_in(folder: str) -> list[str]:
    """The states whose column families are in the database in ``folder``, if there is one."""
    if not os.path.exists(os.path.join(folder, "CURRENT")):
        return []
    families = rocksdict.Rdict.list_cf(folder, rocksdict.Options(raw_mode=True))
    return [_OWN if family == _NAMED_DEFAULT else family for family in families if family != _OWN]


def read_family(folder: str, name: str, first: bytes, end: bytes, rows: int) -> Iterator[Entries]:
    """From a database that nobody writes to: the entries from ``first`` on, and before ``end``; so many at once."""
    database = _to_be_read(folder)
    family: Any = database.get_column_family(_family_of(name))
    try:
        for keys, values in in_lists(entries_from(family, first, f"RocksDB in {folder}"), rows):
            if keys[-1] >= end:
                within = bisect_left(keys, end)
                if within:
                    yield keys[:within], values[:within]
                return
            yield keys, values
    finally:
        family.close()
        database.close()


def bytes_of_families(folder: str) -> dict[str, int]:
    """How large the files of each are together, in a database that nobody writes to."""
    database = _to_be_read(folder)
    sizes = {}
    for name in families_in(folder):
        family = database.get_column_family(_family_of(name))
        sizes[name] = family.property_int_value("rocksdb.live-sst-files-size") or 0
        family.close()
    database.close()
    return sizes


def _to_be_read(folder: str) -> rocksdict.Rdict:
    families = {_family_of(each): rocksdict.Options(raw_mode=True) for each in families_in(folder)}
    try:
        return rocksdict.Rdict(
            folder, rocksdict.Options(raw_mode=True), families, rocksdict.AccessType.read_only(False)
        )
    except Exception as error:
        raise StorageError(f"The RocksDB database in {folder} cannot be read: {error}") from error
