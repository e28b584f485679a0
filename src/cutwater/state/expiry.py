"""How a state with a ttl stands in a snapshot: each value, element or entry beside the moment at which it ends."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.flow.arrow import Array
from cutwater.flow.watermarks import Milliseconds
from cutwater.state.frozen import FrozenTable

EXPIRY_FIELD = "expires_at"
_VALUE_FIELD = "value"


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


@dataclass(frozen=True, slots=True)
class LiveRows:
    """Implements ``FrozenTable``: another one without what had expired at the cut, whether it was dropped by then or not."""

    table: FrozenTable
    now: Milliseconds

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self.table.batches():
            live = self._live(batch)
            if live.num_rows:
                yield live

    def release(self) -> None:
        self.table.release()

    def _live(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        at = batch.num_columns - 2  # behind the keys, before the key group
        column: Any = batch.column(at)
        if isinstance(column, pa.StructArray):
            alive = self._lives(column)
            return batch if alive.all() else batch.filter(pa.array(alive))
        entries: Any = column.items if isinstance(column, pa.MapArray) else column.values
        edges = column.offsets.to_numpy()
        alive = self._lives(entries)
        if alive[edges[0] : edges[-1]].all():
            return batch
        kept = pa.array(alive)
        # The position of each edge among the entries that live.
        offsets = pa.array(np.concatenate([[0], np.cumsum(alive)])[edges].astype(np.int32))
        if isinstance(column, pa.MapArray):
            keys: Any = column.keys
            left: Array = pa.MapArray.from_arrays(offsets, keys.filter(kept), entries.filter(kept), column.type)  # type: ignore[call-overload]  # the stubs lack the type
        else:
            left = pa.ListArray.from_arrays(offsets, entries.filter(kept), type=column.type)
        return batch.set_column(at, batch.schema.field(at), left).filter(pa.array(np.diff(offsets.to_numpy()) > 0))

    def _lives(self, entries: pa.StructArray) -> npt.NDArray[np.bool_]:
        expiries = entries.field(EXPIRY_FIELD).to_numpy(zero_copy_only=False)
        lives: npt.NDArray[np.bool_] = expiries > self.now
        return lives
