"""Where a store writes with the rows that come, a slice is no longer than it can bear, however cheap the last ones were."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import cutwater as cw
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.state.memory_panes import MemoryPanes
from cutwater.state.rocksdb_join import RocksDBJoin
from cutwater.state.rocksdb_panes import RocksDBPanes
from cutwater.state.rocksdb_rows import RocksDBRowTable
from cutwater.state.rocksdb_store import APPENDED_AT_ONCE, JOINED_AT_ONCE, READ_AT_ONCE
from cutwater.testing.clock import ManualClock
from cutwater.testing.simulation import Simulation

ROWS = 60_000


@pytest.fixture
def merged(monkeypatch: pytest.MonkeyPatch) -> dict[type, int]:
    """The most rows that each table got at once."""
    most: dict[type, int] = {}
    for table in (MemoryPanes, RocksDBPanes):

        def noting(self: Any, pane: int, partial: Any, table: type = table, merge: Any = table.merge) -> None:
            most[table] = max(most.get(table, 0), partial.num_rows)
            merge(self, pane, partial)

        monkeypatch.setattr(table, "merge", noting)
    return most


def run_to_the_end(env: cw.Environment) -> None:
    definition = env.define("job", 1)
    large = replace(definition.limits, payload_bytes=1 << 24, least_payload_bytes=1 << 24)
    simulation = Simulation(replace(definition, limits=large), JobStore(MemoryStorage(1), "job"), ManualClock())
    while not simulation.finished:
        assert simulation.step() or simulation.advance_to_next_timer()


@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "rocksdb"])
def test_rows_come_in_slices_that_the_store_can_bear(tmp_path: Path, merged: dict[type, int], *, on_disk: bool) -> None:
    """No time passes here: to the loop all rows are cheap."""
    backend = cw.RocksDB(local_directories=[str(tmp_path)]) if on_disk else cw.Memory()
    env = cw.Environment(parallelism=1, state_backend=backend, checkpointing=None)
    numbers = env.read(cw.sequence(ROWS), uid="numbers").select(k=pl.col("value"), ts=pl.col("value") * 0)
    windows = numbers.with_timestamps("ts").key_by("k").window(cw.tumbling("1 day"))
    windows.agg(n=cw.count()).write(cw.discard(), uid="out")
    run_to_the_end(env)
    if on_disk:
        assert merged[RocksDBPanes] == APPENDED_AT_ONCE
    else:
        assert merged[MemoryPanes] > APPENDED_AT_ONCE


def test_rows_come_to_a_join_in_smaller_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored of the other side is looked for key by key."""
    most, matches = 0, RocksDBJoin.matches

    def noting(self: RocksDBJoin, side: int, bucket: int, rows: Any, room: int | None) -> Any:
        nonlocal most
        most = max(most, rows.num_rows)
        return matches(self, side, bucket, rows, room)

    monkeypatch.setattr(RocksDBJoin, "matches", noting)
    backend = cw.RocksDB(local_directories=[str(tmp_path)])
    env = cw.Environment(parallelism=1, state_backend=backend, checkpointing=None)
    left, right = (env.read(cw.sequence(ROWS // 2), uid=name).select(k=pl.col("value")) for name in ("left", "right"))
    left.key_by("k").join(right.key_by("k")).write(cw.discard(), uid="out")
    run_to_the_end(env)
    assert most == JOINED_AT_ONCE


def test_rows_come_to_a_function_in_slices_whose_keys_are_soon_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is stored is looked for key by key, before the first row is looked at."""
    most, expect = 0, RocksDBRowTable.expect

    def noting(self: RocksDBRowTable, keys: Any) -> None:
        nonlocal most
        most = max(most, len(keys))
        expect(self, keys)

    monkeypatch.setattr(RocksDBRowTable, "expect", noting)
    backend = cw.RocksDB(local_directories=[str(tmp_path)])
    env = cw.Environment(parallelism=1, state_backend=backend, checkpointing=None)
    numbers = env.read(cw.sequence(ROWS // 6), uid="numbers").select(k=pl.col("value"))
    numbers.key_by("k").reduce(lambda reduced, row: row).write(cw.discard(), uid="out")
    run_to_the_end(env)
    assert most == READ_AT_ONCE
