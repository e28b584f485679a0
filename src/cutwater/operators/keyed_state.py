"""What operators with state by key share: their store, and the keys of a batch."""

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

import pyarrow as pa

from cutwater.flow.ids import CheckpointId
from cutwater.operators.operator import Json, Operator, OperatorContext, OperatorSnapshot
from cutwater.rows import key_values_of, row_type
from cutwater.schema import require_columns
from cutwater.state.backend import KeyedStateStore, WritesAlong


class StoreHolder(Operator):
    """An operator with a store, which it opens in ``open``."""

    _store: KeyedStateStore | None = None

    def _open_store(self, ctx: OperatorContext) -> None:
        self._store = opened_store(ctx)

    @property
    def store(self) -> KeyedStateStore:
        assert self._store is not None, "open comes first"
        return self._store

    @property
    def rows_at_once(self) -> int:
        return self.store.rows_at_once if isinstance(self.store, WritesAlong) else super().rows_at_once

    def checkpoint_ended(self, checkpoint: CheckpointId, *, completed: bool) -> None:
        if completed:
            self.store.confirm(checkpoint)
        else:
            self.store.abort(checkpoint)

    def close(self) -> None:
        if self._store is not None:
            self._store.close()


class KeyedStateOperator(StoreHolder):
    """Its snapshots are the tables of the store, and what ``_inline`` adds."""

    def _inline(self) -> Json:
        """Small JSON beside the tables, or a function that gives it on the snapshot thread."""
        return None

    def snapshot(self, checkpoint: CheckpointId) -> OperatorSnapshot:
        return OperatorSnapshot(inline=self._inline(), tables=self.store.freeze(checkpoint))


def key_schema(schema: pa.Schema, keys: Sequence[str], where: str) -> pa.Schema:
    """The key columns of ``schema``; SchemaError if one is missing."""
    require_columns(schema, keys, where)
    return pa.schema([schema.field(name) for name in keys])


def keys_of(batch: pa.RecordBatch, keys: Sequence[str]) -> Iterable[Any]:
    """Each row's key as state knows it and ``ctx.key`` shows it: the value, or a row when there are several columns."""
    if len(keys) == 1:
        return key_values_of(batch.column(keys[0]))
    columns = zip(*[key_values_of(batch.column(name)) for name in keys], strict=True)
    return map(tuple.__new__, repeat(row_type(tuple(keys))), columns)


def bare_keys_of(batch: pa.RecordBatch, keys: Sequence[str]) -> list[Any]:
    """The same, but of several columns as a plain tuple, as tables hold it."""
    columns = [key_values_of(batch.column(name)) for name in keys]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def rows_of_keys(keys: list[Any], schema: pa.Schema) -> pa.RecordBatch:
    """A row for each, of which there are some: what ``bare_keys_of`` gives, back in columns."""
    columns = [keys] if len(schema) == 1 else [list(column) for column in zip(*keys, strict=True)]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def opened_store(ctx: OperatorContext) -> KeyedStateStore:
    """This operator's store, with what the restored checkpoint holds for it."""
    store = ctx.backend.open(ctx.uid, ctx.key_groups, ctx.max_parallelism)
    if ctx.restored is not None:
        if ctx.resumed is not None:
            taken = store.resume(ctx.resumed.checkpoint, ctx.resumed.state)
        else:
            taken = store.adopt(ctx.restored)
        for table in ctx.restored.tables():
            if table not in taken:
                store.restore(table, ctx.restored.batches(table))
    return store
