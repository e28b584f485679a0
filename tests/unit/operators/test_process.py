"""Functions with a context, without keys."""

import pickle
import re
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import pyarrow as pa
import pytest

from cutwater.errors import ConfigError, DataError, SchemaError, UserCodeError
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.functions import OpenContext, Process, ProcessContext, SideOutput
from cutwater.operators.operator import OperatorContext
from cutwater.operators.process import FunctionInput, ProcessOperator
from cutwater.rows import Row, batch_of
from cutwater.schema import arrow_schema
from tests.unit.operators.collecting import Collected, NoDriver

WORDS = arrow_schema("word string, n long")


class NoBackend:
    incremental = False
    asynchronous = True

    def open(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> Any:
        raise AssertionError("no keyed state here")


def context() -> OperatorContext:
    return OperatorContext(
        job="words",
        uid="p1",
        name="Sort out",
        subtask=1,
        parallelism=4,
        max_parallelism=128,
        attempt=2,
        incarnation="1f3a",
        key_groups=KeyGroupRange(32, 63),
        backend=NoBackend(),
        now=lambda: 1234,
        driver=NoDriver(),
    )


def processing(fn: Process, schema: Any) -> ProcessOperator:
    return ProcessOperator(fn, schema, [FunctionInput("process")])


def run(fn: Process, *rows: tuple[Any, ...], schema: pa.Schema = WORDS) -> Collected:
    operator = processing(fn, schema)
    operator.open(context())
    out = Collected()
    operator.process(batch_of(list(rows), WORDS, "test"), 0, out)
    return out


class SortOut(Process):
    late = SideOutput("late", "word string")

    def process(self, row: Row, ctx: ProcessContext) -> Any:
        if row.n < 0:
            ctx.emit(self.late, row.word)
        else:
            yield row
            yield (row.word, -row.n)


def test_rows_go_to_the_main_and_the_side_output_in_order() -> None:
    out = run(SortOut(), ("a", 1), ("b", -1), ("c", 2), ("d", -2))
    assert out.rows() == [("a", 1), ("a", -1), ("c", 2), ("c", -2)]
    assert out.side == {"late": [("b",), ("d",)]}


def test_side_outputs_do_not_repeat_in_the_next_batch() -> None:
    operator = processing(SortOut(), WORDS)
    operator.open(context())
    out = Collected()
    for _ in range(2):
        operator.process(batch_of([("b", -1)], WORDS, "test"), 0, out)
    assert out.side == {"late": [("b",), ("b",)]}


def test_side_schemas_are_known_before_the_start() -> None:
    assert processing(SortOut(), WORDS).side_schemas() == {"late": arrow_schema("word string")}


def test_a_function_may_return_a_list_or_none() -> None:
    class Plain(Process):
        def process(self, row: Row, ctx: ProcessContext) -> Any:
            return None if row.n == 0 else [row, row]

    assert run(Plain(), ("a", 0), ("b", 1)).rows() == [("b", 1), ("b", 1)]


@pytest.mark.parametrize("one", [{"word": "a", "n": 1}, "ab", ("a", 1), ({"x": 1}, 1)])
def test_a_single_result_is_not_torn_apart(one: Any) -> None:
    class Wrong(Process):
        def process(self, row: Row, ctx: ProcessContext) -> Any:
            return one

    told = rf"{re.escape(repr(one))}, a single {type(one).__name__}: yield it, or return a list of results"
    with pytest.raises(UserCodeError, match=rf"process 'Sort out' \(p1\): TypeError: process returned {told}"):
        run(Wrong(), ("a", 1))


def test_the_context_says_where_it_runs_and_counts() -> None:
    seen: list[Any] = []

    class Looks(Process):
        def open(self, ctx: OpenContext) -> None:
            self.bad = ctx.metrics.counter("bad")
            seen.extend([ctx.subtask, ctx.parallelism, ctx.attempt])

        def process(self, row: Row, ctx: ProcessContext) -> Any:
            self.bad.add()
            self.bad.add(2)
            seen.extend([ctx.now, ctx.key, ctx.timestamp, ctx.subtask])

        def close(self) -> None:
            seen.append("closed")

    operator = processing(Looks(), WORDS)
    ctx = context()
    operator.open(ctx)
    operator.process(batch_of([("a", 1)], WORDS, "test"), 0, Collected())
    operator.close()
    assert seen == [1, 4, 2, 1234, None, None, 1, "closed"]
    assert ctx.counters == {"bad": 3}


def test_close_without_open_leaves_the_function_alone() -> None:
    class NeverOpened(Process):
        def close(self) -> None:
            raise AssertionError("there is nothing to close")

    processing(NeverOpened(), WORDS).close()


def test_an_exception_names_operator_line_and_row() -> None:
    class Fails(Process):
        def process(self, row: Row, ctx: ProcessContext) -> Any:
            yield (row.word, 1 // row.n)

    with pytest.raises(UserCodeError) as raised:
        run(Fails(), ("a", 1), ("b", 0))
    assert "process 'Sort out' (p1): ZeroDivisionError" in str(raised.value)
    assert "for the row Row(word='b', n=0)" in str(raised.value)
    assert str(raised.value.user_line).startswith("test_process.py:")


def test_an_exception_in_open_is_the_users() -> None:
    class Fails(Process):
        def open(self, ctx: OpenContext) -> None:
            raise OSError("no database")

    with pytest.raises(UserCodeError, match="open: OSError: no database"):
        run(Fails(), ("a", 1))


def test_a_row_that_does_not_fit_a_side_output_is_named() -> None:
    class Wrong(SortOut):
        def process(self, row: Row, ctx: ProcessContext) -> Any:
            ctx.emit(self.late, 5)

    with pytest.raises(DataError, match="side output 'late': column 'word' is string, which cannot hold 5"):
        run(Wrong(), ("a", 1))


def test_an_undeclared_side_output_is_refused_with_the_declared_ones() -> None:
    class Wrong(SortOut):
        def process(self, row: Row, ctx: ProcessContext) -> Any:
            ctx.emit(SideOutput("early", "word string"), row.word)

    with pytest.raises(UserCodeError, match=r"is not a side output of this function.*declared: late"):
        run(Wrong(), ("a", 1))


def test_two_side_outputs_of_one_name_are_refused() -> None:
    class Twice(Process):
        one = SideOutput("late", "word string")
        two = SideOutput("late", "word string")

    with pytest.raises(ConfigError, match="Twice declares two side outputs named 'late'"):
        processing(Twice(), WORDS)


def test_an_overridden_side_output_counts_once() -> None:
    class Other(SortOut):
        late = SideOutput("late", "word string, n long")

    assert processing(Other(), WORDS).side_schemas() == {"late": WORDS}


def test_wrong_declarations_are_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="name=''"):
        SideOutput("", "word string")
    with pytest.raises(SchemaError, match=r"SideOutput\('late'\)'s schema: at character 6"):
        SideOutput("late", "word strin")


@pytest.mark.parametrize("kind", ["event_time", "processing_time"])
def test_timers_without_keys_are_refused(kind: str) -> None:
    class Sets(Process):
        def process(self, row: Row, ctx: ProcessContext) -> Any:
            getattr(ctx.timers, kind)(5)

    with pytest.raises(UserCodeError, match=rf"ctx\.timers\.{kind}: .* no key here.*key_by"):
        run(Sets(), ("a", 1))


def test_functions_travel_to_the_workers() -> None:
    again = pickle.loads(cloudpickle.dumps(processing(SortOut(), WORDS)))  # noqa: S301 (our own bytes)
    again.open(context())
    out = Collected()
    again.process(batch_of([("b", -1)], WORDS, "test"), 0, out)
    assert out.side == {"late": [("b",)]}
