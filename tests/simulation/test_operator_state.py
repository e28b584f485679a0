"""State that belongs to subtasks: lists, and what every subtask knows."""

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.checkpoint.fit import StoredUid
from cutwater.checkpoint.restore import _deal_inline
from cutwater.checkpoint.snapshot import StoredOperator
from cutwater.schema import arrow_type
from cutwater.state.json_values import from_json, to_json
from cutwater.state.operator_states import BoundOperatorStates
from cutwater.state.place import Place
from cutwater.testing import ADVANCE, CHECKPOINT, FAIL, run, script
from tests.unit.checkpoint.checkpoints import completed


class Buffer(cw.Process):
    """Gives rows out three at a time."""

    rows = cw.ListOperatorState("struct<k:string,v:long>")

    def process(self, row: Any, ctx: Any) -> Any:
        self.rows.append((row.k, row.v))
        if len(self.rows) == 3:
            yield from list(self.rows)
            self.rows.clear()


def test_a_list_survives_a_failure_and_nothing_is_given_out_twice() -> None:
    def pipeline(env: cw.Environment) -> None:
        env.read(cw.from_rows([], "k string, v long"), uid="in").process(Buffer, "k string, v long").uid("b").collect(
            "out"
        )

    rows = [("a", n) for n in range(6)]
    got = run(pipeline, {"in": script(rows[:2], CHECKPOINT, rows[2:4], FAIL, rows[4:])})["out"]
    assert [tuple(row) for row in got] == rows


class Rules(cw.BroadcastProcess):
    """Counts of a key times the factor that the latest rule gave it."""

    factors = cw.BroadcastState("string", "long")
    count = cw.ValueState("long")

    def process(self, row: Any, ctx: Any) -> Any:
        self.count.value = (self.count.value or 0) + 1
        yield row.k, self.count.value * self.factors.get(row.k, 1)

    def process_broadcast(self, row: Any, ctx: Any) -> Any:
        assert ctx.key is None
        self.factors[row.k] = row.factor


@pytest.mark.parametrize("parallelism", [1, 3])
def test_every_subtask_knows_what_was_broadcast_also_after_a_failure(parallelism: int) -> None:
    def pipeline(env: cw.Environment) -> None:
        rules = env.read(cw.from_rows([], "k string, factor long"), uid="rules").broadcast()
        rows = env.read(cw.from_rows([], "k string"), uid="in")
        rows.key_by("k").connect(rules).process(Rules, "k string, n long").uid("rules-of").collect("out")

    steps = script(ADVANCE("1s"), ["a", "b"], CHECKPOINT, ["a"], FAIL, ["c"])
    got = run(pipeline, {"in": steps, "rules": [("a", 10), ("b", 100), ("c", 1000)]}, parallelism=parallelism)["out"]
    assert sorted(map(tuple, got)) == [("a", 10), ("a", 20), ("b", 100), ("c", 1000)]


class Names(cw.BroadcastProcess):
    """What each number, of which NaN is one, is called."""

    names = cw.BroadcastState("double", "string")

    def process(self, row: Any, ctx: Any) -> Any:
        yield row.x, self.names.get(row.x)

    def process_broadcast(self, row: Any, ctx: Any) -> Any:
        self.names[row.x] = row.name


def test_nan_is_found_behind_a_failure_too() -> None:
    nan = float("nan")

    def pipeline(env: cw.Environment) -> None:
        names = env.read(cw.from_rows([], "x double, name string"), uid="names").broadcast()
        rows = env.read(cw.from_rows([], "x double"), uid="in")
        rows.connect(names).process(Names, "x double, name string").uid("names-of").collect("out")

    steps = script(ADVANCE("1s"), [nan], CHECKPOINT, FAIL, [nan])
    got = run(pipeline, {"in": steps, "names": [(nan, "none")]})["out"]
    assert [row.name for row in got] == ["none", "none"]


class Allowed(cw.BroadcastProcess):
    names = cw.BroadcastState("string", "boolean")

    def process(self, row: Any, ctx: Any) -> Any:
        if row.k in self.names:
            yield (row.k,)

    def process_broadcast(self, row: Any, ctx: Any) -> Any:
        if row.k.startswith("-"):
            del self.names[row.k[1:]]
        else:
            self.names[row.k] = True


def test_without_keys_too() -> None:
    def pipeline(env: cw.Environment) -> None:
        names = env.read(cw.from_rows([], "k string"), uid="names").broadcast()
        rows = env.read(cw.from_rows([], "k string"), uid="in")
        rows.connect(names).process(Allowed(), "k string").uid("allowed").collect("out")

    got = run(pipeline, {"in": script(ADVANCE("1s"), ["a", "b", "c"]), "names": ["a", "b", "-b"]}, parallelism=2)["out"]
    assert [row.k for row in got] == ["a"]


class WritesElsewhere(cw.BroadcastProcess):
    names = cw.BroadcastState("string", "boolean")

    def process(self, row: Any, ctx: Any) -> Any:
        self.names[row.k] = True

    def process_broadcast(self, row: Any, ctx: Any) -> Any: ...


class UsesKey(cw.BroadcastProcess):
    n = cw.ValueState("long")

    def process(self, row: Any, ctx: Any) -> Any: ...

    def process_broadcast(self, row: Any, ctx: Any) -> Any:
        self.n.value = 1


class SetsTimer(cw.BroadcastProcess):
    def process(self, row: Any, ctx: Any) -> Any: ...

    def process_broadcast(self, row: Any, ctx: Any) -> Any:
        ctx.timers.processing_time(5)

    def on_timer(self, timestamp: int, ctx: Any) -> Any: ...


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (WritesElsewhere, "written in process_broadcast only"),
        (UsesKey, "belong to the key that is being processed: .* not in open, close or process_broadcast"),
        (SetsTimer, "belong to the key that is being processed: .* not in open, close or process_broadcast"),
    ],
)
def test_what_would_differ_between_subtasks_is_refused(function: Any, says: str) -> None:
    def pipeline(env: cw.Environment) -> None:
        other = env.read(cw.from_rows([], "k string"), uid="names").broadcast()
        rows = env.read(cw.from_rows([], "k string"), uid="in").key_by("k")
        rows.connect(other).process(function, "k string").uid("f").collect("out")

    with pytest.raises(cw.JobFailed, match=says):
        run(pipeline, {"in": ["a"], "names": ["a"]})


def test_a_wrong_value_is_refused_at_the_write_with_uid_and_state() -> None:
    class Wrong(cw.Process):
        rows = cw.ListOperatorState("long")

        def process(self, row: Any, ctx: Any) -> Any:
            self.rows.append(row.k)

    def pipeline(env: cw.Environment) -> None:
        env.read(cw.from_rows([], "k string"), uid="in").process(Wrong, "k string").uid("w").collect("out")

    with pytest.raises(cw.JobFailed, match=r"w: state 'rows' is int64, which cannot hold 'a'"):
        run(pipeline, {"in": ["a"]})


VALUES: list[tuple[Any, Any]] = [
    ("boolean", True),
    ("long", 2**63 - 1),
    ("double", float("inf")),
    ("double", 0.1),
    ("decimal(10,2)", Decimal("1.50")),
    ("string", "grüße"),
    ("binary", b"\0\xff"),
    ("date", dt.date(2024, 2, 29)),
    ("timestamp", dt.datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=dt.UTC)),
    ("timestamp_ntz", dt.datetime(1960, 2, 29, 12, 0, 0, 1)),  # noqa: DTZ001 (a naive one is meant)
    ("array<array<int>>", [[1, None], None, []]),
    ("map<string,array<int>>", {"a": [1], "b": None}),
    ("struct<a:int,b:struct<c:string>>", (1, ("x",))),
    (pa.time32("ms"), dt.time(1, 2, 3, 4000)),
    (pa.time64("us"), dt.time(23, 59, 59, 999_999)),
    (pa.duration("us"), dt.timedelta(days=-1, microseconds=5)),
    (pa.duration("s"), dt.timedelta(days=400)),
    (pa.timestamp("ms", "UTC"), dt.datetime(1960, 2, 29, 12, tzinfo=dt.UTC)),
    (pa.binary(4), b"\0\xff\0\xff"),
    (pa.list_(pa.binary(), 2), [b"a", None]),
    (pa.struct([("t", pa.time64("us")), ("d", pa.duration("us"))]), (dt.time(1), None)),
    (pa.map_(pa.binary(2), pa.duration("us")), {b"ab": dt.timedelta(1)}),
]


@pytest.mark.parametrize(("data_type", "value"), VALUES, ids=[str(case[0]) for case in VALUES])
def test_every_type_makes_the_way_to_json_and_back(data_type: Any, value: Any) -> None:
    kind = arrow_type(data_type, "type")
    admitted = Place("uid", "'s'", kind).admitted(value)
    again = from_json(kind)(json.loads(json.dumps(to_json(kind)(admitted))))
    assert again == admitted and type(again) is type(admitted)


def test_nanoseconds_make_the_way_to_json_and_back() -> None:
    kind = pa.timestamp("ns", "UTC")
    moment = pa.scalar(1_700_000_000_123_456_789, kind).as_py()
    again = from_json(kind)(json.loads(json.dumps(to_json(kind)(Place("uid", "'s'", kind).admitted(moment)))))
    assert pa.scalar(again, kind).value == 1_700_000_000_123_456_789


@pytest.mark.parametrize(
    "declare",
    [
        cw.ListOperatorState,
        lambda kind: cw.UnionOperatorState(pa.list_(kind)),
        lambda kind: cw.BroadcastState("string", pa.struct([("x", kind)])),
        lambda kind: cw.BroadcastState(kind, "string"),
    ],
)
def test_a_type_that_no_checkpoint_could_carry_is_refused_where_it_is_declared(declare: Any) -> None:
    told = r"(Operator|Broadcast)State's (key )?type: values of the type month_day_nano_interval cannot be kept; allowed are"
    with pytest.raises(cw.SchemaError, match=told):
        declare(pa.month_day_nano_interval())


class All(cw.BroadcastProcess):
    own = cw.ListOperatorState("long")
    shared = cw.UnionOperatorState("long")
    told = cw.BroadcastState("string", "long")

    def process(self, row: Any, ctx: Any) -> Any: ...

    def process_broadcast(self, row: Any, ctx: Any) -> Any: ...


def bound(parts: Any) -> Any:
    function = All()
    return function, BoundOperatorStates(function, "uid", parts)


def test_at_another_parallelism_lists_are_dealt_out_unions_and_broadcast_go_to_all() -> None:
    """Rule 35."""
    inlines = []
    for subtask in range(2):
        function, states = bound(())
        function.own.extend([10 * subtask, 10 * subtask + 1])
        function.shared.append(subtask)
        (told,) = states.broadcast
        told.writable = True
        told["x"] = 7
        frozen = states.frozen()
        assert frozen is not None
        function.own.append(99)
        inlines.append(json.loads(json.dumps(frozen())))
    alike, _ = bound([inlines[1]])
    assert list(alike.own) == [10, 11] and list(alike.shared) == [1] and dict(alike.told) == {"x": 7}
    operators = [StoredOperator("uid", inline, ()) for inline in inlines]
    stored = StoredUid("uid", 2, tuple(enumerate(operators)))
    dealt = [bound(part)[0] for part in _deal_inline(completed(1), stored, 3)]
    assert sorted(value for each in dealt for value in each.own) == [0, 1, 10, 11]
    assert max(len(each.own) for each in dealt) == 2
    assert all(sorted(each.shared) == [0, 1] and dict(each.told) == {"x": 7} for each in dealt)


def test_a_state_that_is_no_longer_declared_is_refused_by_name() -> None:
    with pytest.raises(
        cw.RestoreError, match=r"uid: the checkpoint holds list_state 'gone', which the function does not"
    ):
        bound([{"list_state": [{"state": "gone", "value": 1}]}])


class Told:
    told = cw.BroadcastState("string", "long")

    def process(self, row: Any, ctx: Any) -> Any: ...

    process_left = process_right = process


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        (cw.Process, lambda s, fn: s.process(fn, "k string")),
        (cw.KeyedProcess, lambda s, fn: s.key_by("k").process(fn, "k string")),
        (cw.CoProcess, lambda s, fn: s.connect(s).process(fn, "k string")),
        (
            cw.WindowProcess,
            lambda s, fn: s.key_by("k").window(cw.tumbling("1s"), time="processing").process(fn, "k string"),
        ),
    ],
)
def test_broadcast_state_is_refused_where_nothing_can_write_it(kind: type, made: Any) -> None:
    function = type("Wrong", (Told, kind), {})
    stream = cw.Environment().read(cw.from_rows([], "k string"), uid="in")
    with pytest.raises(
        cw.ConfigError, match=r"process: Wrong\.told is a BroadcastState, .* cw\.BroadcastProcess, .*\.broadcast\(\)"
    ):
        made(stream, function)


def test_a_print_shows_what_is_there() -> None:
    function, states = bound(())
    (told,) = states.broadcast
    told.writable = True
    told["x"] = 7
    function.own.extend([1, 2])
    assert (repr(function.told), repr(function.own)) == ("BroadcastState({'x': 7})", "operator state [1, 2]")


def test_what_cannot_be_a_key_of_broadcast_state_is_not_in_it() -> None:
    function, states = bound(())
    (told,) = states.broadcast
    told.writable = True
    told["x"] = 7
    assert function.told.get(5, "nothing") == "nothing"
    assert 5 not in function.told and None not in function.told
    with pytest.raises(KeyError):
        del function.told[5]
    with pytest.raises(cw.DataError, match="'told', the type of its keys, is string, which cannot hold 5"):
        function.told[5] = 1


@pytest.mark.parametrize("one", ["abc", b"abc", {"a": 1}])
def test_a_list_is_not_extended_by_what_is_one_value(one: Any) -> None:
    function, _ = bound(())
    with pytest.raises(TypeError, match=rf"extend needs a list of values, not a {type(one).__name__}; .* append"):
        function.own.extend(one)


class Seen(cw.WindowProcess):
    """How many windows this subtask has told so far, and the watermark it knows."""

    told = cw.ListOperatorState("long")

    def process(self, rows: list[Any], ctx: Any) -> Any:
        self.told.append(ctx.window_start)
        yield len(self.told), ctx.watermark is not None


@pytest.mark.parametrize("windows", [cw.tumbling("10ms"), cw.session("5ms")], ids=["tumbling", "session"])
def test_a_function_of_windows_keeps_its_state_over_a_failure(windows: Any) -> None:
    def pipeline(env: cw.Environment) -> None:
        events = env.read(cw.from_rows([], "k string, ts long"), uid="in").with_timestamps("ts")
        events.key_by("k").window(windows).process(Seen, "n long, timed boolean").uid("seen").collect("out")

    steps = script([("a", 0), ("a", 20)], ADVANCE("1s"), CHECKPOINT, [("a", 40)], ADVANCE("1s"), FAIL, [("a", 60)])
    assert [(row.n, row.timed) for row in run(pipeline, {"in": steps})["out"]] == [(n, True) for n in (1, 2, 3, 4)]


class NamesLate(cw.WindowProcess):
    late = cw.SideOutput("late", "k string")

    def process(self, rows: list[Any], ctx: Any) -> Any: ...


@pytest.mark.parametrize("windows", [cw.tumbling("10ms"), cw.session("5ms")], ids=["tumbling", "session"])
def test_a_function_of_windows_has_no_side_output_with_the_name_of_late_records(windows: Any) -> None:
    env = cw.Environment(checkpointing=None)
    keyed = env.read(cw.from_rows([], "k string, ts long"), uid="in").with_timestamps("ts").key_by("k")
    with pytest.raises(cw.ConfigError, match="the side output 'late' is that of late records"):
        keyed.window(windows).process(NamesLate, "k string")
