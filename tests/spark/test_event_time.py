"""Event time on real Spark: watermarks of two sources of different speed, timers, and a worker killed in the middle."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import cutwater as cw
from cutwater.flow.watermarks import MAX_WATERMARK
from tests.spark.workers import completed_checkpoints, kill_worker, wait_until

pytestmark = pytest.mark.timeout(600)

RECORDS, KEYS, WINDOW = 6000, 7, 1000
STEERED_SECONDS = 6
"""About as long as there are records, so that no second could be told if it had to wait for that."""


class CountBySecond(cw.BroadcastProcess):
    """Counts of a key by second, told when the second is over. What steers it has no times, and holds nobody back."""

    counts = cw.MapState("long", "long")
    late = cw.SideOutput("late", "k long, ts long")

    def process(self, row: Any, ctx: Any) -> Iterator[Any]:
        second = row.ts // WINDOW * WINDOW
        if ctx.watermark is not None and second + WINDOW - 1 <= ctx.watermark:
            ctx.emit(self.late, (row.k, row.ts))
            return
        self.counts[second] = self.counts.get(second, 0) + 1
        ctx.timers.event_time(second + WINDOW - 1)
        yield from ()

    def process_broadcast(self, row: Any, ctx: Any) -> None: ...

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        second = timestamp + 1 - WINDOW
        yield ctx.key, second, self.counts[second], ctx.watermark == MAX_WATERMARK
        del self.counts[second]


def events(env: cw.Environment, uid: str, rate: int) -> Any:
    """A record every 5 ms of event time, up to 40 ms out of order."""
    numbers = env.read(cw.sequence(RECORDS, rate=rate), uid=uid)
    moved = pl.col("value") * 5 - (pl.col("value") * 7 % 5) * 10
    return numbers.select(k=pl.col("value") % KEYS, ts=moved).with_timestamps("ts", out_of_orderness="50ms")


def test_seconds_of_two_sources_are_counted_once_over_a_killed_worker(tmp_path: Path) -> None:
    checkpointing = cw.Checkpointing("200ms", storage=f"file:{tmp_path / 'checkpoints'}")
    restart = cw.fixed_delay(attempts=3, delay="10ms")
    env = cw.Environment(parallelism=2, checkpointing=checkpointing, restart=restart)
    control = env.read(cw.sequence(STEERED_SECONDS * 100, rate=100), uid="control", parallelism=1).broadcast()
    counted = (
        events(env, "slow", 1200)
        .union(events(env, "fast", 2400))
        .key_by("k")
        .connect(control)
        .process(CountBySecond(), "k long, second long, n long, at_the_end boolean")
        .uid("counts")
    )
    counted.collect("counts")
    counted.side_output("late").collect("late")
    job = env.start("seconds")
    wait_until(lambda: completed_checkpoints(job) >= 4, "some checkpoints")
    kill_worker(job, "counts[0]")
    result = job.wait("300s")
    assert result.attempts == 2
    assert result.rows("late") == []
    truth = Counter(
        (value % KEYS, (value * 5 - (value * 7 % 5) * 10) // WINDOW * WINDOW)
        for value in range(RECORDS)
        for _ in range(2)
    )
    rows = result.rows("counts")
    assert {(row.k, row.second): row.n for row in rows} == truth
    assert len(rows) == len(truth), "each second of a key once"
    assert sum(row.at_the_end for row in rows) <= len(rows) // 2, "not all of them waited for the end of time"


def test_windows_of_every_kind_are_told_once_over_a_killed_worker(tmp_path: Path) -> None:
    checkpointing = cw.Checkpointing("200ms", storage=f"file:{tmp_path / 'checkpoints'}")
    restart = cw.fixed_delay(attempts=3, delay="10ms")
    env = cw.Environment(parallelism=2, checkpointing=checkpointing, restart=restart)
    keyed = events(env, "slow", 1200).union(events(env, "fast", 2400)).key_by("k")
    keyed.window(cw.tumbling("1s")).agg(n=cw.count(), hi=cw.max("ts")).uid("tumbling").collect("tumbling")
    keyed.window(cw.sliding("1500ms", "500ms")).agg(n=cw.count()).uid("sliding").collect("sliding")
    job = env.start("windows")
    wait_until(lambda: completed_checkpoints(job) >= 4, "some checkpoints")
    kill_worker(job, "tumbling[1]")
    result = job.wait("300s")
    assert result.attempts == 2
    records = [(value % KEYS, value * 5 - (value * 7 % 5) * 10) for value in range(RECORDS) for _ in range(2)]
    for name, size, slide in (("tumbling", 1000, 1000), ("sliding", 1500, 500)):
        truth = Counter(
            (key, start) for key, ts in records for start in range((ts - size) // slide * slide + slide, ts + 1, slide)
        )
        rows = result.rows(name)
        assert {(row.k, int(row.window_start.timestamp() * 1000)): row.n for row in rows} == truth
        assert len(rows) == len(truth), "each window of a key once"
    hi = {(row.k, int(row.window_start.timestamp() * 1000)): row.hi for row in result.rows("tumbling")}
    assert all(hi[key, ts // 1000 * 1000] >= ts for key, ts in records)


class Longest(cw.WindowProcess):
    def process(self, rows: list[Any], ctx: Any) -> Iterator[Any]:
        yield ctx.key, len(rows), max(row.ts for row in rows) - min(row.ts for row in rows)


def test_sessions_and_a_join_come_out_once_over_a_killed_worker(tmp_path: Path) -> None:
    checkpointing = cw.Checkpointing("200ms", storage=f"file:{tmp_path / 'checkpoints'}")
    env = cw.Environment(parallelism=2, checkpointing=checkpointing, restart=cw.fixed_delay(attempts=3, delay="10ms"))
    # Two hundred records, then a pause of a second, and so on.
    bursts = pl.col("ts") + pl.col("ts") // 1000 * 1000
    slow, fast = (
        events(env, uid, rate).with_columns(ts=bursts).with_timestamps("ts", out_of_orderness="1100ms").key_by("k")
        for uid, rate in (("slow", 1200), ("fast", 2400))
    )
    slow.window(cw.session("500ms")).process(Longest, "k long, n long, span long").uid("sessions").collect("sessions")
    slow.join(fast, within="20ms").uid("near").collect("near")
    job = env.start("sessions")
    wait_until(lambda: completed_checkpoints(job) >= 4, "some checkpoints")
    kill_worker(job, "near[0]")
    result = job.wait("300s")
    assert result.attempts == 2
    records = [(value % KEYS, value * 5 - (value * 7 % 5) * 10) for value in range(RECORDS)]
    records = [(key, ts + ts // 1000 * 1000) for key, ts in records]
    by_key: dict[int, list[int]] = {key: sorted(ts for k, ts in records if k == key) for key in range(KEYS)}
    expected = Counter()
    for key, times in by_key.items():
        session = [times[0]]
        for ts in times[1:]:
            if ts - session[-1] > 500:
                expected[key, len(session), session[-1] - session[0]] += 1
                session = []
            session.append(ts)
        expected[key, len(session), session[-1] - session[0]] += 1
    assert Counter((row.k, row.n, row.span) for row in result.rows("sessions")) == expected
    assert sum(expected.values()) > KEYS, "several sessions of each key"
    near = Counter((key, a, b) for key, times in by_key.items() for a in times for b in times if abs(a - b) <= 20)
    assert Counter((row.k, row.ts, row.ts_right) for row in result.rows("near")) == near


class Span(cw.AggregateFunction):
    accumulator_type = "struct<low:long,high:long>"
    result_type = "long"

    def create(self) -> Any:
        return None

    def add(self, accumulator: Any, row: Any) -> Any:
        return self.merge(accumulator or (row.ts, row.ts), (row.ts, row.ts))

    def merge(self, a: Any, b: Any) -> Any:
        return min(a[0], b[0]), max(a[1], b[1])

    def result(self, accumulator: Any) -> Any:
        return accumulator.high - accumulator.low


def test_aggregates_of_values_are_told_once_over_a_killed_worker(tmp_path: Path) -> None:
    checkpointing = cw.Checkpointing("200ms", storage=f"file:{tmp_path / 'checkpoints'}")
    env = cw.Environment(parallelism=2, checkpointing=checkpointing, restart=cw.fixed_delay(attempts=3, delay="10ms"))
    keyed = events(env, "slow", 1200).key_by("k")
    windowed = keyed.window(cw.sliding("1500ms", "500ms"), early="300ms")
    windowed.agg(all=cw.collect_list("ts"), span=pl.col("ts").max() - pl.col("ts").min()).uid("rows").collect("rows")
    windowed.agg(n=cw.count(), span=Span(), different=cw.count_distinct("ts")).uid("own").collect("own")
    windowed.reduce(lambda a, b: (a.k, max(a.ts, b.ts))).uid("latest").collect("latest")
    keyed.agg(span=Span()).uid("running").collect("running")
    job = env.start("values")
    wait_until(lambda: completed_checkpoints(job) >= 4, "some checkpoints")
    kill_worker(job, "own[1]")
    result = job.wait("300s")
    assert result.attempts == 2
    truth: dict[tuple[int, int], list[int]] = {}
    records = [(value % KEYS, value * 5 - (value * 7 % 5) * 10) for value in range(RECORDS)]
    for key, ts in records:
        for start in range((ts - 1500) // 500 * 500 + 500, ts + 1, 500):
            truth.setdefault((key, start), []).append(ts)

    def final(name: str) -> dict[tuple[int, int], Any]:
        rows = [row for row in result.rows(name) if not row.early]
        assert len(rows) == len(truth), "each window of a key once"
        assert any(row.early for row in result.rows(name))
        return {(row.k, int(row.window_start.timestamp() * 1000)): row for row in rows}

    rows, own, latest = final("rows"), final("own"), final("latest")
    for where, times in truth.items():
        span = max(times) - min(times)
        assert (sorted(rows[where].all), rows[where].span) == (sorted(times), span)
        assert (own[where].n, own[where].span, own[where].different) == (len(times), span, len(set(times)))
        assert latest[where].ts == max(times)
    spans = {
        key: max(t for k, t in records if k == key) - min(t for k, t in records if k == key) for key in range(KEYS)
    }
    assert {key: max(row.span for row in result.rows("running") if row.k == key) for key in range(KEYS)} == spans
