"""Tables that travel in messages, because the storage is the driver's memory. A table is found by its checksum."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from cutwater.checkpoint.checksum import checksum_of
from cutwater.checkpoint.layout import attachment_file
from cutwater.checkpoint.snapshot import StoredTable, SubtaskSnapshot
from cutwater.checkpoint.storage import CheckpointStorage
from cutwater.errors import StorageError


def adopt_attachments(
    storage: CheckpointStorage, folder: str, snapshot: SubtaskSnapshot, attachments: Sequence[bytes]
) -> SubtaskSnapshot:
    """In the driver: put away what came with an acknowledgement; the snapshot returned names the tables in the storage."""
    arrived = {checksum_of(each): each for each in attachments}

    def adopted(table: StoredTable) -> StoredTable:
        if table.checksum not in arrived:
            raise StorageError(f"State {table.state!r} of {snapshot.vertex}[{snapshot.index}] came without its table.")
        name = attachment_file(folder, table.checksum)
        storage.create(name, arrived[table.checksum])
        return replace(table, file=name)

    operators = (replace(each, tables=tuple(map(adopted, each.tables))) for each in snapshot.operators)
    return replace(snapshot, operators=tuple(operators))


def attachments_of(storage: CheckpointStorage, tables: Iterable[StoredTable]) -> tuple[bytes, ...]:
    """In the driver: what a subtask needs to restore ``tables``, each once. Workers verify them by their checksums."""
    files = {table.checksum: table.file for table in tables}
    return tuple(storage.read(file) for file in files.values())
