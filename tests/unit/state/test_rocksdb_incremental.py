"""Snapshots of RocksDB as files: each holds its cut and nothing newer, whatever the loop does meanwhile, and few files are new."""

import os
import statistics
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import cutwater as cw
from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.layout import JobLayout
from cutwater.checkpoint.stored_tables import RestoredTables
from cutwater.checkpoint.table_writer import TableWriter
from cutwater.errors import DamagedCheckpoint, RestoreError, StorageError
from cutwater.flow.hashing import hash_arrays, key_groups
from cutwater.flow.ids import Attempt, CheckpointId, SubtaskId
from cutwater.flow.key_groups import KeyGroupRange, key_group_range
from cutwater.state import rocksdb_database
from cutwater.state.backend import KeyedStateStore, StateBackend
from cutwater.state.descriptors import BoundStates, bind_states
from cutwater.state.frozen import FrozenTable, WholeTable
from cutwater.state.rocksdb_cut import WHILE_LINKED, Gate
from cutwater.state.rocksdb_database import Database
from cutwater.state.rocksdb_family import Family
from cutwater.state.rocksdb_frozen import FrozenFiles
from cutwater.state.rocksdb_layout import Content, Layout
from cutwater.state.rocksdb_space import FrozenRocksDBAggregates
from cutwater.state.stored import Form, StoredFile, StoredTable
from cutwater.state.tables import Column, JoinSide, Merge, Update
from cutwater.testing.contract_tables import KINDS, Kind
from tests.increments import ManyKeys
from tests.local_state import rocksdb_folder, wait_until_nothing_is_joined

ALL = KeyGroupRange(0, 127)
KEYS = pa.schema([pa.field("k", pa.int64())])
KEYS_OF_MANY = 150_000


class Job:
    """Checkpoints of one operator in one subtask, each built on the one before."""

    def __init__(self, folder: Path, cache: Any = 4000, **settings: Any) -> None:
        self.storage = FileStorage(str(folder / "storage"))
        self.local = folder / "local"
        self.backend = cw.RocksDB(incremental=True, cache=cache, local_directories=[str(self.local)], **settings)
        self.attempt = 1
        self.last = 0
        self.confirmed: dict[str, StoredTable] = {}
        """The tables of the latest checkpoint that completed."""

    def open(self) -> KeyedStateStore:
        return self.backend.open("uid", ALL, 128)

    def resume(self) -> KeyedStateStore:
        """As the next attempt would."""
        self.attempt += 1
        store = self.open()
        assert set(store.resume(CheckpointId(self.last), self.restored())) == set(self.confirmed)
        return store

    def freeze(self, store: KeyedStateStore) -> list[FrozenTable]:
        self.last += 1
        return store.freeze(CheckpointId(self.last))

    def store(self, frozen: list[FrozenTable]) -> int:
        """How many bytes are new in the storage."""
        writer = TableWriter(self.storage, JobLayout("job").files_of(SubtaskId("v", 0), Attempt(self.attempt)))
        known = {file.file for table in self.confirmed.values() for file in table.files}
        self.confirmed = {
            table.name: writer.write(CheckpointId(self.last), "uid", table, self.confirmed.get(table.name))[0]
            for table in frozen
        }
        release(frozen)
        assert all(table.form is Form.ROCKSDB for table in self.confirmed.values())
        files = {file for table in self.confirmed.values() for file in table.files}
        return sum(file.size for file in files if file.file not in known)

    def restored(self, groups: KeyGroupRange = ALL) -> RestoredTables:
        return RestoredTables((), tuple(self.confirmed.values()), groups, storage=self.storage)

    def content(self, kind: Kind, backend: StateBackend, groups: KeyGroupRange = ALL) -> Any:
        store = backend.open("uid", groups, 128)
        restored = self.restored(groups)
        for name in restored.tables():
            store.restore(name, restored.batches(name))
        found = kind.content(kind.open(store))
        store.close()
        return found


def release(frozen: list[FrozenTable]) -> None:
    for table in frozen:
        table.release()


def content_of(kind: Kind, steps: list[int]) -> Any:
    model = kind.of_memory()
    for step in steps:
        kind.write(model, step)
    return kind.content(model)


def content_of_rows(kind: Kind, frozen: list[FrozenTable]) -> Any:
    """Read as rows, which lets go of them."""
    other = cw.Memory().open("uid", ALL, 128)
    for table in frozen:
        other.restore(table.name, table.batches())
    table_of_rows = kind.open(other)
    release(frozen)
    return kind.content(table_of_rows)


@pytest.mark.parametrize("cache", [1, 4000, "64MB"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_checkpoint_of_files_goes_on_on_rocksdb_and_restores_on_memory(
    kind: Kind, cache: Any, tmp_path: Path
) -> None:
    job = Job(tmp_path, cache)
    store = job.open()
    table = kind.open(store)
    for step in range(9):
        kind.write(table, step)
        store.tend()
        job.store(job.freeze(store))
        assert job.content(kind, cw.Memory()) == content_of(kind, list(range(step + 1)))
        if step % 3 == 2:
            store.close()
            store = job.resume()
            table = kind.open(store)
    assert kind.content(table) == content_of(kind, list(range(9)))
    store.close()


def test_files_that_did_not_change_are_not_stored_again(tmp_path: Path) -> None:
    """Not those of the data alone: each file that is stored waits for the disk."""
    job = Job(tmp_path, "64MB")
    store = job.open()
    table = KINDS[0].open(store)
    stored: list[set[StoredFile]] = []
    for step in range(2):
        KINDS[0].write(table, step)
        job.store(job.freeze(store))
        stored.append({file for each in job.confirmed.values() for file in each.files})
    store.close()
    new = {file.name for file in stored[1] - stored[0]}
    assert {name.split("-")[0] for name in new if not name.endswith(".sst")} == {"MANIFEST"}
    assert {"CURRENT"} <= {file.name for file in stored[1] & stored[0]}


STEPS = st.lists(
    st.sampled_from(["write", "write", "freeze", "store", "read", "release", "tend", "resume"]), max_size=24
)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@settings(max_examples=15)
@given(steps=STEPS, cache=st.sampled_from([1, 4000, 100_000]))
@example(steps=["write"] * 3 + ["freeze", "write", "store"], cache=100_000)  # drops what waits to be stored
@example(steps=["write", "freeze", "release", "freeze", "store"], cache=100_000)
@example(steps=["write", "freeze", "release", *["write"] * 3, "freeze", "store"], cache=1)
@example(steps=["write", "freeze", *["write"] * 3, "freeze", "release", "store"], cache=100_000)
@example(steps=["write"] * 3 + ["freeze", "write", "freeze", "write", "store", "store"], cache=4000)
@example(steps=["write"] * 3 + ["freeze", "write", "freeze", "write", "store", "read", "freeze", "store"], cache=4000)
@example(steps=["write", "freeze", "write", "store", "freeze", "write", "read", "freeze", "store"], cache=1)
def test_whatever_the_loop_does_meanwhile_a_checkpoint_holds_its_cut(
    kind: Kind, steps: list[str], cache: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Cuts wait to be stored, or are given up, while the loop writes, drops and evicts."""
    job = Job(tmp_path_factory.mktemp("job"), cache)
    store = job.open()
    table = kind.open(store)
    written: list[int] = []
    of_confirmed: list[int] = []
    cuts: deque[tuple[list[FrozenTable], list[int]]] = deque()
    for step in steps:
        match step:
            case "write":
                kind.write(table, len(written))
                written.append(len(written))
            case "tend":
                store.tend()
            case "freeze":
                cuts.append((job.freeze(store), list(written)))
            case "store" if cuts:
                frozen, of_confirmed = cuts.popleft()
                job.store(frozen)
                assert job.content(kind, cw.Memory()) == content_of(kind, of_confirmed)
            case "read" if cuts:  # as a savepoint does
                frozen, held = cuts.popleft()
                assert content_of_rows(kind, frozen) == content_of(kind, held)
            case "release" if cuts:
                release(cuts.popleft()[0])
            case "resume" if job.confirmed:
                for frozen, _ in cuts:
                    release(frozen)
                cuts.clear()
                store.close()
                store = job.resume()
                table = kind.open(store)
                written = list(of_confirmed)
    assert kind.content(table) == content_of(kind, written)
    for frozen, _ in cuts:
        release(frozen)
    store.close()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_files_restore_at_another_parallelism_and_read_only_their_own_key_groups(kind: Kind, tmp_path: Path) -> None:
    job = Job(tmp_path)
    store = job.open()
    table = kind.open(store)
    for step in range(5):
        kind.write(table, step)
    job.store(job.freeze(store))
    store.close()
    held = {}
    for parallelism in (1, 3):
        restored = [job.restored(key_group_range(i, parallelism, 128)) for i in range(parallelism)]
        rows = {
            name: [row for part in restored for batch in part.batches(name) for row in batch.to_pylist()]
            for name in job.confirmed
        }
        held[parallelism] = {name: sorted(map(repr, of)) for name, of in rows.items()}
        for i, part in enumerate(restored):
            own = key_group_range(i, parallelism, 128)
            for name in job.confirmed:
                groups = [g for b in part.batches(name) for g in b.column("key_group").to_numpy().tolist()]
                assert all(group in own for group in groups)
    assert held[1] == held[3]


def adopted(job: Job, kind: Kind, stored: Sequence[StoredTable], groups: KeyGroupRange) -> tuple[KeyedStateStore, Any]:
    """A store of these key groups that took over the files of all that were stored with some of them, and its table."""
    own = [part for part in stored if part.first_key_group <= groups.last and part.last_key_group >= groups.first]
    state = RestoredTables((), own, groups, storage=job.storage)
    store = job.backend.open("uid", groups, 128)
    assert set(store.adopt(state)) == set(state.tables()) != set()
    return store, kind.open(store)


def stored_part(job: Job, store: KeyedStateStore, index: int) -> list[StoredTable]:
    """What the subtask ``index`` of a new attempt would store."""
    writer = TableWriter(job.storage, JobLayout("job").files_of(SubtaskId("v", index), Attempt(job.attempt)))
    frozen = store.freeze(CheckpointId(job.last + 1))
    stored = [writer.write(CheckpointId(job.last + 1), "uid", table, None)[0] for table in frozen]
    release(frozen)
    return stored


@pytest.mark.parametrize("cache", [4000, "64MB"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_files_are_taken_over_at_another_parallelism_and_back(kind: Kind, cache: Any, tmp_path: Path) -> None:
    job = Job(tmp_path, cache)
    store = job.open()
    table = kind.open(store)
    for step in range(7):
        kind.write(table, step)
    job.store(job.freeze(store))
    store.close()
    whole = tuple(job.confirmed.values())
    job.attempt += 1
    thirds: list[StoredTable] = []
    for index in range(3):
        groups = key_group_range(index, 3, 128)
        store, table = adopted(job, kind, whole, groups)
        thirds += stored_part(job, store, index)  # to read first would add the keys that are asked for
        assert kind.content(table) == job.content(kind, cw.Memory(), groups)
        store.close()
    for index in range(2):
        groups = key_group_range(index, 2, 128)
        store, table = adopted(job, kind, thirds, groups)
        assert kind.content(table) == job.content(kind, cw.Memory(), groups)
        store.close()
    store, table = adopted(job, kind, thirds, ALL)
    for step in (7, 8):
        kind.write(table, step)
    assert kind.content(table) == content_of(kind, list(range(9)))
    job.store(job.freeze(store))
    assert job.content(kind, cw.Memory()) == content_of(kind, list(range(9)))
    [folder] = [each for each in rocksdb_folder(job.local).iterdir() if each.is_dir()]
    assert os.listdir(folder) == ["db"]
    store.close()


def test_a_backend_that_stores_everything_goes_on_with_the_files_of_one_that_does_not(tmp_path: Path) -> None:
    job = Job(tmp_path)
    store = job.open()
    counted(store.aggregates("n", KEYS, COLUMNS), np.arange(3000))
    job.store(job.freeze(store))
    store.close()
    other = cw.RocksDB(local_directories=[str(job.local)]).open("uid", ALL, 128)
    assert set(other.adopt(job.restored())) == {"n"}
    table = other.aggregates("n", KEYS, COLUMNS)
    counted(table, np.arange(2000, 4000))
    [frozen] = other.freeze()
    counts = {row["k"]: row["n"] for batch in frozen.batches() for row in batch.to_pylist()}
    assert counts == {key: 1 + (2000 <= key < 3000) for key in range(4000)}
    frozen.release()
    other.close()


def test_files_taken_over_in_part_are_never_referenced_by_what_is_stored_next(tmp_path: Path) -> None:
    """Names of a database's files tell nothing: another one gives the same names to others."""
    job = Job(tmp_path)
    store = job.open()
    counted(store.aggregates("n", KEYS, COLUMNS), np.arange(3000))
    job.store(job.freeze(store))
    store.close()
    for groups in (ALL, KeyGroupRange(0, 63)):
        job.attempt += 1
        store = job.backend.open("uid", groups, 128)
        store.adopt(job.restored(groups))
        store.aggregates("n", KEYS, COLUMNS)
        before = {file.file for file in job.confirmed["n"].files}
        confirmed = dict(job.confirmed)
        job.store(job.freeze(store))
        store.close()
        assert not before & {file.file for file in job.confirmed["n"].files}
        job.confirmed = confirmed


def test_a_takeover_that_breaks_off_leaves_nothing_and_can_be_repeated(tmp_path: Path) -> None:
    job = Job(tmp_path)
    parts: list[StoredTable] = []
    for index in range(3):
        store = job.open()
        own = store.aggregates("n", KEYS, COLUMNS)
        keys = np.arange(3000)
        groups = key_groups(hash_arrays([pa.array(keys)], len(keys)), 128)
        third = key_group_range(index, 3, 128)
        counted(own, keys[(groups >= third.first) & (groups <= third.last)])
        [part] = stored_part(job, store, index)
        parts.append(replace(part, first_key_group=third.first, last_key_group=third.last))
        store.close()
    files = [file for part in parts for file in part.files]
    for broken in files:
        content = job.storage.read(broken.file)
        job.storage.put(broken.file, content[:-1] + bytes([content[-1] ^ 1]))
        store = job.open()
        with pytest.raises(DamagedCheckpoint, match="checksum"):
            store.adopt(RestoredTables((), parts, ALL, storage=job.storage))
        store.close()
        assert list(rocksdb_folder(job.local).iterdir()) == []
        job.storage.put(broken.file, content)
    store = job.open()
    store.adopt(RestoredTables((), parts, ALL, storage=job.storage))
    table = store.aggregates("n", KEYS, COLUMNS)
    assert len(table) == 3000
    touched = table.locate(pa.RecordBatch.from_arrays([pa.array(np.arange(3000))], schema=KEYS))
    assert table.read(touched.rows)[0].to_pylist() == [1] * 3000
    store.close()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("steps", range(3, 12))
def test_a_part_that_is_written_in_part_is_read_once(kind: Kind, steps: int, tmp_path: Path) -> None:
    """The rows of such a part are in memory and in RocksDB, for readers of the table and of a snapshot of rows alike."""
    store = Job(tmp_path, 6000).open()
    table = kind.open(store)
    for step in range(steps):
        kind.write(table, step)
    wanted = content_of(kind, list(range(steps)))
    assert content_of_rows(kind, store.freeze()) == wanted
    assert kind.content(table) == wanted
    store.close()


def counted(table: Any, keys: "np.typing.NDArray[np.int64]") -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(keys)], schema=KEYS)
    values = [Update(0, Merge.COUNT), Update(1, Merge.LAST, pa.array([f"{key:090}" for key in keys]))]
    table.update(table.locate(batch), values)


COLUMNS = [Column("n", pa.int64(), nullable=False), Column("text", pa.string())]


def test_few_changes_make_a_small_checkpoint_and_leave_no_folder(tmp_path: Path) -> None:
    job = Job(tmp_path, "8MB")
    store = job.open()
    table = store.aggregates("n", KEYS, COLUMNS)
    draw = np.random.default_rng(7)
    for start in range(0, 100_000, 10_000):
        counted(table, np.arange(start, start + 10_000))
    full = job.store(job.freeze(store))
    for round in range(4):
        if round == 2:
            store.close()
            store = job.resume()
            table = store.aggregates("n", KEYS, COLUMNS)
        counted(table, draw.choice(100_000, 1000, replace=False))
        assert job.store(job.freeze(store)) < full / 20
    assert len(table) == 100_000
    [folder] = [each for each in rocksdb_folder(job.local).iterdir() if each.is_dir()]
    assert os.listdir(folder) == ["db"]
    store.close()
    assert list(rocksdb_folder(job.local).iterdir()) == []


def test_checkpoints_that_are_stored_beside_the_loop_hold_their_cut(tmp_path: Path) -> None:
    """On a thread of their own; the loop reads and evicts all the time, as the cache holds a tenth of the keys."""
    job = Job(tmp_path, "200kB")
    store = job.open()
    table = store.aggregates("n", KEYS, COLUMNS)
    draw = np.random.default_rng(7)
    total = np.zeros(20_000, np.int64)
    stored: list[tuple[Any, RestoredTables]] = []
    with ThreadPoolExecutor(1) as snapshot_thread:
        under_way: Future[int] | None = None
        held = total.copy()
        while len(stored) < 5:
            keys = draw.integers(0, len(total), 2000)
            np.add.at(total, keys, 1)
            counted(table, keys)
            if under_way is None or under_way.done():
                if under_way is not None:
                    under_way.result()
                    stored.append((held, job.restored()))
                held = total.copy()
                under_way = snapshot_thread.submit(job.store, job.freeze(store))
    for wanted, restored in stored:
        found = np.zeros_like(total)
        for batch in restored.batches("n"):
            found[batch.column("k").to_numpy()] += batch.column("n").to_numpy()
        assert (found == wanted).all()
    assert stored[-1][0].sum() > stored[0][0].sum() > 0
    store.close()


def test_files_of_another_database_are_not_taken_for_those_of_the_same_name(tmp_path: Path) -> None:
    """As when rows were restored: the new database begins to count its files again."""
    job = Job(tmp_path)
    for number in range(2):
        store = job.open()
        table = store.aggregates("n", KEYS, COLUMNS)
        counted(table, np.arange(1000 * number, 1000 * number + 1000))
        job.store(job.freeze(store))
        store.close()
        [held] = job.restored().batches("n")
        assert held.column("k").to_numpy().min() == 1000 * number


def test_a_million_keys_of_100_bytes_of_which_1_percent_changed_take_5_percent_of_the_bytes_and_20_of_the_time(
    tmp_path: Path,
) -> None:
    """Of the time of the processor, RocksDB's own threads among it: on a busy machine no other tells anything."""
    job = Job(tmp_path, "256MB")
    store = job.open()
    many = ManyKeys(store)
    many.write(np.arange(1_000_000))
    began = time.process_time()
    full = job.store(job.freeze(store))
    whole = time.process_time() - began
    wait_until_nothing_is_joined(store)
    many.write(np.random.default_rng(1).choice(1_000_000, 10_000, replace=False))
    began = time.process_time()
    assert job.store(job.freeze(store)) < 0.05 * full
    assert time.process_time() - began < 0.2 * whole
    counts = many.counts(np.arange(100_000))
    store.close()
    store = job.resume()
    again = ManyKeys(store)
    assert len(again.table) == 1_000_000
    assert (again.counts(np.arange(100_000)) == counts).all()
    assert counts.sum() > 100_000
    store.close()


@pytest.mark.parametrize(("write_buffer", "resumes"), [("500kB", True), ("5MB", False)])
def test_sixteen_checkpoints_in_a_row_of_which_each_changed_1_percent_store_less_than_5_percent_each(
    write_buffer: str, resumes: bool, tmp_path: Path
) -> None:
    """Behind a state that filled the write buffer many times, or a few: RocksDB must not join those files with the few rows that
    came later."""
    job = Job(tmp_path, "1MB", write_buffer=write_buffer)
    store = job.open()
    many = ManyKeys(store)
    many.write(np.arange(KEYS_OF_MANY))
    # Files that are being joined meanwhile would be new to one of those that follow.
    wait_until_nothing_is_joined(store)
    full = job.store(job.freeze(store))
    draw = np.random.default_rng(1)
    stored = []
    for round in range(16):  # on a busy machine the first one has fifteen runs, and 32 are joined
        if round == 8 and resumes:
            store.close()
            store = job.resume()
            many = ManyKeys(store)
        many.write(draw.choice(KEYS_OF_MANY, KEYS_OF_MANY // 100, replace=False))
        stored.append(job.store(job.freeze(store)) / full)
    store.close()
    assert max(stored) < 0.05, stored
    assert sum(stored) < 16 * 0.02, stored


def bytes_in(folder: Path) -> int:
    """A file that is linked to counts once."""
    found = {}
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # RocksDB removes them at any time
            status = path.stat()
            found[status.st_ino] = status.st_size
    return sum(found.values())


def test_many_checkpoints_of_rows_that_all_change_leave_the_local_folder_small_whatever_became_of_them(
    tmp_path: Path,
) -> None:
    job = Job(tmp_path, "100kB", compression="none")
    store = job.open()
    table = store.rows("s", KEYS, pa.binary())
    local = rocksdb_folder(job.local)
    most = 0
    for round in range(60):
        for key in range(200):
            table.put(key, bytes([round]) * 1000)
        store.tend()
        frozen = job.freeze(store)
        match round % 4:
            case 0 | 1:
                job.store(frozen)
            case 2:  # linked, but not stored
                frozen[0].cut.link()  # type: ignore[attr-defined]
                release(frozen)
            case 3:
                release(frozen)
        [folder] = [each for each in local.iterdir() if each.is_dir()]
        assert os.listdir(folder) == ["db"]
        most = max(most, bytes_in(folder))
    assert most < 20 * 200 * 1000
    store.close()


def test_a_checkpoint_stores_no_more_for_those_that_were_before_it_and_neither_does_the_local_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocksdb_database, "MANIFEST_BYTES", 4_000)
    job = Job(tmp_path, "1MB")
    store = job.open()
    table = store.rows("s", KEYS, pa.int64())
    stored = []
    for round in range(120):
        table.put(round % 5, round)
        stored.append(job.store(job.freeze(store)))
    local = bytes_in(rocksdb_folder(job.local))
    store.close()
    # Some 170 bytes are written down for each checkpoint.
    assert statistics.median(stored[-20:]) < 8_000
    assert local < 300_000


def test_rocksdb_does_not_tell_of_its_work(tmp_path: Path) -> None:
    """It would begin another file now and then, and crashes where that fails: by letting go of a cut when the folder is gone."""
    job = Job(tmp_path, "1MB")
    store = job.open()
    table = store.rows("s", KEYS, pa.int64())

    def told() -> int:
        [log] = job.local.glob("**/LOG*")
        return log.stat().st_size

    sizes = []
    for round in range(40):
        table.put(round % 5, round)
        job.store(job.freeze(store))
        sizes.append(told())
    assert sizes[0] == sizes[-1]
    store.close()


class Expiring:
    value = cw.ValueState("int", ttl="1s")


def test_what_has_expired_may_be_in_files_but_is_in_no_savepoint_and_never_given_out_again(tmp_path: Path) -> None:
    now = 1_000
    job = Job(tmp_path)

    def bound(store: KeyedStateStore) -> tuple[Expiring, BoundStates]:
        function = Expiring()
        states = bind_states(function, store, "uid", KEYS, lambda: now)
        states.key = 1
        return function, states

    store = job.open()
    function, states = bound(store)
    function.value.value = 7
    now += 2_000
    [whole] = states.freeze(CheckpointId(1))
    assert list(WholeTable(whole).batches()) == []
    whole.release()
    job.last = 2
    job.store(states.freeze(CheckpointId(2)))
    store.close()
    assert sum(batch.num_rows for batch in job.restored().batches("value")) == 1
    on_memory = cw.Memory().open("uid", ALL, 128)
    on_memory.restore("value", job.restored().batches("value"))
    for store in (job.resume(), on_memory):
        function, states = bound(store)
        assert function.value.value is None
        store.close()


def test_files_from_before_nested_values_were_taken_apart_are_still_read(tmp_path: Path) -> None:
    job = Job(tmp_path)
    store = job.open()
    table: Any = store.rows("n", KEYS, pa.list_(pa.string()))
    table.layout = replace(table.layout, leaves=False)
    table._codec = table.layout.codec()
    wanted = {key: ["a", None, str(key)] for key in range(100)}
    for key, value in wanted.items():
        table.put(key, value)
    job.store(job.freeze(store))
    store.close()
    [stored] = job.confirmed.values()
    assert stored.details["layout"].pop("leaves") is False
    memory = cw.Memory().open("uid", ALL, 128)
    memory.restore("n", job.restored().batches("n"))
    assert dict(memory.rows("n", KEYS, pa.list_(pa.string())).items()) == wanted
    store = job.resume()
    table = store.rows("n", KEYS, pa.list_(pa.string()))
    assert dict(table.items()) == wanted
    job.store(job.freeze(store))
    assert job.confirmed["n"].details["layout"]["leaves"] is True
    store.close()


def test_each_state_counts_for_itself_against_the_limit_of_memory_storage(tmp_path: Path) -> None:
    """Though all states of an operator are in the same files."""
    limit = 200_000
    store = cw.RocksDB(incremental=True, local_directories=[str(tmp_path)]).open("uid", ALL, 128)
    few, many = [store.rows(name, KEYS, pa.binary()) for name in ("few", "many")]
    writer = TableWriter(None, JobLayout("job").files_of(SubtaskId("v", 0), Attempt(1)), limit=limit)

    def checkpoint(number: int) -> tuple[list[StoredTable], int]:
        frozen = store.freeze(CheckpointId(number))
        try:
            written = [writer.write(CheckpointId(number), "uid", table, None) for table in frozen]
        finally:
            release(frozen)
        return [stored for stored, _ in written], sum(len(each) for _, attached in written for each in attached)

    for key in range(150):
        few.put(key, os.urandom(1000))
        many.put(key, os.urandom(1000))
    tables, attached = checkpoint(1)
    assert [table.size for table in tables] == [attached, attached]
    assert attached > 1.4 * limit
    for key in range(150, 300):
        many.put(key, os.urandom(1000))
    with pytest.raises(StorageError, match="State 'many' is larger than 200000 bytes"):
        checkpoint(2)
    store.close()


def test_accumulators_in_another_order_are_restored_by_name_and_other_types_refused(tmp_path: Path) -> None:
    job = Job(tmp_path)
    store = job.open()
    counted(store.aggregates("n", KEYS, COLUMNS), np.arange(1000))
    job.store(job.freeze(store))
    store.close()
    store = job.resume()
    table = store.aggregates("n", KEYS, COLUMNS[::-1])
    touched = table.locate(pa.RecordBatch.from_arrays([pa.array([7, 1000])], schema=KEYS))
    assert [column.to_pylist() for column in table.read(touched.rows)] == [[f"{7:090}", None], [1, 0]]
    store.close()
    store = job.resume()
    with pytest.raises(RestoreError, match="column 'n': the program declares string"):
        store.aggregates("n", KEYS, [Column("n", pa.string()), COLUMNS[1]])
    store.close()
    store = job.resume()
    with pytest.raises(RestoreError, match="restored state n was never declared"):
        store.freeze(CheckpointId(9))
    store.close()


def test_a_cut_that_ends_while_the_loop_looks_at_the_gate_is_heard_of_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path)
    store = job.open()
    table = store.rows("s", KEYS, pa.int64())
    for key in range(10):
        table.put(key, key)
    frozen = job.freeze(store)
    looked = Gate.is_shut
    assert isinstance(looked, property) and looked.fget is not None
    look, waiting = looked.fget, [frozen]

    def ends_meanwhile(gate: Gate) -> Any:
        if waiting:
            job.store(waiting.pop())
        return look(gate)

    monkeypatch.setattr(Gate, "is_shut", property(ends_meanwhile))
    for _ in range(3):
        store.tend()
    assert [table.get(key) for key in range(10)] == list(range(10))


def test_rows_of_a_cut_that_is_let_go_while_the_loop_links_it_are_as_they_were_until_that_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint failed, and the snapshot thread lets go of it; the loop's memory is full, and it links in its place."""
    job = Job(tmp_path)
    store = job.open()
    table = store.aggregates("n", KEYS, COLUMNS)
    counted(table, np.arange(1000))
    [frozen] = job.freeze(store)
    assert isinstance(frozen, FrozenFiles)
    released: list[str] = []
    release_rows, ingest = FrozenRocksDBAggregates.release, Family.ingest

    def noted(rows: FrozenRocksDBAggregates) -> None:
        released.append("rows")
        release_rows(rows)

    def let_go_meanwhile(family: Family, entries: Any) -> None:
        frozen.release()
        assert not released
        ingest(family, entries)

    monkeypatch.setattr(FrozenRocksDBAggregates, "release", noted)
    monkeypatch.setattr(Family, "ingest", let_go_meanwhile)
    frozen.cut.link()
    assert released
    store.close()


@pytest.fixture
def gates(monkeypatch: pytest.MonkeyPatch) -> list[Gate]:
    """Of the stores that are opened."""
    opened: list[Gate] = []

    class Seen(Gate):
        def __init__(self) -> None:
            super().__init__()
            opened.append(self)

    monkeypatch.setattr("cutwater.state.rocksdb_store.Gate", Seen)
    return opened


def write_steps(kind: Kind, store: KeyedStateStore, table: Any, steps: range) -> None:
    for step in steps:
        kind.write(table, step)
        store.tend()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_loop_whose_memory_is_full_does_not_wait_for_a_storage_that_hangs(
    kind: Kind, tmp_path: Path, gates: list[Gate]
) -> None:
    job = Job(tmp_path)
    store = job.open()
    table = kind.open(store)
    write_steps(kind, store, table, range(10))
    first = job.freeze(store)
    assert gates[0].is_shut
    write_steps(kind, store, table, range(10, 200))
    assert not gates[0].is_shut
    second = job.freeze(store)
    write_steps(kind, store, table, range(200, 390))
    assert not gates[0].is_shut
    third = job.freeze(store)
    for frozen, steps in ((first, 10), (second, 200), (third, 390)):
        job.store(frozen)
        assert job.content(kind, cw.Memory()) == content_of(kind, list(range(steps)))
    store.close()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("cache", [4000, "64MB"])
def test_cuts_are_linked_in_their_order_whoever_comes_first(kind: Kind, cache: Any, tmp_path: Path) -> None:
    job = Job(tmp_path, cache)
    store = job.open()
    table = kind.open(store)
    kind.write(table, 0)
    first = job.freeze(store)
    kind.write(table, 1)
    second = job.freeze(store)
    kind.write(table, 2)
    job.store(second)
    assert job.content(kind, cw.Memory()) == content_of(kind, [0, 1])
    job.store(first)
    assert job.content(kind, cw.Memory()) == content_of(kind, [0])
    job.store(job.freeze(store))
    assert job.content(kind, cw.Memory()) == content_of(kind, [0, 1, 2])
    store.close()


@pytest.mark.parametrize("kind", KINDS[1:4], ids=lambda kind: kind.name)
@pytest.mark.parametrize("as_rows", [False, True], ids=["files", "rows"])
def test_what_is_dropped_behind_a_cut_is_in_it_though_another_drop_waits_since_before(
    kind: Kind, tmp_path: Path, *, as_rows: bool
) -> None:
    """Nothing may be dropped in RocksDB before the first cut is linked, so that drops wait and are gathered."""
    job = Job(tmp_path)
    store = job.open()
    table = kind.open(store)
    for step in range(3):
        kind.write(table, step)
    job.store(job.freeze(store))
    dropped, later, _ = sorted(table.panes() if kind.name == "panes" else table.buckets())
    first = job.freeze(store)
    table.drop(dropped)
    second, held = job.freeze(store), kind.content(table)
    table.drop(later)
    if as_rows:
        assert content_of_rows(kind, second) == held
        release(first)
    else:
        release(first)
        job.store(second)
        assert job.content(kind, cw.Memory()) == held
    store.close()


@pytest.mark.parametrize("is_full", [False, True])
def test_the_loop_may_write_while_all_rows_are_written_to_a_savepoint(
    is_full: bool, tmp_path: Path, gates: list[Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise StorageError("no space left")

    job = Job(tmp_path)
    store = job.open()
    table = store.rows("s", KEYS, pa.int64())
    for key in range(10):
        table.put(key, key)
    [frozen] = job.freeze(store)
    if is_full:
        monkeypatch.setattr(Database, "link", full)
    written = WholeTable(frozen).batches()
    first = next(written)
    assert not gates[0].is_shut
    for key in range(10):
        table.put(key, -key)
        store.tend()
    rows = pa.Table.from_batches([first, *written])
    assert [column.to_pylist() for column in rows.columns[:2]] == [[*range(10)], [*range(10)]]
    frozen.release()
    store.close()


def links_that_wait(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """That one has begun, and that it may come to its end."""
    begun, may_end = threading.Event(), threading.Event()
    link = Database.link

    def slow_link(database: Database, folder: str) -> None:
        begun.set()
        assert may_end.wait(30)
        link(database, folder)

    monkeypatch.setattr(Database, "link", slow_link)
    return begun, may_end


def test_a_loop_with_a_small_cache_goes_on_for_a_while_beside_whoever_links(
    tmp_path: Path, gates: list[Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = links_that_wait(monkeypatch)
    job = Job(tmp_path, cache=1000)
    store = job.open()
    table = store.rows("s", KEYS, pa.int64())
    table.put(0, 0)
    with ThreadPoolExecutor(2) as others:
        stored = others.submit(job.store, job.freeze(store))
        assert begun.wait(30)
        for key in range(200):  # far more than twice the cache
            table.put(key, 1)
            store.tend()
        assert gates[0].is_shut
        much = others.submit(gates[0].lets_write, WHILE_LINKED + 2001, 1000)
        with pytest.raises(TimeoutError):
            much.result(0.05)
        may_end.set()
        assert much.result()
        stored.result()
    store.close()
    resumed = job.resume()
    assert [*resumed.rows("s", KEYS, pa.int64()).items()] == [(0, 0)]
    resumed.close()


def test_a_cut_is_given_up_without_waiting_for_another_that_is_linked(
    tmp_path: Path, gates: list[Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = links_that_wait(monkeypatch)
    job = Job(tmp_path)
    store = job.open()
    table = store.rows("s", KEYS, pa.int64())
    cuts = []
    for value in (1, 2):
        table.put(0, value)
        cuts.append(job.freeze(store))
    with ThreadPoolExecutor(1) as snapshot_thread:
        stored = snapshot_thread.submit(job.store, cuts[0])
        assert begun.wait(30)
        release(cuts[1])
        assert gates[0].is_shut
        may_end.set()
        stored.result()
    assert not gates[0].is_shut
    assert table.get(0) == 2
    job.store(job.freeze(store))
    store.close()
    assert job.resume().rows("s", KEYS, pa.int64()).get(0) == 2


def test_a_cut_whose_tables_let_go_of_it_one_by_one_can_be_linked_until_the_last_one_does(
    tmp_path: Path, gates: list[Gate]
) -> None:
    """The snapshot thread stands still in between, and the loop, whose memory is full, links the cut in its place."""
    job = Job(tmp_path, cache="1MB")
    store = job.open()
    table, other = (store.aggregates(name, KEYS, COLUMNS) for name in ("n", "m"))
    counted(table, np.arange(3000))
    first, second = job.freeze(store)
    assert isinstance(first, FrozenFiles)
    first.release()
    counted(table, np.arange(3000))  # where nobody reads a snapshot, rows are changed in place
    assert gates[0].is_shut
    for start in range(0, 30_000, 3000):
        counted(other, np.arange(start, start + 3000))
    assert not gates[0].is_shut
    [folder] = job.local.glob("*/*/cut-1")
    entries = rocksdb_database.read_family(str(folder), "n", b"", b"\xff" * 8, 1 << 20)
    counts = [count for batch in first.layout.decoded(entries) for count in batch.column("n").to_pylist()]
    assert counts == [1] * 3000
    second.release()
    store.close()


def test_a_side_of_a_join_that_comes_as_rows_hides_nothing_of_one_that_stays_in_its_files(tmp_path: Path) -> None:
    """Its columns stand in another order now, so that they are read and added; some wait to be written behind that."""
    left, right = pa.schema([("k", pa.int64()), ("v", pa.int64())]), pa.schema([("k", pa.int64()), ("w", pa.int64())])
    job = Job(tmp_path, cache="6MB")
    store = job.open()
    many, few = pa.array(range(40_000), pa.int64()), pa.array(range(50), pa.int64())
    join = store.join("j", JoinSide(left, ("k",)), JoinSide(right, ("k",)), "bucket")
    join.add(0, 7, pa.record_batch([many, many], schema=left))
    join.add(1, 7, pa.record_batch([few, few], schema=right))
    job.store(job.freeze(store))
    store.close()
    store = job.resume()
    turned = pa.schema(list(left)[::-1])
    join = store.join("j", JoinSide(turned, ("k",)), JoinSide(right, ("k",)), "bucket")
    assert len(join.matches(0, 7, pa.record_batch([many, many], schema=turned))[0]) == len(few)
    store.close()


def test_a_form_that_nobody_knows_is_refused() -> None:
    stored = Layout(Content.BY_KEY, KEYS, ("k",)).to_json()
    assert Layout.from_json(stored).keys == ("k",)
    with pytest.raises(RestoreError, match="the form 'batches', which this version of Cutwater does not read"):
        Layout.from_json({**stored, "content": "batches"})
