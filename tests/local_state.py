"""Where state is on a worker's disk."""

from pathlib import Path

from cutwater.state.backend import KeyedStateStore
from cutwater.state.local_folder import folder_of_this_user
from cutwater.state.rocksdb import FOLDER
from cutwater.state.rocksdb_store import RocksDBStore
from tests.spark.workers import wait_until


def rocksdb_folder(directory: Path) -> Path:
    """Of this user, below one of RocksDB's ``local_directories``."""
    return Path(folder_of_this_user(str(directory), FOLDER))


def damage(directory: Path) -> None:
    """In the middle of the largest file of rows below it, as a disk does that no longer has what was written."""
    largest = max(directory.rglob("*.sst"), key=lambda file: file.stat().st_size)
    middle = largest.stat().st_size // 2
    with largest.open("r+b") as file:
        file.seek(middle)
        block = file.read(64)
        file.seek(middle)
        file.write(bytes(byte ^ 255 for byte in block))


def wait_until_nothing_is_joined(store: KeyedStateStore) -> None:
    """By RocksDB, of the files that it has now."""
    assert isinstance(store, RocksDBStore)
    work = ("num-running-flushes", "mem-table-flush-pending", "num-running-compactions", "compaction-pending")
    families = [family._family for family in store._families.values()]
    wait_until(
        lambda: not any(family.property_int_value(f"rocksdb.{name}") for family in families for name in work),
        "nothing to be joined",
    )
