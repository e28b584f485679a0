"""State as a snapshot sees it: fixed at the cut, written afterwards on the snapshot thread."""

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

KEY_GROUP_COLUMN = "key_group"
"""Every frozen keyed table has this int32 column, so that a restore can take the rows of its own range."""


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
