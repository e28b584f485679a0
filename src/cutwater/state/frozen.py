"""State as a snapshot sees it: fixed at the cut, written afterwards on the snapshot thread."""

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from cutwater.errors import SchemaError

KEY_GROUP_COLUMN = "key_group"
"""Every frozen keyed table has this int32 column, so that a restore can take the rows of its own range."""


def refuse_reserved(column: str, where: str) -> None:
    """SchemaError for a name of the user's that would stand twice in a stored table."""
    if column == KEY_GROUP_COLUMN:
        raise SchemaError(
            f"{where}: {column!r} is the name under which state stores its key groups; choose another name."
        )


class FrozenTable(Protocol):
    """One state of one operator in one subtask, as it was at the cut, while the loop goes on changing the live one."""

    @property
    def name(self) -> str: ...

    @property
    def schema(self) -> pa.Schema: ...

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The content, in bounded batches. Runs once, on the snapshot thread, beside the loop."""

    def release(self) -> None:
        """Called once in the end, written or not: the backend may drop what it kept for this table."""
