"""Small pipelines of every form, each with the plain answer that its output must equal."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa

import cutwater as cw
from cutwater.connectors.source import END, EndOfSplit, SourceContext
from cutwater.schema import arrow_schema
from tests.simulation.outside import OutsideSink

RECORD = "source string, split int, v long, k long, j long, n long"
KEYS = 3


class Numbers(cw.Source):
    """``splits`` splits of ``rows`` records each; one that hesitates has nothing to give at every third question."""

    schema = RECORD

    def __init__(self, name: str, splits: int, rows: int, *, hesitant: bool) -> None:
        self.name = name
        self._splits = splits
        self.rows = rows
        self.hesitant = hesitant

    def splits(self) -> Sequence[int]:
        return list(range(self._splits))

    def open(self, split: int, position: int | None, ctx: SourceContext) -> "NumbersReader":
        return NumbersReader(self, split, position or 0)

    def records(self) -> list[tuple[Any, ...]]:
        """Everything that the source ever gives."""
        return [self.record(split, v) for split in range(self._splits) for v in range(self.rows)]

    def record(self, split: int, v: int) -> tuple[Any, ...]:
        return (self.name, split, v, (v * 7 + split) % KEYS, v % 2, 0)


class NumbersReader(cw.SplitReader):
    def __init__(self, source: Numbers, split: int, at: int) -> None:
        self._source = source
        self._split = split
        self._at = at
        self._asked = 0

    def next_batch(self, max_rows: int, timeout: timedelta) -> pa.RecordBatch | EndOfSplit | None:
        self._asked += 1
        if self._source.hesitant and self._asked % 3 == 0:
            return None
        if self._at == self._source.rows:
            return END
        until = min(self._source.rows, self._at + max_rows)
        rows = [self._source.record(self._split, v) for v in range(self._at, until)]
        self._at = until
        schema = arrow_schema(RECORD)
        return pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)],
            schema=schema,
        )

    def position(self) -> int:
        return self._at


class Count(cw.KeyedProcess):
    """Numbers the records of each key: a lost or repeated record, or a lost state, leaves a trace in every later one."""

    seen = cw.ValueState("long")

    def process(self, row: Any, ctx: Any) -> Any:
        self.seen.value = (self.seen.value or 0) + 1
        yield (*tuple(row)[:5], self.seen.value)


class OddAside(cw.Process):
    odd = cw.SideOutput("odd", RECORD)

    def process(self, row: Any, ctx: Any) -> Any:
        if row.v % 2:
            ctx.emit(self.odd, row)
        else:
            yield row


Outputs = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Records:
    """What a sink must get: the records of ``sources`` that pass ``where``, each ``copies`` times, numbered by ``key``."""

    key: str | None = None
    copies: int = 1
    ordered: bool = True
    sources: str = "ab"
    where: Callable[[int], bool] = lambda v: True

    def expected(self, sources: Sequence[Numbers]) -> Counter[tuple[Any, ...]]:
        every = [record[:3] for source in sources if source.name in self.sources for record in source.records()]
        return Counter({record: self.copies for record in every if self.where(record[2])})

    def exactly_once(self, rows: Sequence[Any], sources: Sequence[Numbers]) -> None:
        found, expected = Counter(tuple(row)[:3] for row in rows), self.expected(sources)
        assert found == expected, f"lost {expected - found}, too many {found - expected}"
        if self.key is not None:
            numbers = defaultdict(list)
            for row in rows:
                numbers[row[self.key]].append(row.n)
            for key, counted in numbers.items():
                assert counted == list(range(1, len(counted) + 1)), f"key {key} was numbered {counted}"
        if self.ordered:
            self._in_order(rows)

    def _in_order(self, rows: Sequence[Any]) -> None:
        seen: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        for row in rows:
            seen[row.source, row.split, row.k, row.j].append(row.v)
        for path, values in seen.items():
            assert values == sorted(values), f"{path} came as {values}"

    def at_least_once(self, rows: Sequence[Any], sources: Sequence[Numbers]) -> None:
        missing = self.expected(sources) - Counter(tuple(row)[:3] for row in rows)
        assert not missing, f"lost {missing}"

    def at_most_once(self, rows: Sequence[Any], sources: Sequence[Numbers]) -> None:
        double = Counter(tuple(row)[:3] for row in rows) - self.expected(sources)
        assert not double, f"too many {double}"


@dataclass(frozen=True, slots=True)
class Totals:
    """Running aggregates: the last row of each key holds the plain totals, and every row counts on from the one before."""

    def _expected(self, sources: Sequence[Numbers]) -> dict[int, tuple[int, int]]:
        found: dict[int, tuple[int, int]] = {}
        for record in (record for source in sources for record in source.records()):
            n, total = found.get(record[3], (0, 0))
            found[record[3]] = (n + 1, total + record[2])
        return found

    def exactly_once(self, rows: Sequence[Any], sources: Sequence[Numbers]) -> None:
        last: dict[int, tuple[int, int]] = {}
        for row in rows:
            assert row.n > last.get(row.k, (0, 0))[0], f"key {row.k} did not count on: {row}"
            last[row.k] = (row.n, row.total)
        assert last == self._expected(sources)

    def at_least_once(self, rows: Sequence[Any], sources: Sequence[Numbers]) -> None:
        for key, (n, total) in self._expected(sources).items():
            last = [row for row in rows if row.k == key][-1]
            assert last.n >= n and last.total >= total, f"key {key}: {last} is less than {(n, total)}"

    def at_most_once(self, rows: Sequence[Any], sources: Sequence[Numbers]) -> None:
        for row in rows:
            n, total = self._expected(sources)[row.k]
            assert row.n <= n and row.total <= total, f"{row} is more than {(n, total)}"


@dataclass(frozen=True, slots=True)
class Latest:
    """Running count and latest record of each split, whose records are numbered from 0: both always fit together."""

    def exactly_once(self, rows: Sequence[Any], sources: Sequence[Numbers]) -> None:
        for row in rows:
            assert row.v == row.n - 1, f"{row}: behind {row.n} records another one is the latest"
        counted = {split: [row.n for row in rows if row.split == split] for split in sources[0].splits()}
        for split, numbers in counted.items():
            assert numbers == sorted(set(numbers)) and numbers[-1] == sources[0].rows, f"split {split}: {numbers}"

    def at_least_once(self, rows: Sequence[Any], sources: Sequence[Numbers]) -> None:
        for split in sources[0].splits():
            last = [row for row in rows if row.split == split][-1]
            assert last.n >= sources[0].rows and last.v == sources[0].rows - 1, f"split {split}: {last}"

    def at_most_once(self, rows: Sequence[Any], sources: Sequence[Numbers]) -> None:
        for row in rows:
            assert row.n - 1 <= row.v < sources[0].rows, f"{row} counts more than was read"


@dataclass(frozen=True, slots=True)
class Topology:
    """``build`` writes the pipeline over sources ``a`` and ``b``; ``answers(parallelism)`` says what each sink must get."""

    name: str
    build: Callable[..., None]
    answers: Callable[[int], Mapping[str, Any]]
    sources: int = 1


def _pipeline(a: cw.Stream) -> None:
    a.map(lambda row: row, RECORD).collect("out")


def _keyed(a: cw.Stream) -> None:
    a.key_by("k").process(Count, RECORD).uid("count").collect("out")


def _two_keyed(a: cw.Stream) -> None:
    first = a.key_by("k").process(Count, RECORD).uid("by-k")
    first.key_by("j").process(Count, RECORD).uid("by-j").collect("out")


def _two_sources(a: cw.Stream, b: cw.Stream) -> None:
    a.union(b).key_by("k").process(Count, RECORD).uid("count").collect("out")


def _union(a: cw.Stream, b: cw.Stream) -> None:
    left = a.map(lambda row: row, RECORD)
    left.union(b.rebalance()).map(lambda row: row, RECORD).collect("out")


def _fan_out(a: cw.Stream) -> None:
    counted = a.key_by("k").process(Count, RECORD).uid("count")
    counted.collect("out")
    counted.key_by("j").process(Count, RECORD).uid("again").collect("again")


def _side_output(a: cw.Stream) -> None:
    even = a.rebalance().process(OddAside, RECORD).uid("split")
    even.collect("even")
    even.side_output("odd").key_by("k").process(Count, RECORD).uid("count").collect("odd")


def _broadcast(a: cw.Stream) -> None:
    a.broadcast().map(lambda row: row, RECORD).collect("out")


def _rebalance(a: cw.Stream) -> None:
    a.rebalance().filter("v >= 2").collect("out")


def _relay(a: cw.Stream) -> None:
    counted = a.key_by("k").process(Count, RECORD).uid("count")
    counted.union(a).key_by("k").process(Count, RECORD).uid("both").collect("out")


def _aggregate(a: cw.Stream) -> None:
    a.key_by("k").agg(n=cw.count(), total=cw.sum("v")).uid("totals").collect("out")


def _latest(a: cw.Stream) -> None:
    a.key_by("split").agg(n=cw.count(), v=cw.last("v")).uid("latest").collect("out")


def _narrowing(a: cw.Stream) -> None:
    counted = a.key_by("k").process(Count, RECORD).uid("count").with_parallelism(1)
    counted.map(lambda row: row, RECORD).collect("out")


def _two_phase(a: cw.Stream, b: cw.Stream) -> None:
    counted = a.union(b).key_by("k").process(Count, RECORD).uid("count")
    counted.write(OutsideSink(), uid="out")


TOPOLOGIES = {
    topology.name: topology
    for topology in (
        Topology("pipeline", _pipeline, lambda p: {"out": Records()}),
        Topology("keyed", _keyed, lambda p: {"out": Records("k")}),
        Topology("two keyed steps", _two_keyed, lambda p: {"out": Records("j")}),
        Topology("two sources", _two_sources, lambda p: {"out": Records("k")}, sources=2),
        Topology("union", _union, lambda p: {"out": Records(ordered=False)}, sources=2),
        Topology("fan out", _fan_out, lambda p: {"out": Records("k"), "again": Records("j")}),
        Topology(
            "side output",
            _side_output,
            lambda p: {
                "even": Records(where=lambda v: v % 2 == 0, ordered=False),
                "odd": Records("k", where=lambda v: v % 2 == 1, ordered=False),
            },
        ),
        Topology("broadcast", _broadcast, lambda p: {"out": Records(copies=p, ordered=False)}),
        Topology("rebalance", _rebalance, lambda p: {"out": Records(where=lambda v: v >= 2, ordered=False)}),
        Topology("relay", _relay, lambda p: {"out": Records("k", copies=2, ordered=False)}),
        Topology("aggregate", _aggregate, lambda p: {"out": Totals()}),
        Topology("latest", _latest, lambda p: {"out": Latest()}),
        Topology("narrowing", _narrowing, lambda p: {"out": Records(ordered=False)}),
        Topology("two phase", _two_phase, lambda p: {"out": Records("k")}, sources=2),
    )
}
