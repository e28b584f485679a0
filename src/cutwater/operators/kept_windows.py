"""Windows on a grid whose content is kept by key as Python values: ``reduce``, and aggregates that are not kept in columns."""

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import compress, islice
from typing import Any

import numpy as np
import pyarrow as pa

from cutwater.flow.event_time import EventTime, Times
from cutwater.flow.watermarks import Milliseconds
from cutwater.operators.early_results import ChangedValues
from cutwater.operators.grid_windows import GridWindows
from cutwater.operators.keyed_state import bare_keys_of
from cutwater.operators.operator import Collector, OperatorContext
from cutwater.operators.window_content import KeyWindow, Told, WindowContent, tell
from cutwater.operators.window_results import windowed
from cutwater.state.key_index import KeyIndex
from cutwater.state.tables import RowTable
from cutwater.windows import Windows

TABLE = "windows"
KEYS_A_STEP = 1024


class KeptWindows(GridWindows[ChangedValues]):
    """Under each key a dict from slot to content. A slot is a pane if contents merge, else a window, by its start.

    Which keys a slot has is known beside the table, so that a window is told without a look at all keys.
    """

    def __init__(
        self,
        content: WindowContent,
        keys: Sequence[str],
        windows: Windows,
        time: EventTime | None,
        lateness: Milliseconds,
        early: Milliseconds | None,
    ) -> None:
        super().__init__(keys, windows, time, lateness, early)
        self.content = content

    def describe(self) -> str:
        return f"{self._describe()}.{self.content.describe()}"

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        self._know_rows(inputs[0])
        results = self.content.bind(inputs[0], self._keys)
        self._schema = windowed(results, self.content.where_ends_stand, marked=self._every is not None)
        return self._schema

    def open(self, ctx: OperatorContext) -> None:
        self.where = f"window {ctx.name!r} ({ctx.uid})"
        self.content.open(ctx)
        super().open(ctx)

    def _open_table(self) -> None:
        stored = pa.map_(pa.int64(), self.content.stored_type)
        self._table: RowTable = self.store.rows(TABLE, self._key_schema, stored)
        self._keys_of: dict[int, ChangedValues] = {}
        for key, contents in self._table.items():
            for slot in contents:
                self._keys_of.setdefault(slot, ChangedValues()).add([key])

    def _nothing_changed(self) -> ChangedValues:
        return ChangedValues()

    def _slots(self) -> Iterable[int]:
        return list(self._keys_of)

    def _ends_of_slot(self, slot: int) -> Iterable[Milliseconds]:
        windows = self._ends.windows
        return windows.ends_of_pane(slot) if self.content.merges else (slot + windows.size,)

    def _slots_of_window(self, end: Milliseconds) -> Iterable[int]:
        windows = self._ends.windows
        return windows.panes_of_window(end) if self.content.merges else (end - windows.size,)

    def _gather(self, batch: pa.RecordBatch, times: Times) -> Iterator[tuple[int, Any]]:
        windows = self._ends.windows
        panes = windows.panes_of_times(times)
        if self.content.merges:
            yield from self._keep(batch, panes)
            return
        last = windows.last_ends(panes) - windows.size
        for back in range(0, windows.size, windows.slide):
            starts = last - back
            ends = starts + windows.size
            inside = (times < ends) & (ends - 1 + self._ends.lateness > self._ends.reached)
            yield from self._keep(batch.filter(pa.array(inside)), starts[inside])

    def _keep(self, batch: pa.RecordBatch, slots: Times) -> Iterator[tuple[int, Any]]:
        if batch.num_rows == 0:
            return
        index = KeyIndex(self._key_schema)
        ids = index.locate(batch.select(list(self._keys)).columns, batch.num_rows).rows
        order = np.lexsort((slots, ids))
        begins = (np.diff(ids[order], prepend=-1) != 0) | (np.diff(slots[order], prepend=0) != 0)
        begins[0] = True
        first = np.flatnonzero(begins)
        ordered = batch.take(order)
        fragments = self.content.of_fragments(ordered, np.cumsum(begins) - 1, len(first))
        keys = bare_keys_of(ordered.take(first), self._keys)
        self.store.expect(keys)
        touched: dict[int, list[Any]] = {}
        for key, slot, fragment in zip(keys, slots[order][first].tolist(), fragments, strict=True):
            contents = self._table.own(key, dict)
            if contents is None:
                contents = {}
                self._table.put(key, contents)
            contents[slot] = self.content.added(contents.get(slot), fragment)
            touched.setdefault(slot, []).append(key)
        for slot, changed in touched.items():
            self._keys_of.setdefault(slot, ChangedValues()).add(changed)
            yield slot, changed

    def _tell(
        self, end: Milliseconds, out: Collector, changed: ChangedValues | None, *, early: bool = False
    ) -> Iterator[bool]:
        slots = [slot for slot in self._slots_of_window(end) if slot in self._keys_of]
        every = changed if changed is not None else dict.fromkeys(key for slot in slots for key in self._keys_of[slot])
        keys = self._to_tell(every, end)
        mark = early if self._every is not None else None
        while step := list(islice(keys, KEYS_A_STEP)):
            self.store.expect(step)
            told = []
            for key in step:
                contents = self._table.get(key)
                parts = [contents[slot] for slot in slots if slot in contents]
                content = reduce(self.content.merged, parts)
                told.append(Told(key, KeyWindow(end - self._ends.windows.size, end, content)))
            tell(self.content, told, self._schema, out, mark)
            yield False

    def _to_tell(self, every: Iterable[Any], end: Milliseconds) -> Iterator[Any]:
        keys = list(every) if self._some_told(end) else []
        if not keys:
            return iter(every)
        columns = [keys] if len(self._keys) == 1 else [list(column) for column in zip(*keys, strict=True)]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self._key_schema, strict=True)]
        return compress(
            keys, self._told_before.untold(pa.RecordBatch.from_arrays(arrays, schema=self._key_schema), end)
        )

    def _drop(self, slot: int) -> Iterator[None]:
        keys = iter(self._keys_of.pop(slot))
        while step := list(islice(keys, KEYS_A_STEP)):
            self.store.expect(step)
            for key in step:
                contents = self._table.own(key, dict)
                del contents[slot]
                if not contents:
                    self._table.delete(key)
            self.store.tend()
            yield
