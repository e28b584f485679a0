"""The columnar table of the Memory backend that knows which of its rows changed."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from cutwater.state.accumulator_kernels import STAMPS
from cutwater.state.changes import Header, with_header
from cutwater.state.frozen import FrozenTable, TableRows
from cutwater.state.memory_aggregates import FrozenAggregates, MemoryAggregateTable
from cutwater.state.tables import Column

RESTORED = 0
"""The stamp of what was restored."""


class Stamp(NamedTuple):
    """``round`` counts how often stamps began anew: those of another round cannot be compared."""

    round: int
    stamp: int

    def next(self) -> "Stamp":
        return Stamp(self.round, self.stamp + 1) if self.stamp + 1 < STAMPS else Stamp(self.round + 1, RESTORED + 1)


class AggregatesMark(NamedTuple):
    stamp: Stamp
    rows: int


class TrackedAggregateTable(MemoryAggregateTable):
    """Implements ``TrackedTable``."""

    def __init__(self, uid: str, name: str, keys: pa.Schema, columns: Sequence[Column], max_parallelism: int) -> None:
        super().__init__(uid, name, keys, columns, max_parallelism, stamp=RESTORED + 1)
        self._now = Stamp(0, self.stamp)
        self._restored_rows = 0

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        self.stamp = RESTORED
        super().restore(batches)
        self.stamp = self._now.stamp
        self._restored_rows = len(self)

    def restored_mark(self) -> AggregatesMark:
        return AggregatesMark(Stamp(0, RESTORED), self._restored_rows)

    def mark(self) -> AggregatesMark:
        at = AggregatesMark(self._now, len(self))
        self._now = self._now.next()
        self.stamp = self._now.stamp
        return at

    def changes(self, since: AggregatesMark, frozen: FrozenTable) -> TableRows | None:
        assert isinstance(frozen, FrozenAggregates)
        if since.stamp.round != self._now.round:
            return None
        schema = with_header(frozen.schema, Header(identity=self.key_columns))
        return ChangedAggregates(frozen, schema, since.stamp.stamp, since.rows)

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
