"""State tables as files: written beside the running loop, read back by whoever owns their key groups.

A table is a file of Arrow IPC streams one behind the other, uncompressed, so that a local one is memory-mapped. The first has
the schema of the table and no rows; the others have the rows, their integers as narrow as they are.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

import pyarrow as pa

from cutwater.checkpoint.checksum import checksum_of, new_checksum
from cutwater.checkpoint.narrow_columns import narrowed, widened
from cutwater.checkpoint.snapshot import StoredTable
from cutwater.checkpoint.storage import CheckpointStorage
from cutwater.checkpoint.verification import missing_file, wrong_checksum
from cutwater.errors import DamagedCheckpoint, StorageError
from cutwater.flow.arrow import Array
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state.frozen import KEY_GROUP_COLUMN, FrozenTable

Json = Any

_NO_GROUP = 1 << 31
_BUFFER_BYTES = 1 << 20
"""Written and hashed at once: each call waits for the interpreter, which the loop wants for itself."""


def write_table(storage: CheckpointStorage, name: str, table: FrozenTable) -> StoredTable:
    """Stream a frozen table to the storage. Durable when it returns; the caller releases the table."""
    with storage.open_write(name) as file:
        return _write(_HashingFile(file), name, table)


def table_bytes(table: FrozenTable, limit: int) -> tuple[StoredTable, bytes]:
    """For memory storage: the same file as an attachment. Raises StorageError as soon as it grows over ``limit`` bytes."""
    buffer = io.BytesIO()
    stored = _write(_HashingFile(buffer, limit, table.name), f"attachment of {table.name}", table)
    return stored, buffer.getvalue()


class RestoredTables:
    """What one operator of one subtask restores; fulfils ``operators.operator.RestoredOperator``.

    ``storage`` is None where state comes as ``attachments``. A table is verified before its first row is handed out.
    """

    def __init__(
        self,
        inline: Sequence[Json],
        tables: Sequence[StoredTable],
        key_groups: KeyGroupRange,
        *,
        storage: CheckpointStorage | None = None,
        attachments: Mapping[str, bytes] | None = None,
    ) -> None:
        self._inline = tuple(inline)
        self._tables = tuple(tables)
        self._key_groups = key_groups
        self._storage = storage
        self._attachments = attachments or {}

    @property
    def inline(self) -> Sequence[Json]:
        return self._inline

    def tables(self) -> Sequence[str]:
        return tuple(dict.fromkeys(table.state for table in self._tables))

    def batches(self, table: str) -> Iterator[pa.RecordBatch]:
        """Of all stored parts of this state, the rows of the own key groups."""
        for part in self._tables:
            if part.state == table:
                yield from _own_rows(self._content(part), self._key_groups)

    def _content(self, table: StoredTable) -> pa.Buffer:
        place = "the attachments" if self._storage is None else self._storage.url
        content = self._from_attachments(table) if self._storage is None else _from_storage(self._storage, table)
        found = checksum_of(memoryview(content))
        if found != table.checksum:
            raise wrong_checksum(place, table, found)
        return content

    def _from_attachments(self, table: StoredTable) -> pa.Buffer:
        if table.checksum not in self._attachments:
            raise DamagedCheckpoint(
                f"State {table.state!r}: its table (checksum {table.checksum}) did not come with the message."
            )
        return pa.py_buffer(self._attachments[table.checksum])


def attachments_by_checksum(attachments: Sequence[bytes]) -> dict[str, bytes]:
    return {checksum_of(each): each for each in attachments}


def _from_storage(storage: CheckpointStorage, table: StoredTable) -> pa.Buffer:
    path = storage.local_path(table.file)
    try:
        if path is None or table.size == 0:
            return pa.py_buffer(storage.read(table.file))
        with pa.memory_map(path) as file:
            return file.read_buffer()
    except FileNotFoundError:
        raise missing_file(storage, table) from None


def _own_rows(content: pa.Buffer, key_groups: KeyGroupRange) -> Iterator[pa.RecordBatch]:
    source = pa.BufferReader(content)
    with pa.ipc.open_stream(source) as stream:
        schema = stream.schema
        stream.read_all()  # nothing: it ends where the next one begins
    column = schema.get_field_index(KEY_GROUP_COLUMN)
    while source.tell() < content.size:
        with pa.ipc.open_stream(source) as stream:
            for batch in stream:
                own = batch if column < 0 else _of_groups(batch, batch.column(column), key_groups)
                if own.num_rows:
                    yield widened(own, schema)


def _of_groups(batch: pa.RecordBatch, column: Array, wanted: KeyGroupRange) -> pa.RecordBatch:
    groups = column.to_numpy(zero_copy_only=False)
    own = (groups >= wanted.first) & (groups <= wanted.last)
    return batch if own.all() else batch.filter(pa.array(own))


def _write(file: "_HashingFile", name: str, table: FrozenTable) -> StoredTable:
    rows, first, last = 0, _NO_GROUP, -1
    column = table.schema.get_field_index(KEY_GROUP_COLUMN)
    sink = pa.BufferedOutputStream(pa.PythonFile(file, mode="w"), _BUFFER_BYTES)
    writer = pa.ipc.new_stream(sink, table.schema)
    schema = None
    for batch in map(narrowed, table.batches()):
        if batch.num_rows == 0:
            continue
        if batch.schema != schema:
            writer.close()
            schema = batch.schema
            writer = pa.ipc.new_stream(sink, schema)
        writer.write_batch(batch)
        rows += batch.num_rows
        if column >= 0:
            groups = batch.column(column).to_numpy(zero_copy_only=False)
            lowest, highest = int(groups.min()), int(groups.max())
            first, last = min(first, lowest), max(last, highest)
    writer.close()
    sink.flush()
    if last < first:  # the empty range says: no key groups
        first, last = 0, -1
    return StoredTable(table.name, name, rows, file.size, file.checksum(), first, last)


class _HashingFile(io.RawIOBase):
    """A file to write to, as pyarrow wants it, which knows the size and the checksum of what it was given."""

    def __init__(self, file: IO[bytes], limit: int | None = None, state: str = "") -> None:
        super().__init__()
        self._file = file
        self._limit = limit
        self._state = state
        self._digest = new_checksum()
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        view = memoryview(content)
        self.size += view.nbytes
        if self._limit is not None and self.size > self._limit:
            raise StorageError(
                f"State {self._state!r} is larger than {self._limit} bytes, the most that memory storage takes of one state. "
                f"Use storage='file:...', or raise it with cw.memory_storage(max_state=...)."
            )
        self._digest.update(view)
        self._file.write(view)
        return view.nbytes

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        self._file.flush()

    def checksum(self) -> str:
        return self._digest.hexdigest()
