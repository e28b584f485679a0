"""What backends promise of snapshots: they stay as they were at the cut, and go on wherever they are restored."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from cutwater.errors import ConfigError, RestoreError
from cutwater.flow.key_groups import key_group_range
from cutwater.state.backend import StateBackend
from cutwater.state.frozen import KEY_GROUP_COLUMN, FrozenTable
from cutwater.testing.contract_batches import batches_of, read
from cutwater.testing.contract_tables import KINDS, MAX_PARALLELISM, Kind, expect, opened


def frozen_tables_are_read_while_the_loop_writes(backend: StateBackend) -> None:
    for kind in KINDS:
        with opened(backend) as store:
            table, model = kind.open(store), kind.of_memory()
            frozen: list[tuple[list[FrozenTable], Any]] = []
            for step in range(4):
                for each in (table, model):
                    kind.write(each, step)
                frozen.append((store.freeze(), kind.content(model)))
                store.tend()
            readers = [_Reader(tables) for tables, _ in reversed(frozen)]
            for step in range(4, 24):
                kind.write(table, step)
                store.tend()
            for reader, (_, wanted) in zip(readers, reversed(frozen), strict=True):
                expect(_restored(kind, backend, reader.batches()), wanted, f"{kind.name} as it was at the cut")


class _Reader:
    """Reads frozen tables on a thread of its own, as the snapshot thread does."""

    def __init__(self, tables: Sequence[FrozenTable]) -> None:
        self._found: dict[str, list[pa.RecordBatch]] = {}
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(tables,))
        self._thread.start()

    def _run(self, tables: Sequence[FrozenTable]) -> None:
        try:
            self._found = {table.name: read(table) for table in tables}
        except Exception as error:
            self._error = error

    def batches(self) -> dict[str, list[pa.RecordBatch]]:
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._found


def _restored(kind: Kind, backend: StateBackend, batches: dict[str, list[pa.RecordBatch]]) -> Any:
    with opened(backend) as store:
        table = kind.open(store)
        for name, held in batches.items():
            store.restore(name, held)
        return kind.content(table)


def a_snapshot_that_is_not_read_is_released(backend: StateBackend) -> None:
    for kind in KINDS:
        with opened(backend) as store:
            table, model = kind.open(store), kind.of_memory()
            for step in range(4):
                for each in (table, model):
                    kind.write(each, step)
                for frozen in store.freeze():
                    frozen.release()
                store.tend()
            expect(kind.content(table), kind.content(model), f"{kind.name} after releases")
            left = store.freeze()
        for frozen in left:
            frozen.release()


def a_restored_snapshot_goes_on_at_any_parallelism(backend: StateBackend) -> None:
    for kind in KINDS:
        with opened(backend) as store:
            table, model = kind.open(store), kind.of_memory()
            for step in range(3):
                for each in (table, model):
                    kind.write(each, step)
            parts = [batches_of(store)]
        for parallelism, declared_first in ((3, True), (2, False), (1, True)):
            parts = _rescaled(backend, kind, parts, parallelism, declared_first=declared_first)
        kind.write(model, 3)
        with opened(backend) as store:
            table = kind.open(store)
            for name, batches in parts[0].items():
                store.restore(name, batches)
            kind.write(table, 3)
            expect(kind.content(table), kind.content(model), f"{kind.name} after three rescalings")


def _rescaled(
    backend: StateBackend,
    kind: Kind,
    parts: list[dict[str, list[pa.RecordBatch]]],
    parallelism: int,
    *,
    declared_first: bool,
) -> list[dict[str, list[pa.RecordBatch]]]:
    rescaled = []
    for subtask in range(parallelism):
        groups = key_group_range(subtask, parallelism, MAX_PARALLELISM)
        with opened(backend, groups) as store:
            if declared_first:
                kind.open(store)
            for part in parts:
                for name, batches in part.items():
                    store.restore(name, batches)
            if not declared_first:
                kind.open(store)
            held = batches_of(store)
        for batches in held.values():
            for batch in batches:
                strangers = [g for g in batch.column(KEY_GROUP_COLUMN).to_numpy().tolist() if g not in groups]
                expect(strangers, [], f"{kind.name}: key groups of others in {groups}")
        rescaled.append(held)
    return rescaled


def a_snapshot_without_new_input_equals_the_restored_one(backend: StateBackend) -> None:
    for kind in KINDS:
        with opened(backend) as store:
            kind.write(kind.open(store), 0)
            first = batches_of(store)
        with opened(backend) as store:
            kind.open(store)
            for name, batches in first.items():
                store.restore(name, batches)
            expect(_sorted_rows(batches_of(store)), _sorted_rows(first), f"{kind.name}: the second snapshot")


def _sorted_rows(tables: dict[str, list[pa.RecordBatch]]) -> dict[str, list[str]]:
    return {name: sorted(repr(row) for batch in of for row in batch.to_pylist()) for name, of in tables.items()}


def what_does_not_fit_is_refused(backend: StateBackend) -> None:
    keys = pa.schema([("k", pa.int64())])
    with opened(backend) as store:
        store.rows("n", keys, pa.int64()).put(1, 1)
        batches = batches_of(store)["n"]
        _expect_error(ConfigError, lambda: store.rows("n", keys, pa.int64()), "a name that is declared twice")
    for others, value in ((keys, pa.string()), (pa.schema([("other", pa.int64())]), pa.int64())):
        with opened(backend) as store:
            store.rows("n", others, value)
            _expect_error(RestoreError, partial(store.restore, "n", batches), f"{others} with {value}")
    with opened(backend) as store:
        store.restore("n", batches)
        _expect_error(RestoreError, store.freeze, "restored state that was never declared")


def _expect_error(kind: type[Exception], act: Callable[[], object], what: str) -> None:
    try:
        act()
    except kind:
        return
    raise AssertionError(f"{what} is not refused with {kind.__name__}")
