"""The columnar table of the Memory backend that knows which of its rows changed."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from cutwater.state.changes import Header, with_header
from cutwater.state.frozen import FrozenTable, TableRows
from cutwater.state.memory_aggregates import FrozenAggregates, MemoryAggregateTable
from cutwater.state.tables import Column

RESTORED = 0
"""The stamp of what was restored."""


class AggregatesMark(NamedTuple):
    stamp: int
    rows: int


class TrackedAggregateTable(MemoryAggregateTable):
    """Implements ``TrackedTable``."""

    def __init__(self, uid: str, name: str, keys: pa.Schema, columns: Sequence[Column], max_parallelism: int) -> None:
        super().__init__(uid, name, keys, columns, max_parallelism, stamp=RESTORED + 1)
        self._restored_rows = 0

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        now, self.stamp = self.stamp, RESTORED
        super().restore(batches)
        self.stamp = now
        self._restored_rows = len(self)

    def restored_mark(self) -> AggregatesMark:
        return AggregatesMark(RESTORED, self._restored_rows)

    def mark(self) -> AggregatesMark:
        at = AggregatesMark(self.stamp, len(self))
        self.stamp += 1
        return at

    def changes(self, since: AggregatesMark, frozen: FrozenTable) -> TableRows:
        assert isinstance(frozen, FrozenAggregates)
        schema = with_header(frozen.schema, Header(identity=self.key_columns))
        return ChangedAggregates(frozen, schema, since.stamp, since.rows)

    def forget(self, before: AggregatesMark) -> None:
        """Stamps stay with their rows."""


@dataclass(frozen=True, slots=True)
class ChangedAggregates:
    """Implements ``TableRows``."""

    frozen: FrozenAggregates
    schema: pa.Schema
    since: int
    known: int

    @property
    def name(self) -> str:
        return self.frozen.name

    def batches(self) -> Iterator[pa.RecordBatch]:
        return self.frozen.changed(self.since, self.known)
