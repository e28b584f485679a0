"""Joins against a plain computation over all records, whatever the order, the schedule and the failures."""

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cutwater as cw
from cutwater.operators import join
from cutwater.testing import ADVANCE, CHECKPOINT, FAIL, TRIGGER, run, script

LEFT, RIGHT = "k string, ts long, v long", "id string, ts long, w long"
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["a", "b", None]), st.integers(-30, 30), st.integers(0, 3)),
        st.sampled_from([CHECKPOINT, TRIGGER, FAIL, ADVANCE("100ms")]),
    ),
    max_size=15,
)
Record = tuple[str | None, int, int]


def both(env: cw.Environment, out_of_orderness: str) -> tuple[cw.KeyedStream, cw.KeyedStream]:
    left = env.read(cw.from_rows([], LEFT), uid="left").with_timestamps("ts", out_of_orderness=out_of_orderness)
    right = env.read(cw.from_rows([], RIGHT), uid="right").with_timestamps("ts", out_of_orderness=out_of_orderness)
    return left.key_by("k"), right.key_by("id")


def records(steps: list[Any]) -> list[Record]:
    return [step for step in steps if isinstance(step, tuple)]


def pairs(left: list[Record], right: list[Record], condition: Any = lambda a, b: True) -> Counter[Any]:
    return Counter(
        (k, ts, v, other, w)
        for k, ts, v in left
        for key, other, w in right
        if k is not None and k == key and condition(ts, other)
    )


def joined(rows: list[Any]) -> Counter[Any]:
    return Counter((row.k, row.ts, row.v, row.ts_right, row.w) for row in rows)


@settings(max_examples=60)
@given(left=STEPS, right=STEPS, parallelism=st.integers(1, 3), seed=st.integers(0, 2**32))
def test_every_pair_comes_out_once(left: list[Any], right: list[Any], parallelism: int, seed: int) -> None:
    check_pairs(left, right, parallelism, seed, cw.Memory())


@settings(max_examples=3)
@given(left=STEPS, right=STEPS, seed=st.integers(0, 2**32), incremental=st.booleans(), cache=st.sampled_from([1, 4000]))
def test_every_pair_comes_out_once_on_disk(
    left: list[Any], right: list[Any], seed: int, cache: int, *, incremental: bool
) -> None:
    check_pairs(left, right, 1, seed, cw.RocksDB(incremental=incremental, cache=cache))


def check_pairs(left: list[Any], right: list[Any], parallelism: int, seed: int, backend: cw.StateBackend) -> None:
    def pipeline(env: cw.Environment) -> None:
        a, b = both(env, "60ms")
        a.join(b).uid("all").collect("all")
        a.join(b, within="7ms").uid("near").collect("near")
        a.join(b, within="0s").uid("same").collect("same")
        a.window(cw.tumbling("10ms")).join(b).uid("tumbling").collect("tumbling")
        a.window(cw.sliding("10ms", "4ms", offset="1ms")).join(b).uid("sliding").collect("sliding")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(join, "LEAST_WIDTH", 1 + seed % 3 * 5)  # buckets that are as wide as asked for, and wider
        got = run(
            pipeline, {"left": script(*left), "right": script(*right)}, parallelism=parallelism, state_backend=backend,
            choose=random.Random(seed).randrange,
        )  # fmt: skip
    ours, theirs = records(left), records(right)
    assert joined(got["all"]) == pairs(ours, theirs)
    assert joined(got["near"]) == pairs(ours, theirs, lambda a, b: abs(a - b) <= 7)
    assert joined(got["same"]) == pairs(ours, theirs, lambda a, b: a == b)
    assert joined(got["tumbling"]) == pairs(ours, theirs, lambda a, b: a // 10 == b // 10)
    expected: Counter[Any] = Counter()
    for start in range(-43, 34, 4):
        expected += pairs(ours, theirs, lambda a, b, s=start: s <= a < s + 10 and s <= b < s + 10)
    assert joined(got["sliding"]) == expected
    for row in got["sliding"]:
        assert row.window_start.timestamp() * 1000 <= row.ts < row.window_end.timestamp() * 1000


@settings(max_examples=60)
@given(left=STEPS, right=STEPS, seed=st.integers(0, 2**32))
def test_what_is_late_comes_out_beside_and_everything_else_is_joined(
    left: list[Any], right: list[Any], seed: int
) -> None:
    def pipeline(env: cw.Environment) -> None:
        a, b = both(env, "3ms")
        near = a.join(b, within="7ms").uid("near")
        near.collect("near")
        near.side_output("late").collect("late")
        near.side_output("late_right").collect("late_right")

    got = run(pipeline, {"left": script(*left), "right": script(*right)}, choose=random.Random(seed).randrange)
    late = [Counter((row[0], row[1], row[2]) for row in got[name]) for name in ("late", "late_right")]
    ours, theirs = (Counter(records(steps)) for steps in (left, right))
    assert not late[0] - ours and not late[1] - theirs
    in_time = [list((all_of - of).elements()) for all_of, of in zip((ours, theirs), late, strict=True)]
    assert joined(got["near"]) == pairs(*in_time, lambda a, b: abs(a - b) <= 7)


@pytest.mark.parametrize(
    "join", [lambda a, b: a.join(b, within="7ms"), lambda a, b: a.window(cw.tumbling("10ms")).join(b)]
)
def test_late_records_without_a_key_come_out_beside_and_those_in_time_meet_nothing(join: Any) -> None:
    def pipeline(env: cw.Environment) -> None:
        a, b = both(env, "0s")
        told = join(a, b).uid("told")
        told.collect("told")
        told.side_output("late").collect("late")
        told.side_output("late_right").collect("late_right")

    steps = script(
        [("a", 100, 1), (None, 100, 2)], ADVANCE("1s"), [("a", 1, 3), (None, 2, 4), (None, 103, 5), ("a", 104, 6)]
    )
    got = run(pipeline, {"left": steps, "right": steps})
    assert [row[2] for row in got["late"]] == [3, 4] == [row[2] for row in got["late_right"]]
    assert {row.k for row in got["told"]} == {"a"}
    assert len(got["told"]) == 4


def test_a_join_of_records_that_are_near_does_not_make_a_bucket_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    buckets: set[int] = set()
    keep = join.IntervalJoin._keep

    def noting(self: Any, port: int, bucket: int, rows: Any) -> None:
        buckets.add(bucket)
        keep(self, port, bucket, rows)

    monkeypatch.setattr(join.IntervalJoin, "_keep", noting)

    def pipeline(env: cw.Environment) -> None:
        a, b = both(env, "0s")
        a.join(b, within="0s").uid("same").select("k", "ts").collect("out")

    records: list[Record] = [("a", ts, 0) for ts in range(1000)]
    got = run(pipeline, {"left": records, "right": records})["out"]
    assert [row.ts for row in got] == list(range(1000))
    assert len(buckets) == 1000 // join.LEAST_WIDTH


def test_old_records_are_dropped_and_time_goes_on_behind_a_join() -> None:
    def pipeline(env: cw.Environment) -> None:
        a, b = both(env, "0s")
        near = a.join(b, within="5ms").uid("near")
        near.key_by("k").window(cw.tumbling("100ms")).agg(n=cw.count()).uid("w").collect("out")

    left: list[Record] = [("a", ts, 0) for ts in range(0, 1000, 10)]
    right: list[Record] = [("a", ts + 3, 0) for ts in range(0, 1000, 10)]
    got = run(pipeline, {"left": left, "right": right})["out"]
    assert [row.n for row in got] == [10] * 10


@pytest.mark.parametrize("windowed", [False, True], ids=["within", "window"])
@pytest.mark.parametrize("first", ["left", "right"])
@pytest.mark.parametrize("ts", [-21, -20, -1, 0, 18, 19, 20])
def test_the_last_record_in_time_still_meets_what_is_as_far_away_as_it_may_be(
    ts: int, first: str, *, windowed: bool
) -> None:
    """At any place in a bucket, also the last one: time has come as far as it can before that record would be late."""

    def pipeline(env: cw.Environment) -> None:
        a, b = both(env, "0s")
        window = cw.tumbling("8ms", offset=f"{ts % 8}ms")
        near = (a.window(window).join(b) if windowed else a.join(b, within="7ms")).uid("near")
        near.collect("near")
        for late in ("late", "late_right"):
            near.side_output(late).collect(late)

    early, at_last = ("a", ts, 1), ("a", ts + 7, 2)
    second = {"left": "right", "right": "left"}[first]
    inputs = {
        first: script(early, ("b", ts + 7, 0), ADVANCE("1s"), ADVANCE("1s")),
        second: script(("c", ts + 7, 0), ADVANCE("1s"), at_last, ADVANCE("1s")),
    }
    got = run(pipeline, inputs)
    assert got["late"] == got["late_right"] == []
    [pair] = got["near"]
    assert {pair.ts, pair.ts_right} == {ts, ts + 7}


class Last(cw.CoProcess):
    """Each left record with what the right side said last of its key."""

    said = cw.ValueState("long")

    def process_left(self, row: Any, ctx: Any) -> Any:
        yield row.k, row.v, self.said.value
        ctx.timers.event_time(ctx.timestamp + 100)

    def process_right(self, row: Any, ctx: Any) -> Any:
        assert ctx.key == row.id
        self.said.value = row.w

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.key, timestamp, self.said.value


@pytest.mark.parametrize("parallelism", [1, 3])
def test_two_keyed_streams_share_the_state_of_a_key(parallelism: int) -> None:
    def pipeline(env: cw.Environment) -> None:
        a, b = both(env, "0s")
        a.connect(b).process(Last, "k string, v long, said long").uid("last").collect("out")

    told = script([("a", 1, 7), ("b", 2, 8)], CHECKPOINT, FAIL)
    asks = script(ADVANCE("1s"), [("a", 5, 1), ("b", 6, 2), ("c", 7, 3)])
    got = run(pipeline, {"left": asks, "right": told}, parallelism=parallelism)["out"]
    assert sorted(map(tuple, got)) == [
        ("a", 1, 7), ("a", 105, 7), ("b", 2, 8), ("b", 106, 8), ("c", 3, None), ("c", 107, None),
    ]  # fmt: skip


class Merged(cw.CoProcess):
    def process_left(self, row: Any, ctx: Any) -> Any:
        yield "left", row.k

    def process_right(self, row: Any, ctx: Any) -> Any:
        yield "right", row.id


def test_two_streams_without_keys() -> None:
    def pipeline(env: cw.Environment) -> None:
        a, b = (env.read(cw.from_rows([], schema), uid=uid) for uid, schema in (("left", LEFT), ("right", RIGHT)))
        a.connect(b).process(Merged(), "side string, k string").collect("out")

    got = run(pipeline, {"left": [("a", 1, 1)], "right": [("b", 1, 1)]}, parallelism=2)["out"]
    assert sorted(map(tuple, got)) == [("left", "a"), ("right", "b")]


class Half(cw.CoProcess):
    def process_left(self, row: Any, ctx: Any) -> Any: ...


class Stateful(Merged):
    n = cw.ValueState("long")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda a, b: a.join("b"), "join: 'b' is not keyed; write join.other.key_by"),
        (lambda a, b: a.join(b, within=5), "within=5: a bare number"),
        (lambda a, b: a.join(b._env.read(cw.from_rows([], LEFT), uid="x").key_by("k", "v")), "they must be as many"),
        (
            lambda a, b: a.join(b._env.read(cw.from_rows([], LEFT), uid="x").key_by("v")),
            "k string on the left and v int64",
        ),
        (
            lambda a, b: a.join(b._env.read(cw.from_rows([], LEFT), uid="x").key_by("k"), within="1s"),
            "the right stream has no",
        ),
        (lambda a, b: a.window(cw.tumbling("1s"), time="processing").join(b), "a join needs event time"),
        (lambda a, b: a.window(cw.tumbling("1s"), allowed_lateness="1s").join(b), "no meaning for a join"),
        (lambda a, b: a.connect(3), "connect: 3 is not a stream"),
        (lambda a, b: a.connect(b._env.read(cw.from_rows([], LEFT), uid="x")), "one of the streams is keyed"),
        (lambda a, b: a.connect(b).process(Half, "x long"), "Half needs a method process_right"),
        (lambda a, b: a.connect(b).process(3, "x long"), "3 is not a cw.CoProcess"),
        (
            lambda a, b: (
                a._env.read(cw.from_rows([], LEFT), uid="x")
                .connect(a._env.read(cw.from_rows([], LEFT), uid="y"))
                .process(Stateful, "side string, k string")
            ),
            "Stateful.n is state by key, and there is no key here",
        ),
    ],
)
def test_a_wrong_argument_is_refused_at_the_call(make: Any, says: str) -> None:
    a, b = both(cw.Environment(checkpointing=None), "0s")
    with pytest.raises(cw.CutwaterError, match=says):
        make(a, b)
