"""A window that late records change is told again for their keys: without reading the others, or in steps and not cut between."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.operators.operator import Operator
from cutwater.operators.window_aggregate import RAW, EventTimeWindows
from cutwater.state.backend import StateBackend
from tests.unit.operators.collecting import Collected, after, opened

KEYS = 60_000
LATE = [5, 40_000]


@pytest.fixture(params=["memory", "rocksdb"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> StateBackend:
    on_disk = cw.RocksDB(cache="256KB", local_directories=[str(tmp_path)])
    return on_disk if request.param == "rocksdb" else cw.Memory()


def windows() -> tuple[cw.Stream, Any]:
    env = cw.Environment(checkpointing=None)
    rows = env.read(cw.from_rows([], "k long, ts long"), uid="in").with_timestamps("ts")
    return rows, rows.key_by("k").window(cw.tumbling("10s"), allowed_lateness="1h")


def rows(of: cw.Stream, keys: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(keys), pa.array(np.full(len(keys), 5))], schema=of.schema)


def told_once(operator: Operator, of: cw.Stream, port: int) -> Collected:
    out = Collected()
    for start in range(0, KEYS, 10_000):
        operator.process(rows(of, np.arange(start, start + 10_000)), port, out)
    after(operator.on_watermark(20_000, out))
    assert sum(batch.num_rows for batch in out.batches) == KEYS
    out.batches.clear()
    return out


def test_aggregates_of_late_records_are_read_without_those_of_others(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, window = windows()
    operator = opened(window.agg(n=cw.count()), backend)
    out = told_once(operator, stream, RAW)
    read = 0
    whole = EventTimeWindows._rows_of

    def counting(self: EventTimeWindows, *args: Any) -> Any:
        nonlocal read
        for batch in whole(self, *args):
            read += batch.num_rows
            yield batch

    monkeypatch.setattr(EventTimeWindows, "_rows_of", counting)
    operator.process(rows(stream, LATE), RAW, out)
    assert not operator.may_be_cut, "a snapshot does not hold what is to be told again"
    assert operator.next_timer() == 0
    after(operator.on_processing_time(1, out))
    assert operator.may_be_cut
    assert operator.next_timer() is None
    assert sorted((row[0], row[-1]) for row in out.taken()) == [(key, 2) for key in LATE]
    assert read == len(LATE)
    operator.close()


def test_rows_of_a_window_are_looked_at_in_steps_that_nobody_cuts_between(backend: StateBackend) -> None:
    stream, window = windows()
    operator = opened(window.process(lambda rows, ctx: [(ctx.key, len(rows))], "key long, n long"), backend)
    out = told_once(operator, stream, 0)
    operator.process(rows(stream, LATE), 0, out)
    assert not out.batches, "it is not the batch that pays"
    steps = 0
    assert operator.next_timer() == 0
    for _ in operator.on_processing_time(1, out):
        assert not operator.may_be_cut, "a snapshot does not hold what is to be told again"
        steps += 1
    assert steps > 2
    assert sorted(row[:2] for row in out.taken()) == [(key, 2) for key in LATE]
    assert operator.may_be_cut
    assert operator.next_timer() is None
    operator.process(rows(stream, LATE[:1]), 0, out)
    after(operator.on_watermark(30_000, out))
    assert [row[1] for row in out.taken()] == [3], "before the time goes on"
    operator.close()


@pytest.mark.parametrize("windows_of", ["tumbling", "sliding"])
@pytest.mark.parametrize("late", [1500, 2048])
def test_many_keys_of_which_most_is_stored_are_told_again_as_they_are(
    tmp_path: Path, late: int, windows_of: str
) -> None:
    """What came late is still in memory, and less than was asked for at once."""
    on_disk = cw.RocksDB(cache="64KB", local_directories=[str(tmp_path)])
    size = cw.tumbling("10s") if windows_of == "tumbling" else cw.sliding("10s", "5s")
    told = [_told_again(backend, size, late) for backend in (cw.Memory(), on_disk)]
    assert told[0] == told[1]
    assert len(told[0]) == late * (1 if windows_of == "tumbling" else 2)


def _told_again(backend: StateBackend, size: Any, late: int) -> list[Any]:
    env = cw.Environment(checkpointing=None)
    stream = env.read(cw.from_rows([], "k long, ts long"), uid="in").with_timestamps("ts")
    windows = stream.key_by("k").window(size, allowed_lateness="1h")
    operator, out = opened(windows.agg(n=cw.count()), backend), Collected()

    def bring(first: int, behind: int, time: int) -> None:
        times = np.full(behind - first, time)
        operator.process(pa.record_batch([np.arange(first, behind), times], schema=stream.schema), RAW, out)
        if operator.next_timer() == 0:
            after(operator.on_processing_time(1, out))

    for time in (7_000, 8_000):
        for start in range(0, 30_000, 5_000):
            bring(start, start + 5_000, time)
    for start in range(0, 20_000, 1_000):  # of another window: what is of the first goes to disk
        bring(start, start + 1_000, 30_000)
    after(operator.on_watermark(29_000, out))
    out.batches.clear()
    bring(0, late, 6_000)
    operator.close()
    return sorted(out.taken())
