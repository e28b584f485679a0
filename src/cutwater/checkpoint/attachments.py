"""Files that travel in messages, because the storage is the driver's memory. A file is found by its checksum."""

from collections.abc import Iterable, Sequence

from cutwater.checkpoint.checksum import checksum_of
from cutwater.checkpoint.snapshot import SubtaskSnapshot
from cutwater.checkpoint.storage import CheckpointStorage
from cutwater.errors import StorageError
from cutwater.state.stored import StoredTable


def put_away(storage: CheckpointStorage, snapshot: SubtaskSnapshot, attachments: Sequence[bytes]) -> None:
    """In the driver: keep what came with an acknowledgement under the names that the snapshot gives it."""
    arrived = {checksum_of(each): each for each in attachments}
    for file in snapshot.files():
        if file.checksum in arrived:
            storage.create(file.file, arrived[file.checksum])
        elif not any(storage.list(file.file)):  # unless it is one of a checkpoint before
            raise StorageError(f"The file {file.file} of {snapshot.vertex}[{snapshot.index}] came without its content.")


def attachments_of(storage: CheckpointStorage, tables: Iterable[StoredTable]) -> tuple[bytes, ...]:
    """In the driver: what a subtask needs to restore ``tables``, each once. Workers verify them by their checksums."""
    files = {file.checksum: file.file for table in tables for file in table.files}
    return tuple(storage.read(file) for file in files.values())
