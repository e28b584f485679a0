"""A large pane on its way back into memory."""

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from cutwater.state.memory_aggregates import MemoryAggregateTable

FIRST_LOOK_ROWS = 1 << 15


class RestoredPane:
    """Mostly each key comes once. So rows are put one behind the other, and found by an index that is made of all of them at once.
    Where a key comes again, as those of RocksDB and of small panes do, they are merged from then on. Whether one did is looked for
    whenever the rows are four times as many: they are never many more than the keys."""

    def __init__(
        self,
        empty: Callable[[int], MemoryAggregateTable],
        merge: Callable[[MemoryAggregateTable, pa.RecordBatch], None],
        rows_of: Callable[[MemoryAggregateTable], Iterator[pa.RecordBatch]],
    ) -> None:
        """``empty`` makes a table for so many keys."""
        self._empty = empty
        self._merge = merge
        self._rows_of = rows_of
        self._table = empty(0)
        self._is_merged = False
        self._next_look = FIRST_LOOK_ROWS
        self._null_keys: list[pa.RecordBatch] = []
        """Rows of a key that is null: a table that is not indexed holds one of them at most."""

    def add(self, rows: pa.RecordBatch) -> None:
        """As a frozen table gave them."""
        if self._is_merged:
            self._merge(self._table, rows)
            return
        self._table.append(self._without_null_keys(rows))
        if len(self._table) >= self._next_look:
            self._index()
            self._next_look = 4 * len(self._table)

    def table(self) -> MemoryAggregateTable:
        """When all came."""
        if not self._is_merged:
            self._index()
            self._merge_null_keys()
        return self._table

    def _index(self) -> None:
        if self._table.build():
            return
        self._is_merged = True
        as_they_came, self._table = self._table, self._empty(len(self._table))
        for rows in self._rows_of(as_they_came):
            self._merge(self._table, rows)
        self._merge_null_keys()

    def _merge_null_keys(self) -> None:
        """Before others that come."""
        for rows in self._null_keys:
            self._merge(self._table, rows)
        self._null_keys.clear()

    def _without_null_keys(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        key = rows.column(0)
        if len(self._table.key_columns) > 1 or key.null_count == 0:
            return rows
        is_null = pc.is_null(key)
        self._null_keys.append(rows.filter(is_null))
        return rows.filter(pc.invert(is_null))
