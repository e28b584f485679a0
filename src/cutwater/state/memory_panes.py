"""The table of the Memory backend for windows: partial rows by pane, merged by key.

There may be very many panes: a freeze goes through none of them. What a small one held is noted before it changes, and the table
of a large one is frozen before it does, or when it is read.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cutwater.flow.arrow import Array
from cutwater.flow.batches import detached, gathered, joined, pieces
from cutwater.flow.hashing import hash_arrays, key_groups
from cutwater.flow.partitioning import by_number
from cutwater.state.appended_rows import no_rows
from cutwater.state.bucket_history import BucketHistory, BucketsMark, Moment
from cutwater.state.encoded_keys import plain_schema
from cutwater.state.frozen import KEY_GROUP_COLUMN
from cutwater.state.key_set import KeySet
from cutwater.state.late_freezes import LateFreezes, LateMoment
from cutwater.state.memory_aggregates import FrozenAggregates, MemoryAggregateTable
from cutwater.state.restored_pane import RestoredPane
from cutwater.state.tables import Column, Merge, Positions, Size, Update

PROMOTED_ROWS = 4096
"""A pane of fewer rows is kept as the rows that came: there may be very many small ones, and an index has its price."""

MOST_BATCHES = 32
"""Beyond it they are joined: what a batch costs whatever its size would outgrow its rows."""

ROWS_A_STEP, BYTES_A_STEP = 32_768, 1 << 20
"""Of several panes, about so much is merged at once."""

_serials = itertools.count()


class MemoryPanes:
    """Implements ``PaneTable``, ``ReadsKeys`` and ``ReadsSmallPanes``."""

    holds_whole_rows = False

    def __init__(
        self,
        uid: str,
        name: str,
        keys: pa.Schema,
        pane: str,
        columns: Sequence[tuple[Column, Merge]],
        max_parallelism: int,
    ) -> None:
        self.name = name
        self._uid = uid
        self._keys = plain_schema(keys)
        self._pane = pane
        self.key_columns = (*keys.names, pane)
        self._columns = tuple(columns)
        self._max_parallelism = max_parallelism
        self._small: dict[int, _SmallPane] = {}
        self._large: dict[int, _LargePane] = {}
        """No pane is in both."""
        self._small_history: BucketHistory[HeldPane] = BucketHistory()
        self._large_history: LateFreezes[HeldPane] = LateFreezes(self._large)
        self._stamp = 0
        """What panes and rows that are written from now on are marked with; 0 where nobody asks what changed."""
        self._mark = PanesMark(self._stamp)
        fields = [column.field for column, _ in self._columns]
        self.partial_schema = pa.schema([*self._keys, *fields])
        self.stored_schema = pa.schema(
            [*self._keys, pa.field(pane, pa.int64()), *fields, pa.field(KEY_GROUP_COLUMN, pa.int32())]
        )

    def panes(self) -> Iterable[int]:
        return self._small.keys() | self._large.keys()

    def merge(self, pane: int, partial: pa.RecordBatch) -> None:
        small = self._small.get(pane)
        if small is None and (large := self._large.get(pane)) is not None:
            self._large_history.note(pane)
            large.stamp = self._stamp
            self._add(large.table, partial)
            return
        self._small_history.note(pane, small)
        if small is None:
            small = self._small[pane] = _SmallPane(next(_serials))
        small.stamp = self._stamp
        small.count += partial.num_rows
        if small.count > PROMOTED_ROWS:
            self._large_history.note(pane)
            self._large[pane] = self._promoted(small, partial)
            del self._small[pane]
            return
        kept = detached(partial)
        small.rows.append(kept)
        small.size += kept.get_total_buffer_size()
        if len(small.rows) == MOST_BATCHES:
            small.rows = [pa.concat_batches(small.rows)]  # type: ignore[attr-defined]  # the stubs lack it

    def _promoted(self, small: "_SmallPane", partial: pa.RecordBatch) -> "_LargePane":
        table = self._empty(expected_keys=small.count)
        for batch in (*small.rows, partial):
            self._add(table, batch)
        return _LargePane(small.serial, self._stamp, table)

    def read(self, panes: Iterable[int]) -> Iterator[pa.RecordBatch]:
        present = [kept for pane in panes if (kept := self._kept(pane)) is not None]
        if len(present) == 1 and isinstance(present[0], _LargePane):
            yield from self._content(present[0].table)
            return
        rows = (piece for kept in present for batch in self._rows(kept) for piece in pieces(batch, ROWS_A_STEP))
        table = self._empty(expected_keys=max((kept.keys for kept in present), default=0))
        for some in gathered(rows, BYTES_A_STEP):
            self._add(table, some)
            yield some.slice(0, 0)
        yield from self._content(table)

    def read_keys(self, panes: Iterable[int], keys: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        asked = list(panes)
        present = [kept for pane in asked if (kept := self._kept(pane)) is not None]
        if 2 * keys.num_rows >= max((kept.keys for kept in present), default=0):
            yield from self.read(asked)
            return
        nothing = pa.RecordBatch.from_pylist([], self.partial_schema)
        for some in pieces(keys, ROWS_A_STEP):
            wanted = KeySet.of(some)
            merged = self._empty(expected_keys=some.num_rows)
            for kept in present:
                if isinstance(kept, _LargePane):
                    self._add(merged, self._found(kept.table, some))
                else:
                    for batch in kept.rows:
                        self._add(merged, wanted.rows_of(batch))
                yield nothing
            yield from self._content(merged)

    def size_in_memory(self, panes: Iterable[int]) -> Size | None:
        rows, size = 0, 0
        for pane in panes:
            if (small := self._small.get(pane)) is not None:
                rows += small.count
                size += small.size
            elif pane in self._large:
                return None
        return Size(rows, size)

    def read_each(self, sets: Sequence[Iterable[int]]) -> tuple[pa.RecordBatch, Positions]:
        present = [[self._small[pane] for pane in panes if pane in self._small] for panes in sets]
        counts = [sum(small.count for small in some) for some in present]
        of_set = np.repeat(np.arange(len(sets)), counts)
        keys = pa.schema([*self._keys, pa.field(self._pane, pa.int64())])
        table = self._empty(expected_keys=len(of_set), keys=keys)
        batches = (batch for each in present for small in each for batch in small.rows)
        done = 0
        for _, alike in itertools.groupby(batches, lambda batch: batch.schema):
            some = joined([*alike])
            behind = done + some.num_rows
            self._add(table, some, pa.array(of_set[done:behind]))
            done = behind
        frozen = table.freeze()
        try:
            found = joined([*frozen.batches()]) if len(table) else no_rows(frozen.schema)
        finally:
            frozen.release()
        return found.select(self.partial_schema.names), found.column(self._pane).to_numpy()

    def drop(self, pane: int) -> None:
        if pane in self._large:
            self._large_history.note(pane)
            del self._large[pane]
        elif (small := self._small.get(pane)) is not None:
            self._small_history.note(pane, small)
            del self._small[pane]

    def freeze(self) -> "FrozenPanes":
        self._mark = PanesMark(self._stamp)
        small = self._small_history.moment(self._small, lambda pane: pane)
        large = self._large_history.moment()
        return FrozenPanes(
            self.name, self.stored_schema, len(self._keys), self._max_parallelism, small, large, self._mark
        )

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        large: dict[int, RestoredPane] = {}
        for batch in batches:
            rows = batch.select(self.partial_schema.names).cast(self.partial_schema)
            for pane, part in by_number(rows, batch.column(self._pane).to_numpy()):
                if pane not in large and part.num_rows > PROMOTED_ROWS and self._kept(pane) is None:
                    large[pane] = RestoredPane(self._empty, self._add, self._content)
                if pane in large:
                    large[pane].add(part)
                else:
                    self.merge(pane, part)
        for pane, restored in large.items():
            self._large[pane] = _LargePane(next(_serials), self._stamp, restored.table())

    def _kept(self, pane: int) -> "_SmallPane | _LargePane | None":
        return self._small.get(pane) or self._large.get(pane)

    def _rows(self, kept: "_SmallPane | _LargePane") -> Iterable[pa.RecordBatch]:
        return kept.rows if isinstance(kept, _SmallPane) else self._content(kept.table)

    def _empty(self, expected_keys: int, keys: pa.Schema | None = None) -> MemoryAggregateTable:
        """``keys``: others than those of the table."""
        columns = [column for column, _ in self._columns]
        return MemoryAggregateTable(
            self._uid, self.name, keys or self._keys, columns, self._max_parallelism,
            stamp=self._stamp, expected_keys=expected_keys,
        )  # fmt: skip

    def _add(self, table: MemoryAggregateTable, partial: pa.RecordBatch, of_set: Array | None = None) -> None:
        width = len(self._keys)
        table.stamp = self._stamp
        keys = partial.select(list(range(width)))
        touched = table.locate(keys if of_set is None else keys.append_column(self._pane, of_set))
        table.update(
            touched, [Update(i, merge, partial.column(width + i)) for i, (_, merge) in enumerate(self._columns)]
        )

    def _found(self, table: MemoryAggregateTable, keys: pa.RecordBatch) -> pa.RecordBatch:
        """Its rows of those among ``keys`` that it has."""
        rows = table.find(keys)
        there = rows >= 0
        found = keys.filter(pa.array(there))
        return pa.RecordBatch.from_arrays([*found.columns, *table.read(rows[there])], schema=self.partial_schema)

    def _content(self, table: MemoryAggregateTable) -> Iterator[pa.RecordBatch]:
        frozen = table.freeze()
        try:
            for batch in frozen.batches():
                yield batch.select(self.partial_schema.names)
        finally:
            frozen.release()


class PanesMark(BucketsMark[int]):
    """Of each pane its serial, and the ``stamp`` of what was written last."""

    def __init__(self, stamp: int, serials: Mapping[int, int] | None = None) -> None:
        super().__init__(serials)
        self.stamp = stamp


class HeldPane(NamedTuple):
    """What a pane held at some moment: ``rows``, or a ``table`` of them. No two panes have the same ``serial``; ``stamp`` says when
    it was last written."""

    serial: int
    stamp: int
    rows: tuple[pa.RecordBatch, ...] = ()
    table: FrozenAggregates | None = None

    def release(self) -> None:
        if self.table is not None:
            self.table.release()


@dataclass(slots=True)
class _SmallPane:
    """The rows as they came: they are never changed."""

    serial: int
    stamp: int = 0
    rows: list[pa.RecordBatch] = field(default_factory=list)
    count: int = 0
    size: int = 0
    """In bytes, about."""

    @property
    def keys(self) -> int:
        """At most."""
        return self.count

    def held(self) -> HeldPane:
        return HeldPane(self.serial, self.stamp, tuple(self.rows))


@dataclass(slots=True)
class _LargePane:
    serial: int
    stamp: int
    table: MemoryAggregateTable

    @property
    def keys(self) -> int:
        return len(self.table)

    def held(self) -> HeldPane:
        """On any thread, while the loop does not write to it."""
        return HeldPane(self.serial, self.stamp, table=self.table.freeze())


class FrozenPanes:
    """Implements ``FrozenTable``. However many panes there are, the freeze went through none of them."""

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        keys: int,
        max_parallelism: int,
        small: Moment[HeldPane],
        large: LateMoment[HeldPane],
        mark: PanesMark,
    ) -> None:
        self.name = name
        self.schema = schema
        self._keys = keys
        self._max_parallelism = max_parallelism
        self._small: Moment[HeldPane] | None = small
        self._large: LateMoment[HeldPane] | None = large
        self._mark = mark

    def batches(self) -> Iterator[pa.RecordBatch]:
        for pane, held in self.panes():
            yield from self._stored(pane, held, held.rows if held.table is None else held.table.batches())

    def changed(self, since: int, known: Mapping[int, int]) -> Iterator[pa.RecordBatch]:
        """What was written with a stamp above ``since``, and all of panes that are not ``known`` by their serial. Of a pane
        that is kept as the rows that came, all rows: they may have been others of the same keys."""
        for pane, held in self.panes():
            is_known = known.get(pane) == held.serial
            if is_known and held.stamp <= since:
                continue
            if held.table is None:
                yield from self._stored(pane, held, held.rows)
            elif is_known:
                yield from self._stored(pane, held, held.table.changed(since, held.table.keys.rows))
            else:
                yield from self._stored(pane, held, held.table.batches())

    def panes(self) -> Iterator[tuple[int, HeldPane]]:
        assert self._small is not None, "it was released"
        assert self._large is not None, "it was released"
        panes = itertools.chain(self._small.buckets(), self._large.buckets())
        return self._mark.known_by(panes, lambda held: held.serial)

    def _stored(self, pane: int, held: HeldPane, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = batch.columns
            keys, values = columns[: self._keys], columns[self._keys :]
            where = pa.array(np.full(batch.num_rows, pane, np.int64))
            if held.table is None:
                groups = key_groups(hash_arrays(keys, batch.num_rows), self._max_parallelism)
                values.append(pa.array(groups))
            yield pa.RecordBatch.from_arrays([*keys, where, *values], schema=self.schema)

    def release(self) -> None:
        self._small = None
        large, self._large = self._large, None
        if large is not None:
            large.release()
