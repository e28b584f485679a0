"""Accumulators that are texts, in the table that they belong to."""

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutwater.state import memory_aggregates, text_column, undo_log
from cutwater.state.index_kernels import CHUNK_ROWS
from cutwater.state.memory_aggregates import MemoryAggregateTable
from cutwater.state.spare_blocks import AT_ONCE, Block, SpareBlocks
from cutwater.state.tables import Column, Merge, Update
from cutwater.state.text_column import ARENA_BYTES, DEAD_BYTES

KEYS = pa.schema([("k", pa.int64())])


def table_of(data_type: pa.DataType | None = None) -> MemoryAggregateTable:
    return MemoryAggregateTable("u", "t", KEYS, [Column("text", data_type or pa.string())], 128)


def put(table: MemoryAggregateTable, keys: list[int], texts: list[Any], merge: Merge = Merge.LAST) -> None:
    touched = table.locate(pa.record_batch([pa.array(keys, pa.int64())], schema=KEYS))
    data_type = table.stored_schema.field("text").type
    table.update(touched, [Update(0, merge, pa.array(texts, data_type))])


def content(frozen: Any) -> dict[int, Any]:
    rows = pa.Table.from_batches(frozen.batches(), frozen.schema)
    return dict(zip(rows["k"].to_pylist(), rows["text"].to_pylist(), strict=True))


MEANING: dict[Merge, Callable[[Any, Any], Any]] = {
    Merge.MIN: min,
    Merge.MAX: max,
    Merge.FIRST: lambda old, new: old,
    Merge.LAST: lambda old, new: new,
}

some_texts = st.one_of(
    st.none(),
    st.text(max_size=20),
    st.sampled_from(["", "a", "ab", "prefix-of-eight", "prefix-of-eighty", "\x00", "\U0010ffff", "\uffff", "é"]),
)


@pytest.mark.parametrize("merge", MEANING)
@pytest.mark.parametrize("data_type", [pa.string(), pa.large_string(), pa.binary()], ids=str)
@given(batches=st.lists(st.lists(st.tuples(st.integers(0, 5), some_texts), max_size=12), max_size=6))
def test_each_merge_means_what_it_means_for_python(
    merge: Merge, data_type: pa.DataType, batches: list[list[tuple[int, str | None]]]
) -> None:
    table, expected = table_of(data_type), dict[int, Any]()
    for batch in batches:
        values: list[Any] = [
            text.encode() if text is not None and data_type == pa.binary() else text for _, text in batch
        ]
        put(table, [key for key, _ in batch], values, merge)
        for (key, _), value in zip(batch, values, strict=True):
            old = expected.setdefault(key, None)
            if value is not None:
                expected[key] = value if old is None else MEANING[merge](old, value)
    assert content(table.freeze()) == expected


def test_a_part_of_a_column_joins_as_well() -> None:
    table = table_of()
    touched = table.locate(pa.record_batch([pa.array([1, 2])], schema=KEYS))
    table.update(touched, [Update(0, Merge.LAST, pa.array(["no", "one", None, "no"]).slice(1, 2))])
    assert content(table.freeze()) == {1: "one", 2: None}


def test_a_text_may_be_larger_than_what_is_set_aside_for_many() -> None:
    table, large = table_of(), "x" * (3 * ARENA_BYTES)
    put(table, [1, 2, 3], ["small", large, "other"])
    assert content(table.freeze()) == {1: "small", 2: large, 3: "other"}


def test_what_is_frozen_stays_while_texts_are_replaced_and_moved_together() -> None:
    table, keys = table_of(), list(range(20_000))
    put(table, keys, [f"old {key}" for key in keys])
    (column,) = table._texts.values()
    expected = {key: f"old {key}" for key in keys}
    frozen: list[tuple[Any, dict[int, Any], bool]] = []
    for turn in range(60):
        some = keys[turn % 10 :: 10]
        put(table, some, [f"{turn:>500} {key}" for key in some])
        expected.update({key: f"{turn:>500} {key}" for key in some})
        each = (table.freeze(), dict(expected), column._moving is not None)
        if turn % 15 == 0 or each[2]:
            frozen.append(each)
        else:
            each[0].release()
    assert {moving for _, _, moving in frozen} == {True, False}
    for each in reversed(frozen):
        assert content(each[0]) == each[1]


SPREAD = [0, 1, CHUNK_ROWS, CHUNK_ROWS + 1, 2 * CHUNK_ROWS, 2 * CHUNK_ROWS + 1]
"""Keys in three chunks."""

a_step = st.one_of(
    st.lists(st.tuples(st.sampled_from(SPREAD), st.integers(0, 90)), min_size=1, max_size=8),
    st.sampled_from(["freeze", "freeze", "read"]),
    st.tuples(st.just("release"), st.integers(0, 3)),
)


@settings(max_examples=60)
@given(steps=st.lists(a_step, min_size=10, max_size=60))
def test_snapshots_that_are_read_late_find_what_was_there_while_texts_are_moved_and_room_is_used_again(
    steps: list[Any],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_column, "ARENA_BYTES", 128)
        patch.setattr(text_column, "DEAD_BYTES", 256)
        patch.setattr(text_column, "MOVED_PER_WRITTEN", 0)
        patch.setattr(memory_aggregates, "COPIED_CHUNKS", 1)
        patch.setattr(undo_log, "BLOCK_BYTES", 128)
        patch.setattr(SpareBlocks, "add", _add_spoiled)
        table = table_of()
        keys = list(range(3 * CHUNK_ROWS))
        put(table, keys, [None] * len(keys))
        expected: dict[int, Any] = dict.fromkeys(SPREAD)
        frozen: list[tuple[Any, dict[int, Any]]] = []
        for turn, step in enumerate(steps):
            match step:
                case "freeze":
                    frozen.append((table.freeze(), dict(expected)))
                case "read":
                    for each, then in frozen:
                        assert of_spread(each) == then
                case ("release", which):
                    for each, then in frozen[which : which + 1]:
                        assert of_spread(each) == then
                        each.release()
                    del frozen[which : which + 1]
                case [*texts]:
                    for key, size in texts:
                        expected[key] = f"{turn}".ljust(size, ".")
                    put(table, [key for key, _ in texts], [f"{turn}".ljust(size, ".") for _, size in texts])
        for each, then in frozen:
            assert of_spread(each) == then
        assert of_spread(table.freeze()) == expected


def of_spread(frozen: Any) -> dict[int, Any]:
    rows = pa.Table.from_batches(frozen.batches(), frozen.schema)
    return dict(zip(SPREAD, rows["text"].take(SPREAD).to_pylist(), strict=True))


def _add_spoiled(spare: SpareBlocks, blocks: Iterable[Block]) -> None:
    """Whoever still looks there finds nothing of what was."""
    for block in blocks:
        block[:] = 255
        spare._blocks.append(block)


@pytest.mark.parametrize("frozen_each", [None, 10], ids=["one_snapshot", "overlapping_snapshots"])
def test_what_was_replaced_does_not_fill_the_memory_while_snapshots_are_read(frozen_each: int | None) -> None:
    table, keys = table_of(), list(range(1_000))
    (column,) = table._texts.values()
    live = 1_000 * 1_000
    put(table, keys, [f"{0:>1000}"] * 1_000)
    frozen = table.freeze()
    for turn in range(1, 100):
        put(table, keys, [f"{turn:>1000}"] * 1_000)
        if frozen_each and turn % frozen_each == 0:
            before, frozen = frozen, table.freeze()
            before.release()
        assert column.held_bytes <= (3 if frozen_each else 1) * (DEAD_BYTES + 5 * live + 2 * ARENA_BYTES)
    assert content(frozen) == dict.fromkeys(keys, f"{90 if frozen_each else 0:>1000}")


def test_what_was_replaced_by_little_goes_when_the_snapshot_that_sees_it_is_released() -> None:
    table, keys = table_of(), list(range(20_000))
    (column,) = table._texts.values()
    put(table, keys, ["x" * 1_000] * len(keys))
    frozen = table.freeze()
    for turn in range(3):
        put(table, keys, [str(turn)] * len(keys))
    assert content(frozen) == dict.fromkeys(keys, "x" * 1_000)
    frozen.release()
    for turn in range(10):
        put(table, [0], [str(turn)])
    assert column.held_bytes <= DEAD_BYTES


def test_what_was_replaced_does_not_fill_the_memory() -> None:
    table, keys = table_of(), list(range(5_000))
    (column,) = table._texts.values()
    live = 5_000 * 210
    for turn in range(100):
        put(table, keys, [f"{turn:>200} {key:>9}" for key in keys])
        assert column.held_bytes <= DEAD_BYTES + 5 * live + ARENA_BYTES
    assert content(table.freeze()) == {key: f"{99:>200} {key:>9}" for key in keys}


def test_room_of_replaced_texts_is_used_again_or_given_back_a_few_arenas_at_a_time() -> None:
    table, keys = table_of(), list(range(20_000))
    (column,) = table._texts.values()
    for turn in range(10):
        put(table, keys, [f"{turn:>2000}"] * len(keys))
    assert column.held_bytes < 4 * column.live_bytes, "new memory was asked for in each turn"
    given_back = list[int]()
    for turn in range(10):
        before = column.held_bytes
        put(table, [0], [str(turn)])
        given_back.append(before - column.held_bytes)
    assert sum(given_back) > AT_ONCE * ARENA_BYTES
    assert max(given_back) <= AT_ONCE * ARENA_BYTES


def test_the_same_text_again_takes_no_room() -> None:
    table = table_of()
    (column,) = table._texts.values()
    for _ in range(30):
        put(table, [1], ["x" * (ARENA_BYTES // 2)])
    assert column.held_bytes == ARENA_BYTES


def test_rows_with_large_texts_are_frozen_in_smaller_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_aggregates, "FROZEN_BATCH_BYTES", 1 << 20)
    table, keys = table_of(), list(range(3 * CHUNK_ROWS))
    put(table, keys, ["x" * 200] * len(keys))
    frozen = table.freeze()
    assert [batch.num_rows for batch in frozen.batches()] == [CHUNK_ROWS] * 3
    assert content(frozen) == dict.fromkeys(keys, "x" * 200)
    frozen.release()
