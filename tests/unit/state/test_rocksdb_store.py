"""What is particular to RocksDB: cuts, a cache that is smaller than the state, folders of the dead, the other backend."""

import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.errors import StorageError
from cutwater.flow.hashing import hash_arrays, key_groups
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state.local_folder import LocalFolder
from cutwater.state.rocksdb_database import Database, Family, Tuning, after
from cutwater.state.tables import AggregateTable, Column, Merge, Update
from cutwater.testing.contract_tables import KINDS, Kind

ALL = KeyGroupRange(0, 127)
TUNING = Tuning(1 << 20, 1 << 20, "lz4")
KEYS = pa.schema([pa.field("k", pa.int64())])
COUNT = [Column("n", pa.int64(), nullable=False)]


@pytest.fixture
def family(tmp_path: Path) -> Family:
    return Database("uid", str(tmp_path / "db"), TUNING).family("state")


def test_a_cut_sees_nothing_that_is_written_later(family: Family) -> None:
    family.write((bytes([i]), b"old") for i in range(10))
    cut = family.cut()
    family.write(((bytes([i]), b"new") for i in range(20)), [bytes([3])])
    family.drop([bytes([5])])
    assert list(cut) == [(bytes([i]), b"old") for i in range(10)]
    assert len(list(family.cut())) == 19 - 1


def test_a_prefix_is_scanned_and_dropped_to_its_last_key_and_no_further(family: Family) -> None:
    keys = [b"a", b"a\x00", b"a\xff", b"a\xff\xff", b"b", b"b\x00", b"\x01\xff", b"\x01\xff\x00", b"\x02"]
    family.write((key, b"") for key in keys)
    assert [key for key, _ in family.scan(b"a")] == [b"a", b"a\x00", b"a\xff", b"a\xff\xff"]
    assert [key for key, _ in family.scan(b"\x01\xff")] == [b"\x01\xff", b"\x01\xff\x00"]
    family.drop([b"\x01\xff", b"a\xff"])
    assert [key for key, _ in family.cut()] == [b"\x02", b"a", b"a\x00", b"b", b"b\x00"]
    assert after(b"\x01\xff") == b"\x02"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"uid: RocksDB in .*file cannot be opened"):
        Database("uid", str(tmp_path / "file"), TUNING)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("ways", [(cw.Memory(), cw.RocksDB(cache=1)), (cw.RocksDB(cache=1), cw.Memory())])
def test_a_checkpoint_of_one_backend_restores_on_the_other(kind: Kind, ways: Any) -> None:
    model = kind.of_memory()
    first, second = (backend.open("uid", ALL, 128) for backend in ways)
    table = kind.open(first)
    for step in range(4):
        for each in (table, model):
            kind.write(each, step)
        first.tend()
    for frozen in first.freeze():
        second.restore(frozen.name, frozen.batches())
        frozen.release()
    restored = kind.open(second)
    assert kind.content(restored) == kind.content(model)
    for store in (first, second):
        store.close()


def counted(table: AggregateTable, keys: "np.typing.NDArray[np.int64]") -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(keys)], schema=KEYS)
    table.update(table.locate(batch), [Update(0, Merge.COUNT)])


def test_aggregates_that_are_larger_than_the_cache_count_right(tmp_path: Path) -> None:
    store = cw.RocksDB(cache="256kB", local_directories=[str(tmp_path)]).open("uid", ALL, 128)
    table = store.aggregates("n", KEYS, COUNT)
    draw = np.random.default_rng(7)
    total = np.zeros(50_000, np.int64)
    for _ in range(40):
        keys = draw.integers(0, len(total), 4000)
        np.add.at(total, keys, 1)
        counted(table, keys)
    assert len(table) == np.count_nonzero(total)
    [frozen] = store.freeze()
    counted(table, np.arange(len(total)))
    rows = pa.Table.from_batches(list(frozen.batches()))
    found = np.zeros_like(total)
    found[rows["k"].to_numpy()] = rows["n"].to_numpy()
    assert rows.num_rows == np.count_nonzero(total)
    assert (found == total).all()
    store.close()


def test_rows_that_are_larger_than_the_cache_take_bounded_memory(tmp_path: Path) -> None:
    store = cw.RocksDB(cache="1MB", local_directories=[str(tmp_path)]).open("uid", ALL, 128)
    table = store.rows("text", KEYS, pa.string())
    tracemalloc.start()
    for start in range(0, 40_000, 500):
        for key in range(start, start + 500):
            table.put(key, f"{key:0500}")
        store.tend()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 8 << 20, "of 20 MB that were written"
    assert [table.get(key) for key in (0, 20_000, 39_999)] == [f"{key:0500}" for key in (0, 20_000, 39_999)]
    store.close()


@pytest.mark.parametrize("declared_first", [True, False])
def test_a_restore_takes_bounded_memory(tmp_path: Path, *, declared_first: bool) -> None:
    store = cw.RocksDB(cache="1MB", local_directories=[str(tmp_path)]).open("uid", ALL, 128)
    most = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal most
        for start in range(0, 400_000, 10_000):
            keys = pa.array(np.arange(start, start + 10_000))
            groups = pa.array(key_groups(hash_arrays([keys], 10_000), 128))
            yield pa.record_batch([keys, keys, groups], names=["k", "n", "key_group"])
            most = max(most, pa.total_allocated_bytes() - before)

    before = pa.total_allocated_bytes()
    if declared_first:
        table = store.aggregates("n", KEYS, COUNT)
    store.restore("n", batches())
    if not declared_first:
        table = store.aggregates("n", KEYS, COUNT)
    assert most < 4 << 20, "of 8 MB that were restored"
    assert len(table) == 400_000
    asked = pa.record_batch([pa.array([0, 200_000, 399_999])], names=["k"])
    assert table.read(table.locate(asked).rows)[0].to_pylist() == [0, 200_000, 399_999]
    store.close()
    assert list((tmp_path / "cutwater-rocksdb").iterdir()) == []


def test_a_store_leaves_nothing_behind(tmp_path: Path) -> None:
    backend = cw.RocksDB(local_directories=[str(tmp_path)])
    store = backend.open("uid", ALL, 128)
    assert len(list((tmp_path / "cutwater-rocksdb").iterdir())) == 2
    store.close()
    assert list((tmp_path / "cutwater-rocksdb").iterdir()) == []


def test_what_a_killed_process_left_is_removed_by_the_next_and_what_a_living_one_has_is_not(tmp_path: Path) -> None:
    program = """if True:
        import sys, time
        from cutwater.state.local_folder import LocalFolder
        kept = LocalFolder(sys.argv[1])
        open(kept.path + "/state", "w").close()
        print(kept.path, flush=True)
        time.sleep(60)"""
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        path = Path(owner.stdout.readline().strip())
        LocalFolder(str(tmp_path)).close()
        assert (path / "state").exists()
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
        assert (path / "state").exists()
        LocalFolder(str(tmp_path)).close()
    assert list(tmp_path.iterdir()) == []
