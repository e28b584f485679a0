"""How a subtask stores the tables of a cut: in the checkpoint storage, or as attachments when that is the driver's memory."""

import io
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import IO, Protocol

from cutwater.checkpoint.checksum import checksum_of
from cutwater.checkpoint.layout import SubtaskFiles
from cutwater.checkpoint.stored_tables import write_rows
from cutwater.checkpoint.written_file import WrittenFile
from cutwater.flow.ids import CheckpointId
from cutwater.state.frozen import FrozenTable, StoresItself, TableRows, too_large
from cutwater.state.stored import Form, StoredFile, StoredTable

_COPIED_AT_ONCE = 1 << 20
_COMPARED_BYTES = 1 << 16
"""Larger files are copied without a look whether they are the same: it would take as long."""


class NewFiles(Protocol):
    """The part of ``CheckpointStorage`` that a subtask writes to."""

    def open_write(self, name: str) -> AbstractContextManager[IO[bytes]]: ...


class Attachments:
    """Files that travel inside the acknowledgement."""

    def __init__(self) -> None:
        self._written: list[bytes] = []

    @contextmanager
    def open_write(self, name: str) -> Iterator[IO[bytes]]:
        file = io.BytesIO()
        yield file
        self._written.append(file.getvalue())

    def take(self) -> tuple[bytes, ...]:
        written, self._written = tuple(self._written), []
        return written


class TableWriter:
    """Of one subtask, on its snapshot thread. ``limit``: the most bytes of one state, for the driver's memory."""

    def __init__(self, storage: NewFiles | None, files: SubtaskFiles, *, limit: int | None = None) -> None:
        """``storage`` is None if the files are to be attachments."""
        self._attachments = Attachments()
        self._storage: NewFiles = self._attachments if storage is None else storage
        self._files = files
        self.limit = limit

    def write(
        self, checkpoint: CheckpointId, uid: str, table: FrozenTable, base: StoredTable | None
    ) -> tuple[StoredTable, tuple[bytes, ...]]:
        """``base``: the same state in the confirmed checkpoint that this one may build on. Beside the table come the
        attachments that carry its new files, if no storage does."""
        try:
            stored = self._stored(checkpoint, uid, table, base)
        except BaseException:
            # Files of a table that could not be stored whole: the next acknowledgement would carry them.
            self._attachments.take()
            raise
        return stored, self._attachments.take()

    def _stored(self, checkpoint: CheckpointId, uid: str, table: FrozenTable, base: StoredTable | None) -> StoredTable:
        if isinstance(table, StoresItself):
            usable = base if base is not None and base.is_shared else None
            stored = table.store(SharedPlace(self, checkpoint, uid, table.name, usable))
        else:
            name = self._files.own(checkpoint, uid, table.name)
            with self._storage.open_write(name) as file:
                stored = write_rows(WrittenFile(name, file, table.name, limit=self.limit), table)
        # Files of RocksDB hold other states too.
        if self.limit is not None and stored.form is not Form.ROCKSDB and stored.size > self.limit:
            raise too_large(table.name, self.limit)
        return stored

    @contextmanager
    def open_shared(
        self, checkpoint: CheckpointId, uid: str, state: str, name: str = "", *, limit: int | None = None
    ) -> Iterator[WrittenFile]:
        path = self._files.sharable(checkpoint, uid, state, name)
        with self._storage.open_write(path) as file:
            yield WrittenFile(path, file, state, limit=limit, shared=True, local=name)


class SharedPlace:
    """Implements ``FilePlace``."""

    def __init__(
        self, writer: TableWriter, checkpoint: CheckpointId, uid: str, state: str, base: StoredTable | None
    ) -> None:
        self._writer = writer
        self._checkpoint = checkpoint
        self._uid = uid
        self._state = state
        self.base = base

    @property
    def most_bytes(self) -> int | None:
        return self._writer.limit

    def write(self, rows: TableRows) -> StoredTable:
        with self._writer.open_shared(self._checkpoint, self._uid, self._state, limit=self.most_bytes) as file:
            return write_rows(file, rows)

    def copy(self, name: str, path: str, known: StoredFile | None = None) -> StoredFile:
        return known if known is not None and _is_copy(known, path) else self._copied(name, path)

    def _copied(self, name: str, path: str) -> StoredFile:
        with self._writer.open_shared(self._checkpoint, self._uid, self._state, name) as file:
            with open(path, "rb") as local:
                shutil.copyfileobj(local, file, _COPIED_AT_ONCE)
            return file.stored()


def _is_copy(known: StoredFile, path: str) -> bool:
    if known.size > _COMPARED_BYTES or known.size != os.path.getsize(path):
        return False
    with open(path, "rb") as local:
        return checksum_of(local.read()) == known.checksum
