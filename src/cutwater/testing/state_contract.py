"""What every state backend promises, as checks that can be run on one: ours, and those that users write.

Each check opens stores of its own, uses them as operators do, and raises AssertionError with what was broken.
"""

import pickle
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from cutwater.errors import ConfigError, RestoreError
from cutwater.flow.hashing import hash_columns, key_groups
from cutwater.flow.key_groups import key_group_range
from cutwater.state.backend import KeyedStateStore, StateBackend
from cutwater.state.frozen import KEY_GROUP_COLUMN, FrozenTable
from cutwater.state.tables import Column, JoinSide, Merge, Update
from cutwater.testing.bucket_contract import buckets_are_read_as_they_were_whatever_comes_and_is_frozen_meanwhile
from cutwater.testing.contract_tables import (
    KINDS,
    MAX_PARALLELISM,
    Kind,
    expect,
    keys_of_every_type,
    opened,
    values_of_every_type,
)
from cutwater.testing.increment_contract import (
    a_checkpoint_with_no_new_input_stores_nothing,
    increments_add_up_whatever_completes_and_whenever_that_is_heard,
    increments_are_read_at_any_parallelism,
)

Check = Callable[[StateBackend], None]


def check_state_backend(backend: StateBackend) -> None:
    """Run every check on ``backend``; AssertionError with the first that fails."""
    for check in STATE_CHECKS:
        try:
            check(backend)
        except Exception as error:
            raise AssertionError(f"{check.__name__.replace('_', ' ')}: {error}") from error


def _batches_of(store: KeyedStateStore) -> dict[str, list[pa.RecordBatch]]:
    """What a snapshot of the store holds, by the name of the table."""
    return {frozen.name: _read(frozen) for frozen in store.freeze()}


def _read(frozen: FrozenTable) -> list[pa.RecordBatch]:
    try:
        batches = list(frozen.batches())
    finally:
        frozen.release()
    for batch in batches:
        expect(batch.schema.names, frozen.schema.names, f"columns of {frozen.name}")
    return batches


def the_setting_can_be_sent_to_workers(backend: StateBackend) -> None:
    if not isinstance(backend, StateBackend):
        raise AssertionError(f"{backend!r} has not all that cw.StateBackend asks for")
    expect(pickle.loads(pickle.dumps(backend)), backend, "the setting after pickling")  # noqa: S301 (our own bytes)
    for name in ("incremental", "asynchronous"):
        expect(type(getattr(backend, name)), bool, f"the type of {name}")


def stores_share_nothing(backend: StateBackend) -> None:
    for kind in KINDS:
        with opened(backend) as one, opened(backend) as other:
            written, untouched = kind.open(one), kind.open(other)
            kind.write(written, 0)
            expect(kind.content(untouched), kind.content(kind.of_memory()), f"{kind.name}: another store's content")


def tables_hold_what_was_written(backend: StateBackend) -> None:
    for kind in KINDS:
        with opened(backend) as store:
            table, model = kind.open(store), kind.of_memory()
            for step in range(5):
                for each in (table, model):
                    kind.write(each, step)
                store.tend()
                expect(kind.content(table), kind.content(model), f"{kind.name} after {step + 1} writes")


def aggregates_know_keys_of_every_type(backend: StateBackend) -> None:
    for keys in keys_of_every_type():
        with opened(backend) as store:
            table = store.aggregates("n", keys.schema, [Column("n", pa.int64(), nullable=False)])
            for _ in range(3):
                table.update(table.locate(keys), [Update(0, Merge.COUNT)])
            touched = table.locate(keys)
            [counts] = table.read(touched.rows)
            expect(counts.to_pylist(), [3 * n for n in _occurrences(keys)], f"counts by {keys.schema}")
            expect(len(table), len(touched.unique), f"number of keys by {keys.schema}")
            for batch in _batches_of(store)["n"]:
                _check_groups(batch, keys.schema.names)


def _occurrences(keys: pa.RecordBatch) -> list[int]:
    """How often each row's key is among the rows; by hash, as -0.0 and 0.0, and all NaNs, are one key."""
    hashes = hash_columns(keys, keys.schema.names).tolist()
    return [hashes.count(one) for one in hashes]


def _check_groups(batch: pa.RecordBatch, keys: Sequence[str]) -> None:
    wanted = key_groups(hash_columns(batch, keys), MAX_PARALLELISM).tolist()
    expect(batch.column(KEY_GROUP_COLUMN).to_pylist(), wanted, "key groups")


def rows_know_keys_of_every_type(backend: StateBackend) -> None:
    from cutwater.operators.keyed_state import keys_of

    for keys in keys_of_every_type():
        names = keys.schema.names
        with opened(backend) as store:
            table = store.rows("seen", keys.schema, pa.int64())
            model: dict[Any, int] = {}
            for step in range(3):
                for number, key in enumerate(keys_of(keys, names)):
                    table.put(key, model.setdefault(key, number) + step)
                    expect(table.get(key), model[key] + step, f"value under {key!r}")
                store.tend()
            expect(dict(table.items()), {k: v + 2 for k, v in model.items()}, f"items by {keys.schema}")
            batches = _batches_of(store)["seen"]
            for batch in batches:
                _check_groups(batch, names)
        with opened(backend) as store:
            store.restore("seen", batches)
            table = store.rows("seen", keys.schema, pa.int64())
            for key, value in model.items():
                expect(table.get(key), value + 2, f"restored value under {key!r}")


def rows_by_slot_are_in_the_key_groups_of_their_keys(backend: StateBackend) -> None:
    from cutwater.operators.keyed_state import bare_keys_of

    for keys in keys_of_every_type():
        names = keys.schema.names
        of_key = [key if len(names) > 1 else (key,) for key in bare_keys_of(keys, names)]
        model = {(*key, slot): [number, slot] for number, key in enumerate(of_key) for slot in (-1, 1 << 40)}
        with opened(backend) as store:
            table = store.rows("seen", keys.schema, pa.list_(pa.int64()), "slot")
            for key, value in model.items():
                table.put(key, value)
            store.tend()
            expect(dict(table.items()), model, f"items by {keys.schema} and slot")
            batches = _batches_of(store)["seen"]
            for batch in batches:
                expect(batch.schema.names[:-2], [*names, "slot"], "columns of keys and slots")
                _check_groups(batch, names)
        with opened(backend) as store:
            store.restore("seen", batches)
            table = store.rows("seen", keys.schema, pa.list_(pa.int64()), "slot")
            for key, value in model.items():
                expect(table.get(key), value, f"restored value under {key!r}")


def rows_hold_values_of_every_type(backend: StateBackend) -> None:
    keys = pa.schema([("k", pa.int64())])
    for data_type, values in values_of_every_type():
        with opened(backend) as store:
            table = store.rows("value", keys, data_type)
            for key, value in enumerate(values):
                table.put(key, value)
                store.tend()
            expect([table.get(key) for key in range(len(values))], list(values), f"values of {data_type}")
            batches = _batches_of(store)["value"]
        with opened(backend) as store:
            store.restore("value", batches)
            table = store.rows("value", keys, data_type)
            expect([table.get(key) for key in range(len(values))], list(values), f"restored values of {data_type}")


def owned_values_change_in_place_and_frozen_ones_do_not(backend: StateBackend) -> None:
    with opened(backend) as store:
        table = store.rows("list", pa.schema([("k", pa.string())]), pa.list_(pa.int64()))
        expect(table.own("a", list), None, "what is owned of nothing")
        table.put("a", [1])
        table.put("gone", [0])
        for number in range(2, 6):
            [frozen] = store.freeze()
            before = list(range(1, number))
            owned = table.own("a", list)
            owned.append(number)
            table.delete("gone")
            for _ in range(3):
                store.tend()
            expect(table.get("a"), [*before, number], "an owned value")
            expect(table.get("gone"), None, "a deleted value")
            held = {row["k"]: row["list"] for batch in _read(frozen) for row in batch.to_pylist()}
            expect(held.pop("gone", None), [0] if number == 2 else None, "what was deleted after the cut")
            expect(held, {"a": before}, "an owned value at the cut")


def what_is_expected_is_what_is_there(backend: StateBackend) -> None:
    """Whether values are read ahead or not, what is put and deleted after that counts."""
    keys = pa.schema([("k", pa.int64())])
    with opened(backend) as store:
        table, other = store.rows("one", keys, pa.int64()), store.rows("other", keys, pa.int64())
        model: dict[int, int] = {}
        for step in range(40):
            batch = [(7 * step + i * i) % 60 for i in range(25)]
            store.expect(batch)
            for key in batch:
                expect(table.get(key), model.get(key), f"value under {key} in step {step}")
                if (key + step) % 5 == 0:
                    table.delete(key)
                    model.pop(key, None)
                else:
                    table.put(key, step)
                    other.put(key, step)
                    model[key] = step
            store.tend()
        expect(dict(table.items()), model, "items in the end")


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
            self._found = {table.name: _read(table) for table in tables}
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
            parts = [_batches_of(store)]
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
            held = _batches_of(store)
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
            first = _batches_of(store)
        with opened(backend) as store:
            kind.open(store)
            for name, batches in first.items():
                store.restore(name, batches)
            expect(_sorted_rows(_batches_of(store)), _sorted_rows(first), f"{kind.name}: the second snapshot")


def _sorted_rows(tables: dict[str, list[pa.RecordBatch]]) -> dict[str, list[str]]:
    return {name: sorted(repr(row) for batch in of for row in batch.to_pylist()) for name, of in tables.items()}


def what_does_not_fit_is_refused(backend: StateBackend) -> None:
    keys = pa.schema([("k", pa.int64())])
    with opened(backend) as store:
        store.rows("n", keys, pa.int64()).put(1, 1)
        batches = _batches_of(store)["n"]
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


def joins_find_rows_in_the_order_of_arrival(backend: StateBackend) -> None:
    left = JoinSide(pa.schema([("k", pa.int64()), ("a", pa.int64())]), ("k",))
    right = JoinSide(pa.schema([("b", pa.int64()), ("key", pa.int64())]), ("key",))
    with opened(backend) as store:
        table = store.join("pairs", left, right, "bucket")
        for number in range(4):
            table.add(
                0, 7, pa.RecordBatch.from_pylist([{"k": k, "a": 10 * number + k} for k in (1, 2, 1)], left.schema)
            )
        asked = pa.RecordBatch.from_pylist([{"b": 0, "key": k} for k in (2, 3, 1)], right.schema)
        which, rows = table.matches(1, 7, asked)
        expect(which.tolist(), [0] * 4 + [2] * 8, "which rows have pairs")
        expect(rows.column("a").to_pylist(), [2, 12, 22, 32, 1, 1, 11, 11, 21, 21, 31, 31], "their pairs")
        expect(len(table.matches(1, 8, asked)[0]), 0, "pairs in another bucket")


STATE_CHECKS: tuple[Check, ...] = (
    the_setting_can_be_sent_to_workers,
    stores_share_nothing,
    tables_hold_what_was_written,
    aggregates_know_keys_of_every_type,
    rows_know_keys_of_every_type,
    rows_by_slot_are_in_the_key_groups_of_their_keys,
    rows_hold_values_of_every_type,
    owned_values_change_in_place_and_frozen_ones_do_not,
    what_is_expected_is_what_is_there,
    frozen_tables_are_read_while_the_loop_writes,
    a_snapshot_that_is_not_read_is_released,
    a_restored_snapshot_goes_on_at_any_parallelism,
    a_snapshot_without_new_input_equals_the_restored_one,
    what_does_not_fit_is_refused,
    joins_find_rows_in_the_order_of_arrival,
    buckets_are_read_as_they_were_whatever_comes_and_is_frozen_meanwhile,
    increments_add_up_whatever_completes_and_whenever_that_is_heard,
    increments_are_read_at_any_parallelism,
    a_checkpoint_with_no_new_input_stores_nothing,
)
