"""The table of the Memory backend for windows: partial rows by pane, merged by key."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from cutwater.flow.batches import detached, gathered, pieces
from cutwater.flow.hashing import hash_arrays, key_groups
from cutwater.flow.partitioning import by_number
from cutwater.state.encoded_keys import plain
from cutwater.state.frozen import KEY_GROUP_COLUMN
from cutwater.state.key_index import KeyIndex
from cutwater.state.memory_aggregates import FrozenAggregates, MemoryAggregateTable
from cutwater.state.tables import Column, Merge, Update

PROMOTED_ROWS = 4096
"""A pane of fewer rows is kept as the rows that came: there may be very many small ones, and an index has its price."""

MOST_BATCHES = 32
"""Beyond it they are joined: what a batch costs whatever its size would outgrow its rows."""

ROWS_A_STEP, BYTES_A_STEP = 32_768, 1 << 20
"""Of several panes, about so much is merged at once."""

_serials = itertools.count()


class MemoryPanes:
    """Implements ``PaneTable`` and ``ReadsKeys``."""

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
        self._keys = pa.schema([field.with_type(plain(field.type)) for field in keys])
        self._pane = pane
        self.key_columns = (*keys.names, pane)
        self._columns = tuple(columns)
        self._max_parallelism = max_parallelism
        self._of: dict[int, _Pane] = {}
        self._stamp = 0
        """What panes and rows that are written from now on are marked with; 0 where nobody asks what changed."""
        fields = [column.field for column, _ in self._columns]
        self.partial_schema = pa.schema([*self._keys, *fields])
        self.stored_schema = pa.schema(
            [*self._keys, pa.field(pane, pa.int64()), *fields, pa.field(KEY_GROUP_COLUMN, pa.int32())]
        )

    def panes(self) -> Iterable[int]:
        return self._of.keys()

    def merge(self, pane: int, partial: pa.RecordBatch) -> None:
        kept = self._of.get(pane)
        if kept is None:
            kept = self._of[pane] = _Pane(next(_serials))
        kept.stamp = self._stamp
        if kept.table is None:
            kept.count += partial.num_rows
            if kept.count <= PROMOTED_ROWS:
                kept.rows.append(detached(partial))
                if len(kept.rows) == MOST_BATCHES:
                    kept.rows = [pa.concat_batches(kept.rows)]  # type: ignore[attr-defined]  # the stubs lack it
                return
            kept.table = self._empty(expected_keys=kept.count)
            for batch in (*kept.rows, partial):
                self._add(kept.table, batch)
            kept.rows = []
        else:
            self._add(kept.table, partial)

    def read(self, panes: Iterable[int]) -> Iterator[pa.RecordBatch]:
        present = [self._of[pane] for pane in panes if pane in self._of]
        if len(present) == 1 and present[0].table is not None:
            yield from self._content(present[0].table)
            return
        rows = (piece for pane in present for batch in self._rows(pane) for piece in pieces(batch, ROWS_A_STEP))
        table = self._empty(expected_keys=max((pane.keys for pane in present), default=0))
        for some in gathered(rows, BYTES_A_STEP):
            self._add(table, some)
            yield some.slice(0, 0)
        yield from self._content(table)

    def read_keys(self, panes: Iterable[int], keys: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        asked = list(panes)
        present = [self._of[pane] for pane in asked if pane in self._of]
        if 2 * keys.num_rows >= max((pane.keys for pane in present), default=0):
            yield from self.read(asked)
            return
        nothing = pa.RecordBatch.from_pylist([], self.partial_schema)
        for some in pieces(keys, ROWS_A_STEP):
            wanted = KeyIndex(self._keys, some.num_rows)
            wanted.locate(some.columns, some.num_rows)
            merged = self._empty(expected_keys=some.num_rows)
            for pane in present:
                if pane.table is not None:
                    self._add(merged, self._found(pane.table, some))
                else:
                    for batch in pane.rows:
                        found = wanted.find(batch.columns[: len(self._keys)], batch.num_rows)
                        self._add(merged, batch.filter(pa.array(found >= 0)))
                yield nothing
            yield from self._content(merged)

    def drop(self, pane: int) -> None:
        self._of.pop(pane, None)

    def freeze(self) -> "FrozenPanes":
        parts = [
            _FrozenPane(
                pane, kept.serial, kept.stamp, tuple(kept.rows), None if kept.table is None else kept.table.freeze()
            )
            for pane, kept in self._of.items()
        ]
        return FrozenPanes(self.name, self.stored_schema, len(self._keys), self._max_parallelism, tuple(parts))

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            rows = batch.select(self.partial_schema.names).cast(self.partial_schema)
            for pane, part in by_number(rows, batch.column(self._pane).to_numpy()):
                self.merge(pane, part)

    def _rows(self, pane: "_Pane") -> Iterable[pa.RecordBatch]:
        return pane.rows if pane.table is None else self._content(pane.table)

    def _empty(self, expected_keys: int) -> MemoryAggregateTable:
        columns = [column for column, _ in self._columns]
        return MemoryAggregateTable(
            self._uid, self.name, self._keys, columns, self._max_parallelism,
            stamp=self._stamp, expected_keys=expected_keys,
        )  # fmt: skip

    def _add(self, table: MemoryAggregateTable, partial: pa.RecordBatch) -> None:
        width = len(self._keys)
        table.stamp = self._stamp
        touched = table.locate(partial.select(list(range(width))))
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


@dataclass(slots=True)
class _Pane:
    """Either ``rows`` as they came (never changed), or a ``table`` of them. No two have the same ``serial``."""

    serial: int
    stamp: int = 0
    """When it was last written."""
    rows: list[pa.RecordBatch] = field(default_factory=list)
    count: int = 0
    table: MemoryAggregateTable | None = None

    @property
    def keys(self) -> int:
        """At most."""
        return self.count if self.table is None else len(self.table)


@dataclass(frozen=True, slots=True)
class _FrozenPane:
    pane: int
    serial: int
    stamp: int
    rows: tuple[pa.RecordBatch, ...]
    table: FrozenAggregates | None


@dataclass(frozen=True, slots=True)
class FrozenPanes:
    """Implements ``FrozenTable``."""

    name: str
    schema: pa.Schema
    keys: int
    max_parallelism: int
    parts: tuple[_FrozenPane, ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        for part in self.parts:
            yield from self._stored(part, part.rows if part.table is None else part.table.batches())

    def changed(self, since: int, known: Mapping[int, int]) -> Iterator[pa.RecordBatch]:
        """What was written with a stamp above ``since``, and all of panes that are not ``known`` by their serial. Of a pane
        that is kept as the rows that came, all rows: they may have been others of the same keys."""
        for part in self.parts:
            if part.stamp <= since and known.get(part.pane) == part.serial:
                continue
            if part.table is None:
                yield from self._stored(part, part.rows)
            elif known.get(part.pane) == part.serial:
                yield from self._stored(part, part.table.changed(since, part.table.keys.rows))
            else:
                yield from self._stored(part, part.table.batches())

    def _stored(self, part: _FrozenPane, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = batch.columns
            keys, values = columns[: self.keys], columns[self.keys :]
            pane = pa.array(np.full(batch.num_rows, part.pane, np.int64))
            if part.table is None:
                groups = key_groups(hash_arrays(keys, batch.num_rows), self.max_parallelism)
                values.append(pa.array(groups))
            yield pa.RecordBatch.from_arrays([*keys, pane, *values], schema=self.schema)

    def release(self) -> None:
        for part in self.parts:
            if part.table is not None:
                part.table.release()
