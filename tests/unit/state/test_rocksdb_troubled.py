"""RocksDB in trouble that is real: a process killed while it restores, a disk that is full, and one that damages files."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.layout import JobLayout
from cutwater.checkpoint.stored_tables import RestoredTables
from cutwater.checkpoint.table_writer import TableWriter
from cutwater.control.messages import Decline
from cutwater.errors import StorageError
from cutwater.flow.ids import Attempt, CheckpointId, SubtaskId
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state import rocksdb_family
from cutwater.state.backend import KeyedStateStore
from cutwater.state.rocksdb_database import Database, Tuning, read_family
from cutwater.state.rocksdb_family import Family
from cutwater.state.rocksdb_keys import prefix_of
from cutwater.state.stored import StoredTable
from cutwater.state.tables import Column, Merge, Update
from cutwater.testing import ADVANCE, CHECKPOINT, TRIGGER, run, script
from tests.local_state import damage, rocksdb_folder, wait_until_nothing_is_joined
from tests.small_disk import fill, small_disk

ALL = KeyGroupRange(0, 127)
KEYS = pa.schema([pa.field("k", pa.int64())])
ROWS = 120_000

RESTORES = """if True:
    import json, sys, time
    import pyarrow as pa
    import cutwater as cw
    from cutwater.checkpoint.file_storage import FileStorage
    from cutwater.checkpoint.stored_tables import RestoredTables
    from cutwater.flow.key_groups import KeyGroupRange
    from cutwater.state.stored import stored_table_from_json

    class Slow(RestoredTables):
        steps = 0

        def step(self):
            self.steps += 1
            if self.steps == 2:
                print("in the middle", flush=True)
                time.sleep(120)

        def fetch(self, file, path):
            super().fetch(file, path)
            self.step()

        def batches(self, table):
            for batch in super().batches(table):
                yield batch
                self.step()

    storage, local, stored, incremental = sys.argv[1:]
    groups = KeyGroupRange(0, 127)
    restored = Slow((), [stored_table_from_json(json.loads(stored))], groups, storage=FileStorage(storage))
    backend = cw.RocksDB(incremental=incremental == "True", cache="100kB", local_directories=[local])
    store = backend.open("uid", groups, 128)
    if not store.adopt(restored):
        store.rows("n", pa.schema([pa.field("k", pa.int64())]), pa.int64())
        store.restore("n", restored.batches("n"))
    print("restored all of it", flush=True)
"""


def stored_rows(storage: FileStorage, local: Path, *, incremental: bool) -> StoredTable:
    backend = cw.RocksDB(incremental=incremental, cache="1MB", local_directories=[str(local)])
    store = backend.open("uid", ALL, 128)
    table = store.rows("n", KEYS, pa.int64())
    for key in range(ROWS):
        table.put(key, key * 3)
        if key % 50_000 == 0:
            store.tend()
    writer = TableWriter(storage, JobLayout("job").files_of(SubtaskId("v", 0), Attempt(1)))
    [frozen] = store.freeze(CheckpointId(1))
    stored, _ = writer.write(CheckpointId(1), "uid", frozen, None)
    frozen.release()
    store.close()
    return stored


@pytest.mark.parametrize("incremental", [False, True], ids=["full", "incremental"])
def test_a_process_killed_while_it_restores_leaves_nothing_that_the_next_one_minds(
    tmp_path: Path, *, incremental: bool
) -> None:
    storage, local = FileStorage(str(tmp_path / "storage")), tmp_path / "local"
    stored = stored_rows(storage, local, incremental=incremental)
    command = [sys.executable, "-c", RESTORES, str(tmp_path / "storage"), str(local)]
    command += [json.dumps(asdict(stored)), str(incremental)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as restoring:
        assert restoring.stdout is not None
        assert restoring.stdout.readline() == "in the middle\n"
        os.kill(restoring.pid, signal.SIGKILL)
        restoring.wait()
    left = set(rocksdb_folder(local).iterdir())
    assert left, "what it had begun with is still there"
    backend = cw.RocksDB(incremental=incremental, cache="1MB", local_directories=[str(local)])
    store = backend.open("uid", ALL, 128)
    assert not left & set(rocksdb_folder(local).iterdir())
    restored = RestoredTables((), [stored], ALL, storage=storage)
    if not store.adopt(restored):
        store.restore("n", restored.batches("n"))
    table = store.rows("n", KEYS, pa.int64())
    found = dict(table.items())
    assert len(found) == ROWS
    assert all(value == key * 3 for key, value in found.items())
    store.close()
    assert list(rocksdb_folder(local).iterdir()) == []


def test_files_that_rows_are_read_from_are_fetched_to_a_folder_of_this_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, temporary = FileStorage(str(tmp_path / "storage")), tmp_path / "temporary"
    stored = stored_rows(storage, tmp_path / "local", incremental=True)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    batches = RestoredTables((), [stored], ALL, storage=storage).batches("n")
    assert next(batches).num_rows
    assert [each.name for each in temporary.iterdir()] == [f"cutwater-restored-{os.geteuid()}"]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "small", "4m") as mounted:
        yield mounted


def text_of(key: int) -> str:
    return np.random.default_rng(key).bytes(500).hex()


def test_rows_that_no_longer_fit_on_the_disk_fail_and_name_the_folder(disk: Path) -> None:
    backend = cw.RocksDB(cache="100kB", write_buffer="200kB", local_directories=[str(disk)])
    store = backend.open("texts", ALL, 128)
    table = store.rows("text", KEYS, pa.string())

    def write() -> None:
        for start in range(0, 20_000, 200):
            for key in range(start, start + 200):
                table.put(key, text_of(key))
            store.tend()

    with pytest.raises(StorageError, match=rf"texts: RocksDB in {disk}.* cannot be written: .*Is the disk full\?"):
        write()
    store.close()
    assert list(rocksdb_folder(disk).iterdir()) == []


def test_a_folder_for_state_on_a_full_disk_is_refused_by_name(disk: Path) -> None:
    fill(disk)
    backend = cw.RocksDB(local_directories=[str(disk)])
    with pytest.raises(StorageError, match=rf"{disk}"):
        backend.open("texts", ALL, 128).rows("text", KEYS, pa.string())


class Stalled:
    """A family of RocksDB that has too many files, as they cannot be joined; 99 times, where that is not noticed."""

    def __init__(self, family: Any) -> None:
        self._family = family
        self.tries = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._family, name)

    def write(self, batch: Any) -> None:
        self.tries += 1
        if self.tries < 100:
            raise Exception("Result incomplete: Write stall")


def test_a_write_that_would_wait_until_the_disk_has_room_fails_and_names_the_folder(disk: Path) -> None:
    """RocksDB waits as long as it takes. It tells the database of what it cannot join, and no family."""
    database = Database("uid", str(disk / "db"), Tuning(1 << 18, 1 << 18, "none"))
    family = database.family("n")
    some = [key for key in STORED_KEYS if key[-1] % 2]
    for keys in (STORED_KEYS, some):
        family.write(keys, [bytes(50)] * len(keys))
        family.flush()
    ballast = fill(disk)
    family.sweep.count(1_000_000)
    family.sweep.wait()
    ballast.unlink()
    family.write([b"a"], [b"it can still be written"])
    family_of_rocksdb, family._family = family._family, Stalled(family._family)
    with pytest.raises(StorageError, match=rf"{disk / 'db'} cannot be written: .*Write stall.*Is the disk full"):
        family.write([b"b"], [b"1"])
    family._family = family_of_rocksdb
    database.close()


def test_a_checkpoint_whose_files_would_wait_to_be_joined_until_the_disk_has_room_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocksDB holds back who flushes long before it holds back who writes: the loop would wait for whoever links, and nobody would
    say why."""
    errors, runs = iter([0, 0, 1]), [17] * 3 + [18] * 3
    database = Database("uid", str(tmp_path / "db"), Tuning(1 << 20, 1 << 20, "none"))
    family = database.family("n")
    monkeypatch.setattr(rocksdb_family, "runs_of", lambda _: [1000] * runs.pop(0))
    monkeypatch.setattr(family, "_background_errors", lambda: next(errors))
    for _ in range(3):
        family.write([b"a"], [b"1"])
        family.flush()
    with pytest.raises(
        StorageError, match=rf"{tmp_path / 'db'} cannot be written: .*cannot be joined.*Is the disk full"
    ):
        database.link(str(tmp_path / "linked"))
    with pytest.raises(StorageError, match="cannot be joined"):
        database.check()
    assert not runs
    database.close()


def fill_rows(store: KeyedStateStore) -> None:
    table = store.rows("n", KEYS, pa.string())
    for start in range(0, 20_000, 1000):
        for key in range(start, start + 1000):
            table.put(key, text_of(key))
        store.tend()


def fill_aggregates(store: KeyedStateStore) -> None:
    table = store.aggregates("n", KEYS, [Column("text", pa.string())])
    for rows in some_rows():
        table.update(table.locate(rows.select(["k"])), [Update(0, Merge.MAX, rows.column("text"))])
        store.tend()


def fill_panes(store: KeyedStateStore) -> None:
    table = store.panes("n", KEYS, "pane", [(Column("text", pa.string()), Merge.MAX)])
    for at, rows in enumerate(some_rows()):
        table.merge(at % 3, rows)
        store.tend()


def fill_buckets(store: KeyedStateStore) -> None:
    table = store.buckets("n", pa.schema([("k", pa.int64()), ("text", pa.string())]), ["k"], "bucket")
    for at, rows in enumerate(some_rows()):
        table.add(at % 3, rows)
        store.tend()


def some_rows() -> Iterator[pa.RecordBatch]:
    for start in range(0, 20_000, 1000):
        keys = range(start, start + 1000)
        yield pa.record_batch({"k": pa.array(keys, pa.int64()), "text": pa.array(map(text_of, keys))})


STORED_KEYS = [prefix_of(group, number) for group in range(128) for number in range(200)]
READS: dict[str, Callable[[Family], Iterable[Any]]] = {
    "cut": Family.cut,
    "keys": Family.keys,
    "scan": lambda family: family.scan(b""),
    "first_behind": lambda family: family.first_behind(b"", ROWS) or (),
    "namespaces": Family.namespaces,
    "get": lambda family: family.get(STORED_KEYS),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_damaged_files_are_told_of_and_not_read_as_if_they_ended_there(tmp_path: Path, read: Any) -> None:
    database = Database("uid", str(tmp_path / "database"), Tuning(1 << 20, 1 << 20, "none"))
    family = database.family("n")
    family.write(STORED_KEYS, [number.to_bytes(400, "big") for number in range(len(STORED_KEYS))])
    family.flush()
    damage(tmp_path)
    with pytest.raises(
        StorageError, match=rf"uid: RocksDB in {tmp_path}.* cannot be read: Corruption.*look after the disk"
    ):
        list(read(family))
    database.close()


def test_damaged_files_are_not_restored_as_if_they_ended_there(tmp_path: Path) -> None:
    """An incremental checkpoint stores them as they are."""
    folder = tmp_path / "database"
    database = Database("uid", str(folder), Tuning(1 << 20, 1 << 20, "none"))
    family = database.family("n")
    family.write(STORED_KEYS, [number.to_bytes(400, "big") for number in range(len(STORED_KEYS))])
    family.flush()
    copied = tmp_path / "copied"
    shutil.copytree(folder, copied)
    database.close()
    damage(copied)
    with pytest.raises(StorageError, match=rf"RocksDB in {copied} cannot be read: Corruption.*restore an earlier one"):
        list(read_family(str(copied), "n", b"", b"\xff" * 8, 1000))


@pytest.mark.parametrize("state", [fill_rows, fill_aggregates, fill_panes, fill_buckets])
def test_a_full_checkpoint_of_damaged_files_fails(tmp_path: Path, state: Callable[[KeyedStateStore], None]) -> None:
    """It would be complete, and lack most of the rows."""
    backend = cw.RocksDB(cache="100kB", write_buffer="100kB", block_cache="100kB", local_directories=[str(tmp_path)])
    store = backend.open("uid", ALL, 128)
    state(store)
    wait_until_nothing_is_joined(store)
    damage(tmp_path)
    [frozen] = store.freeze(CheckpointId(1))
    with pytest.raises(StorageError, match=rf"uid: RocksDB in {tmp_path}.* cannot be read: Corruption"):
        list(frozen.batches())
    frozen.release()
    store.close()


class Texts(cw.KeyedProcess):
    """Fills the disk, or frees it, when a row says so."""

    text = cw.ValueState("string")

    def __init__(self, disk: Path) -> None:
        self.disk = disk

    def process(self, row: Any, ctx: Any) -> Any:
        if row.what == "fill":
            fill(self.disk)
        elif row.what == "free":
            (self.disk / "ballast").unlink()
        else:
            self.text.value = (self.text.value or "") + row.what
            yield row.k, self.text.value


def test_a_checkpoint_that_finds_the_disk_full_is_declined_and_the_next_batch_fails_the_attempt(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An incremental one: what was in memory has to go to files first. A database that could not be written takes nothing
    more, with room or without."""
    reasons: list[str] = []

    def noted(checkpoint: CheckpointId, reason: str) -> Decline:
        reasons.append(reason)
        return Decline(checkpoint, reason)

    monkeypatch.setattr("cutwater.subtask.snapshotting.Decline", noted)
    checkpointing = cw.Checkpointing("3650 days", storage=cw.memory_storage("1GB"), tolerable_failures=3)
    backend = cw.RocksDB(incremental=True, local_directories=[str(disk)])
    env = cw.Environment(parallelism=1, checkpointing=checkpointing, state_backend=backend)

    def pipeline(env: cw.Environment) -> None:
        rows = env.read(cw.from_rows([], "k string, what string"), uid="in")
        rows.key_by("k").process(Texts(disk), "k string, text string").uid("texts").collect("out")

    says = rf"texts: RocksDB in {disk}.* cannot be written: .*No space left.*Is the disk full\?"
    steps = script(("a", "1"), CHECKPOINT, ("a", "2"), ("a", "fill"), TRIGGER, ADVANCE("1s"), ("a", "free"), ("a", "3"))
    with pytest.raises(cw.JobFailed, match=says):
        run(pipeline, {"in": steps}, environment=env)
    assert len(reasons) == 1
    assert re.search(says, reasons[0])


class Room:
    """Fills the disk, or frees it, or notes that it is still there, when a row says so, which goes no further."""

    def __init__(self, disk: Path) -> None:
        self.disk = disk

    def __call__(self, row: Any) -> bool:
        if row.what == "fill":
            fill(self.disk)
        elif row.what == "free":
            (self.disk / "ballast").unlink()
        elif row.what == "note":
            (self.disk / "went on").touch()
        return row.what not in ("fill", "free", "note")


def test_an_attempt_whose_database_could_not_be_written_ends_at_the_next_checkpoint_if_no_row_comes(disk: Path) -> None:
    """However many failures of checkpoints are tolerable: none would complete, with room or without."""
    checkpointing = cw.Checkpointing("3650 days", storage=cw.memory_storage("1GB"), tolerable_failures=1000)
    backend = cw.RocksDB(incremental=True, local_directories=[str(disk)])
    env = cw.Environment(parallelism=1, checkpointing=checkpointing, state_backend=backend)

    def pipeline(env: cw.Environment) -> None:
        rows = env.read(cw.from_rows([], "k string, what string, ts long"), uid="in").with_timestamps("ts")
        windows = rows.filter(Room(disk)).key_by("k").window(cw.tumbling("1h"))
        windows.agg(last=cw.last("what")).uid("texts").collect("out")

    says = rf"texts: RocksDB in {disk}.* cannot be written: .*No space left.*Is the disk full\?"
    steps = script(
        ("a", "1", 1), CHECKPOINT, ("a", "2", 2), ("a", "fill", 3), TRIGGER, ADVANCE("1s"), ("a", "free", 4), TRIGGER,
        ADVANCE("1s"), ("a", "note", 5),
    )  # fmt: skip
    with pytest.raises(cw.JobFailed, match=says):
        run(pipeline, {"in": steps}, environment=env)
    assert not (disk / "went on").exists()
