"""How long very many keys of 100 bytes take to be stored, and to be there again."""

import gc
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import cutwater as cw
from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.layout import JobLayout
from cutwater.checkpoint.stored_tables import RestoredTables
from cutwater.checkpoint.table_writer import TableWriter
from cutwater.flow.ids import Attempt, CheckpointId, SubtaskId
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.operators.kept_windows import keys_by_slot
from cutwater.operators.session_windows import SessionWindows
from cutwater.operators.timers import TimerQueue
from cutwater.operators.window_results import WINDOW_START
from cutwater.rows import row_type
from cutwater.state.backend import KeyedStateStore, StateBackend
from cutwater.state.descriptors import MapState, ValueState, bind_states
from cutwater.state.key_set import KeySet
from cutwater.state.stored import StoredTable
from cutwater.state.tables import Column, Merge, ReadsKeys, Update
from tests.unit.operators.collecting import Collected, Opened, opened

GROUPS = KeyGroupRange(0, 127)
KEYS = pa.schema([("k", pa.int64())])
TEXT = 80
AT_ONCE = 1 << 16
CHANGED = 100
"""Of incremental backends one key in so many is changed before each later checkpoint."""
LATER = 4


class Aggregates:
    """A count and a text of 80 letters."""

    def __init__(self, store: KeyedStateStore) -> None:
        self._store = store
        columns = (Column("n", pa.int64(), nullable=False), Column("m", pa.string()))
        self._table = store.aggregates("t", KEYS, columns)

    def write(self, numbers: Any) -> None:
        for start in range(0, len(numbers), AT_ONCE):
            part = pa.array(numbers[start : start + AT_ONCE])
            texts = pc.utf8_lpad(part.cast(pa.string()), TEXT, "x")
            touched = self._table.locate(pa.record_batch([part], schema=KEYS))
            self._table.update(touched, [Update(0, Merge.COUNT), Update(1, Merge.MAX, texts)])
            self._store.tend()

    def read(self, numbers: Any) -> list[Any]:
        rows = self._table.locate(pa.record_batch([pa.array(numbers)], schema=KEYS)).rows
        return [column.to_pylist() for column in self._table.read(rows)]


class Panes:
    """The same in one window."""

    def __init__(self, store: KeyedStateStore) -> None:
        self._store = store
        columns = ((Column("n", pa.int64(), nullable=False), Merge.ADD), (Column("m", pa.string()), Merge.MAX))
        self._table = store.panes("t", KEYS, WINDOW_START, columns)
        self._rows = pa.schema([*KEYS, *(column.field for column, _ in columns)])

    def write(self, numbers: Any) -> None:
        for start in range(0, len(numbers), AT_ONCE):
            part = pa.array(numbers[start : start + AT_ONCE])
            texts = pc.utf8_lpad(part.cast(pa.string()), TEXT, "x")
            ones = pa.array(np.ones(len(part), np.int64))
            self._table.merge(0, pa.record_batch([part, ones, texts], schema=self._rows))
            self._store.tend()

    def read(self, numbers: Any) -> list[Any]:
        assert isinstance(self._table, ReadsKeys)
        keys = pa.record_batch([pa.array(numbers)], schema=KEYS)
        wanted = KeySet.of(keys)
        found = [row for batch in self._table.read_keys([0], keys) for row in wanted.rows_of(batch).to_pylist()]
        return sorted(found, key=lambda row: row["k"])


class RowStates:
    """A struct of both, as a row function has it."""

    def __init__(self, store: KeyedStateStore) -> None:
        self._store = store
        self._table = store.rows("t", KEYS, pa.struct([("n", pa.int64()), ("m", pa.string())]))

    def write(self, numbers: Any) -> None:
        row = row_type(("n", "m"))
        for start in range(0, len(numbers), AT_ONCE):
            for number in numbers[start : start + AT_ONCE].tolist():
                self._table.put(number, row((number, f"{number:x>{TEXT}}")))
            self._store.tend()

    def read(self, numbers: Any) -> list[Any]:
        return [self._table.get(number) for number in numbers.tolist()]


class _Function:
    t = ValueState("struct<n:long,m:string>")


class _Expiring:
    t = ValueState("struct<n:long,m:string>", ttl="10 days")


class States:
    """The same, as a function of the user has it. When it is opened, what waits for its time is found again."""

    function: type[Any] = _Function

    def __init__(self, store: KeyedStateStore) -> None:
        self._store = store
        self._function = self.function()
        self._states = bind_states(self._function, store, "u", KEYS, lambda: 0)

    def write(self, numbers: Any) -> None:
        for start in range(0, len(numbers), AT_ONCE):
            some = numbers[start : start + AT_ONCE].tolist()
            self._store.expect(some)
            for number in some:
                self._states.key = number
                self._set(number)
                self._written(number)
            self._states.tend()

    def _set(self, number: int) -> None:
        self._function.t.value = (number, f"{number:x>{TEXT}}")

    def _get(self) -> Any:
        return self._function.t.value

    def _written(self, number: int) -> None:
        pass

    def read(self, numbers: Any) -> list[Any]:
        return list(map(self._read, numbers.tolist()))

    def _read(self, number: int) -> Any:
        self._states.key = number
        return self._get()


class ExpiringStates(States):
    """With a ttl."""

    function = _Expiring


class TimedStates(States):
    """With a timer beside each."""

    def __init__(self, store: KeyedStateStore) -> None:
        super().__init__(store)
        self._timers = TimerQueue(store, "event", KEYS)

    def _written(self, number: int) -> None:
        self._timers.set(number, number * 7919 % 1_000_003)


class WindowContents(RowStates):
    """One window of each key. When it is opened, the keys of windows are found again."""

    def __init__(self, store: KeyedStateStore) -> None:
        self._store = store
        value = pa.struct([("n", pa.int64()), ("m", pa.string())])
        self._table = store.rows("t", KEYS, value, WINDOW_START)
        self.keys = keys_by_slot(self._table, KEYS.names)

    def write(self, numbers: Any) -> None:
        row = row_type(("n", "m"))
        for start in range(0, len(numbers), AT_ONCE):
            for number in numbers[start : start + AT_ONCE].tolist():
                self._table.put((number, 0), row((number, f"{number:x>{TEXT}}")))
            self._store.tend()

    def read(self, numbers: Any) -> list[Any]:
        return [self._table.get((number, 0)) for number in numbers.tolist()]


class _ExpiringMap:
    t = MapState("string", "long", ttl="10 days")


class ExpiringMaps(States):
    """A map with a ttl, which has one entry."""

    function = _ExpiringMap

    def _set(self, number: int) -> None:
        self._function.t[f"{number:x>{TEXT}}"] = number

    def _get(self) -> Any:
        return self._function.t.items()


class Sessions:
    """An open session of each key, with a count and a text."""

    def __init__(self, store: KeyedStateStore) -> None:
        stream = cw.Environment(checkpointing=None).read(cw.from_rows([], "k long, ts long, v string"), uid="in")
        keyed = stream.with_timestamps("ts").key_by("k")
        self._rows = stream.schema
        windowed = keyed.window(cw.session("1 day")).agg(n=cw.count(), m=cw.max("v"))
        operator = opened(windowed, Opened(store))
        assert isinstance(operator, SessionWindows)
        self._operator = operator

    def write(self, numbers: Any) -> None:
        for start in range(0, len(numbers), AT_ONCE):
            part = pa.array(numbers[start : start + AT_ONCE])
            texts = pc.utf8_lpad(part.cast(pa.string()), TEXT, "x")
            batch = pa.record_batch([part, pa.array(np.zeros(len(part), np.int64)), texts], schema=self._rows)
            self._operator.process(batch, 0, Collected())

    def read(self, numbers: Any) -> list[Any]:
        return [self._operator._table.get(number) for number in numbers.tolist()]


Kept = Aggregates | Panes | RowStates | States | Sessions


@dataclass(frozen=True)
class Took:
    """Seconds."""

    filled: float
    """Until all keys were written and stored."""
    written: float
    """By the checkpoint alone."""
    restored: float
    """Up to the first record."""
    cut: float
    """The longest synchronous part."""


def took(backend: StateBackend, kind: type[Kept], keys: int, folder: Path) -> Took:
    """Checks that it is the same state, too."""
    storage = FileStorage(str(folder))
    writer = TableWriter(storage, JobLayout("job").files_of(SubtaskId("v", 0), Attempt(1)))
    store = backend.open("u", GROUPS, 128)
    state = kind(store)
    numbers = np.random.default_rng(1).permutation(keys)
    first = time.perf_counter()
    state.write(numbers)
    began = time.perf_counter()
    stored, cut = _checkpoint(1, store, writer, {})
    now = time.perf_counter()
    filled, written = now - first, now - began
    if backend.incremental:
        for id in range(2, 2 + LATER):
            state.write(numbers[::CHANGED])
            stored, later = _checkpoint(id, store, writer, stored)
            cut = max(cut, later)
    sample = numbers[: keys // 2 : keys // 1000]
    wanted = state.read(sample)
    store.close()
    del store, state
    gc.collect()
    began = time.perf_counter()
    store = backend.open("u", GROUPS, 128)
    restored = RestoredTables((), list(stored.values()), GROUPS, storage=storage)
    for name in stored.keys() - store.resume(CheckpointId(1 + LATER), restored):
        store.restore(name, restored.batches(name))
    state = kind(store)
    state.read(sample[:1])
    took = Took(filled, written, time.perf_counter() - began, cut)
    print(
        f"{keys:,} {kind.__name__} on {backend}: written and stored in {took.filled:.2f} s, stored in {took.written:.2f} s, "
        f"restored in {took.restored:.2f} s, cut in {1e3 * took.cut:.2f} ms"
    )
    assert state.read(sample) == wanted
    store.close()
    return took


def _checkpoint(
    id: int, store: KeyedStateStore, writer: TableWriter, base: Mapping[str, StoredTable]
) -> tuple[dict[str, StoredTable], float]:
    """And how long the loop stood still for it."""
    stored: dict[str, StoredTable] = {}
    began = time.perf_counter()
    cut = store.freeze(CheckpointId(id))
    stood_still = time.perf_counter() - began
    for frozen in cut:
        stored[frozen.name], _ = writer.write(CheckpointId(id), "u", frozen, base.get(frozen.name))
        frozen.release()
    store.confirm(CheckpointId(id))
    return stored, stood_still
