"""A part of the cache of columnar state: a table of the Memory backend, and what is known of each of its rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.flow.arrow import Array
from cutwater.state import cut_kernels as ck
from cutwater.state.index_kernels import CHUNK_ROWS
from cutwater.state.memory_aggregates import FrozenAggregates, MemoryAggregateTable
from cutwater.state.rocksdb_family import Entry
from cutwater.state.rocksdb_keys import stored_keys
from cutwater.state.rocksdb_layout import Layout
from cutwater.state.tables import Merge, Rows, Touched, Update

Flags = npt.NDArray[np.bool_]
Ticks = npt.NDArray[np.int32]

_FIRST_ROWS = 1024
_SAMPLE = 4096


class Space:
    """Rows are added and changed by the loop, until it goes on in another space; then they are only taken away."""

    def __init__(self, table: MemoryAggregateTable) -> None:
        self.table = table
        self.key_bytes = 0
        self.is_changed: Flags = np.zeros(_FIRST_ROWS, np.bool_)
        """Whether RocksDB has it otherwise, or not at all, and no cut brings it there."""
        self.is_pending: Flags = np.zeros(_FIRST_ROWS, np.bool_)
        """Whether a cut brings it to RocksDB as it was then."""
        self.is_stored: Flags = np.zeros(_FIRST_ROWS, np.bool_)
        """Whether RocksDB has the key, or a cut brings it there."""
        self.is_gone: Flags = np.zeros(_FIRST_ROWS, np.bool_)
        """Whether the row is in another space, or only in RocksDB, by now."""
        self.touched_at: Ticks = np.zeros(_FIRST_ROWS, np.int32)

    def __len__(self) -> int:
        return len(self.table)

    @property
    def unstored(self) -> int:
        """How many keys are here that RocksDB does not have."""
        return ck.unstored(self.is_stored, self.is_gone, len(self))

    def locate(self, keys: pa.RecordBatch, tick: int) -> Touched:
        touched = self.table.locate(keys)
        while len(self.is_changed) < len(self.table):
            self.is_changed = _doubled(self.is_changed)
            self.is_pending = _doubled(self.is_pending)
            self.is_stored = _doubled(self.is_stored)
            self.is_gone = _doubled(self.is_gone)
            self.touched_at = np.concatenate([self.touched_at, np.zeros_like(self.touched_at)])
        self.touched_at[touched.unique] = tick
        return touched

    def find(self, keys: pa.RecordBatch) -> Rows:
        """The row of each key, -1 where there is none (any more)."""
        rows = self.table.find(keys)
        known = rows >= 0
        rows[known & self.is_gone[np.where(known, rows, 0)]] = -1
        return rows

    def put(self, rows: Rows, values: Sequence[Array]) -> None:
        """As their accumulators: ``rows`` are new."""
        touched = Touched(rows, np.arange(len(rows), dtype=np.int64), rows)
        self.table.update(touched, [Update(c, Merge.LAST, column) for c, column in enumerate(values)])

    def median_tick(self) -> int:
        """Half of the rows, roughly, were not touched since."""
        ticks = self.touched_at[: len(self)]
        return int(np.median(ticks[:: max(len(ticks) // _SAMPLE, 1)]))

    def hand_over(self) -> int:
        """To a cut that was just frozen: all rows that changed. How many of their keys are new to RocksDB."""
        return ck.hand_over(self.is_changed, self.is_pending, self.is_stored, self.is_gone)

    def take_back(self, *, is_written: bool) -> None:
        """The last cut is over, whether what was handed over to it is in RocksDB or not."""
        ck.take_back(self.is_changed, self.is_pending, is_written)

    def freeze(self) -> "FrozenSpace":
        unwritten, known = np.empty(len(self), np.bool_), np.empty(len(self), np.bool_)
        ck.freeze(self.is_changed, self.is_pending, self.is_stored, self.is_gone, unwritten, known)
        return FrozenSpace(self.table.freeze(), unwritten, known)


def _doubled(flags: Flags) -> Flags:
    return np.concatenate([flags, np.zeros_like(flags)])


@dataclass(frozen=True, slots=True)
class FrozenSpace:
    rows: FrozenAggregates
    is_changed: Flags
    is_stored: Flags

    def changed(self) -> Iterator[tuple[pa.RecordBatch, Flags]]:
        """Rows that RocksDB lacks, and which of them it has otherwise."""
        for start, stop in self.rows.parts():
            changed, stored = self.is_changed[start:stop], self.is_stored[start:stop]
            if changed.all():
                yield self.rows.part(start, stop), stored
            elif changed.any():
                yield self.rows.some(start, stop, changed), stored[changed]

    def release(self) -> None:
        self.rows.release()


class Leaving:
    """A space that is cleared, one chunk after the other."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.frozen: FrozenAggregates = space.table.freeze()
        self.cold_until = space.median_tick()
        self._next = 0

    def next_rows(self) -> range:
        start = self._next
        self._next = min(start + CHUNK_ROWS, len(self.space))
        return range(start, self._next)

    @property
    def is_over(self) -> bool:
        return self._next == len(self.space)


@dataclass(frozen=True, slots=True)
class FrozenRocksDBAggregates:
    """Implements ``FrozenTable``: rows that changed from the cache, the others from RocksDB."""

    name: str
    layout: Layout
    stored: Iterator[Entry]
    cached: tuple[FrozenSpace, ...]

    @property
    def schema(self) -> pa.Schema:
        return self.layout.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        superseded: set[bytes] = set()
        for space in self.cached:
            for batch, stored in space.changed():
                if stored.any():
                    *columns, groups = batch.filter(pa.array(stored)).columns
                    superseded.update(stored_keys(columns[: len(self.layout.keys)], groups.to_numpy()))
                yield batch
        yield from self.layout.batches(entry for entry in self.stored if entry[0] not in superseded)

    def release(self) -> None:
        for space in self.cached:
            space.release()
