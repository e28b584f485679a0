"""Small pipelines in which a watermark makes much due at once: the value of a record is its time."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import cutwater as cw
from tests.simulation.topologies import Numbers, Topology

RANGES = 4
"""Milliseconds that windows are long."""
GAP = 2


class Reminders(cw.KeyedProcess):
    """Each record asks to be remembered for a while. Whoever knows a watermark has fired all timers up to it."""

    waiting = cw.ListState("long")

    def process(self, row: Any, ctx: Any) -> None:
        late = [time for time in self.waiting if ctx.watermark is not None and time <= ctx.watermark]
        assert not late, f"key {ctx.key}: timers {late} have not fired at {ctx.watermark}"
        for time in range(row.v + 1, row.v + RANGES + 1):
            if time not in self.waiting:
                self.waiting.append(time)
            ctx.timers.event_time(time)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        left = [time for time in self.waiting if time != timestamp]
        self.waiting.clear()
        self.waiting.extend(left)
        yield ctx.key, timestamp


class ByTheClock(cw.KeyedProcess):
    """Each record is told by timers that are due at once, whatever the clock says: they fire before the rows that came with
    it are processed."""

    waiting = cw.MapState("long", "long")

    def process(self, row: Any, ctx: Any) -> None:
        for later in range(1, RANGES + 1):
            due = next(time for time in count() if time not in self.waiting)
            self.waiting[due] = row.v + later
            ctx.timers.processing_time(due)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        at = self.waiting[timestamp]
        del self.waiting[timestamp]
        yield ctx.key, at


class Rows(cw.AggregateFunction):
    """A count that is kept and told key by key."""

    accumulator_type = "long"
    result_type = "long"

    def create(self) -> int:
        return 0

    def add(self, accumulator: int, row: Any) -> int:
        return accumulator + 1

    def merge(self, a: int, b: int) -> int:
        return a + b

    def result(self, accumulator: int) -> int:
        return accumulator


def _reminded(numbers: Sequence[Numbers]) -> Counter[Any]:
    records = [record for source in numbers for record in source.records()]
    return Counter({(record[3], record[2] + later): 1 for record in records for later in range(1, RANGES + 1)})


def _reminded_each(numbers: Sequence[Numbers]) -> Counter[Any]:
    records = [record for source in numbers for record in source.records()]
    return Counter((record[3], record[2] + later) for record in records for later in range(1, RANGES + 1))


def _counted(size: int, slide: int) -> Callable[[Sequence[Numbers]], Counter[Any]]:
    def count(numbers: Sequence[Numbers]) -> Counter[Any]:
        found: Counter[Any] = Counter()
        for source in numbers:
            for record in source.records():
                starts = (s for s in range(record[2] - size + 1, record[2] + 1) if s % slide == 0)
                found.update((record[3], start) for start in starts)
        return Counter({(key, start, n): 1 for (key, start), n in found.items()})

    return count


def _sessions(numbers: Sequence[Numbers]) -> Counter[Any]:
    times: dict[int, list[int]] = defaultdict(list)
    for source in numbers:
        for record in source.records():
            times[record[3]].append(record[2])
    found: Counter[Any] = Counter()
    for key, own in times.items():
        start = last = n = None
        for time in [*sorted(own), None]:
            if last is None or time is None or time - last > GAP:
                if n is not None:
                    found[key, start, n] += 1
                start, n = time, 0
            last, n = time, n + 1 if n is not None else None
    return found


@dataclass(frozen=True, slots=True)
class Told:
    """What comes out is each of ``expected`` once, whatever the order."""

    expected: Callable[[Sequence[Numbers]], Counter[Any]]

    def exactly_once(self, rows: Sequence[Any], sources: Sequence[Numbers]) -> None:
        found = Counter(tuple(_plain(value) for value in row) for row in rows)
        expected = self.expected(sources)
        assert found == expected, f"lost {expected - found}, too many {found - expected}"


def _plain(value: Any) -> Any:
    return (
        (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
        if isinstance(value, datetime)
        else value
    )


def _timed(a: cw.Stream, out_of_orderness: str) -> Any:
    return a.with_timestamps("v", out_of_orderness=out_of_orderness).key_by("k")


def _timers(out_of_orderness: str) -> Callable[[cw.Stream], None]:
    def build(a: cw.Stream) -> None:
        _timed(a, out_of_orderness).process(Reminders, "k long, at long").uid("reminders").collect("out")

    return build


def _timers_of_the_clock(a: cw.Stream) -> None:
    a.key_by("k").process(ByTheClock, "k long, at long").uid("reminders").collect("out")


def _sessions_by_the_clock(a: cw.Stream) -> None:
    """So long that each key has one, which ends with the input."""
    told = a.key_by("k").window(cw.session("1000h"), time="processing").agg(n=Rows()).uid("windows")
    told.map(lambda row: (row.k, row.n), "k long, n long").collect("out")


def _rows_of_keys(numbers: Sequence[Numbers]) -> Counter[Any]:
    rows = Counter(record[3] for source in numbers for record in source.records())
    return Counter(rows.items())


def _windows(windows: Any, lateness: str, tell: Callable[[Any], cw.Stream]) -> Callable[[cw.Stream], None]:
    def build(a: cw.Stream) -> None:
        told = tell(_timed(a, "3ms").window(windows, allowed_lateness=lateness)).uid("windows")
        told.map(lambda row: (row.k, row.window_start, row.n), "k long, start timestamp, n long").collect("out")

    return build


def _in_columns(windowed: Any) -> Any:
    return windowed.agg(n=cw.count())


def _by_key(windowed: Any) -> Any:
    return windowed.agg(n=Rows())


TUMBLING, SLIDING = cw.tumbling(f"{RANGES}ms"), cw.sliding(f"{RANGES}ms", "2ms")
SESSIONS = cw.session(f"{GAP}ms")
TIMED = {
    topology.name: topology
    for topology in (
        Topology("timers", _timers("2ms"), lambda p: {"out": Told(_reminded)}),
        Topology("timers at the end", _timers("1h"), lambda p: {"out": Told(_reminded)}),
        Topology("timers of the clock", _timers_of_the_clock, lambda p: {"out": Told(_reminded_each)}),
        Topology("sessions by the clock", _sessions_by_the_clock, lambda p: {"out": Told(_rows_of_keys)}),
        Topology("tumbling", _windows(TUMBLING, "0ms", _in_columns), lambda p: {"out": Told(_counted(RANGES, RANGES))}),
        Topology("sliding", _windows(SLIDING, "0ms", _by_key), lambda p: {"out": Told(_counted(RANGES, 2))}),
        Topology("kept", _windows(SLIDING, "1h", _in_columns), lambda p: {"out": Told(_counted(RANGES, 2))}),
        Topology("sessions", _windows(SESSIONS, "0ms", _in_columns), lambda p: {"out": Told(_sessions)}),
    )
}
