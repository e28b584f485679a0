"""Aggregates of all kinds against a plain computation: in windows, in sessions and running."""

import random
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cutwater as cw
from cutwater.job.state_owners import owner_of
from cutwater.testing import ADVANCE, CHECKPOINT, FAIL, TRIGGER, run, script

EVENT = "k string, ts long, v long"
KINDS: list[Any] = [cw.tumbling("10ms"), cw.sliding("12ms", "4ms"), cw.sliding("10ms", "4ms"), cw.session("5ms")]


def millis(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


class Spread(cw.AggregateFunction):
    """How far the values are apart; None of values that are all null."""

    accumulator_type = "struct<low:long,high:long,seen:array<long>>"
    result_type = "long"

    def create(self) -> Any:
        return None, None, []

    def add(self, accumulator: Any, row: Any) -> Any:
        if row.v is None:
            return accumulator
        low, high, seen = accumulator
        return (
            row.v if low is None else min(low, row.v),
            row.v if high is None else max(high, row.v),
            [*seen, row.v],
        )

    def merge(self, a: Any, b: Any) -> Any:
        a.seen.extend(b.seen)  # what a function gets is its own
        if a.low is None or b.low is None:
            return (*(b if a.low is None else a)[:2], a.seen)
        return min(a.low, b.low), max(a.high, b.high), a.seen

    def result(self, accumulator: Any) -> Any:
        if accumulator.low is None:
            return None
        assert accumulator.high - accumulator.low == max(accumulator.seen) - min(accumulator.seen)
        return accumulator.high - accumulator.low


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["a", "b", None]), st.integers(-30, 30), st.one_of(st.none(), st.integers(-3, 3))
        ),
        st.sampled_from([CHECKPOINT, TRIGGER, FAIL, ADVANCE("100ms")]),
    ),
    max_size=30,
)  # fmt: skip

BY_VALUES = {
    "all": cw.collect_list("v"),
    "different": cw.count_distinct("v"),
    "middle": pl.col("v").median(),
    "span": pl.col("ts").max() - pl.col("ts").min(),
}


def expected_of(rows: list[tuple[int, int | None]]) -> tuple[Any, ...]:
    values = sorted(v for _, v in rows if v is not None)
    half = len(values) // 2
    median = None if not values else values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2
    times = [ts for ts, _ in rows]
    return (
        values,
        len(set(values)),
        median,
        max(times) - min(times),
        len(rows),
        max(values) - min(values) if values else None,
    )


def windows_by_hand(events: list[Any], windows: Any) -> dict[Any, tuple[Any, ...]]:
    of: dict[Any, list[Any]] = defaultdict(list)
    if hasattr(windows, "gap"):
        by_key: dict[Any, list[Any]] = defaultdict(list)
        for key, ts, v in events:
            by_key[key].append((ts, v))
        for key, rows in by_key.items():
            rows.sort(key=lambda each: each[0])
            start = 0
            for at in range(1, len(rows) + 1):
                if at == len(rows) or rows[at][0] - rows[at - 1][0] > windows.gap:
                    of[key, rows[start][0], rows[at - 1][0] + windows.gap] = rows[start:at]
                    start = at
    else:
        for key, ts, v in events:
            for start in range(ts - windows.size + 1, ts + 1):
                if start % windows.slide == 0:
                    of[key, start, start + windows.size].append((ts, v))
    return {where: expected_of(rows) for where, rows in of.items()}


@settings(max_examples=80)
@given(
    steps=STEPS, windows=st.sampled_from(KINDS), parallelism=st.integers(1, 3), seed=st.integers(0, 2**32)
)  # fmt: skip
def test_every_kind_of_aggregate_equals_a_plain_computation_in_every_kind_of_window(
    steps: list[Any], windows: Any, parallelism: int, seed: int
) -> None:
    def pipeline(env: cw.Environment) -> None:
        events = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts", out_of_orderness="60ms")
        windowed = events.key_by("k").window(windows)
        windowed.agg(**BY_VALUES, n=cw.count()).uid("values").collect("values")
        windowed.agg(n=cw.count(), spread=Spread(), **BY_VALUES).uid("own").collect("own")

    got = run(pipeline, {"in": script(*steps)}, parallelism=parallelism, choose=random.Random(seed).randrange)
    expected = windows_by_hand([step for step in steps if isinstance(step, tuple)], windows)

    def told(name: str) -> dict[Any, Any]:
        rows = got[name]
        found = {
            (row.k, millis(row.window_start), millis(row.window_end)): (
                sorted(row.all), row.different, row.middle, row.span, row.n,
            )
            for row in rows
        }  # fmt: skip
        assert len(found) == len(rows), "told once"
        return found

    assert told("values") == {where: each[:5] for where, each in expected.items()}
    assert told("own") == told("values")
    assert sorted(str(row.spread) for row in got["own"]) == sorted(str(each[5]) for each in expected.values())


@settings(max_examples=60)
@given(steps=STEPS, parallelism=st.integers(1, 3), seed=st.integers(0, 2**32))
def test_running_aggregates_end_with_the_values_of_all_records(steps: list[Any], parallelism: int, seed: int) -> None:
    def pipeline(env: cw.Environment) -> None:
        events = env.read(cw.from_rows([], EVENT), uid="in")
        running = events.key_by("k").agg(n=cw.count(), spread=Spread(), different=cw.count_distinct("v"))
        running.uid("running").collect("out")

    got = run(pipeline, {"in": script(*steps)}, parallelism=parallelism, choose=random.Random(seed).randrange)["out"]
    of: dict[Any, list[Any]] = defaultdict(list)
    for key, ts, v in (step for step in steps if isinstance(step, tuple)):
        of[key].append((ts, v))
    latest = {row.k: (row.different, row.n, row.spread) for row in sorted(got, key=lambda row: row.n)}
    assert latest == {key: (each[1], each[4], each[5]) for key, each in ((k, expected_of(r)) for k, r in of.items())}


def test_a_list_is_in_the_order_of_arrival_and_keys_may_have_several_columns() -> None:
    def pipeline(env: cw.Environment) -> None:
        events = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts", out_of_orderness="1s")
        keyed = events.key_by("k", "v")
        keyed.window(cw.tumbling("1s")).agg(times=cw.collect_list("ts")).uid("w").collect("windows")
        keyed.agg(n=cw.count_distinct("ts")).uid("r").collect("running")

    rows = script([("a", 3, 1), ("a", 1, 1)], CHECKPOINT, FAIL, [("a", 2, 1), ("a", 9, None)])
    got = run(pipeline, {"in": rows})
    assert [(row.k, row.v, row.times) for row in got["windows"]] == [("a", 1, [3, 1, 2]), ("a", None, [9])]
    assert {(row.k, row.v, row.n) for row in got["running"]} >= {("a", 1, 3), ("a", None, 1)}


TYPES = {
    "boolean": [True, False, True], "byte": [1, -1, 1], "long": [2**62, 1, 1], "float": [0.5, float("nan"), float("nan")],
    "decimal(10,2)": [Decimal("1.50"), Decimal("-2.00"), Decimal("1.50")], "string": ["a", "", "a"], "binary": [b"\0", b"", b""],
    "date": [date(2024, 2, 29), date(1960, 1, 1), date(1960, 1, 1)],
    "timestamp": [datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=UTC), datetime(1960, 1, 1, tzinfo=UTC)] * 2,
    "timestamp_ntz": [datetime(2024, 2, 29, 12, 0, 0, 1), datetime(1960, 1, 1)] * 2,  # noqa: DTZ001 (naive ones are meant)
}  # fmt: skip


@pytest.mark.parametrize("data_type", TYPES)
def test_lists_and_distinct_values_of_every_type_are_the_same_in_windows_and_sessions(data_type: str) -> None:
    def pipeline(env: cw.Environment) -> None:
        events = env.read(cw.from_rows([], f"k string, ts long, x {data_type}"), uid="in").with_timestamps("ts")
        for name, windows in (("windows", cw.tumbling("1s")), ("sessions", cw.session("1s"))):
            windowed = events.key_by("k").window(windows)
            told = windowed.agg(all=cw.collect_list("x"), different=cw.count_distinct("x")).uid(name)
            told.collect(name)
            schemas.append(told.schema)

    schemas: list[Any] = []
    values = [*TYPES[data_type], None]
    rows = [("a", 1, value) for value in values]
    got = run(pipeline, {"in": script(rows[:1], CHECKPOINT, FAIL, rows[1:])})
    assert schemas[0] == schemas[1]
    for name in ("windows", "sessions"):
        (row,) = got[name]
        assert (list(map(str, row.all)), row.different) == (list(map(str, values[:-1])), 2)


def test_columns_may_have_any_name() -> None:
    def pipeline(env: cw.Environment) -> None:
        rows = env.read(cw.from_rows([], pa.schema([("k", pa.string()), ("$group", pa.int64())])), uid="in")
        windows = rows.key_by("k").window(cw.tumbling("1h"), time="processing")
        windows.agg(**{"$group": pl.col("$group").sum(), "$group$": pl.col("$group").max()}).uid("w").collect("out")

    got = run(pipeline, {"in": [("a", 3), ("b", 5), ("a", 4)]})["out"]
    assert sorted((row.k, row["$group"], row["$group$"]) for row in got) == [("a", 7, 4), ("b", 5, 5)]


class NoMerge(cw.AggregateFunction):
    accumulator_type = "long"
    result_type = "long"

    def create(self) -> Any:
        return 0

    def add(self, accumulator: Any, row: Any) -> Any:
        return accumulator + 1

    def result(self, accumulator: Any) -> Any:
        return accumulator


class NoType(Spread):
    accumulator_type = "strukt<low:long>"


class Wrong(NoMerge):
    def merge(self, a: Any, b: Any) -> Any:
        return a + b

    def add(self, accumulator: Any, row: Any) -> Any:
        return "many"


class NullInside(Wrong):
    accumulator_type = "struct<n:long not null>"

    def create(self) -> Any:
        return (0,)

    def add(self, accumulator: Any, row: Any) -> Any:
        return (None,)


class Failing(Wrong):
    def add(self, accumulator: Any, row: Any) -> Any:
        raise ValueError("no such thing")


class AddsInPlace(cw.AggregateFunction):
    """Its author forgot that what is returned counts."""

    accumulator_type = "array<long>"
    result_type = "long"

    def create(self) -> Any:
        return []

    def add(self, accumulator: Any, row: Any) -> Any:
        accumulator.append(row.v)

    def merge(self, a: Any, b: Any) -> Any:
        return [*a, *b]

    def result(self, accumulator: Any) -> Any:
        return sum(accumulator)


class MergesInPlace(AddsInPlace):
    def add(self, accumulator: Any, row: Any) -> Any:
        return [*accumulator, row.v]

    def merge(self, a: Any, b: Any) -> Any:
        a.extend(b)


class Lowest(cw.AggregateFunction):
    """Nothing, until there is something."""

    accumulator_type = result_type = "long"

    def create(self) -> Any:
        return None

    def add(self, accumulator: Any, row: Any) -> Any:
        return row.v if accumulator is None or row.v < accumulator else accumulator

    def merge(self, a: Any, b: Any) -> Any:
        return min(a, b)

    def result(self, accumulator: Any) -> Any:
        return accumulator


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda k: k.agg(x=cw.collect_list("v")), "without a window they would be kept for ever"),
        (lambda k: k.agg(x=pl.col("v").sum()), "Write k.window"),
        (lambda k: k.agg(x=NoMerge()), "NoMerge needs a method merge"),
        (lambda k: k.agg(x=NoType()), "NoType.accumulator_type"),
        (lambda k: k.agg(x=cw.count_distinct("nope")), "nope"),
        (lambda k: k.window(cw.tumbling("5s")).agg(x=cw.count_distinct("tags")), "are not compared"),
        (lambda k: k.agg(x=3), "must be an aggregate"),
        (lambda k: k.agg(k=Spread()), "'k' is a key column already"),
        (lambda k: k.window(cw.tumbling("5s")).agg(x=pl.col("nope").sum()), "nope"),
        (lambda k: k.window(cw.tumbling("5s")).agg(x=pl.all().sum()), "gives several columns"),
        (lambda k: k.window(cw.tumbling("5s")).agg(x=pl.len()), "write cw.count"),
        (lambda k: k.window(cw.tumbling("5s")).agg(x=pl.col("k").sum().str.len_chars() + "a"), "agg"),
        (lambda k: k.window(cw.tumbling("5s")).agg(window_end=cw.collect_list("v")), "'window_end' is a column"),
        (lambda k: k.window(cw.session("5s")).agg(window_end=Spread()), "'window_end' is a column"),
    ],
)
def test_a_wrong_aggregate_is_refused_at_the_call(make: Any, says: str) -> None:
    env = cw.Environment(checkpointing=None)
    events = env.read(cw.from_rows([], f"{EVENT}, tags array<string>"), uid="in").with_timestamps("ts")
    with pytest.raises(cw.CutwaterError, match=says):
        make(events.key_by("k"))


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (Wrong(), r"agg.*'x', the accumulator of Wrong, is int64, which cannot hold 'many'"),
        (
            NullInside(),
            r"agg.*'x', the accumulator of NullInside, .* cannot hold \(None,\) .* its field 'n' is NOT NULL",
        ),
        (Failing(), r"agg.*x: ValueError: no such thing at test_aggregates.py:\d+, for the row"),
    ],
)
def test_an_own_aggregate_that_fails_is_named(function: Any, says: str) -> None:
    def pipeline(env: cw.Environment) -> None:
        env.read(cw.from_rows([], EVENT), uid="in").key_by("k").agg(x=function).uid("agg").collect("out")

    with pytest.raises(cw.JobFailed, match=says):
        run(pipeline, {"in": [("a", 1, 1)]})


@pytest.mark.parametrize("function", [AddsInPlace(), MergesInPlace()], ids=["add", "merge"])
@pytest.mark.parametrize("windows", [None, cw.tumbling("1s"), cw.session("1s")], ids=str)
def test_an_own_aggregate_that_returns_nothing_is_told_so_and_loses_nothing(function: Any, windows: Any) -> None:
    def pipeline(env: cw.Environment) -> None:
        keyed = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts").key_by("k")
        (keyed if windows is None else keyed.window(windows)).agg(x=function).uid("agg").collect("out")

    method = "add" if type(function) is AddsInPlace else "merge"
    says = (
        rf"\(agg\), x: {type(function).__name__}\.{method} gave None, where there was \[1\]\. .*\(is a return missing"
    )
    with pytest.raises(cw.JobFailed, match=says):
        run(pipeline, {"in": script(("a", 1, 1), CHECKPOINT, ("a", 2, 2))})


def test_an_accumulator_that_is_nothing_yet_may_be_none() -> None:
    def pipeline(env: cw.Environment) -> None:
        env.read(cw.from_rows([], EVENT), uid="in").key_by("k").agg(x=Lowest()).uid("agg").collect("out")

    rows = run(pipeline, {"in": script(("a", 1, 3), CHECKPOINT, ("a", 2, 2), FAIL, ("a", 3, 5))})["out"]
    assert [row.x for row in rows] == [3, 2, 2]


def test_state_of_one_kind_of_aggregate_is_not_read_by_another() -> None:
    def owner(windows: Any, **aggregates: Any) -> str:
        env = cw.Environment(checkpointing=None)
        keyed = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts").key_by("k")
        told = keyed.agg(**aggregates) if windows is None else keyed.window(windows).agg(**aggregates)
        told.uid("w").write(cw.discard(), uid="out")
        return next(owner_of(node).kind for node in env.define("job", 1).plan.graph.nodes if node.uid == "w")

    size = cw.tumbling("5s")
    kinds = [
        owner(size, x=cw.collect_list("v")), owner(size, x=cw.count_distinct("v")), owner(size, x=Spread()),
        owner(size, x=pl.col("v").sum()), owner(size, x=cw.count()), owner(None, x=Spread()), owner(None, x=cw.count()),
        owner(cw.session("5s"), x=Spread()),
    ]  # fmt: skip
    assert len(set(kinds)) == len(kinds)
