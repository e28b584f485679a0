"""The table of the Memory backend for row functions: Python values in layered dicts."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cutwater.flow.batches import pieces
from cutwater.rows import values_of
from cutwater.state.frozen import FrozenTable
from cutwater.state.parted_dict import Layer, parted_if_large, taken_out
from cutwater.state.row_layers import GONE, MISSING, LayeredRows, RowForm, newest_items
from cutwater.state.snapshots import Snapshots
from cutwater.state.uncollected import uncollected

MERGE_STEP = 8192
LONGEST_STEP = 2 * MERGE_STEP
"""However large a layer is: more entries would take longer than the loop may stand still."""
RESTORED_ROWS = 8192


class MemoryRowTable(LayeredRows):
    """Implements ``RowTable``. A freeze starts a new top layer; once no snapshot is read, layers are merged step by step."""

    def __init__(
        self,
        uid: str,
        name: str,
        keys: pa.Schema,
        value: pa.DataType,
        max_parallelism: int,
        slot: str | None = None,
    ) -> None:
        super().__init__(uid, name, keys, value, max_parallelism, slot)
        self._snapshots = Snapshots()

    def get(self, key: Any) -> Any:
        value = self._top.get(key, MISSING)
        if value is MISSING:
            for layer in self._below:
                value = layer.get(key, MISSING)
                if value is not MISSING:
                    break
            else:
                return None
        return None if value is GONE else value

    def delete(self, key: Any) -> None:
        if self._below:
            self._top[key] = GONE
        else:
            self._top.pop(key, None)

    def items(self) -> Iterator[tuple[Any, Any]]:
        return newest_items((self._top, *self._below))

    def freeze(self) -> FrozenTable:
        self._seal()
        epoch = self._snapshots.freeze()
        return FrozenRows(self._form, self._below, self._snapshots, epoch)

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Put rows back as a frozen table gave them."""
        self._top = self._restored(self._top, batches)

    def _restored(self, layer: Layer, batches: Iterable[pa.RecordBatch]) -> Layer:
        """The layer, or one in its place, with the rows in it."""
        *names, value, _ = self.stored_schema.names
        with uncollected():
            for piece in (piece for batch in batches for piece in pieces(batch, RESTORED_ROWS)):
                keys = self._form.keys_of([piece.column(name) for name in names])
                layer.update(zip(keys, values_of(piece.column(value)), strict=True))
                layer = parted_if_large(layer)
        return layer

    def tend(self) -> None:
        """Merge layers into the base, oldest first: a part of one that is large, or several that are small."""
        self._top = parted_if_large(self._top)
        if not self._below or self._snapshots.latest:
            return
        left = MERGE_STEP
        while left > 0 and self._below:
            left -= self._merge_step()

    def _merge_step(self) -> int:
        """A bounded part of the oldest layer that is not the base. How many entries."""
        base = parted_if_large(self._below[-1])
        above = self._below[-2] if len(self._below) > 1 else self._top
        # In proportion to its size, so that a loop that keeps writing to the top layer does not outrun the merge.
        step = min(len(above), MERGE_STEP + len(above) // 16, LONGEST_STEP)
        for key, value in taken_out(above, step):
            if value is GONE:
                base.pop(key, None)
            else:
                base[key] = value
        if above:
            self._below = (*self._below[:-1], base)
        elif above is self._top:
            self._top, self._below = base, ()
        else:
            self._below = (*self._below[:-2], base)
        return step


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
