"""``cw.RocksDB()``: keyed state on the worker's disk, larger than its memory."""

import os
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cutwater.arguments import takes_no_others
from cutwater.byte_size import ByteSize, parse_byte_size
from cutwater.errors import ConfigError
from cutwater.flow.key_groups import KeyGroupRange, likely_owner
from cutwater.state.local_folder import folder_of_this_user

if TYPE_CHECKING:
    from cutwater.state.rocksdb_store import RocksDBStore

COMPRESSIONS = ("none", "snappy", "lz4", "zstd")
FOLDER = "cutwater-rocksdb"
LARGEST = 1 << 50
"""More bytes than any of these settings can mean."""


@takes_no_others
@dataclass(frozen=True, slots=True, kw_only=True)
class RocksDB:
    """The setting. Sizes are for each operator with state in each subtask.

    ``cache`` bounds what is kept as columns or Python values before RocksDB, ``write_buffer`` what RocksDB gathers before
    it writes a file, ``block_cache`` what it keeps of files that it read. ``local_directories`` is where the files are
    until the subtask ends: the folder for temporary files if there are none. With several, subtasks spread over them.
    """

    incremental: bool = False
    asynchronous: bool = True
    cache: ByteSize = "64MB"
    write_buffer: ByteSize = "32MB"
    block_cache: ByteSize = "32MB"
    compression: str = "lz4"
    local_directories: Sequence[str] | None = None

    def __post_init__(self) -> None:
        for name in ("incremental", "asynchronous"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"RocksDB({name}={getattr(self, name)!r}): must be True or False.")
        for name in ("cache", "write_buffer", "block_cache"):
            size = parse_byte_size(name, getattr(self, name))
            if size > LARGEST:
                raise ConfigError(f"RocksDB({name}={getattr(self, name)!r}): at most {LARGEST >> 40} TB are allowed.")
            object.__setattr__(self, name, size)
        if self.compression not in COMPRESSIONS:
            allowed = ", ".join(map(repr, COMPRESSIONS))
            raise ConfigError(f"RocksDB(compression={self.compression!r}): allowed are {allowed}.")
        object.__setattr__(self, "local_directories", _directories(self.local_directories))

    def open(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> "RocksDBStore":
        # Loads the library: only where there is state in it.
        from cutwater.state.rocksdb_database import Tuning
        from cutwater.state.rocksdb_store import RocksDBStore

        directories = self.local_directories or (tempfile.gettempdir(),)
        index = likely_owner(key_groups, max_parallelism)
        chosen = directories[(zlib.crc32(uid.encode()) + index) % len(directories)]
        tuning = Tuning(_bytes(self.write_buffer), _bytes(self.block_cache), self.compression)
        parent = folder_of_this_user(chosen, FOLDER)
        return RocksDBStore(
            uid, key_groups, max_parallelism, parent, _bytes(self.cache), tuning, incremental=self.incremental
        )


def _bytes(size: ByteSize) -> int:
    return parse_byte_size("size", size)


def _directories(given: object) -> tuple[str, ...] | None:
    if given is None:
        return None
    is_list = isinstance(given, Sequence) and not isinstance(given, str | bytes) and len(given) > 0
    paths = [os.fspath(path) if isinstance(path, os.PathLike) else path for path in given] if is_list else []  # type: ignore[attr-defined]
    if not paths or not all(isinstance(path, str) and os.path.isabs(path) and "\0" not in path for path in paths):
        raise ConfigError(
            f"RocksDB(local_directories={given!r}): a list of absolute paths is needed, as ['/disk1/state', '/disk2/state']; "
            "leave it out for the folder for temporary files."
        )
    return tuple(paths)
