"""Whether what is stored is still what was written."""

from cutwater.checkpoint.checksum import new_checksum
from cutwater.checkpoint.completed import CompletedCheckpoint, decode_metadata
from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.layout import METADATA_FILE, metadata_file
from cutwater.checkpoint.snapshot import StoredTable
from cutwater.checkpoint.storage import CheckpointStorage
from cutwater.checkpoint.storage_url import folder_of
from cutwater.errors import DamagedCheckpoint, RestoreError

_READ_AT_ONCE = 8 << 20


def verify(storage: CheckpointStorage, checkpoint: CompletedCheckpoint) -> None:
    """Read every file of the checkpoint; raises DamagedCheckpoint naming the file and both checksums or sizes."""
    for table in checkpoint.tables():
        verify_table(storage, table)


def verify_table(storage: CheckpointStorage, table: StoredTable) -> None:
    try:
        size = storage.size(table.file)
        if size != table.size:
            raise DamagedCheckpoint(
                f"{table.file} in {storage.url} is damaged: {size} bytes, written were {table.size}."
            )
        digest = new_checksum()
        for offset in range(0, size, _READ_AT_ONCE):
            digest.update(storage.read(table.file, offset, _READ_AT_ONCE))
    except FileNotFoundError:
        raise missing_file(storage, table) from None
    if digest.hexdigest() != table.checksum:
        raise wrong_checksum(storage.url, table, digest.hexdigest())


def missing_file(storage: CheckpointStorage, table: StoredTable) -> DamagedCheckpoint:
    return DamagedCheckpoint(
        f"{table.file} is missing in {storage.url}; written were {table.size} bytes with checksum {table.checksum}."
    )


def wrong_checksum(place: str, table: StoredTable, found: str) -> DamagedCheckpoint:
    return DamagedCheckpoint(
        f"{table.file} in {place} is damaged: it has checksum {found}, written was {table.checksum}."
    )


def read_metadata(storage: CheckpointStorage, folder: str) -> CompletedCheckpoint:
    """Raises FileNotFoundError, DamagedCheckpoint, RestoreError."""
    name = metadata_file(folder)
    return decode_metadata(f"{name} in {storage.url}", storage.read(name))


def open_checkpoint(path: str) -> tuple[CheckpointStorage, CompletedCheckpoint]:
    """A checkpoint or savepoint by its folder, wherever it was moved to; names are relative to the storage returned.

    Raises RestoreError if none stands there, DamagedCheckpoint if its metadata is damaged.
    """
    folder = folder_of(path)
    if folder.endswith(f"/{METADATA_FILE}"):
        folder = folder.removesuffix(f"/{METADATA_FILE}")
    storage = FileStorage(folder)
    try:
        checkpoint = read_metadata(storage, "")
    except FileNotFoundError:
        raise RestoreError(
            f"{path!r} holds no completed checkpoint: there is no {METADATA_FILE} in {folder}. "
            f"Pass the folder of a checkpoint (.../chk-12) or of a savepoint."
        ) from None
    return storage, checkpoint.in_folder("")
