"""State tables as files: written beside the running loop, read back by whoever owns their key groups.

A file of rows is Arrow IPC streams one behind the other, uncompressed, so that a local one is memory-mapped. The first has
the schema of the table and no rows; the others have the rows, their integers as narrow as they are. Each section begins with a
stream of its own.
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
from cutwater.checkpoint.sections import NO_GROUPS, WrittenSections, groups_of_rows, sections_for
from cutwater.checkpoint.storage import CheckpointStorage
from cutwater.checkpoint.verification import missing_file, wrong_checksum, wrong_section
from cutwater.checkpoint.written_file import WrittenFile
from cutwater.errors import DamagedCheckpoint
from cutwater.flow.arrow import Array
from cutwater.flow.batches import gathered
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state.changes import header_of, true_groups
from cutwater.state.frozen import KEY_GROUP_COLUMN, TableRows
from cutwater.state.local_folder import LocalFolder, folder_of_this_user
from cutwater.state.stored import Form, Section, StoredFile, StoredTable

Json = Any

FETCHED_FOLDER = "cutwater-restored"
"""Below the folder for temporary files: databases that rows are read from."""

_BUFFER_BYTES = 1 << 20
"""Written and hashed at once: each call waits for the interpreter, which the loop wants for itself."""
_BATCH_BYTES = 1 << 20
"""Rows are gathered until they are as many: what a batch costs whatever its size is paid once for them."""


def write_rows(file: WrittenFile, table: TableRows) -> StoredTable:
    """Stream the rows of a table to a new file."""
    sink = pa.BufferedOutputStream(pa.PythonFile(file, mode="w"), _BUFFER_BYTES)
    sections = WrittenSections(file)
    try:
        rows = _write_streams(sink, table, sections)
    except BaseException:
        # Else Arrow would close it some time later, and tell standard error what went wrong then.
        with suppress(Exception):
            sink.close()
        raise
    stored, groups = sections.stored()
    return StoredTable(table.name, (stored,), rows, groups.first, groups.last)


def _write_streams(sink: pa.NativeFile, table: TableRows, sections: WrittenSections) -> int:
    """How many rows there are."""
    rows = 0
    column = table.schema.get_field_index(KEY_GROUP_COLUMN)
    writer = pa.ipc.new_stream(sink, table.schema)
    schema = None
    for batch in map(narrowed, gathered(table.batches(), _BATCH_BYTES)):
        groups = NO_GROUPS if column < 0 else groups_of_rows(batch.column(column).to_numpy(zero_copy_only=False))
        is_new_section = sections.ends_before(groups)
        if is_new_section or batch.schema != schema:
            writer.close()
            if is_new_section:
                sink.flush()
                sections.end()
            schema = batch.schema
            writer = pa.ipc.new_stream(sink, schema)
        writer.write_batch(batch)
        sections.add(groups)
        rows += batch.num_rows
    writer.close()
    sink.flush()
    sections.end()
    return rows


class RestoredTables:
    """What one operator of one subtask restores; fulfils ``RestoredOperator`` of the operators and ``StoredState``.

    ``storage`` is None where state comes as ``attachments``. A file, or what is read of it, is verified before its first row is
    handed out.
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
                yield from newest_rows([self._own_rows(self._own_parts(file)) for file in part.files])
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

    def _own_rows(self, parts: Sequence[pa.Buffer]) -> StoredRows:
        with pa.ipc.open_stream(pa.BufferReader(parts[0])) as stream:
            schema = stream.schema
        return StoredRows(
            header_of(schema),
            schema.remove_metadata(),
            lambda: _own_rows(parts, None if self._whole else self._key_groups),
        )

    def _own_parts(self, file: StoredFile) -> Sequence[pa.Buffer]:
        """Of a file of rows, what may hold rows for this subtask. The first part begins with the schema."""
        wanted = file.sections if self._whole else sections_for(file, self._key_groups)
        if self._storage is None or len(wanted) == len(file.sections):
            return (self._content(file),)
        parts = _sections_from_storage(self._storage, file, wanted)
        for section, part in zip(wanted, parts, strict=True):
            if (found := checksum_of(memoryview(part))) != section.checksum:
                raise wrong_section(self._storage.url, file, section, found)
        return parts

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


def _sections_from_storage(
    storage: CheckpointStorage, file: StoredFile, wanted: Sequence[Section]
) -> Sequence[pa.Buffer]:
    if storage.local_path(file.file) is not None:
        # Only what is looked at is read. A file that is shorter now gives less, or nothing.
        content = memoryview(_from_storage(storage, file))
        return [pa.py_buffer(content[each.offset : each.offset + each.size]) for each in wanted]
    try:
        return [pa.py_buffer(storage.read(file.file, each.offset, each.size)) for each in wanted]
    except FileNotFoundError:
        raise missing_file(storage, file) from None


def _own_rows(parts: Sequence[pa.Buffer], key_groups: KeyGroupRange | None) -> Iterator[pa.RecordBatch]:
    first, *others = map(pa.BufferReader, parts)
    with pa.ipc.open_stream(first) as stream:
        schema = stream.schema.remove_metadata()
        stream.read_all()  # nothing: it ends where the next one begins
    column = schema.get_field_index(KEY_GROUP_COLUMN)
    wanted = None if column < 0 else key_groups
    for source in (first, *others):
        while source.tell() < source.size():
            with pa.ipc.open_stream(source) as stream:
                for batch in stream:
                    own = batch if wanted is None else _of_groups(batch, batch.column(column), wanted)
                    if own.num_rows:
                        yield widened(own, schema)


def _of_groups(batch: pa.RecordBatch, column: Array, wanted: KeyGroupRange) -> pa.RecordBatch:
    groups = true_groups(column.to_numpy(zero_copy_only=False))
    own = (groups >= wanted.first) & (groups <= wanted.last)
    return batch if own.all() else batch.filter(pa.array(own))
