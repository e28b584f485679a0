"""The table of the Memory backend for row functions: Python values in layered dicts, below them what was restored."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cutwater.flow.arrow import Array
from cutwater.state.frozen import FrozenTable
from cutwater.state.joined_layers import JoiningLayers, run_to_join
from cutwater.state.parted_dict import Layer, parted_if_large, taken_out
from cutwater.state.restored_rows import HeldRows, RestoredRows, RowNumber
from cutwater.state.row_layers import GONE, MISSING, LayeredRows, RowForm, newest_items
from cutwater.state.snapshots import Snapshots
from cutwater.state.uncollected import uncollected

MERGE_STEP = 8192
LONGEST_STEP = 2 * MERGE_STEP
"""However large a layer is: more entries would take longer than the loop may stand still."""
RESTORED_ROWS = 8192


class MemoryRowTable(LayeredRows):
    """Implements ``RowTable``, ``ReadsAhead`` and ``RestoresColumns``. A freeze starts a new top layer; once no snapshot is read,
    layers are merged step by step. While one is, and they are many, those above the lowest are joined by being copied.

    The lowest layer may hold numbers of restored rows in place of values. Where one becomes a value, the layer has no more entries
    than before, so that a snapshot may be read meanwhile.
    """

    def __init__(self, form: RowForm) -> None:
        super().__init__(form)
        self._snapshots = Snapshots()
        self._restored: RestoredRows | None = None
        """As long as some of them are held. Until then the lowest layer stays below the top."""
        self._joining: JoiningLayers | None = None

    def get(self, key: Any) -> Any:
        value = self._top.get(key, MISSING)
        if value is MISSING:
            for layer in self._below:
                value = layer.get(key, MISSING)
                if value is not MISSING:
                    break
            else:
                return None
            if type(value) is RowNumber:
                [value] = self._asked_for({key: value})
        return None if value is GONE else value

    def expect(self, keys: Sequence[Any]) -> None:
        """Many values are made of columns sooner than one after the other."""
        if self._restored is not None:
            lowest = self._below[-1]
            rows = {key: row for key in keys if type(row := lowest.get(key, None)) is RowNumber}
            if rows:
                self._asked_for(rows)

    def _asked_for(self, rows: dict[Any, RowNumber]) -> list[Any]:
        """The values of keys of the lowest layer, one at least, which are in it from here on."""
        assert self._restored is not None
        lowest, numbers = self._below[-1], array("q", rows.values())
        values = self._restored.held.values(numbers)
        for key, value in zip(rows, values, strict=True):
            lowest[key] = value
        self._restored.done_with(numbers)
        return values

    def delete(self, key: Any) -> None:
        if self._is_below(key):
            self._top[key] = GONE
        else:
            self._top.pop(key, None)

    def _is_below(self, key: Any) -> bool:
        """Whether it may be. What was restored may stay there, and without checkpoints keys that come and go would be gathered."""
        if self._restored is None:
            return bool(self._below)
        return any(key in layer for layer in self._below)

    def items(self) -> Iterator[tuple[Any, Any]]:
        items = newest_items((self._top, *self._below))
        return items if self._restored is None else self._restored.held.resolved(items)

    def freeze(self) -> FrozenTable:
        self._seal()
        epoch = self._snapshots.freeze()
        restored = None if self._restored is None else self._restored.held
        return FrozenRows(self._form, self._below, restored, self._snapshots, epoch)

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Put rows back as a frozen table gave them, before anything else is put."""
        lowest = self._with_restored(self._below[-1] if self._below else {}, batches)
        if lowest:
            self._below = (*self._below[:-1], lowest)

    def _with_restored(self, layer: Layer, batches: Iterable[pa.RecordBatch]) -> Layer:
        """The layer, or one in its place, with the rows in it."""
        rows = self._restored or RestoredRows(self._form)
        with uncollected():
            for entries in rows.add(batches, RESTORED_ROWS):
                layer.update(entries)
                layer = parted_if_large(layer)
        self._restored = rows if layer else None
        return layer

    def restored(self, most: int) -> Iterator[tuple[list[Any], Array]]:
        return iter(()) if self._restored is None else self._restored.parts(most)

    def tend(self) -> None:
        """Merge layers into the base, oldest first: a part of one that is large, or several that are small."""
        self._top = parted_if_large(self._top)
        if self._snapshots.latest:
            self._join_step(below=1)
            return
        self._joining = None
        if not self._below:
            return
        left = MERGE_STEP - self._let_go()
        while left > 0 and len(self._below) > (self._restored is not None):
            left -= self._merge_step()

    def _join_step(self, *, below: int) -> None:
        """A bounded part of it. So many of the lowest layers stay as they are."""
        if self._joining is None:
            run = run_to_join([len(layer) for layer in self._below[:-below]])
            if run is None:
                return
            self._joining = JoiningLayers(self._below[run])
        if self._joining.step(LONGEST_STEP):
            self._below = self._joining.replaced_in(self._below)
            self._joining = None

    def _let_go(self) -> int:
        """Of what was restored, a bounded part that nobody can ask for any more. How many rows were gone through."""
        if self._restored is None:
            return 0
        rows = self._restored.let_go()
        if not self._restored.held.chunks:
            self._restored = None
        return rows

    def _merge_step(self) -> int:
        """A bounded part of the oldest layer that is not the base. How many entries."""
        base = parted_if_large(self._below[-1])
        above = self._below[-2] if len(self._below) > 1 else self._top
        # In proportion to its size, so that a loop that keeps writing to the top layer does not outrun the merge.
        step = min(len(above), MERGE_STEP + len(above) // 16, LONGEST_STEP)
        self._merge_into(base, taken_out(above, step))
        if above:
            self._below = (*self._below[:-1], base)
        elif above is self._top:
            self._top, self._below = base, ()
        else:
            self._below = (*self._below[:-2], base)
        return step

    def _merge_into(self, base: Layer, entries: Iterable[tuple[Any, Any]]) -> None:
        replaced = array("q")
        for key, value in entries:
            if self._restored is not None and type(row := base.get(key, None)) is RowNumber:
                replaced.append(row)
            if value is GONE:
                base.pop(key, None)
            else:
                base[key] = value
        if replaced and self._restored is not None:
            self._restored.done_with(replaced)


@dataclass(frozen=True, slots=True)
class FrozenRows:
    """Implements ``FrozenTable``: values become columns here, on the snapshot thread, a few thousand at a time."""

    form: RowForm
    layers: tuple[Layer, ...]
    restored: HeldRows | None
    snapshots: Snapshots
    epoch: int

    @property
    def name(self) -> str:
        return self.form.name

    @property
    def schema(self) -> pa.Schema:
        return self.form.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        items = newest_items(self.layers)
        return self.form.batches(items) if self.restored is None else self.restored.batches(items)

    def release(self) -> None:
        self.snapshots.release(self.epoch)
