"""Windows on a grid whose content is kept by key as Python values: ``reduce``, and aggregates that are not kept in columns."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import reduce
from itertools import compress, islice, repeat
from typing import Any, cast

import numpy as np
import pyarrow as pa

from cutwater.flow.event_time import EventTime, Times
from cutwater.flow.watermarks import Milliseconds
from cutwater.operators.early_results import ChangedValues
from cutwater.operators.grid_windows import GridWindows
from cutwater.operators.keyed_state import bare_keys_of, rows_of_keys
from cutwater.operators.operator import Collector, OperatorContext
from cutwater.operators.told_windows import DROPPED_TOGETHER
from cutwater.operators.window_content import KeyWindow, Told, WindowContent, tell
from cutwater.operators.window_results import WINDOW_START, windowed
from cutwater.state.key_index import KeyIndex
from cutwater.state.parted_dict import Layer, PartedDict, taken_out
from cutwater.state.tables import RestoresColumns, RestoresKeys, RowTable, Size
from cutwater.state.uncollected import uncollected
from cutwater.windows import Windows

TABLE = "windows"
KEYS_A_STEP = 1024
FEW_KEYS = KEYS_A_STEP // DROPPED_TOGETHER
"""Slots of no more keys are forgotten with others."""
ROWS_A_STEP = 4096
"""A step has so many keys, or so many of their contents and those of one key more, whatever is less."""
RESTORED_ROWS = 8192
KEYS_GATHERED = 16_384
"""In a step in which they are only looked at."""
MOST_IN_A_DICT = 1 << 20
"""It grows in some 30 ms then, and is faster than several."""

Slots = Sequence[int]


class KeptWindows(GridWindows[ChangedValues]):
    """Under each key and slot a content. A slot is a pane if contents merge, else a window, by its start.

    So what is done with a window costs what is in it, however many others its keys have. Which keys a slot has is known beside
    the table, so that a window is told without a look at all keys.
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
        self._table: RowTable = self.store.rows(TABLE, self._key_schema, self.content.stored_type, WINDOW_START)
        self._keys_of = keys_by_slot(self._table, self._keys)

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
        reached = self._told_before.time_of(batch, self._ends.reached)
        for back in range(0, windows.size, windows.slide):
            starts = last - back
            ends = starts + windows.size
            inside = (times < ends) & (ends - 1 + self._ends.lateness > reached)
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
        of_keys = slots[order][first].tolist()
        rows = self._rows_at(keys, of_keys)
        self.store.expect(rows)
        touched: dict[int, list[Any]] = {}
        for key, slot, row, fragment in zip(keys, of_keys, rows, fragments, strict=True):
            before = self._table.get(row)
            if before is None:
                self._keys_of.setdefault(slot, []).append(key)
            self._table.put(row, self.content.added(before, fragment))
            touched.setdefault(slot, []).append(key)
        yield from touched.items()

    def _rows_at(self, keys: Iterable[Any], slots: Iterable[int]) -> list[Any]:
        """As the table knows them: each key with the slot beside it."""
        pairs = zip(keys, slots, strict=False)
        return list(pairs) if len(self._keys) == 1 else [(*key, slot) for key, slot in pairs]

    def _tell(
        self, end: Milliseconds, out: Collector, changed: ChangedValues | None, *, early: bool = False
    ) -> Iterator[bool]:
        slots = [slot for slot in self._slots_of_window(end) if slot in self._keys_of]
        pairs: Iterator[tuple[Any, Slots]]
        pairs = zip(changed, repeat(slots)) if changed is not None else (yield from self._keys_of_all(slots))
        mark = early if self._every is not None else None
        while step := list(_a_step(pairs)):
            asked = [(key, some, end) for key, some in self._untold(step, end, early=early)]
            tell(self.content, self._told(asked), self._schema, out, mark)
            yield False

    def _keys_of_all(self, slots: Slots) -> Generator[bool, None, Iterator[tuple[Any, Slots]]]:
        """Each key of any of ``slots``, once, and those that it is in. What is told is let go of: all at once would take long."""
        if len(slots) == 1:
            return zip(self._keys_of[slots[0]], repeat(slots))
        lists = [self._keys_of[slot] for slot in slots]
        together: Layer = {} if sum(map(len, lists)) <= MOST_IN_A_DICT else PartedDict()
        for slot, keys in zip(slots, lists, strict=True):
            for start in range(0, len(keys), KEYS_GATHERED):
                for key in keys[start : start + KEYS_GATHERED]:
                    if (found := together.get(key, None)) is None:
                        together[key] = [slot]
                    else:
                        found.append(slot)
                yield True
        return taken_out(together, len(together))

    def _size_of(self, slots: Iterable[int]) -> Size:
        """What the contents are is for whoever keeps them to know; a step has so many in any case."""
        return Size(sum(len(self._keys_of.get(slot, ())) for slot in slots), 0)

    def _tell_together(self, ends: Sequence[Milliseconds], out: Collector) -> None:
        asked = [(key, some, end) for end in ends for key, some in self._few_keys_of(end)]
        tell(self.content, self._told(asked), self._schema, out, False if self._every is not None else None)

    def _few_keys_of(self, end: Milliseconds) -> Iterable[tuple[Any, Slots]]:
        slots = [slot for slot in self._slots_of_window(end) if slot in self._keys_of]
        gathering = self._keys_of_all(slots)
        while True:
            try:
                next(gathering)
            except StopIteration as gathered:
                return cast(Iterable[tuple[Any, Slots]], gathered.value)

    def _told(self, asked: Sequence[tuple[Any, Slots, Milliseconds]]) -> list[Told]:
        """Keys, the slots in which they may be, and where the window ends that is told of them."""
        rows = self._rows_at(
            [key for key, some, _ in asked for _ in some], [slot for _, some, _ in asked for slot in some]
        )
        self.store.expect(rows)
        contents = map(self._table.get, rows)
        size = self._ends.windows.size
        told = []
        for key, some, end in asked:
            # Of a key that changed nobody knows in which of the slots it is.
            parts = [content for content in islice(contents, len(some)) if content is not None]
            told.append(Told(key, KeyWindow(end - size, end, reduce(self.content.merged, parts))))
        return told

    def _untold(self, pairs: list[tuple[Any, Slots]], end: Milliseconds, *, early: bool) -> list[tuple[Any, Slots]]:
        if not self._told_before.any_of(end, early=early):
            return pairs
        rows = rows_of_keys([key for key, _ in pairs], self._key_schema)
        return list(compress(pairs, self._told_before.untold(rows, end, early=early)))

    def _drop(self, slot: int) -> Iterator[bool]:
        keys = self._keys_of.pop(slot)
        while step := keys[-KEYS_A_STEP:]:
            del keys[-KEYS_A_STEP:]
            for row in self._rows_at(step, repeat(slot)):
                self._table.delete(row)
            self.store.tend()
            yield len(step) <= FEW_KEYS


def _a_step(pairs: Iterator[tuple[Any, Slots]]) -> Iterator[tuple[Any, Slots]]:
    rows = 0
    for pair in islice(pairs, KEYS_A_STEP):
        yield pair
        rows += len(pair[1])
        if rows >= ROWS_A_STEP:
            return


def keys_by_slot(table: RowTable, columns: Sequence[str]) -> dict[int, list[Any]]:
    """Of what was restored; ``columns`` are those of the keys. What was gathered is not looked at."""
    found: dict[int, list[Any]] = {}
    with uncollected():
        for keys, slots in _restored(table, columns):
            if slots.count(slots[0]) == len(slots):
                found.setdefault(slots[0], []).extend(keys)
                continue
            for key, slot in zip(keys, slots, strict=True):
                found.setdefault(slot, []).append(key)
    return found


def _restored(table: RowTable, columns: Sequence[str]) -> Iterator[tuple[Iterable[Any], Slots]]:
    """Keys, some at a time, and beside each of them a slot that it is in."""
    if isinstance(table, RestoresKeys):
        for batch in table.restored_keys(RESTORED_ROWS):
            yield bare_keys_of(batch, columns), batch.column(len(columns)).to_numpy().tolist()
        return
    for some in _restored_rows(table):
        *of_keys, slots = zip(*some, strict=True)
        yield of_keys[0] if len(of_keys) == 1 else zip(*of_keys, strict=True), slots


def _restored_rows(table: RowTable) -> Iterator[list[Any]]:
    if isinstance(table, RestoresColumns):
        for keys, _ in table.restored(RESTORED_ROWS):
            yield keys
        return
    rows = (key for key, _ in table.items())
    while some := list(islice(rows, RESTORED_ROWS)):
        yield some
