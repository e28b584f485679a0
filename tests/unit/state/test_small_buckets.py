"""Buckets of few rows each, on RocksDB: no batch is made of the few that a key group has, and many rows are read at once."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.errors import SchemaError
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state import rocksdb_bucket_entries
from cutwater.state.backend import KeyedStateStore
from cutwater.state.cache_share import CacheShare
from cutwater.state.rocksdb_buckets import RocksDBBuckets
from cutwater.state.rocksdb_cut import Gate
from cutwater.state.rocksdb_database import Database, Tuning
from cutwater.state.rocksdb_family import Family
from cutwater.state.rocksdb_layout import is_of_row
from cutwater.state.tables import BucketTable, JoinSide

SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("word", pa.dictionary(pa.int32(), pa.string()))])
BUCKETS, ROWS = 100, 64

Found = dict[tuple[int, int], list[int]]
"""By bucket and key, the numbers in their order."""


class CountingFamily(Family):
    writes = 0
    entries = 0

    def write(self, keys: Sequence[bytes], values: Sequence[bytes], deleted: Iterable[bytes] = ()) -> None:
        self.writes += 1
        self.entries += len(keys)
        super().write(keys, values, deleted)


@pytest.fixture
def family(tmp_path: Path) -> Iterator[CountingFamily]:
    database = Database("uid", str(tmp_path / "db"), Tuning(1 << 20, 1 << 20, "lz4"))
    family = database.family("n", CountingFamily)
    assert isinstance(family, CountingFamily)
    yield family
    database.close()


def on_rocksdb(family: Family, cache: int) -> RocksDBBuckets:
    return RocksDBBuckets("n", SCHEMA, ["k"], "bucket", 128, family, CacheShare(cache), Gate())


def rows(numbers: range) -> pa.RecordBatch:
    columns = [
        pa.array(np.array(numbers) % 97),
        pa.array(np.array(numbers)),
        pa.array([None if n % 5 == 0 else f"word {n % 3}" for n in numbers], pa.string()).dictionary_encode(),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def fill(table: BucketTable) -> None:
    for bucket in range(BUCKETS):
        table.add(bucket, rows(range(bucket * ROWS, (bucket + 1) * ROWS)))


def found_in(batches: Iterable[pa.RecordBatch], bucket: int | None = None) -> Found:
    found: Found = {}
    for batch in batches:
        for row in batch.to_pylist():
            assert row["word"] == (None if row["n"] % 5 == 0 else f"word {row['n'] % 3}")
            found.setdefault((row["bucket"] if bucket is None else bucket, row["k"]), []).append(row["n"])
    return found


def test_many_buckets_are_written_and_stored_together(family: CountingFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocksdb_bucket_entries, "message_of", lambda _: pytest.fail("a batch of few rows"))
    table, in_memory = on_rocksdb(family, 30_000), cw.Memory().open("w", KeyGroupRange(0, 127), 128)
    wanted = in_memory.buckets("n", SCHEMA, ["k"], "bucket")
    fill(table)
    fill(wanted)
    assert family.entries > BUCKETS * ROWS // 2
    assert family.writes < BUCKETS // 4
    frozen = table.freeze()
    batches = list(frozen.batches())
    assert sum(batch.num_rows for batch in batches) == BUCKETS * ROWS
    assert len(batches) < BUCKETS // 2, "those in memory, and one of all that is stored"
    assert found_in(batches) == found_in(wanted.freeze().batches())
    frozen.release()


def test_what_is_stored_of_a_bucket_is_read_at_once(family: CountingFamily) -> None:
    table = on_rocksdb(family, 1)
    fill(table)
    for bucket in (3, 7):
        table.add(bucket, rows(range(10_000, 10_010)))
        [stored, *recent] = [batch.num_rows for batch in table.read([bucket])]
        assert stored >= ROWS
        assert stored + sum(recent) == ROWS + 10


def test_rows_of_a_large_bucket_are_stored_as_batches(family: CountingFamily) -> None:
    table = on_rocksdb(family, 400_000)
    for start in range(0, 60_000, 2000):
        table.add(0, rows(range(start, start + 2000)))
    assert 0 < family.entries < 60_000 // 20
    assert not any(is_of_row(key) for key, _ in family.cut())


@pytest.mark.parametrize("seed", range(6))
def test_rows_and_batches_of_a_bucket_come_in_the_order_of_their_rows(
    seed: int, family: CountingFamily, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocksdb_bucket_entries, "STEP_BATCHES", 10)
    chosen = np.random.default_rng(seed)
    table = on_rocksdb(family, int(chosen.choice([1, 20_000, 200_000])))
    model: Found = {}
    for number in range(0, 40_000, 1000):
        bucket, count = int(chosen.integers(-2, 3)), int(chosen.choice([1, 30, 1000]))
        if chosen.random() < 0.1:
            table.drop(bucket)
            model = {cell: numbers for cell, numbers in model.items() if cell[0] != bucket}
        table.add(bucket, rows(range(number, number + count)))
        for n in range(number, number + count):
            model.setdefault((bucket, n % 97), []).append(n)
    for bucket in range(-2, 3):
        assert found_in(table.read([bucket]), bucket) == {cell: n for cell, n in model.items() if cell[0] == bucket}
    together = found_in(table.read(range(-2, 3)), 0)
    assert together == {(0, key): [n for b in range(-2, 3) for n in model.get((b, key), [])] for _, key in together}
    frozen = table.freeze()
    batches = list(frozen.batches())
    assert found_in(batches) == model
    frozen.release()
    again = restored(batches, tmp_path)
    assert found_in(again.freeze()[0].batches()) == model
    again.close()


def restored(batches: list[pa.RecordBatch], tmp_path: Path) -> KeyedStateStore:
    store = cw.RocksDB(cache="20kB", local_directories=[str(tmp_path)]).open("w", KeyGroupRange(0, 127), 128)
    store.restore("n", batches)
    store.buckets("n", SCHEMA, ["k"], "bucket")
    return store


@pytest.mark.parametrize("backend", [cw.Memory(), cw.Memory(incremental=True), cw.RocksDB(cache=1)], ids=repr)
@pytest.mark.parametrize("index", [pa.int8(), pa.uint16()], ids=str)
def test_a_dictionary_of_few_indices_is_refused_where_it_is_declared(index: Any, backend: cw.StateBackend) -> None:
    """Each bucket may have fewer values, but they are stored and read together."""
    narrow: pa.DataType = pa.dictionary(index, pa.string())
    plain = pa.schema([("k", pa.int64()), ("word", pa.string())])
    for declared, column in ((narrow, pa.string()), (pa.list_(narrow), pa.list_(pa.string()))):
        schema = pa.schema([("k", pa.int64()), ("word", declared)])
        store = backend.open("w", KeyGroupRange(0, 127), 128)
        says = f"column 'word' is {declared}, whose indices .* Cast it to {column}."
        with pytest.raises(SchemaError, match=rf"w: state 'n', {says}"):
            store.buckets("n", schema, ["k"], "bucket")
        with pytest.raises(SchemaError, match=rf"w: state 'j.right', {says}"):
            store.join("j", JoinSide(plain, ("k",)), JoinSide(schema, ("k",)), "bucket")
        store.close()
