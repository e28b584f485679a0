import datetime as dt
import queue
import threading
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutwater.errors import ConfigError, DataError
from cutwater.flow.hashing import hash_arrays, key_groups, unhash_words
from cutwater.state import index_kernels as ix
from cutwater.state import memory_aggregates
from cutwater.state.frozen import FrozenTable
from cutwater.state.index_kernels import CHUNK_ROWS
from cutwater.state.memory_aggregates import COPIED_CHUNKS, MemoryAggregateTable
from cutwater.state.tables import Column, Merge, Touched, Update
from cutwater.state.undo_log import BLOCK_BYTES

COLUMNS = [Column("n", pa.int64(), nullable=False), Column("total", pa.int64()), Column("text", pa.string())]
INT_KEY = pa.schema([("k", pa.int64())])
PAIR_KEY = pa.schema([("s", pa.string()), ("i", pa.int32())])

Model = dict[tuple[Any, ...], tuple[int, int | None, str | None]]


def table_of(keys: pa.Schema, columns: list[Column] = COLUMNS) -> MemoryAggregateTable:
    return MemoryAggregateTable("uid", "state", keys, columns, 128)


def apply(table: MemoryAggregateTable, keys: pa.Schema, records: list[tuple[tuple[Any, ...], int | None]]) -> Any:
    columns = list(zip(*[key for key, _ in records], strict=True)) or [()] * len(keys)
    batch = pa.RecordBatch.from_arrays(
        [pa.array(list(c), f.type) for c, f in zip(columns, keys, strict=True)], schema=keys
    )
    values = pa.array([v for _, v in records], pa.int64())
    touched = table.locate(batch)
    texts = values.cast(pa.string())
    table.update(touched, [Update(0, Merge.COUNT), Update(1, Merge.ADD, values), Update(2, Merge.MAX, texts)])
    return touched


def apply_to_model(model: Model, records: list[tuple[tuple[Any, ...], int | None]]) -> None:
    for key, value in records:
        n, total, text = model.get(key, (0, None, None))
        if value is None:
            model[key] = (n + 1, total, text)
        else:
            texts = [str(value)] if text is None else [text, str(value)]
            model[key] = (n + 1, (total or 0) + value, max(texts))


def content(batches: Iterable[pa.RecordBatch], keys: int) -> Model:
    found: Model = {}
    for batch in batches:
        for row in zip(*[column.to_pylist() for column in batch.columns[:-1]], strict=True):
            assert row[:keys] not in found
            found[row[:keys]] = row[keys:]
    return found


int_keys = st.tuples(st.one_of(st.none(), st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1)))
pair_keys = st.tuples(st.one_of(st.none(), st.text("ab", max_size=12)), st.one_of(st.none(), st.integers(0, 2)))


def steps(keys: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    batch = st.lists(st.tuples(keys, st.one_of(st.none(), st.integers(-1000, 1000))), max_size=30)
    return st.lists(st.one_of(batch, st.sampled_from(["freeze", "release"])), max_size=15)


@pytest.mark.parametrize(("schema", "keys"), [(INT_KEY, int_keys), (PAIR_KEY, pair_keys)], ids=["exact", "encoded"])
@given(data=st.data())
def test_frozen_content_is_that_of_the_cut_whatever_is_written_later(schema: pa.Schema, keys: Any, data: Any) -> None:
    table, model = table_of(schema), {}
    frozen: list[tuple[FrozenTable, Model]] = []
    for step in data.draw(steps(keys)):
        if step == "freeze":
            frozen.append((table.freeze(), dict(model)))
        elif step == "release" and frozen:
            old, at_cut = frozen.pop(0)
            assert content(old.batches(), len(schema)) == at_cut
            old.release()
        elif step != "release":
            apply(table, schema, step)
            apply_to_model(model, step)
    for old, at_cut in reversed(frozen):
        assert content(old.batches(), len(schema)) == at_cut
    assert content(table.freeze().batches(), len(schema)) == model


@given(st.lists(int_keys, max_size=50))
def test_touched_keys_come_in_the_order_of_their_first_record(keys: list[tuple[int | None]]) -> None:
    touched = apply(table_of(INT_KEY), INT_KEY, [(key, 1) for key in keys])
    order = list(dict.fromkeys(keys))
    assert [keys[i] for i in touched.first] == order
    assert touched.unique.tolist() == list(range(len(order)))
    assert [order[row] for row in touched.rows] == keys


@pytest.mark.parametrize("as_text", [False, True])
def test_the_index_grows_and_finds_every_key_again(as_text: bool) -> None:
    schema = pa.schema([("k", pa.string() if as_text else pa.int64())])
    table = table_of(schema, COLUMNS[:1])
    keys = np.random.default_rng(7).permutation(150_000)
    batch = pa.record_batch([pa.array(keys).cast(schema.field(0).type)], schema=schema)
    first = table.locate(batch)
    again = table.locate(batch.take(pa.array(np.arange(150_000)[::-1])))
    assert len(table) == 150_000
    assert first.rows.tolist() == list(range(150_000))
    assert again.rows.tolist() == list(range(150_000))[::-1]
    frozen = pa.Table.from_batches(table.freeze().batches())
    assert frozen.column("k").to_pylist() == batch.column(0).to_pylist()
    assert frozen.column("key_group").to_pylist() == key_groups(hash_arrays(batch.columns, 150_000), 128).tolist()


def test_the_integer_whose_hash_is_that_of_null_is_another_key_than_null() -> None:
    twin = int(unhash_words(hash_arrays([pa.nulls(1)], 1))[0])
    table = table_of(INT_KEY)
    apply(table, INT_KEY, [((None,), 1), ((twin,), 2), ((None,), 4)])
    assert content(table.freeze().batches(), 1) == {(None,): (2, 5, "4"), (twin,): (1, 2, "2")}


def test_keys_of_equal_hash_are_told_apart_by_their_bytes() -> None:
    """64-bit collisions cannot be waited for: the kernel gets the same hash for different keys."""
    n = 40
    encoded = np.frombuffer(b"".join(b"key%05d" % i for i in range(n)), np.uint8)
    offsets = np.arange(n + 1, dtype=np.int64) * 8
    state = np.zeros(ix.FIELDS, np.int64)
    state[[ix.NULL_ROW, ix.STAMP, ix.CAPACITY]] = -1, 1, CHUNK_ROWS
    arena, hashes, located = (
        np.zeros(4096, np.uint8),
        np.zeros(CHUNK_ROWS, np.uint64),
        np.zeros(2 * CHUNK_ROWS, np.int64),
    )
    state[[ix.ARENA_AT, ix.ARENA_END]] = arena.ctypes.data, arena.ctypes.data + 4096
    part = np.zeros(2 * 64, np.uint64)
    at = np.full(ix.PARTS, part.ctypes.data, np.int64)
    mask, used, limit = np.full(ix.PARTS, 63), np.zeros(ix.PARTS, np.int64), np.full(ix.PARTS, 60)
    rows, first, unique = np.empty(2 * n, np.int32), np.empty(2 * n, np.int64), np.empty(2 * n, np.int32)
    twice = np.concatenate([offsets, offsets[1:] + offsets[-1]])
    both = np.concatenate([encoded, encoded])
    code = ix.locate(
        np.full(2 * n, 12345, np.uint64), np.empty(0, np.uint8), both.ctypes.data, twice, state, at, mask, used, limit,
        np.array([hashes.ctypes.data]), np.array([located.ctypes.data]), rows, first, unique,
    )  # fmt: skip
    assert code == ix.DONE
    assert rows.tolist() == [*range(n), *range(n)]


def test_batches_that_are_read_in_another_thread_do_not_see_the_loop_writing() -> None:
    table = table_of(INT_KEY, COLUMNS[:2])
    keys = np.arange(40_000)
    batch = pa.record_batch([pa.array(keys)], schema=INT_KEY)
    ones = pa.array(np.ones(len(keys), np.int64))
    problems: list[str] = []

    def read(frozen: FrozenTable, expected: int) -> None:
        for part in frozen.batches():
            seen = {value for name in ("n", "total") for value in part.column(name).unique().to_pylist()}
            if seen != {expected}:
                problems.append(f"at cut {expected}: {seen}")
        frozen.release()

    readers: list[threading.Thread] = []
    for round_number in range(1, 31):
        touched = table.locate(batch)
        table.update(touched, [Update(0, Merge.COUNT), Update(1, Merge.ADD, ones)])
        if round_number % 3 == 0:
            readers.append(threading.Thread(target=read, args=(table.freeze(), round_number)))
            readers[-1].start()
    for reader in readers:
        reader.join(60)
    assert not problems
    assert len(readers) == 10


def test_a_cut_costs_a_bounded_number_of_copies_a_batch_and_then_what_changes() -> None:
    table = table_of(INT_KEY, COLUMNS[:2])
    chunks = 3 * COPIED_CHUNKS
    few = pa.record_batch([pa.array(np.arange(0, chunks * CHUNK_ROWS, CHUNK_ROWS))], schema=INT_KEY)
    all_keys = pa.record_batch([pa.array(np.arange(chunks * CHUNK_ROWS))], schema=INT_KEY)
    table.update(table.locate(all_keys), [Update(0, Merge.COUNT)])
    before = list(table._words.arrays)
    copied = []
    frozen, other = table.freeze(), table.freeze()
    for _ in range(4):
        table.update(table.locate(few), [Update(0, Merge.COUNT)])
        copied.append(sum(a is not b for a, b in zip(before, table._words.arrays, strict=True)))
    assert copied == [COPIED_CHUNKS, 2 * COPIED_CHUNKS, chunks, chunks]
    assert table._undo.bytes == BLOCK_BYTES
    frozen.release()
    table.update(table.locate(few), [Update(0, Merge.COUNT)])
    assert table._undo.bytes == BLOCK_BYTES
    other.release()
    table.update(table.locate(all_keys), [Update(0, Merge.COUNT)])
    assert table._undo.bytes == 0


@pytest.mark.parametrize("copied", [0, 1, 5, COPIED_CHUNKS])
def test_snapshots_read_beside_a_loop_that_never_stops_writing_are_those_of_their_cuts(
    copied: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every key has the same count and a text of it at each cut, and other ones at each moment between."""
    monkeypatch.setattr(memory_aggregates, "COPIED_CHUNKS", copied)
    keys = pa.record_batch([pa.array(np.arange(12 * CHUNK_ROWS))], schema=INT_KEY)
    table = table_of(INT_KEY, [Column("n", pa.int64()), Column("text", pa.string())])
    touched = table.locate(keys)
    problems: list[str] = []
    waiting: queue.SimpleQueue[tuple[int, FrozenTable] | None] = queue.SimpleQueue()

    def read() -> None:
        while (found := waiting.get()) is not None:
            turn, frozen = found
            for batch in frozen.batches():
                numbers, texts = set(batch.column("n").to_pylist()), set(batch.column("text").to_pylist())
                if numbers != {turn} or texts != {f"turn {turn:0300}"}:
                    problems.append(f"{numbers}, {texts} in the snapshot of turn {turn}")
            frozen.release()

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    parts = [
        Touched(*(numbers[at::7].copy() for numbers in (touched.rows, touched.first, touched.unique)))
        for at in range(7)
    ]
    for turn in range(1, 25):
        for part in parts:
            texts = pa.array([f"turn {turn:0300}"] * len(part.rows))
            table.update(part, [Update(0, Merge.COUNT), Update(1, Merge.LAST, texts)])
        waiting.put((turn, table.freeze()))
    for _ in readers:
        waiting.put(None)
    for reader in readers:
        reader.join()
    assert problems == []


KEY_VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [-128, 127, None]),
    (pa.uint64(), [0, 2**64 - 1, None]),
    (pa.bool_(), [True, False, None]),
    (pa.float32(), [1.5, 0.0, None]),
    (pa.float64(), [1.5, float("inf"), None]),
    (pa.date32(), [dt.date(2024, 2, 29), None]),
    (pa.timestamp("us", "UTC"), [dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC), None]),
    (pa.time32("s"), [dt.time(1, 2, 3), None]),
    (pa.string(), ["", "grüße", "a" * 300, None]),
    (pa.large_string(), ["x", None]),
    (pa.string_view(), ["x", "longer than twelve bytes", None]),
    (pa.binary(), [b"", b"\0", b"\0\0", None]),
    (pa.decimal128(10, 2), [Decimal("1.50"), Decimal("-7.00"), None]),
    (pa.struct([("a", pa.int64()), ("b", pa.string())]), [{"a": 1, "b": "x"}, {"a": None, "b": None}, None]),
    (pa.null(), [None]),
]


@pytest.mark.parametrize(("data_type", "values"), KEY_VALUES, ids=[str(case[0]) for case in KEY_VALUES])
@pytest.mark.parametrize("composite", [False, True])
def test_keys_of_every_type_come_back(data_type: pa.DataType, values: list[Any], composite: bool) -> None:
    fields = [("k", data_type), ("other", pa.int16())] if composite else [("k", data_type)]
    schema = pa.schema(fields)
    arrays = [pa.array(values + values, data_type), pa.array([7] * 2 * len(values), pa.int16())][: len(fields)]
    table = table_of(schema, COLUMNS[:1])
    table.update(table.locate(pa.RecordBatch.from_arrays(arrays, schema=schema)), [Update(0, Merge.COUNT)])
    frozen = table.freeze()
    (batch,) = frozen.batches()
    batch.validate(full=True)
    assert batch.schema == frozen.schema
    assert batch.column("k").to_pylist() == values
    assert batch.column("n").to_pylist() == [2] * len(values)
    restored = table_of(schema, COLUMNS[:1])
    restored.restore([batch])
    assert next(restored.freeze().batches()).equals(batch)


def test_a_dictionary_key_is_kept_as_its_value() -> None:
    schema = pa.schema([("k", pa.dictionary(pa.int8(), pa.string()))])
    table = table_of(schema, COLUMNS[:1])
    for words in (["a", "b", None], ["b", "c", "a"]):
        array = pa.array(words).dictionary_encode().cast(schema.field(0).type)
        table.update(table.locate(pa.RecordBatch.from_arrays([array], schema=schema)), [Update(0, Merge.COUNT)])
    assert content(table.freeze().batches(), 1) == {("a",): (2,), ("b",): (2,), (None,): (1,), ("c",): (1,)}


def test_nan_is_larger_than_every_number() -> None:
    nan = float("nan")
    table = table_of(INT_KEY, [Column("lo", pa.float64()), Column("hi", pa.float64())])
    touched = table.locate(pa.record_batch([pa.array([1, 1, 1, 2, 2])], schema=INT_KEY))
    values = pa.array([nan, 2.0, 1.0, nan, None])
    table.update(touched, [Update(0, Merge.MIN, values), Update(1, Merge.MAX, values)])
    low, high = table.read(touched.unique)
    assert str(low.to_pylist()) == "[1.0, nan]"
    assert str(high.to_pylist()) == "[nan, nan]"


@pytest.mark.parametrize("width", [1, 33, 64])
def test_null_bits_of_up_to_64_columns_are_kept_apart(width: int) -> None:
    table = table_of(INT_KEY, [Column(f"c{i}", pa.int64()) for i in range(width)])
    touched = table.locate(pa.record_batch([pa.array([5])], schema=INT_KEY))
    updates = [Update(i, Merge.ADD, pa.array([i if i % 2 else None], pa.int64())) for i in range(width)]
    table.update(touched, updates)
    expected = [i if i % 2 else None for i in range(width)]
    assert [column.to_pylist()[0] for column in table.read(touched.unique)] == expected
    (batch,) = table.freeze().batches()
    assert [batch.column(f"c{i}").to_pylist()[0] for i in range(width)] == expected


def test_more_than_64_accumulators_are_refused() -> None:
    with pytest.raises(ConfigError, match="65 accumulators in one table; at most 64"):
        table_of(INT_KEY, [Column(f"c{i}", pa.int64()) for i in range(65)])


def test_a_sum_beyond_a_long_fails_and_names_the_column() -> None:
    table = table_of(INT_KEY)
    with pytest.raises(DataError, match="uid: the sum 'total' left the range of a long"):
        apply(table, INT_KEY, [((1,), 2**63 - 1), ((1,), 1)])


def test_the_batch_number_may_start_over() -> None:
    table = table_of(INT_KEY, COLUMNS[:1])
    batch = pa.record_batch([pa.array([1, 2, None])], schema=INT_KEY)
    table.locate(batch)
    table._index._state[ix.STAMP] = 2**32 - 1
    for _ in range(3):
        assert table.locate(batch).unique.tolist() == [0, 1, 2]


def test_state_columns_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="must have different names"):
        table_of(pa.schema([("key_group", pa.int64())]))


@pytest.mark.parametrize("expected", [0, 1, 500, 100_000])
def test_the_number_of_keys_that_was_expected_changes_nothing(expected: int) -> None:
    keys = pa.schema([("word", pa.string())])
    table = MemoryAggregateTable("u", "t", keys, [Column("n", pa.int64())], 128, expected_keys=expected)
    for _ in range(2):
        words = pa.record_batch([pa.array([f"w{i}" for i in range(20_000)])], schema=keys)
        table.update(table.locate(words), [Update(0, Merge.COUNT)])
    assert len(table) == 20_000
    assert table.read(table.locate(words).rows)[0].unique().to_pylist() == [2]
