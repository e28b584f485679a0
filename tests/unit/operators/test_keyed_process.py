"""Functions with state by key, timers and reduce, on the real memory backend."""

import pickle
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import pyarrow as pa
import pytest

from cutwater.errors import ConfigError, DataError, SchemaError, UserCodeError
from cutwater.flow.event_time import EventTime
from cutwater.flow.ids import CheckpointId
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.flow.watermarks import MAX_WATERMARK
from cutwater.functions import KeyedProcess, ProcessContext, SideOutput
from cutwater.operators.keyed_process import KeyedProcessOperator, KeyedReduce
from cutwater.operators.operator import Operator, OperatorContext
from cutwater.operators.process import FunctionInput
from cutwater.operators.timers import MOST_IN_A_ROW
from cutwater.rows import Row, batch_of
from cutwater.schema import arrow_schema
from cutwater.state.backend import StateBackend
from cutwater.state.descriptors import ListState, MapState, ValueState
from cutwater.state.memory import Memory
from cutwater.state.operator_states import ListOperatorState
from cutwater.state.rocksdb import RocksDB
from tests.unit.operators.collecting import Collected, NoDriver, after

WORDS = arrow_schema("word string, n long")
EVENTS = arrow_schema("user string, ts timestamp")


@pytest.fixture(scope="module", autouse=True, params=[Memory(), RocksDB(cache=1)], ids=["memory", "rocksdb"])
def _backend(request: pytest.FixtureRequest) -> None:
    """Every test here runs on each of them."""
    Chosen.backend = request.param


class Chosen:
    backend: StateBackend


class Stored:
    """A checkpoint: the batches of every table."""

    stored = ()
    """No files."""

    def __init__(self, operator: Operator) -> None:
        snapshot = operator.snapshot(CheckpointId(1))
        assert snapshot is not None
        self.inline = () if snapshot.inline is None else (snapshot.inline,)
        self._batches: dict[str, list[pa.RecordBatch]] = {}
        for table in snapshot.tables:
            self._batches[table.name] = list(table.batches())
            table.release()

    def tables(self) -> Sequence[str]:
        return list(self._batches)

    def batches(self, table: str) -> Iterator[pa.RecordBatch]:
        return iter(self._batches[table])


def processing(
    fn: KeyedProcess, schema: Any, keys: Sequence[str], time: EventTime | None = None
) -> KeyedProcessOperator:
    return KeyedProcessOperator(fn, schema, [FunctionInput("process", time, tuple(keys))])


class Harness:
    """Opens an operator and feeds it."""

    def __init__(
        self,
        operator: Operator,
        restored: Stored | None = None,
        *,
        schema: pa.Schema = WORDS,
        groups: tuple[int, int] = (0, 127),
    ) -> None:
        self.operator = operator
        self.schema = schema
        self.out = Collected()
        operator.output_schema([schema])
        operator.open(
            OperatorContext(
                job="words",
                uid="c1",
                name="Counts",
                subtask=0,
                parallelism=1,
                max_parallelism=128,
                attempt=1,
                incarnation="1f3a",
                key_groups=KeyGroupRange(*groups),
                backend=Chosen.backend,
                now=lambda: 1000,
                driver=NoDriver(),
                restored=restored,
            )
        )

    def feed(self, *rows: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        self.operator.process(batch_of(list(rows), self.schema, "test"), 0, self.out)
        return self.out.taken()

    def watermark(self, time: int) -> list[tuple[Any, ...]]:
        after(self.operator.on_watermark(time, self.out))
        return self.out.taken()

    def clock(self, now: int) -> list[tuple[Any, ...]]:
        after(self.operator.on_processing_time(now, self.out))
        return self.out.taken()


class Count(KeyedProcess):
    count = ValueState("long")

    def process(self, row: Row, ctx: ProcessContext) -> Any:
        self.count.value = (self.count.value or 0) + 1
        yield ctx.key, self.count.value


def counting() -> KeyedProcessOperator:
    return processing(Count(), WORDS, ["word"])


def test_each_key_has_its_own_state_and_results_keep_the_order_of_rows() -> None:
    harness = Harness(counting())
    assert harness.feed(("a", 0), ("b", 0), ("a", 0)) == [("a", 1), ("b", 1), ("a", 2)]
    assert harness.feed(("b", 0), ("c", 0)) == [("b", 2), ("c", 1)]


def test_a_null_key_is_a_key() -> None:
    harness = Harness(counting())
    assert harness.feed((None, 0), ("a", 0), (None, 0)) == [(None, 1), ("a", 1), (None, 2)]


def test_state_goes_on_where_the_checkpoint_left_it() -> None:
    first = Harness(counting())
    first.feed(("a", 0), ("b", 0), ("a", 0))
    stored = Stored(first.operator)
    first.feed(("a", 0))  # behind the cut: must not be seen after the restore
    second = Harness(counting(), stored)
    assert second.feed(("a", 0), ("b", 0), ("c", 0)) == [("a", 3), ("b", 2), ("c", 1)]


def test_a_checkpoint_of_restored_state_without_input_is_the_same() -> None:
    first = Harness(counting())
    first.feed(*[(f"w{i}", 0) for i in range(50)])
    stored = Stored(first.operator)
    again = Stored(Harness(counting(), stored).operator)
    assert again.tables() == stored.tables()

    def content(checkpoint: Stored) -> list[Any]:
        return sorted(str(row) for batch in checkpoint.batches("count") for row in batch.to_pylist())

    assert content(again) == content(stored)


def test_rescaling_gives_each_key_to_exactly_one_new_owner() -> None:
    first = Harness(counting())
    words = [f"w{i}" for i in range(100)]
    first.feed(*[(word, 0) for word in words])
    stored = Stored(first.operator)
    low = Harness(counting(), stored, groups=(0, 63)).feed(*[(word, 0) for word in words])
    high = Harness(counting(), stored, groups=(64, 127)).feed(*[(word, 0) for word in words])
    restored_low = {word for word, n in low if n == 2}
    restored_high = {word for word, n in high if n == 2}
    assert restored_low | restored_high == set(words)
    assert restored_low & restored_high == set()
    assert restored_low
    assert restored_high


def test_nan_is_one_key() -> None:
    total = KeyedReduce(lambda total, row: (row.x, total.n + row.n), ["x"])
    harness = Harness(total, schema=arrow_schema("x double, n long"))
    nan = float("nan")
    assert [n for _, n in harness.feed((nan, 1), (-nan, 2), (1.0, 5))] == [1, 3, 5]
    assert [n for _, n in harness.feed((nan, 4))] == [7]


NAN = float("nan")


@pytest.mark.parametrize(
    ("keys", "schema", "row"),
    [
        (["x"], "x double, y string", (NAN, "a")),
        (["x"], "x float, y string", (NAN, "a")),
        (["x", "y"], "x double, y string", (NAN, "a")),
        (["x"], "x struct<a:double,b:struct<c:float>>, y string", ((NAN, (NAN,)), "a")),
    ],
)
def test_the_state_of_a_nan_key_is_found_again_also_after_a_restore(keys: list[str], schema: str, row: Any) -> None:
    class Counts(KeyedProcess):
        count = ValueState("long")

        def process(self, row: Row, ctx: ProcessContext) -> Any:
            self.count.value = (self.count.value or 0) + 1
            ctx.timers.processing_time(5000)
            yield self.count.value

        def on_timer(self, timestamp: int, ctx: ProcessContext) -> Any:
            yield -(self.count.value or 0)

    first = Harness(processing(Counts(), "n long", keys), schema=arrow_schema(schema))
    assert first.feed(row, row) == [(1,), (2,)]
    second = Harness(processing(Counts(), "n long", keys), Stored(first.operator), schema=arrow_schema(schema))
    assert second.feed(row) == [(3,)]
    assert second.clock(5000) == [(-3,)]


@pytest.mark.parametrize("data_type", ["double", "struct<a:double>"])
def test_reduce_finds_a_nan_key_after_a_restore(data_type: str) -> None:
    def total() -> KeyedReduce:
        return KeyedReduce(lambda total, row: (row.x, total.n + row.n), ["x"])

    schema = arrow_schema(f"x {data_type}, n long")
    key: Any = NAN if data_type == "double" else (NAN,)
    first = Harness(total(), schema=schema)
    assert [n for _, n in first.feed((key, 1), (key, 2))] == [1, 3]
    assert [n for _, n in Harness(total(), Stored(first.operator), schema=schema).feed((key, 4))] == [7]


def test_several_key_columns_make_a_row() -> None:
    class ByBoth(KeyedProcess):
        seen = ValueState("boolean")

        def process(self, row: Row, ctx: ProcessContext) -> Any:
            if not self.seen.value:
                self.seen.value = True
                yield ctx.key.word, ctx.key.n

    harness = Harness(processing(ByBoth(), WORDS, ["word", "n"]))
    assert harness.feed(("a", 1), ("a", 1), ("a", 2)) == [("a", 1), ("a", 2)]
    again = Harness(processing(ByBoth(), WORDS, ["word", "n"]), Stored(harness.operator))
    assert again.feed(("a", 1), ("a", 3)) == [("a", 3)]


def test_lists_and_maps_are_kept_by_key() -> None:
    class Keeps(KeyedProcess):
        values = ListState("long")
        by_value = MapState("long", "long")

        def process(self, row: Row, ctx: ProcessContext) -> Any:
            self.values.append(row.n)
            self.by_value[row.n] = self.by_value.get(row.n, 0) + 1
            yield str(list(self.values)), self.by_value[row.n]

    harness = Harness(processing(Keeps(), WORDS, ["word"]))
    harness.feed(("a", 7), ("b", 8))
    restored = Harness(processing(Keeps(), WORDS, ["word"]), Stored(harness.operator))
    assert restored.feed(("a", 7)) == [("[7, 7]", 2)]


def test_side_outputs_work_beside_state() -> None:
    class Twice(Count):
        again = SideOutput("again", "word string")

        def process(self, row: Row, ctx: ProcessContext) -> Any:
            yield from super().process(row, ctx)
            if self.count.value == 2:
                ctx.emit(self.again, ctx.key)

    harness = Harness(processing(Twice(), WORDS, ["word"]))
    harness.feed(("a", 0), ("b", 0), ("a", 0))
    assert harness.out.side == {"again": [("a",)]}


def test_a_missing_key_column_is_named_when_the_pipeline_is_written() -> None:
    with pytest.raises(SchemaError, match=r"process: no column 'wrd' \(did you mean 'word'\?\)"):
        processing(Count(), WORDS, ["wrd"]).output_schema([WORDS])
    with pytest.raises(SchemaError, match="reduce: no column 'x'"):
        KeyedReduce(lambda a, b: a, ["x"]).output_schema([WORDS])


def test_an_exception_names_the_row() -> None:
    class Fails(Count):
        def process(self, row: Row, ctx: ProcessContext) -> Any:
            return [1 // row.n]

    with pytest.raises(UserCodeError, match=r"process 'Counts' \(c1\): ZeroDivisionError.*Row\(word='b', n=0\)"):
        Harness(processing(Fails(), "n long", ["word"])).feed(("a", 1), ("b", 0))


class Timeouts(KeyedProcess):
    """Tells a second after a user was last seen that nobody came."""

    last = ValueState("long")

    def process(self, row: Row, ctx: ProcessContext) -> Any:
        assert ctx.timestamp is not None
        self.last.value = ctx.timestamp
        ctx.timers.event_time(ctx.timestamp + 1000)

    def on_timer(self, timestamp: int, ctx: ProcessContext) -> Any:
        if self.last.value is not None and self.last.value + 1000 == timestamp:
            yield ctx.key, timestamp


def timeouts() -> KeyedProcessOperator:
    return processing(Timeouts(), "user string, at long", ["user"], EventTime(("ts",)))


def at(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def test_event_time_timers_fire_by_the_watermark_in_order_of_time() -> None:
    harness = Harness(timeouts(), schema=EVENTS)
    harness.feed(("a", at(5000)), ("b", at(4000)))
    assert harness.watermark(4999) == []
    assert harness.watermark(5000) == [("b", 5000)]
    assert harness.watermark(9000) == [("a", 6000)]
    assert harness.watermark(9999) == []


def test_a_timer_that_was_renewed_sees_the_newer_state() -> None:
    harness = Harness(timeouts(), schema=EVENTS)
    harness.feed(("a", at(5000)), ("a", at(5500)))
    assert harness.watermark(10_000) == [("a", 6500)]


def test_timers_survive_a_checkpoint_and_fire_once() -> None:
    first = Harness(timeouts(), schema=EVENTS)
    first.feed(("a", at(5000)), ("b", at(7000)))
    assert first.watermark(6000) == [("a", 6000)]
    second = Harness(timeouts(), Stored(first.operator), schema=EVENTS)
    assert second.watermark(8000) == [("b", 8000)]


def test_a_key_of_several_columns_is_a_row_in_on_timer_also_after_a_restore() -> None:
    class Tells(KeyedProcess):
        def process(self, row: Row, ctx: ProcessContext) -> Any:
            ctx.timers.processing_time(row.n)

        def on_timer(self, timestamp: int, ctx: ProcessContext) -> Any:
            yield ctx.key.word, ctx.key.n

    def telling() -> KeyedProcessOperator:
        return processing(Tells(), WORDS, ["word", "n"])

    first = Harness(telling())
    first.feed(("a", 2000), ("b", 3000))
    assert first.clock(2000) == [("a", 2000)]
    assert Harness(telling(), Stored(first.operator)).clock(3000) == [("b", 3000)]


def test_the_same_timer_set_twice_fires_once() -> None:
    class Counts(KeyedProcess):
        def process(self, row: Row, ctx: ProcessContext) -> Any:
            ctx.timers.event_time(at(100))

        def on_timer(self, timestamp: int, ctx: ProcessContext) -> Any:
            yield ctx.key, timestamp

    operator = processing(Counts(), "user string, at long", ["user"], EventTime(("ts",)))
    harness = Harness(operator, schema=EVENTS)
    harness.feed(("a", at(1)), ("a", at(2)))
    assert harness.watermark(100) == [("a", 100)]


class Ticks(KeyedProcess):
    """Ticks three times, each tick setting the next."""

    left = ValueState("long")

    def process(self, row: Row, ctx: ProcessContext) -> Any:
        self.left.value = 3
        ctx.timers.processing_time(ctx.now + 10)

    def on_timer(self, timestamp: int, ctx: ProcessContext) -> Any:
        left = self.left.value
        assert left is not None
        self.left.value = left - 1
        if left > 1:
            ctx.timers.processing_time(timestamp + 10)
        yield ctx.key, left


def test_processing_time_timers_say_when_they_are_due_and_may_set_the_next() -> None:
    operator = processing(Ticks(), WORDS, ["word"])
    harness = Harness(operator)
    assert operator.next_timer() is None
    harness.feed(("a", 0))
    assert operator.next_timer() == 1010
    assert harness.clock(1010) == [("a", 3)]
    assert operator.next_timer() == 1020
    assert harness.clock(5000) == [("a", 2), ("a", 1)]
    assert operator.next_timer() is None


def test_event_time_timers_without_timestamps_are_refused() -> None:
    class Sets(Ticks):
        def process(self, row: Row, ctx: ProcessContext) -> Any:
            ctx.timers.event_time(5)

    with pytest.raises(UserCodeError, match="event-time timers come with with_timestamps"):
        Harness(processing(Sets(), WORDS, ["word"])).feed(("a", 0))


def test_a_single_tuple_is_not_torn_apart() -> None:
    class Wrong(Ticks):
        def process(self, row: Row, ctx: ProcessContext) -> Any:
            ctx.timers.processing_time(1010)
            return (row.word, 1) if row.n else None

        def on_timer(self, timestamp: int, ctx: ProcessContext) -> Any:
            return ctx.key, 2

    told = r"a single tuple: yield it, or return a list of results"
    harness = Harness(processing(Wrong(), WORDS, ["word"]))
    with pytest.raises(
        UserCodeError, match=rf"'Counts' \(c1\): TypeError: process returned \('a', 1\), {told}, for the"
    ):
        harness.feed(("a", 1))
    with pytest.raises(
        UserCodeError, match=rf"on_timer\(1010\) of key 'a': TypeError: on_timer returned \('a', 2\), {told}"
    ):
        harness.clock(2000)


def test_timers_without_on_timer_are_refused() -> None:
    class Sets(Count):
        def process(self, row: Row, ctx: ProcessContext) -> Any:
            ctx.timers.processing_time(5)

    with pytest.raises(UserCodeError, match="needs a method on_timer"):
        Harness(processing(Sets(), WORDS, ["word"])).feed(("a", 0))


@pytest.mark.parametrize("wrong", [1.5, "5s", True, 2**63, -(2**63) - 1, datetime(2024, 1, 1)])  # noqa: DTZ001 (that it has no zone is the point)
def test_a_timer_for_no_moment_is_refused(wrong: Any) -> None:
    class Sets(Ticks):
        def process(self, row: Row, ctx: ProcessContext) -> Any:
            ctx.timers.processing_time(wrong)

    with pytest.raises(UserCodeError, match="give milliseconds since the epoch") as raised:
        Harness(processing(Sets(), WORDS, ["word"])).feed(("a", 0))
    assert isinstance(raised.value.__cause__, ConfigError)


def test_an_exception_in_on_timer_names_time_and_key() -> None:
    class Fails(Ticks):
        def on_timer(self, timestamp: int, ctx: ProcessContext) -> Any:
            raise ValueError("no")

    harness = Harness(processing(Fails(), WORDS, ["word"]))
    harness.feed(("a", 0))
    with pytest.raises(UserCodeError, match=r"on_timer\(1010\) of key 'a': ValueError: no"):
        harness.clock(2000)


def test_a_time_column_of_a_wrong_type_is_refused() -> None:
    with pytest.raises(SchemaError, match="the time column 'word' is string"):
        processing(Count(), WORDS, ["word"], EventTime(("word",))).output_schema([WORDS])


def summing() -> KeyedReduce:
    return KeyedReduce(lambda total, row: (row.word, total.n + row.n), ["word"])


def test_reduce_emits_the_new_total_for_every_row() -> None:
    harness = Harness(summing())
    assert harness.feed(("a", 1), ("b", 5), ("a", 2)) == [("a", 1), ("b", 5), ("a", 3)]
    assert harness.feed(("a", 4)) == [("a", 7)]
    assert harness.feed() == []


def test_reduce_goes_on_after_a_restore() -> None:
    first = Harness(summing())
    first.feed(("a", 1), ("b", 5), ("a", 2))
    stored = Stored(first.operator)
    first.feed(("a", 100))
    assert Harness(summing(), stored).feed(("a", 4), ("b", 1), ("c", 1)) == [("a", 7), ("b", 6), ("c", 1)]


def test_reduce_may_change_its_arguments_and_touches_neither_snapshots_nor_earlier_results() -> None:
    def gathered(total: Row, row: Row) -> Row:
        total.tags.extend(row.tags)
        total.by_tag.update(row.by_tag)
        total.inner.more.extend(row.inner.more)
        return total

    schema = arrow_schema("k string, tags array<string>, by_tag map<string,int>, inner struct<more:array<int>>")
    harness = Harness(KeyedReduce(gathered, ["k"]), schema=schema)

    def fed(*numbers: int) -> list[list[str]]:
        return [row[1] for row in harness.feed(*[("a", [str(n)], {str(n): n}, ([n],)) for n in numbers])]

    def frozen_rows(tables: Sequence[Any]) -> list[Any]:
        return [row["reduced"] for batch in tables[0].batches() for row in batch.to_pylist()]

    assert fed(1, 2) == [["1"], ["1", "2"]]
    snapshot = harness.operator.snapshot(CheckpointId(1))
    assert snapshot is not None
    assert fed(3) == [["1", "2", "3"]]
    (at_cut,) = frozen_rows(snapshot.tables)
    assert at_cut == {"k": "a", "tags": ["1", "2"], "by_tag": [("1", 1), ("2", 2)], "inner": {"more": [1, 2]}}
    snapshot.tables[0].release()
    assert fed(4, 5) == [["1", "2", "3", "4"], ["1", "2", "3", "4", "5"]]


def test_reduce_keeps_what_it_emitted_as_a_restore_would_give_it() -> None:
    def added(total: Row, row: Row) -> Any:
        return row.k, total.x + row.x

    schema = arrow_schema("k string, x float")
    first = Harness(KeyedReduce(added, ["k"]), schema=schema)
    first.feed(("a", 0.1), ("a", 0.2))
    second = Harness(KeyedReduce(added, ["k"]), Stored(first.operator), schema=schema)
    assert first.feed(("a", 16777216.0)) == second.feed(("a", 16777216.0))
    assert dict(first.operator._table.items()) == dict(second.operator._table.items())  # type: ignore[attr-defined]


def test_reduce_may_return_a_dict_or_one_of_its_arguments() -> None:
    latest = KeyedReduce(lambda total, row: max(total, row, key=lambda r: r.n), ["word"])
    assert Harness(latest).feed(("a", 1), ("a", 3), ("a", 2)) == [("a", 1), ("a", 3), ("a", 3)]
    by_name = KeyedReduce(lambda total, row: {"n": total.n + row.n, "word": total.word}, ["word"])
    assert Harness(by_name).feed(("a", 1), ("a", 3)) == [("a", 1), ("a", 4)]


def test_reduce_names_what_is_wrong() -> None:
    with pytest.raises(DataError, match=r"reduce 'Counts' \(c1\): the result None is a NoneType"):
        Harness(KeyedReduce(lambda total, row: None, ["word"])).feed(("a", 1), ("a", 1))
    with pytest.raises(DataError, match="column 'n' is int64, which cannot hold 'x'"):
        Harness(KeyedReduce(lambda total, row: ("a", "x"), ["word"])).feed(("a", 1), ("a", 1))
    with pytest.raises(UserCodeError, match=r"ZeroDivisionError.*Row\(word='a', n=0\)"):
        Harness(KeyedReduce(lambda total, row: (row.word, 1 // row.n), ["word"])).feed(("a", 1), ("a", 0))


def test_operators_travel_to_the_workers_after_their_schema_was_asked_for() -> None:
    for operator in (counting(), summing()):
        operator.output_schema([WORDS])
        again = pickle.loads(cloudpickle.dumps(operator))  # noqa: S301 (our own bytes)
        assert len(Harness(again).feed(("a", 1), ("b", 1))) == 2


def test_a_state_that_is_replaced_instead_of_written_to_is_refused() -> None:
    class Forgets(Count):
        again = SideOutput("again", "word string")

        def __init__(self) -> None:
            self.limit = 2

        def process(self, row: Row, ctx: ProcessContext) -> Any:
            self.limit += 1  # other attributes are the user's own
            self.count = 1  # type: ignore[assignment]

    harness = Harness(processing(Forgets(), WORDS, ["word"]))
    with pytest.raises(UserCodeError, match=r"Forgets.count is a state .*write self\.count\.value = \.\.\."):
        harness.feed(("a", 0))
    with pytest.raises(ConfigError, match=r"Forgets.again is a side output .*ctx\.emit\(self\.again, row\)"):
        Forgets().again = None  # type: ignore[assignment]


@pytest.mark.parametrize("make", [lambda: ValueState("long"), lambda: ListOperatorState("long")])
def test_state_made_in_init_is_refused_and_where_it_is_declared_is_told(make: Any) -> None:
    class Wrong(KeyedProcess):
        def __init__(self) -> None:
            self.n = make()

    with pytest.raises(ConfigError, match=r"Wrong\.n: state is declared in the class body, .* n = cw\.(Value|List)"):
        Wrong()


SHARED = ValueState("long")


class SharedByX(KeyedProcess):
    x = SHARED

    def process(self, row: Any, ctx: Any) -> Any:
        self.x.value = (self.x.value or 0) + 1
        yield row.word, self.x.value


class SharedByY(KeyedProcess):
    y = z = SHARED

    def process(self, row: Any, ctx: Any) -> Any:
        self.y.value = (self.y.value or 0) + 1
        self.z.value = (self.z.value or 0) + 10
        yield row.word, self.y.value + self.z.value


class SetLater(KeyedProcess):
    def process(self, row: Any, ctx: Any) -> Any:
        self.late.value = (self.late.value or 0) + 1
        yield row.word, self.late.value

    late: Any


SetLater.late = ValueState("long")


@pytest.mark.parametrize(
    ("fn", "names", "after_two"), [(SharedByX, {"x"}, 2), (SharedByY, {"y", "z"}, 22), (SetLater, {"late"}, 2)]
)
def test_a_state_has_the_name_of_its_attribute_whatever_else_has_it(
    fn: type[KeyedProcess], names: set[str], after_two: int
) -> None:
    operator = processing(fn(), WORDS, ["word"])
    first = Harness(operator)
    first.feed(("a", 0))
    stored = Stored(operator)
    assert set(stored.tables()) == operator.state_names() == names
    restored = Harness(processing(fn(), WORDS, ["word"]), stored)
    assert restored.feed(("a", 0)) == [("a", after_two)]
    with pytest.raises(ConfigError, match=rf"{fn.__name__}\.({'|'.join(names)}) can be used in process"):
        getattr(fn(), next(iter(names)))


def test_state_outside_of_a_key_is_refused_in_open_and_close() -> None:
    class Opens(Count):
        def open(self, ctx: Any) -> None:
            self.count.value = 1

    class Closes(Count):
        def close(self) -> None:
            self.count.clear()

    with pytest.raises(
        UserCodeError, match=r"process 'Counts' \(c1\), open: ConfigError: state and timers belong to the key"
    ):
        Harness(processing(Opens(), WORDS, ["word"]))
    closing = Harness(processing(Closes(), WORDS, ["word"]))
    closing.feed(("a", 0))
    with pytest.raises(ConfigError, match="use them in process and on_timer, not in open, close or process_broadcast"):
        closing.operator.close()


def test_close_after_a_failed_or_missing_open_is_quiet() -> None:
    counting().close()
    summing().close()


class Sessions(KeyedProcess):
    """Closes a session a second behind its last record; each timer looks whether another one is needed."""

    last = ValueState("long")

    def process(self, row: Row, ctx: ProcessContext) -> Any:
        self.last.value = max(self.last.value or 0, ctx.timestamp or 0)
        ctx.timers.event_time((ctx.timestamp or 0) + 1000)

    def on_timer(self, timestamp: int, ctx: ProcessContext) -> Any:
        last = self.last.value
        assert last is not None
        if last + 1000 > timestamp:
            ctx.timers.event_time(last + 1000)
        else:
            yield ctx.key, last


class Forever(KeyedProcess):
    def process(self, row: Row, ctx: ProcessContext) -> Any:
        ctx.timers.event_time(ctx.timestamp or 0)

    def on_timer(self, timestamp: int, ctx: ProcessContext) -> Any:
        ctx.timers.event_time(timestamp + 1000)
        yield ctx.key, timestamp


def test_at_the_end_of_time_timers_that_timers_set_still_fire_but_not_for_ever() -> None:
    sessions = processing(Sessions(), "user string, at long", ["user"], EventTime(("ts",)))
    harness = Harness(sessions, schema=EVENTS)
    harness.feed(("a", at(5000)), ("a", at(5500)))
    assert harness.watermark(MAX_WATERMARK) == [("a", 5500)]
    forever = Harness(processing(Forever(), "user string, at long", ["user"], EventTime(("ts",))), schema=EVENTS)
    forever.feed(("a", at(0)))
    fired = forever.watermark(MAX_WATERMARK)
    assert fired == [("a", 1000 * n) for n in range(MOST_IN_A_ROW)]


def test_a_watermark_is_passed_on_behind_the_rows_of_its_timers_and_is_known_after_a_restore() -> None:
    first = Harness(timeouts(), schema=EVENTS)
    first.feed(("a", at(5000)))
    steps = first.operator.on_watermark(6000, first.out)
    after(steps)
    assert first.out.taken() == [("a", 6000)] and first.out.times == [6000]
    second = Harness(timeouts(), Stored(first.operator), schema=EVENTS)
    assert second.operator.context.watermark == 6000
