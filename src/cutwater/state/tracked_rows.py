"""The table of row functions in the Memory backend that knows which of its keys changed."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

from cutwater.state.changes import Header, with_header
from cutwater.state.frozen import FrozenTable, TableRows
from cutwater.state.memory_rows import LONGEST_STEP, MERGE_STEP, MemoryRowTable
from cutwater.state.parted_dict import Layer, parted_if_large, taken_out
from cutwater.state.row_layers import FROZEN_BATCH_ROWS, GONE, RowForm, newest_entries

KEPT_CHANGES = 100_000
"""So many are remembered in any case, however few keys there are."""

Seal = int
RESTORED: Seal = 0


class TrackedRowTable(MemoryRowTable):
    """Implements ``TrackedTable``: what changed between two freezes is the layer that was on top then.

    So layers are not emptied when they are merged into the base, and the top is never merged. A read looks below the top
    more often for it, and a value is copied once in a checkpoint before it is changed in place.
    """

    def __init__(self, form: RowForm) -> None:
        super().__init__(form)
        self._base: Layer = {}
        self._below = (self._base,)
        self._seals = RESTORED
        self._changed: list[tuple[Seal, Layer]] = []
        self._known_since = RESTORED
        self._merging: Iterator[tuple[Any, Any]] | None = None
        self._unneeded: list[Layer] = []
        """Nobody asks for what changed in them. Those that are not merged yet are not emptied before."""

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._base = self._with_restored(self._base, batches)
        self._below = (*self._below[:-1], self._base)

    def _is_below(self, key: Any) -> bool:
        """Looked for in any case: what was put and deleted between two checkpoints is none of what changed."""
        return any(key in layer for layer in self._below)

    def restored_mark(self) -> Seal:
        return RESTORED

    def freeze(self) -> FrozenTable:
        if self._top:
            self._changed.append((self._seals + 1, self._top))
        return super().freeze()

    def mark(self) -> Seal:
        self._seals += 1
        if sum(len(layer) for _, layer in self._changed) > KEPT_CHANGES + len(self._base) // 2:
            # No checkpoint completes. They would be more than is worth storing beside a base.
            self.forget(self._seals)
            self._known_since = self._seals
        return self._seals

    def changes(self, since: Seal, frozen: FrozenTable) -> TableRows | None:
        if since < self._known_since:
            return None
        layers = tuple(layer for seal, layer in reversed(self._changed) if seal > since)
        header = Header(identity=self._form.identity)
        return ChangedRows(self._form, with_header(self.stored_schema, header), layers)

    def forget(self, before: Seal) -> None:
        self._unneeded.extend(layer for seal, layer in self._changed if seal <= before)
        self._changed = [(seal, layer) for seal, layer in self._changed if seal > before]

    def tend(self) -> None:
        self._top = parted_if_large(self._top)
        if self._snapshots.latest:
            self._join_step(below=1 if self._merging is None else 2)
            # Not emptied: a snapshot may see them, and has them for itself then.
            self._unneeded = [layer for layer in self._unneeded if any(layer is each for each in self._below)]
            return
        self._joining = None
        left = MERGE_STEP - self._let_go()
        while left > 0 and len(self._below) > 1:
            left -= self._merge()
        while left > 0 and self._unneeded:
            left -= self._empty()

    def _merge(self) -> int:
        """A bounded part of the oldest layer goes into the base; the layer stays as it is, as what changed. How many entries."""
        above = self._below[-2]
        if self._merging is None and not self._base:
            # The first one is the base. Later changes of it are in later layers too, so that it may still tell what changed.
            self._base, self._below = above, self._below[:-1]
            return 0
        if self._merging is None:
            self._merging = iter(above.items())
        self._base = parted_if_large(self._base)
        self._below = (*self._below[:-1], self._base)
        step = min(MERGE_STEP + len(above) // 16, LONGEST_STEP)
        entries = list(islice(self._merging, step))
        self._merge_into(self._base, entries)
        if len(entries) < step:
            self._below = (*self._below[:-2], self._base)
            self._merging = None
        return len(entries)

    def _empty(self) -> int:
        """In bounded parts: to let go of a large layer at once would take long. How many entries went."""
        layer = self._unneeded[-1]
        going = 0 if layer is self._base else min(len(layer), MERGE_STEP + len(layer) // 16, LONGEST_STEP)
        for _ in taken_out(layer, going):
            pass
        if not layer or layer is self._base:
            self._unneeded.pop()
        return going


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """Implements ``TableRows``: of each key the newest value, or that it is gone."""

    form: RowForm
    schema: pa.Schema
    layers: tuple[Layer, ...]

    @property
    def name(self) -> str:
        return self.form.name

    def batches(self) -> Iterator[pa.RecordBatch]:
        newest = newest_entries(self.layers)
        while part := list(islice(newest, FROZEN_BATCH_ROWS)):
            there = [(key, value) for key, value in part if value is not GONE]
            gone = [key for key, value in part if value is GONE]
            yield from self.form.batches(there)
            if gone:
                yield self.form.gone(gone)
