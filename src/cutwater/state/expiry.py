"""How a state with a ttl stands in a snapshot: each value, element or entry beside the moment at which it ends."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.flow.arrow import Array
from cutwater.flow.watermarks import Milliseconds
from cutwater.state.changes import header_of
from cutwater.state.frozen import FilePlace, FrozenTable, StoresItself, TableRows, WholeTable
from cutwater.state.stored import StoredFile, StoredTable

EXPIRY_FIELD = "expires_at"
_VALUE_FIELD = "value"

Flags = npt.NDArray[np.bool_]
Times = npt.NDArray[np.int64]


def with_expiry(data_type: pa.DataType) -> pa.DataType:
    return pa.struct([pa.field(_VALUE_FIELD, data_type), pa.field(EXPIRY_FIELD, pa.int64())])


def without_expiry(stored: pa.DataType) -> pa.DataType | None:
    """What the state would be stored as without its ttl; None: it has none."""
    match stored:
        case pa.MapType():
            item = _value_of(stored.item_type)
            return None if item is None else pa.map_(stored.key_type, item)
        case pa.ListType():
            element = _value_of(stored.value_type)
            return None if element is None else pa.list_(element)
        case _:
            return _value_of(stored)


def _value_of(entry: pa.DataType) -> pa.DataType | None:
    if not isinstance(entry, pa.StructType) or entry.get_field_index(_VALUE_FIELD) < 0:
        return None
    value = entry.field(_VALUE_FIELD).type
    return value if entry == with_expiry(value) else None


def expiries(column: Any) -> Times:
    """When each of the stored values, which has an element or entry if it is a list or map, will have expired as a whole."""
    if isinstance(column, pa.StructArray):
        return _expiries(column)
    entries: Any = column.items if isinstance(column, pa.MapArray) else column.values
    edges = column.offsets.to_numpy()
    latest: Times = np.maximum.reduceat(_expiries(entries)[: edges[-1]], edges[:-1])
    return latest


def without_expired(table: FrozenTable, now: Milliseconds) -> FrozenTable:
    """The same table without what had expired at the cut, whether it was dropped by then or not."""
    return LiveIncrement(table, now) if isinstance(table, StoresItself) else LiveRows(table, now)


@dataclass(frozen=True, slots=True)
class LiveRows(WholeTable):
    """Implements ``FrozenTable``."""

    now: Milliseconds

    def batches(self) -> Iterator[pa.RecordBatch]:
        return _live_rows(self.table.batches(), self.now)


@dataclass(frozen=True, slots=True)
class LiveIncrement(LiveRows):
    """Implements ``StoresItself`` too."""

    def store(self, place: FilePlace) -> StoredTable:
        assert isinstance(self.table, StoresItself)
        return self.table.store(_LivePlace(place, self.now))


@dataclass(frozen=True, slots=True)
class _LivePlace:
    """Implements ``FilePlace``: another one, to which nothing comes that has expired."""

    place: FilePlace
    now: Milliseconds

    @property
    def base(self) -> StoredTable | None:
        return self.place.base

    @property
    def most_bytes(self) -> int | None:
        return self.place.most_bytes

    def write(self, rows: TableRows) -> StoredTable:
        live = _live_changes if header_of(rows.schema).identity else _live_rows
        return self.place.write(_Rows(rows.name, rows.schema, lambda: live(rows.batches(), self.now)))

    def copy(self, name: str, path: str, known: StoredFile | None = None) -> StoredFile:
        return self.place.copy(name, path, known)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Implements ``TableRows``."""

    name: str
    schema: pa.Schema
    batches: Callable[[], Iterator[pa.RecordBatch]]


def _live_rows(batches: Iterable[pa.RecordBatch], now: Milliseconds) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        left, alive = _pruned(batch, now)
        live = left if alive.all() else left.filter(pa.array(alive))
        if live.num_rows:
            yield live


def _live_changes(batches: Iterable[pa.RecordBatch], now: Milliseconds) -> Iterator[pa.RecordBatch]:
    """A row that expired is gone, and takes the place of earlier ones all the same."""
    for batch in batches:
        left, alive = _pruned(batch, now)
        at = left.num_columns - 1
        groups = left.column(at).to_numpy()
        marked = np.where(alive | (groups < 0), groups, ~groups)
        yield left.set_column(at, left.schema.field(at), pa.array(marked, pa.int32()))


def _pruned(batch: pa.RecordBatch, now: Milliseconds) -> tuple[pa.RecordBatch, Flags]:
    """The same rows without their elements and entries that expired; and which rows have anything left."""
    at = batch.num_columns - 2  # behind the keys, before the key group
    column: Any = batch.column(at)
    if isinstance(column, pa.StructArray):
        return batch, _lives(column, now)
    entries: Any = column.items if isinstance(column, pa.MapArray) else column.values
    edges = column.offsets.to_numpy()
    alive = _lives(entries, now)
    if alive[edges[0] : edges[-1]].all():
        return batch, np.diff(edges) > 0
    kept = pa.array(alive)
    # The position of each edge among the entries that live.
    offsets = pa.array(np.concatenate([[0], np.cumsum(alive)])[edges].astype(np.int32))
    if isinstance(column, pa.MapArray):
        keys: Any = column.keys
        left: Array = pa.MapArray.from_arrays(offsets, keys.filter(kept), entries.filter(kept), column.type)  # type: ignore[call-overload]  # the stubs lack the type
    else:
        left = pa.ListArray.from_arrays(offsets, entries.filter(kept), type=column.type)
    return batch.set_column(at, batch.schema.field(at), left), np.diff(offsets.to_numpy()) > 0


def _lives(entries: pa.StructArray, now: Milliseconds) -> Flags:
    lives: Flags = _expiries(entries) > now
    return lives


def _expiries(entries: pa.StructArray) -> Times:
    times: Times = entries.field(EXPIRY_FIELD).to_numpy(zero_copy_only=False)
    return times
