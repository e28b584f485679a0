"""What is particular to RocksDB: cuts, a cache that is smaller than the state, folders of the dead, the other backend."""

import gc
import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.errors import StorageError
from cutwater.flow.hashing import hash_arrays, key_groups
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state.cache_share import CacheShare
from cutwater.state.local_folder import LocalFolder
from cutwater.state.rocksdb_aggregates import RocksDBAggregateTable
from cutwater.state.rocksdb_buckets import RocksDBBuckets
from cutwater.state.rocksdb_cut import Gate
from cutwater.state.rocksdb_database import Database, Tuning
from cutwater.state.rocksdb_family import READ_AT_ONCE, Family, after
from cutwater.state.rocksdb_join import RocksDBJoin
from cutwater.state.rocksdb_keys import groups_of, stored_keys
from cutwater.state.rocksdb_panes import RocksDBPanes
from cutwater.state.rocksdb_rows import RocksDBRowTable
from cutwater.state.row_layers import RowForm
from cutwater.state.tables import AggregateTable, Column, JoinSide, Merge, Update
from cutwater.testing.contract_tables import KINDS, Kind
from tests.local_state import rocksdb_folder

ALL = KeyGroupRange(0, 127)
TUNING = Tuning(1 << 20, 1 << 20, "lz4")
KEYS = pa.schema([pa.field("k", pa.int64())])
COUNT = [Column("n", pa.int64(), nullable=False)]


@pytest.fixture
def family(tmp_path: Path) -> Family:
    return Database("uid", str(tmp_path / "db"), TUNING).family("state")


def test_a_cut_sees_nothing_that_is_written_later(family: Family) -> None:
    family.write([bytes([i]) for i in range(10)], [b"old"] * 10)
    cut = family.cut()
    family.write([bytes([i]) for i in range(20)], [b"new"] * 20, [bytes([3])])
    family.drop([bytes([5])])
    assert list(cut) == [(bytes([i]), b"old") for i in range(10)]
    assert len(list(family.cut())) == 19 - 1


def test_very_many_keys_are_read_in_their_order_wherever_they_are(family: Family) -> None:
    keys = [number.to_bytes(4, "big") for number in range(3 * READ_AT_ONCE)]
    family.write(keys[::3], [key + b" of a file" for key in keys[::3]])
    family.flush()
    family.write(keys[1::3], [key + b" written lately" for key in keys[1::3]])
    found = family.get(keys)
    assert found[::3] == [key + b" of a file" for key in keys[::3]]
    assert found[1::3] == [key + b" written lately" for key in keys[1::3]]
    assert found[2::3] == [None] * READ_AT_ONCE


def test_what_was_written_lately_has_a_filter(family: Family, tmp_path: Path) -> None:
    """So that keys that are not in it, which are most, are not searched for there. As RocksDB itself tells its options."""
    latest = max((tmp_path / "db").glob("OPTIONS-*"))
    _, of_state = latest.read_text().split('[CFOptions "state"]')
    assert "memtable_whole_key_filtering=true" in of_state
    assert "memtable_prefix_bloom_size_ratio=0.01" in of_state


def test_a_prefix_is_scanned_and_dropped_to_its_last_key_and_no_further(family: Family) -> None:
    keys = [b"a", b"a\x00", b"a\xff", b"a\xff\xff", b"b", b"b\x00", b"\x01\xff", b"\x01\xff\x00", b"\x02"]
    family.write(keys, [b""] * len(keys))
    assert [key for key, _ in family.scan(b"a")] == [b"a", b"a\x00", b"a\xff", b"a\xff\xff"]
    assert [key for key, _ in family.scan(b"\x01\xff")] == [b"\x01\xff", b"\x01\xff\x00"]
    family.drop([b"\x01\xff", b"a\xff"])
    assert [key for key, _ in family.cut()] == [b"\x02", b"a", b"a\x00", b"b", b"b\x00"]
    assert after(b"\x01\xff") == b"\x02"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"uid: RocksDB in .*file cannot be opened"):
        Database("uid", str(tmp_path / "file"), TUNING)


@pytest.mark.parametrize("how", ["closed", "forgotten"])
def test_a_database_that_ends_writes_nothing_more_and_is_let_go_of(how: str, tmp_path: Path) -> None:
    """It would be written for nobody: by a subtask that just failed, perhaps to a disk that is full."""
    database = Database("uid", str(tmp_path / "db"), TUNING)
    family = database.family("state")
    family.write([b"a"], [b"1"])
    cut = family.cut()
    if how == "closed":
        database.close()
    del database, family
    gc.collect()
    assert list(cut) == [(b"a", b"1")]
    del cut
    assert list((tmp_path / "db").glob("*.sst")) == []
    again = Database("uid", str(tmp_path / "db"), TUNING)  # refused while another one has it open
    assert list(again.family("state").cut()) == []
    again.close()


def test_a_database_takes_bytes_as_they_are_after_it_was_opened_again(tmp_path: Path) -> None:
    database = Database("uid", str(tmp_path / "db"), TUNING)
    database.family("state").write([b"\x00\x05a"], [b"\x80\x04"])
    database.link(str(tmp_path / "linked"))
    database.close()
    again = Database("uid", str(tmp_path / "linked"), TUNING)
    assert list(again.family("state").cut()) == [(b"\x00\x05a", b"\x80\x04")]
    again.close()


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
    frozen = first.freeze()
    for each in frozen:
        second.restore(each.name, each.batches())
    restored = kind.open(second)
    for each in frozen:
        each.release()
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


class CountingFamily(Family):
    """Knows how many rows were written, and how often something was read."""

    most = 0
    written = 0
    reads = 0

    def get(self, keys: list[bytes]) -> list[bytes | None]:
        self.reads += 1
        return super().get(keys)

    def write(self, keys: Sequence[bytes], values: Sequence[bytes], deleted: Iterable[bytes] = ()) -> None:
        self.most = max(self.most, len(keys))
        self.written += len(keys)
        super().write(keys, values, deleted)


def test_a_full_cache_of_aggregates_is_written_in_steps_that_go_by_the_batch(tmp_path: Path) -> None:
    family = Database("uid", str(tmp_path / "db"), TUNING).family("n", CountingFamily)
    assert isinstance(family, CountingFamily)
    table = RocksDBAggregateTable("uid", "n", KEYS, COUNT, 128, family, CacheShare(4 << 20), Gate())
    most, total = 0, 0
    for start in range(0, 400_000, 2000):
        counted(table, np.arange(start, start + 2000))
        most, total, family.written = max(most, family.written), total + family.written, 0
    assert total > 200_000
    assert most <= 2 * 4096, "rows written with a batch of 2000, of a cache of some 60,000"
    assert len(table) == 400_000


def test_keys_that_are_asked_for_again_stay_in_the_cache(tmp_path: Path) -> None:
    family = Database("uid", str(tmp_path / "db"), TUNING).family("n", CountingFamily)
    table = RocksDBAggregateTable("uid", "n", KEYS, COUNT, 128, family, CacheShare(1 << 20), Gate())
    for start in range(1_000, 101_000, 1000):
        counted(table, np.concatenate([np.arange(1000), np.arange(start, start + 1000)]))
    assert family.get(stored_keys([pa.array(np.arange(1000))], groups_of([pa.array(np.arange(1000))], 1000, 128))) == (
        [None] * 1000
    )


@pytest.mark.parametrize("kind", ["panes", "join", "buckets"])
def test_a_full_cache_of_added_rows_is_written_in_steps(tmp_path: Path, kind: str) -> None:
    families = [Database("uid", str(tmp_path / side), TUNING).family("n", CountingFamily) for side in ("left", "right")]
    share = CacheShare(1 << 20)
    columns = [(Column("n", pa.int64(), nullable=False), Merge.ADD)]
    side = JoinSide(pa.schema([("k", pa.int64()), ("n", pa.int64())]), ("k",))
    panes = RocksDBPanes("uid", "n", KEYS, "pane", columns, 128, families[0], share, Gate())
    buckets = RocksDBBuckets("n", side.schema, ["k"], "bucket", 128, families[0], share, Gate())
    join = RocksDBJoin("n", (side, side), "bucket", 128, share, Gate(), families)
    written = []
    for start in range(0, 200_000, 2000):
        keys = pa.array(np.arange(start, start + 2000))
        match kind:
            case "panes":
                panes.merge(0, pa.RecordBatch.from_arrays([keys, keys], schema=panes._partial))
            case "join":
                join.add(start // 2000 % 2, 0, pa.RecordBatch.from_arrays([keys, keys], schema=side.schema))
            case _:
                buckets.add(0, pa.RecordBatch.from_arrays([keys, keys], schema=side.schema))
        written.append(sum(family.written for family in families))  # type: ignore[attr-defined]
    assert written[-1] > 1000
    steps = np.diff(written)
    assert steps.max() <= 3 * 4096


class FullDisk(Family):
    is_full = True

    def write(self, keys: Sequence[bytes], values: Sequence[bytes], deleted: Iterable[bytes] = ()) -> None:
        if self.is_full:
            raise StorageError("no space left")
        super().write(keys, values, deleted)


def test_a_part_that_could_not_be_written_is_never_taken_for_written(tmp_path: Path) -> None:
    family = Database("uid", str(tmp_path / "db"), TUNING).family("n", FullDisk)
    assert isinstance(family, FullDisk)
    schema = pa.schema([("k", pa.int64())])
    table = RocksDBBuckets("n", schema, ["k"], "bucket", 128, family, CacheShare(1), Gate())
    row = pa.record_batch([pa.array([7])], schema=schema)
    with pytest.raises(StorageError, match="no space left"):
        table.add(0, row)
    family.is_full = False
    with pytest.raises(StorageError, match="no space left"):
        table.add(0, row)
    assert [batch.num_rows for batch in table.read([0])] == [1, 1]


@pytest.mark.parametrize("cache", [1, 20_000, 1 << 30])
def test_buckets_are_read_as_they_were_though_rows_are_added_meanwhile(cache: int, tmp_path: Path) -> None:
    family = Database("uid", str(tmp_path / "db"), TUNING).family("n")
    table = RocksDBBuckets("n", KEYS, ["k"], "bucket", 128, family, CacheShare(cache), Gate())

    def add(numbers: range) -> None:
        for bucket in (0, 1):
            table.add(bucket, pa.record_batch([pa.array(numbers[bucket::2], pa.int64())], schema=KEYS))

    for start in range(0, 5000, 500):
        add(range(start, start + 500))
    reading = table.read([0, 1])
    add(range(5000, 5500))
    found: list[int] = []
    for at, batch in enumerate(reading):
        found += batch.column(0).to_pylist()
        if at % 100 == 0:
            add(range(5000, 5500))
    assert sorted(found) == [*range(5000)]


def test_values_of_a_batch_that_are_not_cached_are_read_at_once(tmp_path: Path) -> None:
    family = Database("uid", str(tmp_path / "db"), TUNING).family("n", CountingFamily)
    assert isinstance(family, CountingFamily)
    table = RocksDBRowTable(RowForm.of("uid", "n", KEYS, pa.int64(), 128), family, CacheShare(1), Gate())
    for _ in range(2):
        for key in range(1000):
            table.put(key, key)
        table.tend()
    table.expect(range(2000))
    assert [table.get(key) for key in range(2000)] == [*range(1000), *[None] * 1000]
    assert family.reads == 1
    table.tend()
    table.expect(range(1000))
    table.tend()
    table.expect(range(1000))
    assert family.reads == 2, "nothing was asked for, so nothing is read ahead any more"
    assert table.get(5) == 5
    table.tend()
    table.expect(range(1000))
    assert table.get(6) == 6
    assert family.reads == 4


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
    assert list(rocksdb_folder(tmp_path).iterdir()) == []


def test_a_store_leaves_nothing_behind(tmp_path: Path) -> None:
    backend = cw.RocksDB(local_directories=[str(tmp_path)])
    store = backend.open("uid", ALL, 128)
    assert len(list(rocksdb_folder(tmp_path).iterdir())) == 2
    store.close()
    assert list(rocksdb_folder(tmp_path).iterdir()) == []


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


def test_a_folder_that_could_not_be_removed_whole_is_removed_by_the_next_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a thread that was about to end made a file in it meanwhile."""
    folder = LocalFolder(str(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr("cutwater.state.local_folder.shutil.rmtree", lambda path, ignore_errors: None)
        folder.close()
    assert Path(folder.path).exists()
    LocalFolder(str(tmp_path)).close()
    assert list(tmp_path.iterdir()) == []


class Stalling:
    """What rocksdict would be for a family: refuses so many writes because others wait, then takes them."""

    def __init__(self, stalls: int) -> None:
        self.stalls = stalls
        self.written: list[int] = []

    def write(self, batch: Any) -> None:
        if self.stalls:
            self.stalls -= 1
            raise Exception("Result incomplete: Write stall")
        self.written.append(batch.len())


def test_a_write_that_has_to_wait_is_repeated_whole(tmp_path: Path) -> None:
    stalling = Stalling(stalls=3)
    family = Database("uid", str(tmp_path / "db"), TUNING).family("n")
    family._family = stalling
    family.write([b"a", b"b"], [b"1", b"2"], iter([b"c"]))
    family.drop(prefix for prefix in (b"x", b"y"))
    assert stalling.written == [3, 2]


def test_a_store_that_cannot_write_any_more_is_closed_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close(family: Family) -> None:
        raise StorageError("no space left")

    store = cw.RocksDB(local_directories=[str(tmp_path)]).open("uid", ALL, 128)
    store.rows("n", KEYS, pa.int64())
    monkeypatch.setattr(Family, "close", close)
    store.close()
    assert list(rocksdb_folder(tmp_path).iterdir()) == []
