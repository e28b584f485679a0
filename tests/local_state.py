"""Where state is on a worker's disk."""

from pathlib import Path

from cutwater.state.local_folder import folder_of_this_user
from cutwater.state.rocksdb import FOLDER


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
