"""State as a snapshot sees it: fixed at the cut, written afterwards on the snapshot thread."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from cutwater.errors import SchemaError, StorageError
from cutwater.state.stored import StoredFile, StoredTable

KEY_GROUP_COLUMN = "key_group"
"""Every frozen keyed table has this int32 column, so that a restore can take the rows of its own range."""


def refuse_reserved(column: str, where: str) -> None:
    """SchemaError for a name of the user's that would stand twice in a stored table."""
    if column == KEY_GROUP_COLUMN:
        raise SchemaError(
            f"{where}: {column!r} is the name under which state stores its key groups; choose another name."
        )


class TableRows(Protocol):
    """Rows that are to be written to a file."""

    @property
    def name(self) -> str: ...

    @property
    def schema(self) -> pa.Schema: ...

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The content, in bounded batches. Runs once, on the snapshot thread, beside the loop."""


class FrozenTable(TableRows, Protocol):
    """One state of one operator in one subtask, as it was at the cut, while the loop goes on changing the live one."""

    def release(self) -> None:
        """Called once in the end, written or not, by any thread: the backend may drop what it kept for this table."""


class FilePlace(Protocol):
    """Where a table that stores itself puts its files: such that later checkpoints may reference them."""

    @property
    def base(self) -> StoredTable | None:
        """The same state as the checkpoint has it that the store was last told was confirmed. All of its files may be
        referenced. None: nothing is there to build on."""

    @property
    def most_bytes(self) -> int | None:
        """That the files of the state may have together; None: as many as they like. Of a file that holds several states each
        has its part: whoever ``copy``s one has seen to that."""

    def write(self, rows: TableRows) -> StoredTable:
        """One new file of rows, as a table of form ROWS. Durable when it returns."""

    def copy(self, name: str, path: str, known: StoredFile | None = None) -> StoredFile:
        """A copy of the local file at ``path``: a new file, or ``known``, one of ``base``, if it is small and the same. Durable
        when it returns. Called by several threads at once."""


def too_large(state: str, limit: int) -> StorageError:
    return StorageError(
        f"State {state!r} is larger than {limit} bytes, the most that memory storage takes of one state. "
        f"Use storage='file:...', or raise it with cw.memory_storage(max_state=...)."
    )


@runtime_checkable
class StoresItself(Protocol):
    """A frozen table that can do with less than writing all of its rows."""

    def store(self, place: FilePlace) -> StoredTable:
        """In place of ``batches``, on the snapshot thread. May reference files of ``place.base``."""


@dataclass(frozen=True, slots=True)
class WholeTable:
    """Implements ``FrozenTable``: another one, of which all rows are written, whether or not it could store itself."""

    table: FrozenTable

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        return self.table.batches()

    def release(self) -> None:
        self.table.release()
