"""State tables as files: written beside the running loop, read back by whoever owns their key groups.

A file of rows is Arrow IPC streams one behind the other, uncompressed, so that a local one is memory-mapped. The first has
the schema of the table and no rows; the others have the rows, their integers as narrow as they are.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from cutwater.checkpoint.changed_rows import StoredRows, newest_rows
from cutwater.checkpoint.checksum import checksum_of
from cutwater.checkpoint.narrow_columns import narrowed, widened
from cutwater.checkpoint.storage import CheckpointStorage
from cutwater.checkpoint.verification import missing_file, wrong_checksum
from cutwater.checkpoint.written_file import WrittenFile
from cutwater.errors import DamagedCheckpoint
from cutwater.flow.arrow import Array
from cutwater.flow.batches import gathered
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state.changes import header_of, true_groups
from cutwater.state.frozen import KEY_GROUP_COLUMN, TableRows
from cutwater.state.local_folder import LocalFolder, folder_of_this_user
from cutwater.state.stored import Form, StoredFile, StoredTable

Json = Any

FETCHED_FOLDER = "cutwater-restored"
"""Below the folder for temporary files: databases that rows are read from."""

_NO_GROUP = 1 << 31
_BUFFER_BYTES = 1 << 20
"""Written and hashed at once: each call waits for the interpreter, which the loop wants for itself."""
_BATCH_BYTES = 1 << 20
"""Rows are gathered until they are as many: what a batch costs whatever its size is paid once for them."""


def write_rows(file: WrittenFile, table: TableRows) -> StoredTable:
    """Stream the rows of a table to a new file."""
    sink = pa.BufferedOutputStream(pa.PythonFile(file, mode="w"), _BUFFER_BYTES)
    try:
        rows, first, last = _write_streams(sink, table)
    except BaseException:
        # Else Arrow would close it some time later, and tell standard error what went wrong then.
        with suppress(Exception):
            sink.close()
        raise
    return StoredTable(table.name, (file.stored(),), rows, first, last)


def _write_streams(sink: pa.NativeFile, table: TableRows) -> tuple[int, int, int]:
    """How many rows there are, and their first and last key group."""
    rows, first, last = 0, _NO_GROUP, -1
    column = table.schema.get_field_index(KEY_GROUP_COLUMN)
    writer = pa.ipc.new_stream(sink, table.schema)
    schema = None
    for batch in map(narrowed, gathered(table.batches(), _BATCH_BYTES)):
        if batch.schema != schema:
            writer.close()
            schema = batch.schema
            writer = pa.ipc.new_stream(sink, schema)
        writer.write_batch(batch)
        rows += batch.num_rows
        if column >= 0:
            groups = true_groups(batch.column(column).to_numpy(zero_copy_only=False))
            first, last = min(first, int(groups.min())), max(last, int(groups.max()))
    writer.close()
    sink.flush()
    return (rows, first, last) if last >= first else (rows, 0, -1)  # the empty range says: no key groups


class RestoredTables:
    """What one operator of one subtask restores; fulfils ``RestoredOperator`` of the operators and ``StoredState``.

    ``storage`` is None where state comes as ``attachments``. A file is verified before its first row is handed out.
    """

    def __init__(
        self,
        inline: Sequence[Json],
        tables: Sequence[StoredTable],
        key_groups: KeyGroupRange,
        *,
        storage: CheckpointStorage | None = None,
        attachments: Mapping[str, bytes] | None = None,
        whole: bool = False,
    ) -> None:
        """``whole``: all rows are for this subtask, whatever their key group. So are those that a combine held, whose keys are
        not its own but those of whom it sends to."""
        self._inline = tuple(inline)
        self.stored = tuple(tables)
        self._key_groups = key_groups
        self._storage = storage
        self._attachments = attachments or {}
        self._whole = whole
        self._databases: dict[frozenset[str], LocalFolder] = {}
        """Files of RocksDB that were fetched, by their names: several states may be in them. They go with this object."""

    @property
    def inline(self) -> Sequence[Json]:
        return self._inline

    def tables(self) -> Sequence[str]:
        return tuple(dict.fromkeys(table.state for table in self.stored))

    def batches(self, table: str) -> Iterator[pa.RecordBatch]:
        """Of all stored parts of this state, the rows that are for this subtask."""
        for part in self.stored:
            if part.state == table:
                yield from self._rows(part)

    def fetch(self, file: StoredFile, path: str) -> None:
        with open(path, "wb") as local:
            local.write(memoryview(self._content(file)))

    def _rows(self, part: StoredTable) -> Iterator[pa.RecordBatch]:
        match part.form:
            case Form.ROWS | Form.CHANGES:
                yield from newest_rows([self._own_rows(self._content(file)) for file in part.files])
            case Form.ROCKSDB:
                yield from self._rows_in_rocksdb(part)

    def _rows_in_rocksdb(self, part: StoredTable) -> Iterator[pa.RecordBatch]:
        # Loads the library: only where there is state in it.
        from cutwater.state.rocksdb_reading import stored_rows

        names = frozenset(file.file for file in part.files)
        if names not in self._databases:
            parent = folder_of_this_user(tempfile.gettempdir(), FETCHED_FOLDER)
            folder = self._databases[names] = LocalFolder(parent)
            for file in part.files:
                self.fetch(file, os.path.join(folder.path, file.name))
        yield from stored_rows(self._databases[names].path, part, self._key_groups)

    def _own_rows(self, content: pa.Buffer) -> StoredRows:
        with pa.ipc.open_stream(pa.BufferReader(content)) as stream:
            schema = stream.schema
        return StoredRows(
            header_of(schema),
            schema.remove_metadata(),
            lambda: _own_rows(content, None if self._whole else self._key_groups),
        )

    def _content(self, file: StoredFile) -> pa.Buffer:
        place = "the attachments" if self._storage is None else self._storage.url
        content = self._from_attachments(file) if self._storage is None else _from_storage(self._storage, file)
        found = checksum_of(memoryview(content))
        if found != file.checksum:
            raise wrong_checksum(place, file, found)
        return content

    def _from_attachments(self, file: StoredFile) -> pa.Buffer:
        if file.checksum not in self._attachments:
            raise DamagedCheckpoint(f"{file.file} (checksum {file.checksum}) did not come with the message.")
        return pa.py_buffer(self._attachments[file.checksum])


def attachments_by_checksum(attachments: Sequence[bytes]) -> dict[str, bytes]:
    return {checksum_of(each): each for each in attachments}


def _from_storage(storage: CheckpointStorage, file: StoredFile) -> pa.Buffer:
    path = storage.local_path(file.file)
    try:
        if path is None or file.size == 0:
            return pa.py_buffer(storage.read(file.file))
        with pa.memory_map(path) as mapped:
            return mapped.read_buffer()
    except FileNotFoundError:
        raise missing_file(storage, file) from None


def _own_rows(content: pa.Buffer, key_groups: KeyGroupRange | None) -> Iterator[pa.RecordBatch]:
    source = pa.BufferReader(content)
    with pa.ipc.open_stream(source) as stream:
        schema = stream.schema.remove_metadata()
        stream.read_all()  # nothing: it ends where the next one begins
    column = schema.get_field_index(KEY_GROUP_COLUMN)
    while source.tell() < content.size:
        with pa.ipc.open_stream(source) as stream:
            for batch in stream:
                own = batch if column < 0 or key_groups is None else _of_groups(batch, batch.column(column), key_groups)
                if own.num_rows:
                    yield widened(own, schema)


def _of_groups(batch: pa.RecordBatch, column: Array, wanted: KeyGroupRange) -> pa.RecordBatch:
    groups = true_groups(column.to_numpy(zero_copy_only=False))
    own = (groups >= wanted.first) & (groups <= wanted.last)
    return batch if own.all() else batch.filter(pa.array(own))
