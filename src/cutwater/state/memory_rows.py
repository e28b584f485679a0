"""The table of the Memory backend for row functions: Python values in layered dicts."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

from cutwater.errors import DataError
from cutwater.flow.arrow import Array
from cutwater.flow.columns import check_key_type
from cutwater.flow.hashing import hash_arrays, key_groups
from cutwater.rows import key_values_of, values_of
from cutwater.state.frozen import KEY_GROUP_COLUMN, FrozenTable
from cutwater.state.snapshots import Snapshots

FROZEN_BATCH_ROWS = 4096
MERGE_STEP = 8192
_MISSING = object()
GONE = object()
"""In a layer: deleted, whatever the layers below say."""

Layer = dict[Any, Any]


class MemoryRowTable:
    """Implements ``RowTable``. A freeze starts a new top layer; once no snapshot is read, layers are merged step by step."""

    holds_whole_rows = False

    def __init__(self, uid: str, name: str, keys: pa.Schema, value: pa.DataType, max_parallelism: int) -> None:
        for field in keys:
            check_key_type(field.name, field.type)
        self.name = name
        self.key_columns = tuple(keys.names)
        column = name
        while column in (*keys.names, KEY_GROUP_COLUMN):
            column += "_"
        self.stored_schema = pa.schema(
            [*keys, pa.field(column, value), pa.field(KEY_GROUP_COLUMN, pa.int32(), nullable=False)]
        )
        self.form = RowForm(uid, name, self.stored_schema, max_parallelism)
        self._top: Layer = {}
        self._below: tuple[Layer, ...] = ()
        """Newest first; never written while a snapshot is read."""
        self._snapshots = Snapshots()

    def get(self, key: Any) -> Any:
        value = self._top.get(key, _MISSING)
        if value is _MISSING:
            for layer in self._below:
                value = layer.get(key, _MISSING)
                if value is not _MISSING:
                    break
            else:
                return None
        return None if value is GONE else value

    def put(self, key: Any, value: Any) -> None:
        self._top[key] = value

    def own(self, key: Any, copy: Callable[[Any], Any]) -> Any:
        value = self._top.get(key, _MISSING)
        if value is _MISSING:
            value = self.get(key)
            if value is not None:
                value = self._top[key] = copy(value)
        return None if value is GONE else value

    def delete(self, key: Any) -> None:
        if self._below:
            self._top[key] = GONE
        else:
            self._top.pop(key, None)

    def items(self) -> Iterator[tuple[Any, Any]]:
        return newest_items((self._top, *self._below))

    def freeze(self) -> FrozenTable:
        if self._top:
            self._below = (self._top, *self._below)
            self._top = {}
        epoch = self._snapshots.freeze()
        return FrozenRows(self.form, self._below, self._snapshots, epoch)

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Put rows back as a frozen table gave them."""
        for batch in batches:
            *names, value, _ = self.stored_schema.names
            keys = self.form.keys_of([batch.column(name) for name in names])
            self._top.update(zip(keys, values_of(batch.column(value)), strict=True))

    def tend(self) -> None:
        """Merge a bounded part of the oldest layer that is not the base into the base."""
        if not self._below or self._snapshots.latest:
            return
        base = self._below[-1]
        above = self._below[-2] if len(self._below) > 1 else self._top
        # In proportion to its size, so that a loop that keeps writing to the top layer does not outrun the merge.
        for _ in range(min(len(above), MERGE_STEP + len(above) // 16)):
            key, value = above.popitem()
            if value is GONE:
                base.pop(key, None)
            else:
                base[key] = value
        if above:
            return
        if above is self._top:
            self._top, self._below = base, ()
        else:
            self._below = (*self._below[:-2], base)


def newest_items(layers: tuple[Layer, ...]) -> Iterator[tuple[Any, Any]]:
    """Of each key the newest value."""
    for depth, layer in enumerate(layers):
        newer = layers[:depth]
        for key, value in layer.items():
            if value is not GONE and not any(key in other for other in newer):
                yield key, value


@dataclass(frozen=True, slots=True)
class RowForm:
    """Keys and values as the columns in which they are stored."""

    uid: str
    name: str
    schema: pa.Schema
    max_parallelism: int

    def batches(self, items: Iterable[tuple[Any, Any]]) -> Iterator[pa.RecordBatch]:
        rest = iter(items)
        while part := list(islice(rest, FROZEN_BATCH_ROWS)):
            yield self.batch([key for key, _ in part], [value for _, value in part])

    def batch(self, keys: list[Any], values: list[Any]) -> pa.RecordBatch:
        types = [field.type for field in self.schema]
        columns = [keys] if len(types) == 3 else list(zip(*keys, strict=True))
        arrays = [self._array(list(column), kind) for column, kind in zip(columns, types[:-2], strict=True)]
        groups = key_groups(hash_arrays(arrays, len(keys)), self.max_parallelism)
        return pa.RecordBatch.from_arrays(
            [*arrays, self._array(values, types[-2]), pa.array(groups)], schema=self.schema
        )

    def keys_of(self, columns: Sequence[Array]) -> list[Any]:
        """Key columns as the keys that functions know."""
        keys = [key_values_of(column) for column in columns]
        return keys[0] if len(keys) == 1 else list(zip(*keys, strict=True))

    def _array(self, values: list[Any], data_type: pa.DataType) -> Array:
        try:
            return pa.array(values, data_type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise DataError(f"{self.uid}: state {self.name!r} holds a value that is no {data_type}: {error}") from error


@dataclass(frozen=True, slots=True)
class FrozenRows:
    """Implements ``FrozenTable``: values become columns here, on the snapshot thread, a few thousand at a time."""

    form: RowForm
    layers: tuple[Layer, ...]
    snapshots: Snapshots
    epoch: int

    @property
    def name(self) -> str:
        return self.form.name

    @property
    def schema(self) -> pa.Schema:
        return self.form.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        return self.form.batches(newest_items(self.layers))

    def release(self) -> None:
        self.snapshots.release(self.epoch)
