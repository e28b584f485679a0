"""A watermark may end very many buckets of a join: they are dropped in steps, and a cut may come between two of them."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import cutwater as cw
from cutwater.flow.ids import CheckpointId
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.operators import join
from cutwater.operators.operator import Operator, OperatorContext
from cutwater.rows import batch_of
from cutwater.state.backend import StateBackend
from tests.unit.operators.collecting import Collected, NoDriver, after
from tests.unit.operators.test_keyed_process import Stored

EVENT = "k long, ts long"
BUCKETS = 60
A_STEP = 5
WATERMARK = 490
"""About the first 50 are over."""

JOINS: dict[str, Callable[[cw.Stream, cw.Stream], cw.Stream]] = {
    "interval": lambda a, b: a.key_by("k").join(b.key_by("k"), within="10ms"),
    "window": lambda a, b: a.key_by("k").window(cw.tumbling("10ms")).join(b.key_by("k")),
    "sliding": lambda a, b: a.key_by("k").window(cw.sliding("10ms", "5ms")).join(b.key_by("k")),
}


def opened(which: str, backend: StateBackend, restored: Stored | None = None) -> Operator:
    env = cw.Environment(checkpointing=None)
    a, b = (env.read(cw.from_rows([], EVENT), uid=uid).with_timestamps("ts") for uid in ("a", "b"))
    operator = JOINS[which](a, b)._inputs[0].draft.body
    assert isinstance(operator, Operator)
    operator.open(
        OperatorContext(
            job="job", uid="j", name="join", subtask=0, parallelism=1, max_parallelism=128, attempt=1, incarnation="i",
            key_groups=KeyGroupRange(0, 127), backend=backend, now=lambda: 0, driver=NoDriver(), restored=restored,
        )
    )  # fmt: skip
    return operator


def fed(which: str, backend: StateBackend) -> Operator:
    operator = opened(which, backend)
    process(operator, 0, [(n % 4, 10 * n) for n in range(BUCKETS)])
    return operator


def process(operator: Operator, port: int, records: list[tuple[int, int]]) -> Collected:
    out = Collected()
    schema = cw.Environment(checkpointing=None).read(cw.from_rows([], EVENT)).schema
    operator.process(batch_of(records, schema, "test"), port, out)
    return out


def times_kept(operator: Operator) -> set[int]:
    snapshot = operator.snapshot(CheckpointId(1))
    assert snapshot is not None
    kept = {row["ts"] for table in snapshot.tables for batch in table.batches() for row in batch.to_pylist()}
    for table in snapshot.tables:
        table.release()
    operator.checkpoint_ended(CheckpointId(1), completed=False)
    return kept


@pytest.fixture(params=["memory", "increments", "rocksdb", "small cache", "files"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> StateBackend:
    local = [str(tmp_path)]
    settings: dict[str, StateBackend] = {
        "memory": cw.Memory(),
        "increments": cw.Memory(incremental=True),
        "rocksdb": cw.RocksDB(local_directories=local),
        "small cache": cw.RocksDB(cache=1000, local_directories=local),
        "files": cw.RocksDB(incremental=True, local_directories=local),
    }
    return settings[request.param]


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "BUCKETS_A_STEP", A_STEP)
    monkeypatch.setattr(join, "LEAST_WIDTH", 1)


@pytest.mark.parametrize("which", JOINS)
def test_a_watermark_drops_what_is_over_in_steps_that_a_cut_may_come_between(which: str, backend: StateBackend) -> None:
    whole = fed(which, backend)
    after(whole.on_watermark(WATERMARK, Collected()))
    left = times_kept(whole)
    assert 0 < len(left) < BUCKETS // 2
    records = [(n % 4, 10 * n + 1) for n in range(BUCKETS)]
    expected = process(whole, 1, records)
    whole.close()
    operator, out = fed(which, backend), Collected()
    counts = [len(times_kept(operator))]
    for step, _ in enumerate(operator.on_watermark(WATERMARK, out)):
        assert operator.may_be_cut
        counts.append(len(times_kept(operator)))
        if step == 4:
            stored = Stored(operator)
            operator.checkpoint_ended(CheckpointId(1), completed=False)
            for resumes in (False, True):
                restored = opened(which, backend, stored)
                if resumes:
                    after(restored.resuming(Collected()))
                    assert times_kept(restored) == left
                met = process(restored, 1, records)
                assert (sorted(met.rows()), met.side) == (sorted(expected.rows()), expected.side)
                restored.close()
    assert out.times == [WATERMARK]
    assert times_kept(operator) == left
    assert len(counts) > 8
    assert max(a - b for a, b in pairwise(counts)) <= A_STEP
    met = process(operator, 1, records)
    assert (met.rows(), met.side) == (expected.rows(), expected.side)
    operator.close()


@pytest.mark.parametrize("which", JOINS)
def test_a_watermark_looks_at_no_bucket_that_goes_on(
    which: str, backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator: Any = fed(which, backend)
    asked: list[int] = []
    is_done = operator._is_done
    monkeypatch.setattr(operator, "_is_done", lambda bucket: asked.append(bucket) or is_done(bucket))
    monkeypatch.setattr(operator._table, "buckets", lambda: pytest.fail("all of them"))
    after(operator.on_watermark(30, Collected()))
    assert 0 < len(asked) < 10
    operator.close()


@pytest.mark.parametrize("within", [0, 3, 19, 50])
def test_rows_of_an_earlier_version_are_found_and_dropped_in_the_buckets_that_it_put_them_in(
    within: int, backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It made none longer than it had to, and did not store how long they were."""
    monkeypatch.setitem(JOINS, "interval", lambda a, b: a.key_by("k").join(b.key_by("k"), within=f"{within}ms"))
    left = [(n % 2, n - 100) for n in range(200)]
    old = fed_with(left, backend)
    before = Stored(old)
    before.inline = [{name: value for name, value in part.items() if name != join._WIDTHS} for part in before.inline]
    monkeypatch.setattr(join, "LEAST_WIDTH", 20)
    now = opened("interval", backend, before)
    _check_pairs(now, left[:150], within)
    again = Stored(now)
    old.close()
    now.close()
    last = opened("interval", backend, again)
    _check_pairs(last, left[150:], within)
    after(last.on_watermark(99 + within + join.LEAST_WIDTH, Collected()))
    assert not times_kept(last)
    last.close()


@pytest.mark.parametrize(("before", "within"), [(30, 90), (90, 30), (20, 21), (50, 0), (1, 200)])
def test_a_join_that_goes_on_with_another_distance_finds_all_pairs(
    before: int, within: int, backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of rows that were restored and of those that come."""
    joins = {ms: lambda a, b, ms=ms: a.key_by("k").join(b.key_by("k"), within=f"{ms}ms") for ms in (before, within)}
    left = [(n % 2, n - 100) for n in range(200)]
    monkeypatch.setitem(JOINS, "interval", joins[before])
    old = fed_with(left[:120], backend)
    stored = Stored(old)
    old.close()
    monkeypatch.setitem(JOINS, "interval", joins[within])
    now = opened("interval", backend, stored)
    process(now, 0, left[120:])
    _check_pairs(now, left, within)
    now.close()


def fed_with(records: list[tuple[int, int]], backend: StateBackend) -> Operator:
    operator = opened("interval", backend)
    process(operator, 0, records)
    return operator


def _check_pairs(operator: Operator, right: list[tuple[int, int]], within: int) -> None:
    """Of the left side all of 200 are there."""
    met = Counter((ts, other) for _, ts, other in process(operator, 1, right).rows())
    times = range(-100, 100)
    assert met == Counter((a, b) for a in times for _, b in right if abs(a - b) <= within and (a - b) % 2 == 0)


def _pairs(which: str, one: int, other: int) -> int:
    match which:
        case "interval":
            return int(abs(one - other) <= 10)
        case "window":
            return int(one // 10 == other // 10)
        case _:
            return sum(start <= one < start + 10 and start <= other < start + 10 for start in range(0, 100, 5))


@pytest.mark.parametrize("width", [1, 20])
@pytest.mark.parametrize("which", JOINS)
def test_a_row_is_kept_as_long_as_a_record_in_time_may_meet_it(
    which: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each distance, and with time just before the record. Where time has reached it, it is late."""
    monkeypatch.setattr(join, "LEAST_WIDTH", width)
    for at in range(20, 41, 1 if width > 1 else 4):
        operator = opened(which, cw.Memory())
        process(operator, 0, [(1, at)])
        for ts in range(at + 1, at + 13):
            after(operator.on_watermark(ts - 1, Collected()))
            met = process(operator, 1, [(1, ts)])
            assert (len(met.rows()), met.side) == (_pairs(which, at, ts), {}), (at, ts)
        if which == "interval":
            for late, side in enumerate(("late", "late_right")):
                met = process(operator, late, [(1, at + 11), (1, at + 12)])
                assert (met.side, len(met.rows())) == ({side: [(1, at + 11)]}, 11 if late == 0 else 1)
        operator.close()
