import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cutwater.errors import ConfigError, DataError, RestoreError, SchemaError
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state.backend import KeyedStateStore, StateBackend
from cutwater.state.descriptors import (
    AggregatingState,
    BoundStates,
    ListState,
    MapState,
    ReducingState,
    ValueState,
    bind_states,
    declared_states,
)
from cutwater.state.memory import Memory
from cutwater.state.operator_states import BroadcastState, ListOperatorState
from cutwater.state.rocksdb import RocksDB

KEYS = pa.schema([("user", pa.string())])
ALL_GROUPS = KeyGroupRange(0, 127)


@pytest.fixture(scope="module", autouse=True, params=[Memory(), RocksDB(cache=1)], ids=["memory", "rocksdb"])
def _backend(request: pytest.FixtureRequest) -> None:
    """Every test here runs on each of them."""
    Chosen.backend = request.param


class Chosen:
    backend: StateBackend


class Clock:
    def __init__(self) -> None:
        self.time = 1_000

    def __call__(self) -> int:
        return self.time


class Everything:
    flag = ValueState("boolean")
    row = ValueState("struct<a:int,tags:array<string>>")
    names = ListState("string")
    scores = MapState("string", "double")
    total = ReducingState("long", lambda a, b: a + b)
    average = AggregatingState(
        "struct<sum:double,n:long>",
        create=lambda: (0.0, 0),
        add=lambda acc, x: (acc.sum + x, acc.n + 1),
        result=lambda acc: acc.sum / acc.n,
    )


class Expiring:
    value = ValueState("int", ttl="1s")
    items = ListState("int", ttl="1s")
    entries = MapState("string", "int", ttl="1s")


def open_store(groups: KeyGroupRange = ALL_GROUPS) -> KeyedStateStore:
    return Chosen.backend.open("uid", groups, 128)


def bound(function: Any, store: KeyedStateStore | None = None, clock: Clock | None = None) -> BoundStates:
    states = bind_states(function, store or open_store(), "my-uid", KEYS, clock or Clock())
    states.key = "ann"
    return states


def test_a_value_belongs_to_the_current_key() -> None:
    function = Everything()
    states = bound(function)
    assert function.flag.value is None
    function.flag.value = True
    states.key = "bob"
    assert function.flag.value is None
    states.key = "ann"
    assert function.flag.value is True
    function.flag.clear()
    assert function.flag.value is None
    function.flag.value = False
    function.flag.value = None
    assert function.flag.value is None


def test_a_print_shows_what_is_there_and_changes_nothing() -> None:
    function = Everything()
    bound(function)
    function.flag.value = True
    function.row.value = {"a": 1, "tags": ["x"]}
    function.names.extend(["x", "y"])
    function.scores["x"] = 1.5
    function.total.add(3)
    function.average.add(2.0)
    shown = "ValueState(True) ListState(['x', 'y']) MapState({'x': 1.5}) ReducingState(3) AggregatingState(Row(sum=2.0, n=1))"
    states = (function.flag, function.names, function.scores, function.total, function.average)
    assert " ".join(map(repr, states)) == shown
    assert repr(function.row) == "ValueState(Row(a=1, tags=['x']))"

    often, clock = ReadOften(), Clock()
    of_key = bound(often, clock=clock)
    empty = "ValueState(None) ListState([]) MapState({})"
    assert " ".join(map(repr, (often.value, often.items, often.entries))) == empty
    often.value.value = 1
    often.items.append([1])
    often.entries["a"] = 1
    clock.time += 600
    full = "ValueState(1) ListState([[1]]) MapState({'a': 1})"
    assert " ".join(map(repr, (often.value, often.items, often.entries))) == full
    clock.time += 600
    assert " ".join(map(repr, (often.value, often.items, often.entries))) == empty
    of_key.leave()
    assert repr(often.items) == "ListState, of no key here"


def test_a_list_or_a_map_that_is_used_as_a_value_says_how_it_is_used() -> None:
    function = Everything()
    bound(function)
    for use in (lambda: function.names.value, lambda: setattr(function.names, "value", ["x"])):
        with pytest.raises(ConfigError, match=r"a ListState has no \.value: .* append"):
            use()
    for use in (lambda: function.scores.value, lambda: setattr(function.scores, "value", {})):
        with pytest.raises(ConfigError, match=r"a MapState has no \.value: .* items\(\)"):
            use()


def test_two_instances_do_not_share_state() -> None:
    one, two = Everything(), Everything()
    bound(one)
    bound(two)
    one.flag.value = True
    assert two.flag.value is None


def test_a_list_is_appended_extended_iterated_and_cleared() -> None:
    function = Everything()
    states = bound(function)
    function.names.append("x")
    function.names.extend(["y", "z"])
    assert list(function.names) == ["x", "y", "z"]
    assert len(function.names) == 3
    states.key = "bob"
    assert list(function.names) == []
    assert len(function.names) == 0
    states.key = "ann"
    function.names.clear()
    assert list(function.names) == []


def test_a_map_behaves_like_a_dict() -> None:
    function = Everything()
    bound(function)
    scores = function.scores
    scores["a"] = 1.5
    scores["b"] = 2
    assert scores["b"] == 2.0
    assert scores.get("c") is None
    assert scores.get("c", 7) == 7
    assert "a" in scores
    assert "c" not in scores
    assert scores.items() == [("a", 1.5), ("b", 2.0)]
    for key in scores:
        del scores[key]
    assert len(scores) == 0
    with pytest.raises(KeyError):
        scores["a"]
    with pytest.raises(KeyError):
        del scores["a"]


def test_reducing_and_aggregating_states_fold_what_is_added() -> None:
    function = Everything()
    bound(function)
    assert function.total.value is None
    assert function.average.value is None
    for x in (1, 2, 6):
        function.total.add(x)
        function.average.add(x)
    assert function.total.value == 9
    assert function.average.value == 3.0


def test_an_aggregate_may_begin_with_nothing() -> None:
    highest = AggregatingState("long", create=lambda: None, add=lambda old, x: x if old is None else max(old, x))
    function = type("Function", (), {"highest": highest})()
    bound(function)
    for x in (2, 7, 5):
        function.highest.add(x)
    assert function.highest.value == 7


def test_both_arguments_of_a_reducing_states_function_are_rows() -> None:
    kind = type("Function", (), {"top": ReducingState("struct<n:int>", lambda a, b: a if a.n > b.n else b)})
    function = kind()
    bound(function)
    for x in ((1,), {"n": 3}, (2,)):
        function.top.add(x)
    assert function.top.value.n == 3


def test_a_struct_value_is_a_row_and_what_is_handed_out_is_a_copy() -> None:
    function = Everything()
    bound(function)
    tags = ["x"]
    function.row.value = {"a": 1, "tags": tags}
    tags.append("later")
    assert function.row.value.a == 1
    assert function.row.value["tags"] == ["x"]
    function.row.value.tags.append("elsewhere")
    assert function.row.value == (1, ["x"])
    function.row.value = (2, ["y"])
    assert function.row.value.tags == ["y"]


@pytest.mark.parametrize(
    ("data_type", "wrong"),
    [
        ("boolean", 1),
        ("int", 2**31),
        ("int", 1.5),
        ("int", True),
        ("byte", 128),
        ("long", "1"),
        ("double", "1.0"),
        ("float", 1e300),
        ("string", 5),
        ("string", "\ud800"),
        ("binary", "text"),
        ("date", dt.datetime(2024, 1, 1, 12)),  # noqa: DTZ001 (a naive one is meant)
        ("date", 5),
        ("timestamp", 1704067200),
        ("timestamp_ntz", dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
        ("timestamp", "2024-01-01"),
        ("decimal(4,2)", Decimal("123.45")),
        ("array<int>", "12"),
        ("array<int>", [1, "2"]),
        ("map<string,int>", {"a": "b"}),
        ("struct<a:int>", {"b": 1}),
        ("struct<a:int>", (1, 2)),
        ("struct<a:int not null>", (None,)),
        ("struct<a:int not null>", {"a": None}),
        ("struct<a:int not null>", pa.scalar({"a": None}, pa.struct([("a", pa.int32())]))),
        ("struct<a:array<int> not null>", (None,)),
        ("array<struct<a:int not null>>", [(1,), (None,)]),
        ("map<string,struct<a:int not null>>", {"x": (None,)}),
        ("map<struct<a:int not null>,int>", {(None,): 1}),
        ("map<decimal(4,2),int>", {None: 1}),
        ("struct<a:struct<b:int not null>>", ((None,),)),
        (pa.list_(pa.field("item", pa.int64(), nullable=False)), [1, None]),
        (pa.list_(pa.field("item", pa.int64(), nullable=False), 2), [1, None]),
        (pa.list_(pa.int64(), 2), [1]),
        (pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)), {"x": None}),
    ],
)
def test_a_value_that_does_not_fit_is_refused_at_the_write_with_uid_state_and_value(data_type: Any, wrong: Any) -> None:
    function = type("Function", (), {"amount": ValueState(data_type)})()
    bound(function)
    with pytest.raises(DataError) as refused:
        function.amount.value = wrong
    assert "my-uid" in str(refused.value)
    assert "'amount'" in str(refused.value)
    assert repr(wrong)[:20] in str(refused.value)
    assert function.amount.value is None


@pytest.mark.parametrize(
    ("data_type", "value", "kept"),
    [
        ("long", pa.scalar(3), 3),
        ("timestamp_ntz", np.datetime64("2024-05-01T12"), dt.datetime(2024, 5, 1, 12)),  # noqa: DTZ001
        ("timestamp", dt.datetime(2024, 5, 1, 12), dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)),  # noqa: DTZ001
        ("date", dt.datetime(2024, 5, 1), dt.date(2024, 5, 1)),  # noqa: DTZ001
        ("array<long>", np.array([1, 2]), [1, 2]),
        ("array<struct<x:long>>", [pa.scalar({"x": 1}), {"x": np.int8(2)}], [(1,), (2,)]),
    ],
)
def test_values_that_only_look_different_are_kept_as_what_they_stand_for(data_type: str, value: Any, kept: Any) -> None:
    class Holds:
        state = ValueState(data_type)

    function: Any = Holds()
    bound(function)
    function.state.value = value
    assert function.state.value == kept


def test_a_key_of_arrow_is_found_as_it_was_written() -> None:
    function: Any = Everything()
    bound(function)
    function.scores[pa.scalar("x")] = 1.5
    assert function.scores["x"] == function.scores[pa.scalar("x")] == 1.5


def test_a_wrong_map_key_and_list_element_are_refused() -> None:
    function = Everything()
    bound(function)
    with pytest.raises(DataError, match="'scores', the type of its keys, is string, which cannot hold 5"):
        function.scores[5] = 1.0
    with pytest.raises(DataError, match="'names' is string, which cannot hold 7"):
        function.names.extend(["ok", 7])
    assert list(function.names) == [], "all or nothing"


@pytest.mark.parametrize("one", ["abc", b"abc", {"a": 1}])
def test_a_list_is_not_extended_by_what_is_one_value(one: Any) -> None:
    function = Everything()
    bound(function)
    with pytest.raises(TypeError, match=rf"extend needs a list of values, not a {type(one).__name__}; .* append"):
        function.names.extend(one)
    assert list(function.names) == []


VALUES: list[tuple[Any, Any]] = [
    ("boolean", False),
    ("byte", -128),
    ("long", 2**63 - 1),
    ("float", 0.1),
    ("double", 0.1),
    ("decimal(10,2)", Decimal("1.5")),
    ("string", "grüße"),
    ("binary", b"\0"),
    ("date", dt.date(2024, 2, 29)),
    ("timestamp", dt.datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=dt.timezone(dt.timedelta(hours=2)))),
    ("timestamp_ntz", dt.datetime(2024, 2, 29, 12)),  # noqa: DTZ001 (a naive one is meant)
    ("array<array<int>>", [[1, None], None, []]),
    ("map<string,array<int>>", {"a": [1], "b": None}),
    ("struct<a:int,b:struct<c:string>>", (1, ("x",))),
    ("struct<a:int not null,b:string>", (1, None)),
    ("struct<a:struct<b:int not null>>", (None,)),
    ("array<struct<a:int not null>>", [None, (1,)]),
    ("map<string,struct<a:int not null>>", {"x": None, "y": (1,)}),
    (pa.list_(pa.field("item", pa.int64(), nullable=False)), [1, 2]),
    (pa.list_(pa.struct([("a", pa.int64())]), 2), [(1,), None]),
]


@pytest.mark.parametrize(("data_type", "value"), VALUES, ids=[str(case[0]) for case in VALUES])
def test_a_value_is_the_same_after_a_restore(data_type: Any, value: Any) -> None:
    kind = type(
        "Function", (), {"v": ValueState(data_type), "l": ListState(data_type), "m": MapState("int", data_type)}
    )
    function, store = kind(), open_store()
    bound(function, store)
    function.v.value = value
    function.l.append(value)
    function.m[1] = value
    restored, fresh = kind(), open_store()
    for frozen in store.freeze():
        fresh.restore(frozen.name, frozen.batches())
    bound(restored, fresh)
    assert restored.v.value == function.v.value
    assert list(restored.l) == list(function.l)
    assert restored.m.items() == function.m.items()
    assert type(restored.v.value) is type(function.v.value)


@pytest.mark.parametrize("ttl", [None, "1h"])
def test_nothing_may_stand_beside_rows_whose_fields_are_not_null(ttl: str | None) -> None:
    row = "struct<a:int not null>"
    kind = type("Function", (), {"l": ListState(row, ttl=ttl), "m": MapState("int", row, ttl=ttl)})
    function, store = kind(), open_store()
    bound(function, store)
    function.l.extend([(1,), None])
    function.m[1], function.m[2] = None, (2,)
    restored, fresh = kind(), open_store()
    for frozen in store.freeze():
        fresh.restore(frozen.name, frozen.batches())
    bound(restored, fresh)
    assert list(restored.l) == [(1,), None]
    assert restored.m.items() == [(1, None), (2, (2,))]


def test_state_written_after_a_freeze_is_not_in_the_snapshot() -> None:
    function, store = Everything(), open_store()
    bound(function, store)
    function.names.append("before")
    function.scores["k"] = 1.0
    frozen = {table.name: table for table in store.freeze()}
    function.names.append("after")
    function.scores["k"] = 2.0
    assert [row["names"] for batch in frozen["names"].batches() for row in batch.to_pylist()] == [["before"]]
    assert [row["scores"] for batch in frozen["scores"].batches() for row in batch.to_pylist()] == [[("k", 1.0)]]
    assert list(function.names) == ["before", "after"]


def test_expired_values_elements_and_entries_are_gone_and_a_write_renews() -> None:
    function, clock = Expiring(), Clock()
    bound(function, clock=clock)
    function.value.value = 1
    function.items.append(1)
    function.entries["a"] = 1
    clock.time += 600
    assert function.value.value == 1
    function.value.value = 2
    function.items.append(2)
    function.entries["b"] = 2
    clock.time += 600
    assert function.value.value == 2
    assert list(function.items) == [2]
    assert len(function.items) == 1
    assert function.entries.items() == [("b", 2)]
    assert "a" not in function.entries
    clock.time += 600
    assert function.value.value is None
    assert list(function.items) == []


def test_expired_keys_are_dropped_by_tending_also_after_a_restore() -> None:
    function, clock, store = Expiring(), Clock(), open_store()
    states = bound(function, store, clock)
    for i in range(100):
        states.key = str(i)
        function.value.value = i
        function.items.append(i)
        function.entries["x"] = i
    clock.time += 500
    states.key = "7"
    function.value.value = 8
    fresh, restored = open_store(), Expiring()
    for frozen in store.freeze():
        fresh.restore(frozen.name, frozen.batches())
    restored_states = bound(restored, fresh, clock)
    clock.time += 600
    restored_states.tend()
    left = {table.name: sum(batch.num_rows for batch in table.batches()) for table in fresh.freeze()}
    assert left == {"value": 1, "items": 0, "entries": 0}
    restored_states.key = "7"
    assert restored.value.value == 8
    clock.time += 600
    restored_states.tend()
    assert sum(batch.num_rows for batch in fresh.freeze()[0].batches()) == 0


@pytest.mark.parametrize("state", ["items", "entries"])
def test_dropping_keeps_up_with_writing_however_much_a_batch_writes(state: str) -> None:
    function, clock, store = Expiring(), Clock(), open_store()
    states = bound(function, store, clock)
    for batch in range(6):
        for i in range(1000):
            states.key = f"{batch}-{i}"
            if state == "items":
                function.items.extend(range(10))
            else:
                for name in "abcdefghij":
                    function.entries[name] = i
        clock.time += 10_000
        states.tend()
    states.tend()
    assert {table.name: sum(batch.num_rows for batch in table.batches()) for table in store.freeze()}[state] == 0


class RenewedByReading:
    items = ListState("int", ttl="1s", on="read")


def test_dropping_keeps_up_where_reads_renew() -> None:
    function, clock, store = RenewedByReading(), Clock(), open_store()
    states = bound(function, store, clock)
    for batch in range(6):
        for i in range(500):
            states.key = f"{batch}-{i}"
            function.items.extend(range(20))
        clock.time += 900
        for i in range(500):
            states.key = f"{batch}-{i}"
            assert len(function.items) == 20
        clock.time += 900
        states.tend()
        clock.time += 10_000
        states.tend()
    assert sum(batch.num_rows for table in store.freeze() for batch in table.batches()) <= 500


class ReadOften:
    value = ValueState("int", ttl="1s", on="read")
    total = ReducingState("int", lambda a, b: a + b, ttl="1s", on="read")
    items = ListState("array<int>", ttl="1s", on="read")
    entries = MapState("string", "int", ttl="1s", on="read")


def test_on_read_a_read_that_finds_a_value_renews_it_and_no_other() -> None:
    function, clock, store = ReadOften(), Clock(), open_store()
    states = bound(function, store, clock)

    def write(key: str) -> None:
        states.key = key
        function.value.value = 1
        function.total.add(1)
        function.items.extend([[1], [2]])
        function.entries["a"] = 1
        function.entries["b"] = 1

    write("ann")
    write("bob")
    states.key = "ann"
    for _ in range(5):
        clock.time += 600
        states.tend()
        assert (function.value.value, function.total.value, list(function.items)) == (1, 1, [[1], [2]])
        assert function.entries["a"] == 1
    assert "b" not in function.entries
    assert function.entries.items() == [("a", 1)]
    states.key = "bob"
    assert (function.value.value, function.total.value, list(function.items), len(function.entries)) == (
        None,
        None,
        [],
        0,
    )
    clock.time += 1_000
    states.key = "ann"
    assert (function.value.value, function.total.value, len(function.items), function.entries.get("a")) == (
        None, None, 0, None,
    )  # fmt: skip
    states.tend()
    assert [kept(store, name) for name in ("value", "total", "items", "entries")] == [[], [], [], []]


def test_what_was_renewed_by_a_read_lives_on_behind_a_restore() -> None:
    function, clock, store = ReadOften(), Clock(), open_store()
    states = bound(function, store, clock)
    function.value.value = 1
    function.items.append([1])
    function.entries["a"] = 1
    frozen = states.freeze()
    clock.time += 900
    assert (function.value.value, len(function.items), "a" in function.entries) == (1, 1, True)
    fresh, restored = open_store(), ReadOften()
    for table in states.freeze():
        fresh.restore(table.name, table.batches())
    bound(restored, fresh, clock)
    clock.time += 900
    assert (restored.value.value, list(restored.items), restored.entries.items()) == (1, [[1]], [("a", 1)])
    expiries = [row["value"]["expires_at"] for batch in frozen[0].batches() for row in batch.to_pylist()]
    assert expiries == [2_000], "a read changes no snapshot"


def test_snapshots_are_without_what_has_expired_though_nothing_was_swept() -> None:
    function, clock, store = Expiring(), Clock(), open_store()
    states = bound(function, store, clock)
    for key in ("ann", "bob", "cid"):
        states.key = key
        function.value.value = 1
        function.items.extend([1, 2])
        function.entries["a"] = 1
    clock.time += 600
    states.key = "bob"
    function.value.value = 2
    function.items.append(3)
    function.entries["b"] = 2
    clock.time += 600
    found = {
        table.name: [
            (row["user"], row[table.name])
            for batch in table.batches()
            for row in batch.to_pylist(maps_as_pydicts="strict")
        ]
        for table in states.freeze()
    }
    end = clock.time + 400
    assert found == {
        "value": [("bob", {"value": 2, "expires_at": end})],
        "items": [("bob", [{"value": 3, "expires_at": end}])],
        "entries": [("bob", {"b": {"value": 2, "expires_at": end}})],
    }
    clock.time += 400
    assert [list(table.batches()) for table in states.freeze()] == [[], [], []]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ValueState("int", ttl="1s", on="look"), "on='look' must be 'write' or 'read'"),
        (lambda: MapState("int", "int", on="read"), "MapState's on='read' says what lets a ttl begin anew; add ttl="),
    ],
)
def test_what_renews_has_to_be_a_read_or_a_write_of_something_with_a_ttl(make: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make()


def kept(store: KeyedStateStore, name: str) -> list[Any]:
    (table,) = [table for table in store.freeze() if table.name == name]
    found = [row[name] for batch in table.batches() for row in batch.to_pylist()]
    table.release()
    return found


def test_elements_that_were_added_by_a_clock_that_was_behind_take_no_others_with_them() -> None:
    function, clock, store = Expiring(), Clock(), open_store()
    bound(function, store, clock)
    function.items.append(1)
    clock.time -= 500
    function.items.append(2)
    fresh, restored = open_store(), Expiring()
    for frozen in store.freeze():
        fresh.restore(frozen.name, frozen.batches())
    states = bound(restored, fresh, clock)
    clock.time += 1_100
    states.tend()
    assert list(restored.items) == [1]


@pytest.mark.parametrize("restored", [False, True])
def test_what_was_written_by_a_clock_that_was_ahead_keeps_no_others_from_being_dropped(restored: bool) -> None:
    """Neither other keys, nor what else is under the same one."""
    function, clock, store = Expiring(), Clock(), open_store()
    states = bound(function, store, clock)

    def write(key: str, number: int) -> None:
        states.key = key
        function.value.value = number
        function.items.append(number)
        function.entries[str(number)] = number

    clock.time += 1_000_000
    write("ahead", -1)
    clock.time -= 1_000_000
    if restored:
        written, store, function = store, open_store(), Expiring()
        for frozen in written.freeze():
            store.restore(frozen.name, frozen.batches())
        states = bound(function, store, clock)
    for number in range(100):
        clock.time += 100
        write("ahead", number)
        write(str(number), number)
        states.tend()
    assert all(len(kept(store, name)) < 30 for name in ("value", "items", "entries"))
    for _ in range(2):
        clock.time += 1_100
        states.tend()
    assert [len(kept(store, name)) for name in ("value", "items", "entries")] == [0, 1, 1]
    assert [len(kept(store, name)[0]) for name in ("items", "entries")] == [1, 1]


def test_expired_elements_of_a_key_that_is_always_written_to_are_dropped() -> None:
    function, clock, store = Expiring(), Clock(), open_store()
    states = bound(function, store, clock)
    for i in range(2_000):
        clock.time += 100
        function.items.append(i)
        function.entries[str(i)] = i
        states.tend()
    assert list(function.items) == list(range(1_990, 2_000))
    assert len(function.entries) == 10
    assert len(kept(store, "items")[0]) <= 30
    assert len(kept(store, "entries")[0]) <= 30


def test_expired_elements_are_dropped_without_changing_a_snapshot() -> None:
    function, clock, store = Expiring(), Clock(), open_store()
    states = bound(function, store, clock)
    function.items.append(1)
    clock.time += 600
    function.items.append(2)
    frozen = {table.name: table for table in store.freeze()}
    clock.time += 600
    states.tend()
    assert [[e["value"] for e in row["items"]] for b in frozen["items"].batches() for row in b.to_pylist()] == [[1, 2]]
    assert list(function.items) == [2]
    assert [[e["value"] for e in elements] for elements in kept(store, "items")] == [[2]]


def test_a_key_waits_for_its_expiry_once_and_not_after_it_was_cleared() -> None:
    function = Expiring()
    states = bound(function)
    for i in range(100):
        states.key = "hot" if i % 2 else str(i)
        function.value.value = i
        function.items.append(i)
        function.entries["a"] = i
        function.value.clear()
        function.items.clear()
        del function.entries["a"]
    function.value.value = 1
    function.value.value = None
    assert [len(handle._queue) for handle in (function.value, function.items, function.entries)] == [0, 0, 0]


def test_nan_is_one_key() -> None:
    function = Everything()
    states = bind_states(function, open_store(), "uid", pa.schema([("x", pa.float64())]), Clock())
    states.key = float("nan")
    function.total.add(1)
    states.key = -float("nan")
    function.total.add(1)
    assert function.total.value == 2


@pytest.mark.parametrize(
    ("data_type", "key", "other"),
    [
        ("double", float("nan"), -float("nan")),
        ("float", 0.1, 0.1),
        ("float", float("nan"), -float("nan")),
        ("struct<a:int>", (1,), {"a": 1}),
        ("struct<a:double,b:string>", (float("nan"), "x"), {"a": -float("nan"), "b": "x"}),
    ],
)
def test_a_maps_key_is_found_again_also_after_a_restore(data_type: str, key: Any, other: Any) -> None:
    kind = type("Function", (), {"m": MapState(data_type, "int")})
    function, store = kind(), open_store()
    bound(function, store)
    function.m[key] = 1
    restored, fresh = kind(), open_store()
    for frozen in store.freeze():
        fresh.restore(frozen.name, frozen.batches())
    bound(restored, fresh)
    for found in (function.m, restored.m):
        assert other in found
        assert found[key] == found.get(other) == 1
        found[other] = 2
        assert found.values() == [2]
        del found[other]
        assert len(found) == 0


def test_what_cannot_be_a_maps_key_is_not_in_it() -> None:
    function = Everything()
    bound(function)
    function.scores["a"] = 1.0
    assert 5 not in function.scores
    assert function.scores.get(None, "nothing") == "nothing"


@pytest.mark.parametrize(("data_type", "key"), [("string", "a"), ("double", 1.0), ("struct<a:int>", (1,))])
def test_what_can_be_no_dicts_key_is_refused_by_a_map(data_type: str, key: Any) -> None:
    """Whatever the map holds: else it would be found out only where it holds something."""
    function = type("Function", (), {"m": MapState(data_type, "int")})()
    bound(function)
    uses: list[Callable[[Any], Any]] = [
        lambda wrong: function.m[wrong],
        function.m.get,
        lambda wrong: wrong in function.m,
        lambda wrong: function.m.__setitem__(wrong, 1),
        function.m.__delitem__,
    ]
    for _ in range(2):
        for use, wrong in product(uses, ([1], {"b": 1}, ([1],))):
            with pytest.raises(DataError) as refused:
                use(wrong)
            assert str(refused.value).startswith("my-uid: state 'm', the type of its keys, is ")
            assert f"cannot hold {wrong!r} ({type(wrong).__name__})" in str(refused.value)
        function.m[key] = 1


def test_a_restore_keeps_only_rows_of_its_own_key_groups() -> None:
    function, store = Everything(), open_store()
    states = bound(function, store)
    for i in range(100):
        states.key = str(i)
        function.total.add(i)
    totals: list[int] = []
    for groups in (KeyGroupRange(0, 63), KeyGroupRange(64, 127)):
        half = open_store(groups)
        for frozen in store.freeze():
            half.restore(frozen.name, frozen.batches())
        bound(Everything(), half)
        rows = [r for t in half.freeze() if t.name == "total" for b in t.batches() for r in b.to_pylist()]
        assert all(row["key_group"] in groups for row in rows)
        totals += [row["total"] for row in rows]
    assert sorted(totals) == list(range(100))


def test_a_restore_into_another_type_names_uid_state_and_both_types() -> None:
    function, store = Everything(), open_store()
    bound(function, store)
    function.total.add(1)
    (stored,) = [table for table in store.freeze() if table.name == "total"]
    fresh = open_store()
    fresh.restore("total", stored.batches())
    changed = type("Changed", (), {"total": ValueState("string")})()
    with pytest.raises(
        RestoreError, match=r"uid: state 'total', column 'total': the program declares string, .* int64"
    ):
        bound(changed, fresh)


BEGIN_ANEW = (
    "or give the state another name (or its operator another uid) and drop this one with allow_non_restored_state=True."
)


class Lasting:
    value = ValueState("int")
    items = ListState("int")
    entries = MapState("string", "int")


def stored_by(function: Any, name: str) -> list[pa.RecordBatch]:
    store = open_store()
    bound(function, store)
    function.value.value = 1
    function.items.append(1)
    function.entries["a"] = 1
    (stored,) = [table for table in store.freeze() if table.name == name]
    return list(stored.batches())


@pytest.mark.parametrize("name", ["value", "items", "entries"])
@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        (Lasting, Expiring, "the program declares it with a ttl, the checkpoint holds it without one"),
        (Expiring, Lasting, "the program declares it without a ttl, the checkpoint holds it with one"),
    ],
)
def test_a_ttl_that_was_added_or_taken_away_is_named_as_such(before: type, now: type, told: str, name: str) -> None:
    fresh = open_store()
    fresh.restore(name, stored_by(before(), name))
    with pytest.raises(RestoreError) as refused:
        bound(now(), fresh)
    assert str(refused.value) == (f"uid: state {name!r}: {told}. Declare it as it was, {BEGIN_ANEW}")


def test_a_type_that_changed_together_with_the_ttl_is_named_as_the_user_wrote_it() -> None:
    fresh = open_store()
    fresh.restore("value", stored_by(Lasting(), "value"))
    changed = type("Changed", (), {"value": ValueState("string", ttl="1s")})()
    with pytest.raises(RestoreError, match=r"declares string with a ttl, the checkpoint holds int32 without one"):
        bound(changed, fresh)


def test_a_struct_of_the_users_own_is_not_taken_for_a_ttl() -> None:
    fresh = open_store()
    fresh.restore("value", stored_by(Lasting(), "value"))
    changed = type("Changed", (), {"value": ValueState("struct<value:int,until:long>")})()
    with pytest.raises(RestoreError, match=r"declares struct<value: int32, until: int64>, the checkpoint holds int32"):
        bound(changed, fresh)


@pytest.mark.parametrize("keys", [["user"], ["day", "user"], ["user", "day", "page"], ["user", "date"]])
def test_state_by_other_keys_is_refused_with_both(keys: list[str]) -> None:
    store = open_store()
    function = Everything()
    bind_states(function, store, "uid", pa.schema([("user", pa.string()), ("day", pa.string())]), Clock()).key = (
        "a",
        "b",
    )
    function.total.add(1)
    (stored,) = [table for table in store.freeze() if table.name == "total"]
    fresh = open_store()
    fresh.restore("total", stored.batches())
    with pytest.raises(RestoreError) as refused:
        bind_states(Everything(), fresh, "uid", pa.schema([(key, pa.string()) for key in keys]), Clock())
    assert str(refused.value) == (
        f"uid: state 'total': the program keys it by {', '.join(keys)}, the checkpoint holds it by user, day. "
        f"Write key_by as it was, {BEGIN_ANEW}"
    )


def test_state_outside_of_a_keyed_call_says_where_it_may_be_used() -> None:
    with pytest.raises(ConfigError, match=r"Everything\.flag can be used in process and on_timer only"):
        Everything().flag.value  # noqa: B018


@pytest.mark.parametrize("declaration", [ValueState("long"), ListOperatorState("long")])
def test_a_declaration_is_not_the_state_of_any_key(declaration: Any) -> None:
    with pytest.raises(ConfigError, match=r"State\(int64\) is declared in the class body .* used as self\.<its name>"):
        declaration.value = 1
    with pytest.raises(ConfigError, match="is declared in the class body"):
        _ = declaration.value


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (ValueState, r"ValueState: missing a required argument: 'type'.*\(type, \*, ttl=None, on='write'\)"),
        (lambda: ValueState("long", "1h"), "ValueState: too many positional arguments"),  # type: ignore[call-arg, arg-type]
        (lambda: ListState("long", lifetime="1h"), "ListState: no argument 'lifetime'"),  # type: ignore[call-arg]
        (lambda: MapState("long"), r"MapState: missing a required argument: 'value_type'"),  # type: ignore[call-arg]
        (lambda: ValueState("long", ttl=5), r"ValueState's ttl=5: a bare number has no unit. Write ttl='5s'"),  # type: ignore[arg-type]
        (lambda: ReducingState("long", 3), "ReducingState: 3 is not a function"),  # type: ignore[arg-type]
        (lambda: ReducingState("long", lambda a: a), r"<lambda>\(a\) is called as fn\(reduced, value\)"),  # type: ignore[arg-type, misc]
        (
            lambda: AggregatingState("long", lambda a: a, lambda a, b: a),  # type: ignore[arg-type, misc]
            r"AggregatingState, create: <lambda>\(a\) is called as fn\(\); give it no parameters",
        ),
        (
            lambda: AggregatingState("long", int, lambda a: a),  # type: ignore[arg-type, misc]
            r"AggregatingState, add: .* fn\(accumulator, value\)",
        ),
        (lambda: ReducingState("long"), r"ReducingState: missing a required argument: 'reduce'"),  # type: ignore[call-arg]
        (ListOperatorState, r"ListOperatorState: missing .*cw\.ListOperatorState\(type\)"),
        (lambda: BroadcastState("long"), r"BroadcastState: missing a required argument: 'value_type'"),  # type: ignore[call-arg]
    ],
)  # fmt: skip
def test_missing_and_unknown_arguments_name_what_was_declared(wrong: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        wrong()


def test_declarations_are_checked_when_they_are_written() -> None:
    with pytest.raises(SchemaError, match="ValueState's type"):
        ValueState("nonsense")
    with pytest.raises(ConfigError, match="ValueState's ttl=5"):
        ValueState("int", ttl=5)  # type: ignore[arg-type]
    for key_type in ("array<int>", "struct<a:array<int>>", "struct<a:struct<b:map<int,int>>>"):
        with pytest.raises(ConfigError, match="cannot be a map's key"):
            MapState(key_type, "int")


def test_a_function_that_gives_nothing_for_what_was_there_is_refused() -> None:
    class Forgetful:
        total = ReducingState("int", lambda before, value: None)
        values = AggregatingState("array<int>", create=list, add=lambda values, value: values.append(value))
        largest = AggregatingState("int", create=lambda: None, add=lambda before, value: value)

    function = Forgetful()
    bound(function)
    function.total.add(1)
    with pytest.raises(DataError, match=r"my-uid: state 'total'.*gave None, where it held 1.*return"):
        function.total.add(2)
    assert function.total.value == 1
    with pytest.raises(DataError, match=r"my-uid: state 'values'.*return"):
        function.values.add(1)
    function.largest.add(None)
    assert function.largest.value is None


def test_a_state_may_have_any_name() -> None:
    class Named:
        default = ValueState("int")

    function, store = Named(), open_store()
    states = bound(function, store)
    function.default.value = 7
    assert function.default.value == 7
    states.key = "bob"
    assert function.default.value is None


def test_states_are_found_on_bases_and_may_be_overridden() -> None:
    class Child(Everything):
        flag = ValueState("string")
        names = None

    found = declared_states(Child)
    assert list(found) == ["row", "scores", "total", "average", "flag"]
    assert found["flag"].type == pa.string()
