"""Windows on a grid whose content is kept by key as Python values: ``reduce``, and aggregates that are not kept in columns."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import reduce
from itertools import chain, compress, islice, repeat
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
from cutwater.state.parted_dict import Layer, PartedDict
from cutwater.state.tables import RestoresColumns, RowTable
from cutwater.state.uncollected import uncollected
from cutwater.windows import Windows

TABLE = "windows"
KEYS_A_STEP = 1024
RESTORED_ROWS = 8192
KEYS_GATHERED = 16_384
"""In a step in which they are only looked at."""
MOST_IN_A_DICT = 1 << 20
"""It grows in some 30 ms then, and is faster than several."""


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
        self._keys_of: dict[int, list[Any]] = {}
        with uncollected():
            for keys, slots in _restored(self._table):
                for key, slot in zip(keys, slots, strict=True):
                    self._keys_of.setdefault(slot, []).append(key)

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
            if slot not in contents:
                self._keys_of.setdefault(slot, []).append(key)
            contents[slot] = self.content.added(contents.get(slot), fragment)
            touched.setdefault(slot, []).append(key)
        yield from touched.items()

    def _tell(
        self, end: Milliseconds, out: Collector, changed: ChangedValues | None, *, early: bool = False
    ) -> Iterator[bool]:
        slots = [slot for slot in self._slots_of_window(end) if slot in self._keys_of]
        keys = iter(changed) if changed is not None else (yield from self._keys_of_all(slots))
        mark = early if self._every is not None else None
        while step := list(islice(keys, KEYS_A_STEP)):
            untold = self._untold(step, end)
            self.store.expect(untold)
            told = []
            for key in untold:
                contents = self._table.get(key)
                parts = [contents[slot] for slot in slots if slot in contents]
                content = reduce(self.content.merged, parts)
                told.append(Told(key, KeyWindow(end - self._ends.windows.size, end, content)))
            tell(self.content, told, self._schema, out, mark)
            yield False

    def _keys_of_all(self, slots: Sequence[int]) -> Generator[bool, None, Iterator[Any]]:
        """Each key of any of ``slots``, once."""
        lists = [self._keys_of[slot] for slot in slots]
        if len(lists) == 1:
            return iter(lists[0])
        together: Layer = {} if sum(map(len, lists)) <= MOST_IN_A_DICT else PartedDict()
        for keys in lists:
            for start in range(0, len(keys), KEYS_GATHERED):
                together.update(zip(keys[start : start + KEYS_GATHERED], repeat(None)))
                yield True
        return (key for key, _ in together.items())

    def _untold(self, keys: list[Any], end: Milliseconds) -> list[Any]:
        if not self._some_told(end):
            return keys
        columns = [keys] if len(self._keys) == 1 else [list(column) for column in zip(*keys, strict=True)]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self._key_schema, strict=True)]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._key_schema)
        return list(compress(keys, self._told_before.untold(rows, end)))

    def _drop(self, slot: int) -> Iterator[None]:
        keys = self._keys_of.pop(slot)
        while step := keys[-KEYS_A_STEP:]:
            del keys[-KEYS_A_STEP:]
            self.store.expect(step)
            for key in step:
                contents = self._table.own(key, dict)
                del contents[slot]
                if not contents:
                    self._table.delete(key)
            self.store.tend()
            yield


def _restored(table: RowTable) -> Iterator[tuple[Iterable[Any], Iterable[int]]]:
    """The slots in which there is something, and beside each of them its key. What was gathered is not looked at."""
    if not isinstance(table, RestoresColumns):
        for key, contents in table.items():
            yield repeat(key, len(contents)), contents
        return
    values: Any
    for keys, values in table.restored(RESTORED_ROWS):
        edges = values.offsets.to_numpy()
        slots = values.keys.to_numpy()[edges[0] : edges[-1]].tolist()
        yield chain.from_iterable(map(repeat, keys, np.diff(edges).tolist())), slots
