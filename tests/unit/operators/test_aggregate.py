import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cutwater.aggregates as cw
from cutwater.aggregates import AggregateSpec
from cutwater.connectors.rows import from_rows
from cutwater.environment import Environment
from cutwater.errors import ConfigError, DataError, SchemaError
from cutwater.flow.ids import CheckpointId
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.flow.watermarks import MAX_WATERMARK
from cutwater.operators.aggregate import Aggregate
from cutwater.operators.combine import FEW_RECORDS, MAX_DELAY, MAX_KEYS, MIN_SAMPLE, PASS_RECORDS, Combine
from cutwater.operators.operator import OperatorContext
from cutwater.state.memory import Memory
from cutwater.testing import run
from tests.unit.operators.collecting import Collected, after

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.int64()), ("f", pa.float64()), ("s", pa.string())])
RESULTS = {
    "n": cw.count(),
    "xs": cw.count("x"),
    "total": cw.sum("x"),
    "ftotal": cw.sum("f"),
    "lo": cw.min("x"),
    "hi": cw.max("s"),
    "avg": cw.mean("x"),
    "head": cw.first("s"),
    "tail": cw.last("x"),
}
Record = tuple[int | None, int | None, float | None, str | None]


class Restored:
    """What a checkpoint holds for one operator, as the subtask would hand it in."""

    def __init__(self, tables: dict[str, list[pa.RecordBatch]]) -> None:
        self._tables = tables
        self.inline: Sequence[Any] = ()

    def tables(self) -> Sequence[str]:
        return list(self._tables)

    def batches(self, table: str) -> Iterator[pa.RecordBatch]:
        return iter(self._tables[table])


class Nobody:
    def collected(self, uid: str, checkpoint: CheckpointId, rows: bytes) -> None:
        raise AssertionError("nothing is collected")

    def printed(self, lines: Sequence[str]) -> None:
        raise AssertionError("nothing is printed")


class Clock:
    def __init__(self) -> None:
        self.time = 0

    def __call__(self) -> int:
        return self.time


def context(clock: Clock | None = None, restored: Restored | None = None) -> OperatorContext:
    return OperatorContext(
        job="job", uid="counts", name="Counts", subtask=0, parallelism=1, max_parallelism=128, attempt=1,
        incarnation="i", key_groups=KeyGroupRange(0, 127), backend=Memory(), now=clock or Clock(), driver=Nobody(),
        restored=restored,
    )  # fmt: skip


def aggregate(schema: pa.Schema = SCHEMA, keys: Sequence[str] = ("k",), **results: cw.AggregateSpec) -> Aggregate:
    operator = Aggregate(keys, results or RESULTS)
    operator.output_schema([schema])
    operator.open(context())
    return operator


def batch_of(records: Sequence[Sequence[Any]], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    columns = list(zip(*records, strict=True)) or [()] * len(schema)
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def expected_row(key: Any, records: list[Record]) -> tuple[Any, ...]:
    xs = [r[1] for r in records if r[1] is not None]
    fs = [r[2] for r in records if r[2] is not None]
    ss = [r[3] for r in records if r[3] is not None]
    return (
        key, len(records), len(xs), sum(xs) if xs else None, math.fsum(fs) if fs else None, min(xs, default=None),
        max(ss, default=None), sum(xs) / len(xs) if xs else None, ss[0] if ss else None, xs[-1] if xs else None,
    )  # fmt: skip


record = st.tuples(
    st.one_of(st.none(), st.integers(0, 6)),
    st.one_of(st.none(), st.integers(-1000, 1000)),
    st.one_of(st.none(), st.integers(-64, 64).map(lambda i: i / 8)),  # sums of these are exact in any order
    st.one_of(st.none(), st.text("abc", max_size=3)),
)
batches = st.lists(st.lists(record, max_size=25), max_size=6)


@given(batches)
def test_each_batch_gives_one_row_per_key_with_the_values_after_it(script: list[list[Record]]) -> None:
    operator, out = aggregate(), Collected()
    so_far: dict[Any, list[Record]] = {}
    for records in script:
        operator.process(batch_of(records), 0, out)
        for r in records:
            so_far.setdefault(r[0], []).append(r)
        touched = dict.fromkeys(r[0] for r in records)
        assert out.taken() == [expected_row(key, so_far[key]) for key in touched]


@given(batches, batches)
def test_a_restored_aggregate_goes_on_as_if_nothing_had_happened(before: Any, after: Any) -> None:
    steady, out = aggregate(), Collected()
    for records in before:
        steady.process(batch_of(records), 0, out)
    snapshot = steady.snapshot(CheckpointId(1))
    assert snapshot is not None
    stored = {table.name: list(table.batches()) for table in snapshot.tables}
    resumed, resumed_out = Aggregate(("k",), RESULTS), Collected()
    resumed.output_schema([SCHEMA])
    resumed.open(context(restored=Restored(stored)))
    again = resumed.snapshot(CheckpointId(2))
    assert again is not None
    assert {table.name: list(table.batches()) for table in again.tables} == stored
    out.taken()
    for records in after:
        steady.process(batch_of(records), 0, out)
        resumed.process(batch_of(records), 0, resumed_out)
    assert resumed_out.taken() == out.taken()


@given(
    st.lists(st.one_of(st.lists(record, max_size=25), st.sampled_from(["barrier", "watermark", "timer", "cut"]))),
    st.sampled_from((len(RESULTS), len(RESULTS) - 2)),
)
def test_combining_first_gives_the_same_aggregates(script: list[Any], chosen: int) -> None:
    """At "cut" the combine is thrown away and restored from its unaligned snapshot, as after a crash. The last two of the results
    are decided by the order of the records: with them nothing is held."""
    clock = Clock()
    results = dict(list(RESULTS.items())[:chosen])
    combine, merging = Combine(("k",), results), Aggregate(("k",), results, partial=True)
    final_schema = merging.output_schema([combine.output_schema([SCHEMA])])
    assert final_schema == Aggregate(("k",), results).output_schema([SCHEMA])
    combine.open(context(clock))
    merging.open(context())
    partial, out = Collected(), Collected()
    so_far: dict[Any, list[Record]] = {}
    for step in [*script, "end"]:
        match step:
            case "barrier":
                combine.before_barrier(partial)
            case "watermark":
                after(combine.on_watermark(5, partial))
            case "timer":
                clock.time += MAX_DELAY
                after(combine.on_processing_time(clock.time, partial))
            case "cut":
                snapshot = combine.snapshot(CheckpointId(1))
                tables = snapshot.tables if snapshot is not None else ()
                stored = {table.name: list(table.batches()) for table in tables}
                combine = Combine(("k",), results)
                combine.output_schema([SCHEMA])
                combine.open(context(clock, Restored(stored)))
            case "end":
                after(combine.end_of_input(partial, drain=True))
            case records:
                combine.process(batch_of(records), 0, partial)
                for r in records:
                    so_far.setdefault(r[0], []).append(r)
        for batch in partial.batches:
            merging.process(batch, 0, out)
        partial.batches.clear()
    latest = {row[0]: row for row in out.taken()}
    assert latest == {key: expected_row(key, records)[: 1 + chosen] for key, records in so_far.items()}


@pytest.mark.parametrize("records", [1, FEW_RECORDS + 1])
@pytest.mark.parametrize("result", [cw.first("x"), cw.last("x")], ids=str)
def test_what_the_order_decides_is_combined_within_a_batch_and_held_over_none(
    result: AggregateSpec, records: int
) -> None:
    combine, out = Combine(("k",), {"r": result}), Collected()
    combine.output_schema([SCHEMA])
    combine.open(context(Clock()))
    combine.process(keyed([1] * records), 0, out)
    assert len(out.taken()) == 1
    assert combine.snapshot(CheckpointId(1)) is None
    assert combine.next_timer() is None


def combining(clock: Clock) -> Combine:
    combine = Combine(("k",), {"n": cw.count()})
    combine.output_schema([SCHEMA])
    combine.open(context(clock))
    return combine


def keyed(keys: Sequence[int]) -> pa.RecordBatch:
    nothing = pa.nulls(len(keys))
    columns = [pa.array(keys, pa.int64()), *(nothing.cast(field.type) for field in list(SCHEMA)[1:])]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def test_combine_holds_rows_until_its_time_limit() -> None:
    clock, out = Clock(), Collected()
    combine = combining(clock)
    assert combine.next_timer() is None
    combine.process(keyed([1, 2]), 0, out)
    combine.process(keyed([1]), 0, out)
    assert out.taken() == []
    assert combine.next_timer() == MAX_DELAY
    after(combine.on_processing_time(MAX_DELAY - 1, out))
    assert out.taken() == []
    after(combine.on_processing_time(MAX_DELAY, out))
    assert out.taken() == [(1, 2), (2, 1)]
    assert combine.next_timer() is None
    assert combine.snapshot(CheckpointId(1)) is None


@pytest.mark.parametrize("event", ["barrier", "last watermark", "idle", "end", "end without drain"])
def test_combine_holds_nothing_back_over(event: str) -> None:
    combine, out = combining(Clock()), Collected()
    combine.process(keyed([1, 2]), 0, out)
    combine.process(keyed([1]), 0, out)
    match event:
        case "barrier":
            combine.before_barrier(out)
        case "last watermark":
            after(combine.on_watermark(MAX_WATERMARK, out))
        case "idle":
            combine.on_idle(out)
        case _:
            after(combine.end_of_input(out, drain=event == "end"))
    assert out.taken() == [(1, 2), (2, 1)]
    assert combine.snapshot(CheckpointId(1)) is None


def test_a_watermark_waits_behind_the_rows_that_combine_holds_back() -> None:
    combine, out = combining(Clock()), Collected()
    after(combine.on_watermark(3, out))
    assert out.times == [3], "nothing is held back"
    combine.process(keyed([1, 2]), 0, out)
    after(combine.on_watermark(5, out))
    combine.process(keyed([1]), 0, out)
    after(combine.on_watermark(6, out))
    assert out.taken() == [] and out.times == [3]
    combine.before_barrier(out)
    assert out.taken() == [(1, 2), (2, 1)]
    assert out.times == [3, 6]


def test_combine_flushes_when_it_holds_many_keys() -> None:
    combine, out = combining(Clock()), Collected()
    combine.process(keyed(range(MAX_KEYS)), 0, out)
    assert len(out.taken()) == MAX_KEYS


def test_combine_passes_records_on_while_it_does_not_reduce_and_tries_again_later() -> None:
    combine, out = combining(Clock()), Collected()
    combine.process(keyed(range(MIN_SAMPLE)), 0, out)
    combine.before_barrier(out)
    assert len(out.taken()) == MIN_SAMPLE
    combine.process(keyed([7, 7]), 0, out)
    assert out.taken() == [(7, 1), (7, 1)], "still partial rows, one for each record"
    for _ in range(PASS_RECORDS // 50_000):
        combine.process(keyed([1] * 50_000), 0, out)
        out.batches.clear()
    combine.process(keyed([7]), 0, out)
    combine.process(keyed([7]), 0, out)
    combine.before_barrier(out)
    assert out.taken() == [(7, 2)]


def test_a_few_records_that_come_alone_are_held_as_long_and_leave_as_they_came() -> None:
    clock, out = Clock(), Collected()
    combine = combining(clock)
    combine.process(keyed([1, 2, 1]), 0, out)
    assert combine.next_timer() == MAX_DELAY
    after(combine.on_processing_time(MAX_DELAY, out))
    assert out.taken() == [(1, 1), (2, 1), (1, 1)]
    assert combine.next_timer() is None
    combine.process(keyed([1] * (FEW_RECORDS + 1)), 0, out)
    combine.before_barrier(out)
    assert out.taken() == [(1, FEW_RECORDS + 1)], "more than a few are combined, even alone"


def test_passed_on_partials_count_nulls_as_the_combined_ones_do() -> None:
    operator = Combine(("k",), RESULTS)
    operator.output_schema([SCHEMA])
    operator.open(context())
    out = Collected()
    records = [(1, None, 0.5, None), (1, 3, None, "a")]
    operator._worth.pass_on = 100
    operator.process(batch_of(records), 0, out)
    merging, final = Aggregate(("k",), RESULTS, partial=True), Collected()
    merging.output_schema([out.batches[0].schema])
    merging.open(context())
    for batch in out.batches:
        merging.process(batch, 0, final)
    assert final.taken()[-1] == expected_row(1, records)  # type: ignore[arg-type]


def test_dictionary_keys_combine_and_aggregate() -> None:
    schema = pa.schema([("k", pa.dictionary(pa.int32(), pa.string()))])
    operator = aggregate(schema, n=cw.count())
    out = Collected()
    operator.process(batch_of([("a",), ("b",), ("a",)], schema), 0, out)
    assert out.taken() == [("a", 2), ("b", 1)]
    combine = Combine(("k",), {"n": cw.count()})
    assert combine.output_schema([schema]).field("k").type == pa.string()
    combine.open(context())
    for passing in (0, 100):
        combine._worth.pass_on = passing
        combine.process(batch_of([("a",)], schema), 0, out)
        combine.before_barrier(out)
        assert out.taken() == [("a", 1)]


def test_result_types_follow_the_column() -> None:
    schema = pa.schema(
        [("k", pa.int64()), ("i", pa.int16()), ("f", pa.float32()), ("d", pa.decimal128(10, 2)), ("t", pa.date32())]
    )
    operator = aggregate(
        schema, si=cw.sum("i"), sf=cw.sum("f"), sd=cw.sum("d"), lo=cw.min("t"), m=cw.mean("d"), hi=cw.max("i")
    )
    assert [field.type for field in operator.output_schema([schema])] == [
        pa.int64(), pa.int64(), pa.float64(), pa.decimal128(20, 2), pa.date32(), pa.float64(), pa.int16(),
    ]  # fmt: skip
    out = Collected()
    operator.process(
        batch_of([(1, 30_000, 0.5, Decimal("1.10"), None), (1, 30_000, 0.5, Decimal("2.20"), None)], schema), 0, out
    )
    assert out.taken() == [(1, 60_000, 1.0, Decimal("3.30"), None, pytest.approx(1.65), 30_000)]


def test_an_unknown_column_is_named_with_the_available_ones() -> None:
    with pytest.raises(SchemaError, match=r"agg\(total=sum\(amout\)\): no column 'amout'.*available: k, amount"):
        aggregate(pa.schema([("k", pa.int64()), ("amount", pa.int64())]), total=cw.sum("amout"))


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ({"total": cw.sum("s")}, "a column of type string cannot be added up"),
        ({"m": cw.mean("s")}, "cannot be added up"),
        ({"k": cw.count()}, "'k' is a key column already"),
        ({}, "at least one result"),
        ({"n": 5}, r"agg\(n=5\): must be an aggregate"),
    ],
)
def test_aggregates_that_make_no_sense_are_refused(results: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Aggregate(("k",), results).output_schema([SCHEMA])


def test_an_aggregate_without_a_column_is_refused_at_the_call() -> None:
    with pytest.raises(ConfigError, match=r"write cw\.sum\('amount'\)"):
        cw.sum(None)  # type: ignore[arg-type]


def test_a_sum_beyond_a_long_fails_instead_of_wrapping() -> None:
    operator, out = aggregate(total=cw.sum("x")), Collected()
    operator.process(batch_of([(1, 2**62, None, None)]), 0, out)
    with pytest.raises(DataError, match="counts: the sum 'total' left the range of a long"):
        operator.process(batch_of([(1, 2**62, None, None)]), 0, out)


def test_a_mean_of_integers_beyond_what_a_double_holds_exactly_is_rounded() -> None:
    def pipeline(env: Environment) -> None:
        env.read(from_rows([], "k long, t long"), uid="in").key_by("k").agg(m=cw.mean("t")).uid("a").collect("out")

    nanoseconds = 1_714_521_600_123_456_789
    (row,) = run(pipeline, inputs={"in": [(1, nanoseconds), (1, nanoseconds + 2)]})["out"][-1:]
    assert row.m == pytest.approx(nanoseconds + 1, rel=1e-15)
