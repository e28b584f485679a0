"""Where state is on a worker's disk."""

from pathlib import Path

from cutwater.state.local_folder import folder_of_this_user
from cutwater.state.rocksdb import FOLDER


def rocksdb_folder(directory: Path) -> Path:
    """Of this user, below one of RocksDB's ``local_directories``."""
    return Path(folder_of_this_user(str(directory), FOLDER))
