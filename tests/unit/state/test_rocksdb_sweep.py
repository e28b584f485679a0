"""Rows that are gone do not stay in RocksDB's files: whoever reads would step over each of them, in the loop's place."""

import gc
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.flow.ids import CheckpointId
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state import rocksdb_family
from cutwater.state.backend import KeyedStateStore
from cutwater.state.rocksdb_database import Database, Tuning
from cutwater.state.rocksdb_family import Family
from cutwater.state.rocksdb_sweep import FEW, MOST_SHARE, Sweep, are_many, deletions_of

KEYS = pa.schema([("k", pa.int64())])
MANY = 5 * FEW
TUNING = Tuning(1 << 20, 1 << 20, "lz4")


def test_gone_rows_are_many_beside_those_that_are_there_and_never_if_they_are_few() -> None:
    assert not are_many(FEW, rows=0)
    assert are_many(FEW + 1, rows=0)
    assert not are_many(FEW + 1, rows=10 * FEW)
    assert are_many(MOST_SHARE * 10 * FEW + 1, rows=10 * FEW)


def test_deletions_are_found_in_what_rocksdb_tells_of_its_files() -> None:
    assert deletions_of("# data blocks=1; # entries=12; # deletions=7; # range deletions=2; ") == 7
    assert deletions_of("") == 0


def test_one_sweep_at_a_time_and_another_if_many_went_meanwhile() -> None:
    begun: list[int] = []
    goes: queue.Queue[int] = queue.Queue()

    def join_files() -> None:
        begun.append(goes.get(timeout=30))

    sweep = Sweep(join_files, about=lambda: 0)
    sweep.count(FEW)
    sweep.wait()
    assert not begun
    sweep.count(1)
    for _ in range(3):
        sweep.count(FEW)  # while the first one is under way: for the second
    for number in (1, 2):
        goes.put(number)
    sweep.wait()
    assert begun == [1, 2]
    sweep.count(FEW)
    sweep.wait()
    assert begun == [1, 2]


def _key(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _entries(family: Family) -> int:
    """In files and in memory, deletions among them."""
    files = family._family.property_value("rocksdb.aggregated-table-properties")
    in_files = int(files.split("# entries=")[1].split(";")[0]) if "# entries=" in files else 0
    return in_files + int(family._family.property_int_value("rocksdb.num-entries-active-mem-table"))


def _filled(database: Database) -> Family:
    family = database.family("s")
    family.write([_key(number) for number in range(MANY)], [b"v" * 20] * MANY)
    return family


def _deleted_one_by_one(family: Family) -> None:
    for start in range(0, MANY, 1000):
        family.write((), (), [_key(number) for number in range(start, start + 1000)])


def _dropped(family: Family) -> None:
    family.drop([_key(0)[:7]], share=256 / MANY)
    family.drop([_key(number)[:6] for number in range(0, MANY, 1 << 16)], share=1)


@pytest.mark.parametrize("let_go", [_deleted_one_by_one, _dropped])
def test_what_is_gone_leaves_the_files(let_go: Callable[[Family], None], tmp_path: Path) -> None:
    family = _filled(Database("uid", str(tmp_path / "db"), TUNING))
    let_go(family)
    family.sweep.wait()
    assert _entries(family) <= 2 * FEW
    assert list(family.cut()) == []


def test_what_an_earlier_attempt_left_goes_when_its_files_are_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have died before it came to that, and nothing may ever be deleted again."""
    database = Database("uid", str(tmp_path / "db"), TUNING)
    family = _filled(database)
    with monkeypatch.context() as died:
        died.setattr(Sweep, "count", lambda *_: None)
        _deleted_one_by_one(family)
    assert _entries(family) > MANY
    database.link(str(tmp_path / "next"))
    family = Database("uid", str(tmp_path / "next"), TUNING).family("s")
    family.sweep.wait()
    assert _entries(family) == 0


def test_a_database_is_closed_in_the_middle_of_a_sweep(tmp_path: Path) -> None:
    database = Database("uid", str(tmp_path / "db"), TUNING)
    family = _filled(database)
    _dropped(family)
    database.close()
    assert "cutwater-rocksdb-sweep" not in [thread.name for thread in threading.enumerate()]


def test_a_database_that_is_merely_forgotten_waits_for_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that is in RocksDB when Python ends crashes the process."""
    begun, ended = threading.Event(), threading.Event()

    def join_files(_: Any) -> None:
        begun.set()
        ended.wait(0.5)  # as RocksDB takes its time, also to be canceled

    monkeypatch.setattr(rocksdb_family, "_join_files", join_files)
    database = Database("uid", str(tmp_path / "db"), TUNING)
    _deleted_one_by_one(database.family("s"))
    assert begun.wait(30)
    del database
    gc.collect()
    assert "cutwater-rocksdb-sweep" not in [thread.name for thread in threading.enumerate()]


class Stored:
    """A state of row functions, and what a cut finds in it."""

    def __init__(self, folder: Path, *, incremental: bool) -> None:
        backend = cw.RocksDB(incremental=incremental, cache="100kB", local_directories=[str(folder)])
        self.store: KeyedStateStore = backend.open("uid", KeyGroupRange(0, 127), 128)
        self.table: Any = self.store.rows("s", KEYS, pa.int64())
        self.cuts = 0

    def each(self, change: Callable[[int], None], keys: range) -> None:
        for key in keys:
            change(key)
            if key % 1000 == 0:
                self.store.tend()

    def content(self) -> dict[int, int]:
        self.cuts += 1
        [frozen] = self.store.freeze(CheckpointId(self.cuts))
        rows = pa.Table.from_batches(frozen.batches(), schema=frozen.schema)
        frozen.release()
        return dict(zip(rows.column("k").to_pylist(), rows.column("s").to_pylist(), strict=True))


@pytest.mark.parametrize("incremental", [False, True])
def test_a_state_of_which_little_is_left_is_small(incremental: bool, tmp_path: Path) -> None:
    stored = Stored(tmp_path, incremental=incremental)
    stored.each(lambda key: stored.table.put(key, key), range(MANY))
    left = range(0, MANY, 1000)
    stored.each(lambda key: None if key in left else stored.table.delete(key), range(MANY))
    assert stored.content() == {key: key for key in left}
    [family] = stored.store._families.values()  # type: ignore[attr-defined]
    family.sweep.wait()
    assert _entries(family) < 3 * FEW
    stored.each(lambda key: stored.table.put(key, -key), left)
    assert stored.content() == {key: -key for key in left}
    stored.store.close()


def test_files_that_were_swept_hold_what_a_cut_before_saw(tmp_path: Path) -> None:
    """It goes on reading the files that were there."""
    family = _filled(Database("uid", str(tmp_path / "db"), TUNING))
    before = family.cut()
    _deleted_one_by_one(family)
    family.sweep.wait()
    assert np.array_equal([key for key, _ in before], [_key(number) for number in range(MANY)])
