"""Python values of row functions in layered dicts, whatever stands below them, and the columns that they are stored in."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from sys import getsizeof
from typing import Any

import pyarrow as pa

from cutwater.errors import DataError
from cutwater.flow.arrow import Array
from cutwater.flow.columns import check_key_type, is_bytes
from cutwater.flow.hashing import hash_arrays, key_groups
from cutwater.rows import key_values_of
from cutwater.state.frozen import KEY_GROUP_COLUMN
from cutwater.state.parted_dict import Layer
from cutwater.state.value_sizes import size_of

FROZEN_BATCH_ROWS = 4096
FROZEN_BATCH_BYTES = 8 << 20
"""A batch has so many rows, or so many bytes of values and one value more, whatever is less. Of Python values, by their size as
such, which are made columns beside the state; what is stored already goes by ``READ_BYTES`` of RocksDB."""
_LOOKED_AT = 16
"""So many values stand for all of a batch, where it would take long to ask each for its size."""
MISSING = object()
GONE = object()
"""In a layer: deleted, whatever the layers below say."""


class LayeredRows(ABC):
    """The part of a ``RowTable`` that is the same for all backends: writes go to the top, and a freeze begins a new one."""

    holds_whole_rows = False

    def __init__(self, form: "RowForm") -> None:
        self.name = form.name
        self.key_columns = tuple(form.schema.names[: form.keys])
        self.stored_schema = form.schema
        self._form = form
        self._top: Layer = {}
        self._below: tuple[Layer, ...] = ()
        """Newest first. A snapshot may see them."""

    @abstractmethod
    def get(self, key: Any) -> Any:
        """The newest value, None if there is none."""

    def put(self, key: Any, value: Any) -> None:
        self._top[key] = value

    def own(self, key: Any, copy: Callable[[Any], Any]) -> Any:
        value = self._top.get(key, MISSING)
        if value is MISSING:
            value = self.get(key)
            if value is not None:
                value = self._top[key] = copy(value)
        return None if value is GONE else value

    def _seal(self) -> None:
        if self._top:
            self._below = (self._top, *self._below)
            self._top = {}


def newest_items(layers: Sequence[Layer]) -> Iterator[tuple[Any, Any]]:
    """Of each key the newest value."""
    return (entry for entry in newest_entries(layers) if entry[1] is not GONE)


def newest_entries(layers: Sequence[Layer]) -> Iterator[tuple[Any, Any]]:
    """Of each key the newest value, or that it is gone."""
    for depth, layer in enumerate(layers):
        newer = layers[:depth]
        for entry in layer.items():
            for other in newer:
                if entry[0] in other:
                    break
            else:
                yield entry


@dataclass(frozen=True, slots=True)
class RowForm:
    """Keys and values as the columns in which they are stored."""

    uid: str
    name: str
    schema: pa.Schema
    max_parallelism: int
    keys: int
    """So many of the first columns are the key, by which a row has its key group. A slot may follow."""

    @staticmethod
    def of(
        uid: str, name: str, keys: pa.Schema, value: pa.DataType, max_parallelism: int, slot: str | None = None
    ) -> "RowForm":
        """The column of values has the name of the state, if no other has it."""
        for field in keys:
            check_key_type(field.name, field.type)
        identity = keys if slot is None else keys.append(pa.field(slot, pa.int64()))
        column = name
        while column in (*identity.names, KEY_GROUP_COLUMN):
            column += "_"
        stored = [*identity, pa.field(column, value), pa.field(KEY_GROUP_COLUMN, pa.int32(), nullable=False)]
        return RowForm(uid, name, pa.schema(stored), max_parallelism, len(keys))

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns by which a row is the same as an earlier one."""
        return tuple(self.schema.names[:-2])

    def batches(self, items: Iterable[tuple[Any, Any]]) -> Iterator[pa.RecordBatch]:
        rest = iter(items)
        while part := list(islice(rest, FROZEN_BATCH_ROWS)):
            keys, values = [key for key, _ in part], [value for _, value in part]
            for start, stop in pairwise([0, *self._stops(values)]):
                yield self.batch(keys[start:stop], values[start:stop])

    def _stops(self, values: list[Any]) -> Iterator[int]:
        """Behind which values a batch ends. Each text is asked for its size: among many small ones a few may be very large."""
        if not is_bytes(self.schema.field(-2).type):
            sample = values[:: len(values) // _LOOKED_AT + 1]
            step = max(1, FROZEN_BATCH_BYTES * len(sample) // sum(map(size_of, sample)))
            yield from range(step, len(values), step)
        elif sum(map(getsizeof, values)) > FROZEN_BATCH_BYTES:
            left = FROZEN_BATCH_BYTES
            for at, value in enumerate(values[:-1]):
                left -= getsizeof(value)
                if left <= 0:
                    yield at + 1
                    left = FROZEN_BATCH_BYTES
        yield len(values)

    def batch(self, keys: list[Any], values: list[Any]) -> pa.RecordBatch:
        return self.batch_of(keys, self._array(values, self.schema.field(-2).type))

    def batch_of(self, keys: list[Any], values: Array) -> pa.RecordBatch:
        types = [field.type for field in self.schema]
        columns = [keys] if len(types) == 3 else list(zip(*keys, strict=True))
        arrays = [self._array(list(column), kind) for column, kind in zip(columns, types[:-2], strict=True)]
        groups = key_groups(hash_arrays(arrays[: self.keys], len(keys)), self.max_parallelism)
        return pa.RecordBatch.from_arrays([*arrays, values, pa.array(groups)], schema=self.schema)

    def gone(self, keys: list[Any]) -> pa.RecordBatch:
        """Rows that say of these keys that they have no value any more (``state/changes.py``)."""
        there = self.batch(keys, [None] * len(keys))
        groups = there.column(KEY_GROUP_COLUMN).to_numpy()
        return there.set_column(there.num_columns - 1, self.schema.field(KEY_GROUP_COLUMN), pa.array(~groups))

    def keys_of(self, columns: Sequence[Array]) -> list[Any]:
        """Key columns as the keys that functions know."""
        keys = [key_values_of(column) for column in columns]
        return keys[0] if len(keys) == 1 else list(zip(*keys, strict=True))

    def _array(self, values: list[Any], data_type: pa.DataType) -> Array:
        try:
            return pa.array(values, data_type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise DataError(f"{self.uid}: state {self.name!r} holds a value that is no {data_type}: {error}") from error
