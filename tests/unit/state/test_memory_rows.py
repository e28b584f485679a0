import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutwater.flow.hashing import hash_arrays, key_groups
from cutwater.state import joined_layers, memory_rows, parted_dict, restored_rows, tracked_rows
from cutwater.state.frozen import FrozenTable
from cutwater.state.memory_rows import MERGE_STEP, MemoryRowTable
from cutwater.state.parted_dict import PartedDict
from cutwater.state.row_layers import RowForm
from cutwater.state.tracked_rows import TrackedRowTable

KEYS = pa.schema([("user", pa.string())])


def table_of(value: pa.DataType, keys: pa.Schema = KEYS) -> MemoryRowTable:
    return MemoryRowTable(RowForm.of("uid", "seen", keys, value, 128))


def content(frozen: FrozenTable) -> dict[Any, Any]:
    rows: Iterator[Any] = (row for batch in frozen.batches() for row in batch.to_pylist())
    return {row["user"]: row["seen"] for row in rows}


keys = st.sampled_from("abcdef")
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), keys, st.integers(0, 99)),
        st.tuples(st.just("put"), keys, st.integers(0, 99)),
        st.tuples(st.just("delete"), keys, st.none()),
        st.tuples(st.sampled_from(["get", "expect"]), keys, st.none()),
        st.tuples(st.sampled_from(["freeze", "release", "tend", "restore"]), st.none(), st.none()),
    ),
    max_size=60,
)
TABLES = [MemoryRowTable, TrackedRowTable]


@pytest.mark.parametrize("kind", TABLES)
@given(steps, st.booleans())
def test_frozen_content_is_that_of_the_cut_whatever_is_written_later(
    kind: type[MemoryRowTable], script: list[tuple[str, Any, Any]], looks: bool
) -> None:
    _live(kind, script, looks=looks)


overlapping = st.lists(
    st.one_of(steps, st.just([("freeze", None, None), ("tend", None, None), ("release", None, None)])), max_size=12
).map(lambda parts: [("freeze", None, None), *(step for part in parts for step in part)])
"""Often there is always a snapshot that is read."""


@pytest.mark.parametrize("kind", TABLES)
@given(st.one_of(steps, overlapping), st.booleans(), st.integers(0, 4), st.integers(1, 3))
def test_frozen_content_is_that_of_the_cut_while_layers_are_parted_and_merged_in_steps(
    kind: type[MemoryRowTable], script: list[tuple[str, Any, Any]], looks: bool, most: int, step: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(restored_rows, "CHUNK_BYTES", 1 + 40 * most)
        patch.setattr(restored_rows, "ROWS_LET_GO", step)
        patch.setattr(restored_rows, "FROZEN_BATCH_ROWS", step)
        patch.setattr(parted_dict, "MOST_IN_ONE", most)
        patch.setattr(joined_layers, "MOST_LAYERS", 1)
        for module in (memory_rows, tracked_rows):
            patch.setattr(module, "MERGE_STEP", step)
            patch.setattr(module, "LONGEST_STEP", 2 * step)
        _live(kind, script, looks=looks)


def _live(kind: type[MemoryRowTable], script: list[tuple[str, Any, Any]], *, looks: bool) -> None:
    """Unless somebody ``looks`` at all of it after each step, most of what is restored stays in columns."""

    def opened() -> MemoryRowTable:
        return kind(RowForm.of("uid", "seen", KEYS, pa.list_(pa.int64()), 128))

    table = opened()
    model: dict[str, list[int]] = {}
    frozen: list[tuple[FrozenTable, dict[str, list[int]]]] = []
    for step, key, number in script:
        match step:
            case "append":
                owned = table.own(key, list)
                if owned is None:
                    table.put(key, [number])
                else:
                    owned.append(number)
                model[key] = [*model.get(key, []), number]
            case "put":
                table.put(key, [number])
                model[key] = [number]
            case "delete":
                table.delete(key)
                model.pop(key, None)
            case "get":
                assert table.get(key) == model.get(key)
            case "expect":
                table.expect([key, "a", key])
            case "freeze":
                frozen.append((table.freeze(), {k: list(v) for k, v in model.items()}))
            case "release" if frozen:
                old, at_cut = frozen.pop(0)
                assert content(old) == at_cut
                old.release()
            case "tend":
                table.tend()
            case "restore":
                cut = table.freeze()
                table = opened()
                table.restore(batch.slice(at, 1) for batch in cut.batches() for at in range(batch.num_rows))
        if looks:
            _check(table, model)
    _check(table, model)
    for old, at_cut in frozen:
        assert content(old) == at_cut


def _check(table: MemoryRowTable, model: dict[str, list[int]]) -> None:
    assert dict(table.items()) == model
    assert {k: table.get(k) for k in "abcdef" if table.get(k) is not None} == model


def test_a_step_is_bounded_however_large_the_layer_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_rows, "MERGE_STEP", 10)
    monkeypatch.setattr(memory_rows, "LONGEST_STEP", 40)
    table = table_of(pa.int64())
    table.put("first", 0)
    frozen = table.freeze()
    for i in range(3000):
        table.put(str(i), i)
    frozen.release()
    sizes = []
    while table._below:
        sizes.append(len(table._top))
        table.tend()
    assert max(before - after for before, after in pairwise(sizes)) == 40
    assert len(dict(table.items())) == 3001


def test_layers_are_merged_into_one_again_in_bounded_steps() -> None:
    table = table_of(pa.int64())
    for i in range(3 * MERGE_STEP):
        table.put(str(i), i)
    frozen = table.freeze()
    for i in range(3 * MERGE_STEP):
        table.put(str(i), -i)
    table.tend()
    assert len(table._below) == 1, "nothing is merged while the snapshot is read"
    assert content(frozen)["5"] == 5
    frozen.release()
    table.tend()
    assert len(table._below) == 1, "one step does not merge everything"
    for _ in range(10):
        table.tend()
    assert table._below == ()
    assert table.get("5") == -5
    assert len(dict(table.items())) == 3 * MERGE_STEP


@pytest.mark.parametrize("kind", TABLES)
def test_no_dict_has_many_of_the_keys_of_a_large_table(
    kind: type[MemoryRowTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that grows moves all that it holds, and the loop stands still for that long."""
    monkeypatch.setattr(parted_dict, "MOST_IN_ONE", 100)
    for module in (memory_rows, tracked_rows):
        monkeypatch.setattr(module, "MERGE_STEP", 50)
        monkeypatch.setattr(module, "LONGEST_STEP", 100)

    def dicts(table: MemoryRowTable) -> Iterator[dict[Any, Any]]:
        for layer in (table._top, *table._below):
            yield from layer.dicts if isinstance(layer, PartedDict) else [layer]

    def put_all(table: MemoryRowTable, value: int) -> None:
        for start in range(0, keys, 10):
            for key in range(start, start + 10):
                table.put(1024 * key, value)
            table.tend()
            assert max(map(len, dicts(table))) <= most

    keys, most = 10_000, 300
    table = kind(RowForm.of("uid", "seen", pa.schema([("user", pa.int64())]), pa.int64(), 128))
    put_all(table, 0)
    frozen = table.freeze()
    put_all(table, 1)
    stored = list(frozen.batches())
    frozen.release()
    table.freeze().release()
    for _ in range(2 * keys // 50):
        table.tend()
        assert max(map(len, dicts(table))) <= most
    assert dict(table.items()) == dict.fromkeys(range(0, 1024 * keys, 1024), 1)
    monkeypatch.setattr(memory_rows, "RESTORED_ROWS", 100)
    restored = kind(RowForm.of("uid", "seen", pa.schema([("user", pa.int64())]), pa.int64(), 128))
    restored.restore(stored)
    assert max(map(len, dicts(restored))) <= most
    assert dict(restored.items()) == dict.fromkeys(range(0, 1024 * keys, 1024), 0)


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("changed", [10, 1000], ids=["the_same_keys", "others_each_time"])
def test_there_are_few_layers_though_there_is_always_a_snapshot_that_is_read(
    kind: type[MemoryRowTable], changed: int
) -> None:
    table = kind(RowForm.of("uid", "seen", KEYS, pa.int64(), 128))
    model = {f"{i}": 0 for i in range(5000)}
    for key in model:
        table.put(key, 0)
    frozen = [(table.freeze(), dict(model))]
    for turn in range(1, 301):
        some = [f"{i * turn % changed}" for i in range(10)]
        for key in some:
            table.put(key, turn)
        model.update(dict.fromkeys(some, turn))
        table.tend()
        frozen.append((table.freeze(), dict(model)))
        if isinstance(table, TrackedRowTable):
            table.forget(table.mark() - 1)
            assert len(table._unneeded) <= 20
        old, then = frozen.pop(0)
        if turn % 50 == 0:
            assert content(old) == then
        old.release()
        assert len(table._below) <= 20
    assert dict(table.items()) == model
    frozen.pop()[0].release()
    for _ in range(3):
        table.tend()
    assert len(table._below) <= 1
    assert dict(table.items()) == model


@pytest.mark.parametrize(
    ("sizes", "joined"),
    [
        ([7] * 8, None),
        ([7] * 9, slice(0, 9)),
        ([1, 100, 100, 100, 100, 100, 100, 100, 100], slice(1, 9)),
        ([10, 15, 60, 1, 1, 1, 1, 1, 1], slice(0, 2)),
        ([4**i for i in range(12)], None),
        ([10, 10, 10, 10, 10, 10, 10, 10, 1000], slice(0, 8)),
    ],
)
def test_neighbours_of_about_one_size_are_joined_and_only_if_there_are_many(
    sizes: list[int], joined: slice | None
) -> None:
    assert joined_layers.run_to_join(sizes) == joined


def test_a_freeze_without_changes_adds_no_layer() -> None:
    table = table_of(pa.int64())
    table.put("a", 1)
    snapshots = [table.freeze() for _ in range(20)]
    assert len(table._below) == 1
    assert all(content(frozen) == {"a": 1} for frozen in snapshots)


def test_rows_that_are_read_in_another_thread_do_not_see_the_loop_writing() -> None:
    table = table_of(pa.int64())
    names = [f"user{i}" for i in range(5_000)]
    results: list[tuple[int, set[int], int]] = []

    def read(frozen: FrozenTable, expected: int) -> None:
        found = content(frozen)
        results.append((expected, set(found.values()), len(found)))
        frozen.release()

    readers: list[threading.Thread] = []
    for round_number in range(20):
        for name in names:
            table.put(name, round_number)
        table.tend()
        if round_number % 2:
            readers.append(threading.Thread(target=read, args=(table.freeze(), round_number)))
            readers[-1].start()
    for reader in readers:
        reader.join(60)
    assert sorted(results) == [(n, {n}, 5_000) for n in range(1, 20, 2)]


def test_a_restored_table_equals_the_stored_one_key_groups_included() -> None:
    schema = pa.schema([("seen", pa.string()), ("n", pa.int32())])
    value = pa.struct([("a", pa.int64()), ("tags", pa.map_(pa.string(), pa.int64()))])
    table = table_of(value, schema)
    table.put(("x", 1), (1, {"t": 1}))
    table.put((None, 2), (None, {}))
    stored = list(table.freeze().batches())
    assert stored[0].schema.names == ["seen", "n", "seen_", "key_group"]
    groups = key_groups(hash_arrays(stored[0].columns[:2], 2), 128)
    assert stored[0].column("key_group").to_pylist() == groups.tolist()
    restored = table_of(value, schema)
    restored.restore(stored)
    assert restored.get(("x", 1)) == (1, {"t": 1})
    assert pa.Table.from_batches(restored.freeze().batches()) == pa.Table.from_batches(stored)


@pytest.fixture
def stored() -> list[pa.RecordBatch]:
    table = table_of(pa.list_(pa.string()))
    for number in range(1000):
        table.put(str(number), [str(number), "x"])
    return list(table.freeze().batches())


@pytest.mark.parametrize("kind", TABLES)
def test_a_restored_value_is_made_when_it_is_asked_for(
    kind: type[MemoryRowTable], stored: list[pa.RecordBatch], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    values_of = restored_rows.values_of
    monkeypatch.setattr(restored_rows, "values_of", lambda column: made.append(len(column)) or values_of(column))
    table = kind(RowForm.of("uid", "seen", KEYS, pa.list_(pa.string()), 128))
    table.restore(stored)
    assert len(content(table.freeze())) == 1000
    assert sum(len(keys) for keys, _ in table.restored(300)) == 1000
    assert made == []
    table.expect(["7", "none", "8", "7"])
    assert made == [2], "those of a batch at once"
    assert [table.get(key) for key in ("7", "8", "none", "9", "9")] == [
        ["7", "x"],
        ["8", "x"],
        None,
        ["9", "x"],
        ["9", "x"],
    ]
    assert made == [2, 1]


@pytest.mark.parametrize("kind", TABLES)
def test_a_snapshot_is_read_while_restored_values_are_asked_for(
    kind: type[MemoryRowTable], stored: list[pa.RecordBatch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restored_rows, "FROZEN_BATCH_ROWS", 50)
    table = kind(RowForm.of("uid", "seen", KEYS, pa.list_(pa.string()), 128))
    table.restore(stored)
    frozen = table.freeze()
    found: dict[Any, Any] = {}
    for number, batch in enumerate(frozen.batches()):
        found |= {row["user"]: row["seen"] for row in batch.to_pylist()}
        table.expect([str(key) for key in range(number, 1000, 7)])
        for key in range(number, 1000, 11):
            table.own(str(key), list).append("later")
    assert found == {str(number): [str(number), "x"] for number in range(1000)}


def test_what_was_restored_goes_when_nobody_can_ask_for_it_any_more(stored: list[pa.RecordBatch]) -> None:
    table = table_of(pa.list_(pa.string()))
    table.restore(stored)
    for number in range(0, 1000, 3):
        table.delete(str(number))
        table.put(str(number + 1), ["new"])
        table.get(str(number + 2))
    assert table._restored is not None
    table.freeze().release()
    for _ in range(3):
        table.tend()
    assert table._restored is None
    assert table._below == ()
    assert len(dict(table.items())) == 1000 - 334 + 1


def test_keys_that_come_and_go_behind_a_restore_leave_nothing(stored: list[pa.RecordBatch]) -> None:
    table = table_of(pa.list_(pa.string()))
    table.restore(stored)
    for number in range(5000):
        table.put(f"new {number}", [])
        table.delete(f"new {number}")
        table.tend()
    assert not table._top
