"""Windows against a plain computation over all records, whatever the order, the schedule and the failures."""

import random
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from math import gcd
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cutwater as cw
from cutwater.job.state_owners import owner_of
from cutwater.testing import ADVANCE, CHECKPOINT, FAIL, TRIGGER, run, script
from cutwater.windows import Windows

EVENT = "k string, ts long, v long"
ON_DISK = st.builds(cw.RocksDB, incremental=st.booleans(), cache=st.sampled_from([1, 4000]))
KINDS = [cw.tumbling("10ms"), cw.tumbling("10ms", offset="3ms"), cw.sliding("12ms", "4ms"), cw.sliding("10ms", "4ms")]


def millis(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def counted(
    windows: Windows, *, out_of_orderness: str = "20ms", lateness: str | None = None, rebalanced: bool = False
) -> Any:
    def pipeline(env: cw.Environment) -> None:
        events = env.read(cw.from_rows([], EVENT), uid="in")
        if rebalanced:
            events = events.rebalance().map(lambda row: row, EVENT)
        events = events.with_timestamps("ts", out_of_orderness=out_of_orderness)
        windowed = events.key_by("k").window(windows, allowed_lateness=lateness or "0s")
        told = windowed.agg(n=cw.count(), total=cw.sum("v"), hi=cw.max("ts"), first=cw.first("v"), last=cw.last("v"))
        told.uid("windows").collect("out")
        told.side_output("late").collect("late")

    return pipeline


def windows_of(windows: Windows, time: int) -> list[int]:
    return [s for s in range(time - windows.size + 1, time + 1) if (s - windows.offset) % windows.slide == 0]


def by_hand(events: list[tuple[str | None, int, int]], windows: Windows) -> dict[Any, Any]:
    of: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    slide = gcd(windows.size, windows.slide)
    # What came first in a sliding window: slide by slide.
    for key, ts, value in sorted(events, key=lambda event: (event[1] - windows.offset) // slide):
        for start in windows_of(windows, ts):
            of[key, start].append((ts, value))
    return {
        (key, start, start + windows.size): (
            len(found), sum(v for _, v in found), max(ts for ts, _ in found), found[0][1], found[-1][1],
        )
        for (key, start), found in of.items()
    }  # fmt: skip


def told(rows: list[Any], *results: str) -> dict[Any, Any]:
    result = {}
    for row in rows:
        where = (row.k, millis(row.window_start), millis(row.window_end))
        assert where not in result, "told once"
        result[where] = tuple(getattr(row, name) for name in results)
    return result


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["a", "b", None]), st.integers(-30, 30), st.integers(-5, 5)),
        st.sampled_from([CHECKPOINT, TRIGGER, FAIL, ADVANCE("100ms")]),
    ),
    max_size=30,
)


@settings(max_examples=80)
@given(
    steps=STEPS, windows=st.sampled_from(KINDS), parallelism=st.integers(1, 3), seed=st.integers(0, 2**32)
)  # fmt: skip
def test_windows_equal_a_plain_computation_when_nothing_is_late(
    steps: list[Any], windows: Windows, parallelism: int, seed: int
) -> None:
    check_windows(steps, windows, parallelism, seed, cw.Memory())


@settings(max_examples=8)
@given(steps=STEPS, windows=st.sampled_from(KINDS), seed=st.integers(0, 2**32), backend=ON_DISK)
def test_windows_on_disk_equal_a_plain_computation(
    steps: list[Any], windows: Windows, seed: int, backend: cw.RocksDB
) -> None:
    check_windows(steps, windows, 1, seed, backend)


def check_windows(steps: list[Any], windows: Windows, parallelism: int, seed: int, backend: cw.StateBackend) -> None:
    got = run(
        counted(windows, out_of_orderness="60ms"),
        {"in": script(*steps)},
        parallelism=parallelism,
        state_backend=backend,
        choose=random.Random(seed).randrange,
    )
    events = [step for step in steps if isinstance(step, tuple)]
    assert told(got["out"], "n", "total", "hi", "first", "last") == by_hand(events, windows)
    assert got["late"] == []


@settings(max_examples=80)
@given(
    steps=STEPS, windows=st.sampled_from(KINDS), lateness=st.sampled_from([None, "5ms", "30ms"]),
    parallelism=st.integers(1, 3), seed=st.integers(0, 2**32), rebalanced=st.booleans(),
)  # fmt: skip
def test_late_records_come_out_beside_and_all_others_are_counted(
    steps: list[Any], windows: Windows, lateness: str | None, parallelism: int, seed: int, *, rebalanced: bool
) -> None:
    got = run(
        counted(windows, out_of_orderness="5ms", lateness=lateness, rebalanced=rebalanced),
        {"in": script(*steps)},
        parallelism=parallelism,
        choose=random.Random(seed).randrange,
    )
    events = Counter(step for step in steps if isinstance(step, tuple))
    late = Counter((row.k, row.ts, row.v) for row in got["late"])
    assert not late - events
    latest: dict[Any, Any] = {}
    for row in got["out"]:
        latest[row.k, millis(row.window_start), millis(row.window_end)] = row.n
    expected = by_hand(list((events - late).elements()), windows)
    for where, (n, *_) in expected.items():
        # Of a record whose first windows are done with, only the later ones count it.
        assert latest.get(where, 0) <= n
    if windows.size == windows.slide:
        assert latest == {where: n for where, (n, *_) in expected.items()}
    again = len(got["out"]) - len(latest)
    assert again == 0 or lateness is not None, "only allowed lateness tells a window again"


def test_a_late_record_changes_its_window_while_lateness_lasts_and_is_given_away_behind_it() -> None:
    rows = [
        ("a", 1, 1),
        ("b", 2, 1),
        ("a", 30, 1),
        ADVANCE("1s"),
        ("a", 3, 1),
        ("a", 60, 1),
        ADVANCE("1s"),
        ("a", 4, 1),
    ]
    got = run(counted(cw.tumbling("10ms"), out_of_orderness="0s", lateness="30ms"), {"in": script(*rows)})
    assert [(row.k, millis(row.window_start), row.n) for row in got["out"]] == [
        ("a", 0, 1), ("b", 0, 1), ("a", 0, 2), ("a", 30, 1), ("a", 60, 1),
    ]  # fmt: skip
    assert [tuple(row) for row in got["late"]] == [("a", 4, 1)]


def test_windows_of_windows_find_the_results_in_their_last_millisecond() -> None:
    def pipeline(env: cw.Environment) -> None:
        events = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts")
        small = events.key_by("k").window(cw.tumbling("5ms")).agg(n=cw.count()).uid("small")
        small.key_by("k").window(cw.tumbling("10ms")).agg(n=cw.sum("n"), parts=cw.count()).uid("large").collect("out")

    got = run(pipeline, {"in": [("a", ts, 0) for ts in (1, 5, 6, 9, 10, 19)]})["out"]
    assert [(millis(row.window_start), row.n, row.parts) for row in got] == [(0, 4, 2), (10, 2, 2)]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_by_the_clock_a_record_is_in_the_window_in_which_it_arrives(parallelism: int) -> None:
    def pipeline(env: cw.Environment) -> None:
        words = env.read(cw.from_rows([], "word string"), uid="in")
        words.key_by("word").window(cw.tumbling("5s"), time="processing").agg(n=cw.count()).uid("w").collect("out")

    steps = script(["a", "b", "a"], CHECKPOINT, ["a"], FAIL, ADVANCE("6s"), ["a"], ADVANCE("6s"), ["b"])
    got = run(pipeline, {"in": steps}, parallelism=parallelism)["out"]
    assert sorted((row.word, row.n) for row in got) == [("a", 1), ("a", 3), ("b", 1), ("b", 1)]
    assert all(row.window_end - row.window_start == timedelta(seconds=5) for row in got)


@pytest.mark.parametrize("rows", range(1, 9))
def test_records_do_not_wait_for_company_however_many_the_source_was_asked_for(rows: int) -> None:
    """Slices of 1, 2 and 4: with 1, 3 or 7 records the last slice is full, and only the next one tells that no more come."""

    def pipeline(env: cw.Environment) -> None:
        words = env.read(cw.from_rows([], "word string"), uid="in")
        words.key_by("word").window(cw.tumbling("5s"), time="processing").agg(n=cw.count()).uid("w").collect("out")

    got = run(pipeline, {"in": script(["a"] * rows, ADVANCE("6s"), ["a"])})["out"]
    assert [row.n for row in got] == [rows, 1]


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("rows", [1, 3, 5, 40])
def test_records_that_came_over_an_exchange_do_not_wait_for_company_either(rows: int, parallelism: int) -> None:
    def pipeline(env: cw.Environment) -> None:
        words = env.read(cw.from_rows([], "word string"), uid="in").rebalance().filter("word != ''").uid("whole")
        words.key_by("word").window(cw.tumbling("5s"), time="processing").agg(n=cw.count()).uid("w").collect("out")

    got = run(pipeline, {"in": script(["a"] * rows, ADVANCE("6s"), ["a"])}, parallelism=parallelism)["out"]
    assert [row.n for row in got] == [rows, 1]


@pytest.mark.parametrize("rows", [1, 3, 7, 100])
def test_at_most_once_records_do_not_wait_for_company_either(rows: int) -> None:
    def pipeline(env: cw.Environment) -> None:
        words = env.read(cw.from_rows([], "word string"), uid="in")
        words.key_by("word").window(cw.tumbling("5s"), time="processing").agg(n=cw.count()).uid("w").collect("out")

    checkpointing = cw.Checkpointing("1h", storage="memory", mode="at_most_once")
    env = cw.Environment(parallelism=1, checkpointing=checkpointing)
    got = run(pipeline, {"in": script(["a"] * rows, ADVANCE("6s"), ["a"])}, environment=env)["out"]
    assert [row.n for row in got] == [rows, 1]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda k: k.window("5s"), "window: '5s' is no window; write cw.tumbling"),
        (lambda k: k.window(cw.tumbling("5s"), time="wall"), "time='wall' must be 'event' or 'processing'"),
        (lambda k: k.window(cw.tumbling("5s"), allowed_lateness=5), "allowed_lateness=5: a bare number"),
        (lambda k: k.window(cw.tumbling("5s"), time="processing", allowed_lateness="1s"), "has no meaning with time="),
        (lambda k: k.window(cw.tumbling("5s")).agg(), "agg.. needs at least one result"),
        (lambda k: k.window(cw.tumbling("5s")).agg(window_end=cw.count()), "'window_end' is a column of every window"),
        (lambda k: k.window(cw.tumbling("5s")).agg(window_start=cw.count()), "window_start"),
        (lambda k: k.window(cw.tumbling("5s")).agg(n=cw.sum("nope")), "nope"),
    ],
)
def test_a_wrong_argument_is_refused_at_the_call(make: Any, says: str) -> None:
    env = cw.Environment(checkpointing=None)
    keyed = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts").key_by("k")
    with pytest.raises(cw.CutwaterError, match=says):
        make(keyed)


def test_event_time_windows_need_event_time() -> None:
    env = cw.Environment(checkpointing=None)
    stream = env.read(cw.from_rows([], EVENT), uid="in")
    with pytest.raises(cw.ConfigError, match=r"Name its column with s\.with_timestamps"):
        stream.key_by("k").window(cw.tumbling("5s"))
    lost = stream.with_timestamps("ts").select("k")
    with pytest.raises(cw.ConfigError, match="keep that column up to here"):
        lost.key_by("k").window(cw.tumbling("5s"))


def test_windows_of_another_size_do_not_go_on_from_these() -> None:
    def owner(windows: Windows, time: Any = "event") -> str:
        env = cw.Environment(checkpointing=None)
        events = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts")
        events.key_by("k").window(windows, time=time).agg(n=cw.count()).uid("w").write(cw.discard(), uid="out")
        definition = env.define("job", 1)
        return next(owner_of(node).kind for node in definition.plan.graph.nodes if node.uid == "w")

    kinds = [owner(cw.tumbling("5s")), owner(cw.tumbling("6s")), owner(cw.sliding("5s", "1s"))]
    kinds += [owner(cw.tumbling("5s", offset="1s")), owner(cw.tumbling("5s"), "processing")]
    assert len(set(kinds)) == len(kinds)
    assert kinds[0] == owner(cw.tumbling("5s"))


class Spread(cw.WindowProcess):
    """The distance between the largest and the smallest value; windows of one row go beside."""

    alone = cw.SideOutput("alone", "k string")

    def process(self, rows: list[Any], ctx: Any) -> Any:
        assert all(row.k == ctx.key and ctx.window_start <= row.ts < ctx.window_end for row in rows)
        if len(rows) == 1:
            ctx.emit(self.alone, (ctx.key,))
        else:
            yield ctx.key, max(row.v for row in rows) - min(row.v for row in rows), len(rows)


@settings(max_examples=50)
@given(
    steps=STEPS, windows=st.sampled_from(KINDS), parallelism=st.integers(1, 3), seed=st.integers(0, 2**32)
)  # fmt: skip
def test_functions_of_windows_get_the_rows_of_each_key_once(
    steps: list[Any], windows: Windows, parallelism: int, seed: int
) -> None:
    def pipeline(env: cw.Environment) -> None:
        events = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts", out_of_orderness="60ms")
        windowed = events.key_by("k").window(windows)
        spread = windowed.process(Spread, "k string, spread long, n long").uid("spread")
        spread.collect("spread")
        spread.side_output("alone").collect("alone")
        windowed.reduce(lambda a, b: (a.k, max(a.ts, b.ts), a.v + b.v)).uid("sums").collect("sums")
        windowed.process(lambda rows, ctx: [(len(rows),)], "n long").uid("counts").collect("counts")

    got = run(pipeline, {"in": script(*steps)}, parallelism=parallelism, choose=random.Random(seed).randrange)
    of: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for key, ts, value in (step for step in steps if isinstance(step, tuple)):
        for start in windows_of(windows, ts):
            of[key, start].append((ts, value))
    sums = {(row.k, millis(row.window_start)): (row.ts, row.v) for row in got["sums"]}
    assert sums == {where: (max(ts for ts, _ in found), sum(v for _, v in found)) for where, found in of.items()}
    assert len(got["sums"]) == len(sums)
    several = {where: [v for _, v in found] for where, found in of.items() if len(found) > 1}
    assert {(row.k, millis(row.window_start)): (row.spread, row.n) for row in got["spread"]} == {
        where: (max(values) - min(values), len(values)) for where, values in several.items()
    }
    assert len(got["alone"]) == len(of) - len(several)
    assert sorted(row.n for row in got["counts"]) == sorted(len(found) for found in of.values())


def test_late_rows_let_a_function_see_their_window_again() -> None:
    def pipeline(env: cw.Environment) -> None:
        events = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts")
        windowed = events.key_by("k").window(cw.tumbling("10ms"), allowed_lateness="30ms")
        told = windowed.reduce(lambda a, b: (a.k, b.ts, a.v + b.v)).uid("sums")
        told.collect("out")
        told.side_output("late").collect("late")

    rows = [
        ("a", 1, 1),
        ("b", 2, 1),
        ("a", 30, 1),
        ADVANCE("1s"),
        ("a", 3, 1),
        ("a", 60, 1),
        ADVANCE("1s"),
        ("a", 4, 1),
    ]
    got = run(pipeline, {"in": script(*rows)})
    assert [(row.k, millis(row.window_start), row.v) for row in got["out"]] == [
        ("a", 0, 1), ("b", 0, 1), ("a", 0, 2), ("a", 30, 1), ("a", 60, 1),
    ]  # fmt: skip
    assert [tuple(row) for row in got["late"]] == [("a", 4, 1)]


def test_by_the_clock_functions_get_the_rows_that_arrived_in_the_window() -> None:
    def pipeline(env: cw.Environment) -> None:
        words = env.read(cw.from_rows([], "word string"), uid="in")
        windowed = words.key_by("word").window(cw.tumbling("5s"), time="processing")
        windowed.process(lambda rows, ctx: [(ctx.key, len(rows))], "word string, n long").uid("w").collect("out")

    steps = script(["a", "b", "a"], CHECKPOINT, FAIL, ADVANCE("6s"), ["a"], ADVANCE("6s"), ["b"])
    got = run(pipeline, {"in": steps})["out"]
    assert sorted((row.word, row.n) for row in got) == [("a", 1), ("a", 2), ("b", 1), ("b", 1)]


def failing(rows: list[Any], ctx: Any) -> Any:
    raise ValueError("no such thing")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda w: w.reduce(3), "reduce: 3 is not a function"),
        (lambda w: w.collect("out"), "collect cannot stand behind window: write it behind agg"),
        (lambda w: w.window(cw.tumbling("1s")), "window cannot stand behind window: write it behind agg"),
        (lambda w: w.sum("v"), r"sum is written in agg, .*: \.agg\(result=cw\.sum\('amount'\)\)"),
        (lambda w: w.count(), r"count is written in agg, .*: \.agg\(result=cw\.count\(\)\)"),
        (lambda w: w.process(3, "x long"), "process: 3 is not a cw.WindowProcess"),
        (lambda w: w.process(cw.WindowProcess, "x long"), "WindowProcess needs a method process"),
        (lambda w: w.process(failing, "window_start timestamp"), "'window_start' is a column of every window"),
    ],
)
def test_a_wrong_function_is_refused_at_the_call(make: Any, says: str) -> None:
    env = cw.Environment(checkpointing=None)
    keyed = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts").key_by("k")
    with pytest.raises(cw.CutwaterError, match=says):
        make(keyed.window(cw.tumbling("5s")))


@pytest.mark.parametrize("backend", [cw.Memory(), cw.RocksDB()], ids=["memory", "rocksdb"])
def test_sliding_windows_by_the_clock_have_each_record_in_all_of_theirs(backend: cw.StateBackend) -> None:
    def pipeline(env: cw.Environment) -> None:
        windowed = (
            env.read(cw.from_rows([], "k string"), uid="in")
            .key_by("k")
            .window(cw.sliding("4s", "2s", offset="1s"), time="processing")
        )
        windowed.agg(n=cw.count()).uid("agg").collect("agg")
        windowed.reduce(lambda a, b: a).uid("reduce").collect("reduce")
        windowed.process(lambda rows, ctx: [(len(rows),)], "n long").uid("process").collect("process")

    env = cw.Environment(state_backend=backend, checkpointing=cw.Checkpointing("1 day", storage="memory"))
    steps = script(["a"], CHECKPOINT, FAIL, ADVANCE("2s"), ["a"], ADVANCE("10s"))
    got = run(pipeline, {"in": steps}, environment=env)
    for rows in got.values():
        by_start = sorted(rows, key=lambda row: row.window_start)
        assert [(row.window_start - by_start[0].window_start).total_seconds() for row in by_start] == [0, 2, 4]
        assert {row.window_start.second % 2 for row in rows} == {1}
    assert [[row.n for row in sorted(got[name], key=lambda row: row.window_start)] for name in ("agg", "process")] == [
        [1, 2, 1],
        [1, 2, 1],
    ]


def test_whole_rows_of_a_window_come_into_another_under_a_time_of_their_own() -> None:
    def counted(env: cw.Environment) -> cw.Stream:
        events = env.read(cw.from_rows([("a", ts, 1) for ts in range(40)], EVENT), uid="in").with_timestamps("ts")
        return events.key_by("k").window(cw.tumbling("5ms")).agg(n=cw.count()).uid("first")

    def pipeline(env: cw.Environment) -> None:
        again = counted(env).select("k", "n", started="window_start").with_timestamps("started").key_by("k")
        most = again.window(cw.tumbling("20ms")).reduce(lambda a, b: a._replace(n=a.n + b.n)).uid("second")
        most.collect("out")

    with pytest.raises(cw.SchemaError, match=r"'window_start' is a column.*started='window_start'"):
        counted(cw.Environment(checkpointing=None)).key_by("k").window(cw.tumbling("20ms")).reduce(lambda a, b: a)
    assert [row.n for row in run(pipeline, {})["out"]] == [20, 20]


def test_a_function_of_windows_that_fails_is_named_with_its_key() -> None:
    def pipeline(env: cw.Environment) -> None:
        events = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts")
        events.key_by("k").window(cw.tumbling("5s")).process(failing, "x long").uid("w").collect("out")

    with pytest.raises(cw.JobFailed, match=r"w\[0\].*no such thing.*key 'a'|w\[0\].*key 'a'.*no such thing"):
        run(pipeline, {"in": [("a", 1, 1)]})


@pytest.mark.parametrize("windows", [cw.tumbling("1s"), cw.session("1s")])
def test_a_function_of_windows_that_returns_one_tuple_hears_what_to_write(windows: Any) -> None:
    def pipeline(env: cw.Environment) -> None:
        events = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts")
        counted = events.key_by("k").window(windows).process(lambda rows, ctx: (ctx.key, len(rows)), "k string, n long")
        counted.uid("w").collect("out")

    with pytest.raises(
        cw.JobFailed, match=r"\(w\), key 'a': TypeError: process returned \('a', 1\), a single tuple: yield it"
    ):
        run(pipeline, {"in": [("a", 1, 1)]})


def sessions_by_hand(events: list[Any], gap: int) -> dict[Any, list[tuple[int, int]]]:
    of: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for key, ts, value in events:
        of[key].append((ts, value))
    result = {}
    for key, found in of.items():
        found.sort()
        session = [found[0]]
        for each in found[1:]:
            if each[0] - session[-1][0] > gap:
                result[key, session[0][0], session[-1][0] + gap] = session
                session = []
            session.append(each)
        result[key, session[0][0], session[-1][0] + gap] = session
    return result


@settings(max_examples=80)
@given(steps=STEPS, parallelism=st.integers(1, 3), seed=st.integers(0, 2**32))
def test_sessions_equal_a_plain_computation_when_nothing_is_late(steps: list[Any], parallelism: int, seed: int) -> None:
    check_sessions(steps, parallelism, seed, cw.Memory())


@settings(max_examples=4)
@given(steps=STEPS, seed=st.integers(0, 2**32), backend=ON_DISK)
def test_sessions_on_disk_equal_a_plain_computation(steps: list[Any], seed: int, backend: cw.RocksDB) -> None:
    check_sessions(steps, 1, seed, backend)


def check_sessions(steps: list[Any], parallelism: int, seed: int, backend: cw.StateBackend) -> None:
    def pipeline(env: cw.Environment) -> None:
        events = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts", out_of_orderness="60ms")
        windowed = events.key_by("k").window(cw.session("5ms"))
        told = windowed.agg(n=cw.count(), total=cw.sum("v"), hi=cw.max("ts"), mean=cw.mean("v")).uid("agg")
        told.collect("agg")
        told.side_output("late").collect("late")
        windowed.reduce(lambda a, b: (a.k, max(a.ts, b.ts), a.v + b.v)).uid("sums").collect("sums")
        windowed.process(Spread, "k string, spread long, n long").uid("spread").collect("spread")

    got = run(
        pipeline,
        {"in": script(*steps)},
        parallelism=parallelism,
        state_backend=backend,
        choose=random.Random(seed).randrange,
    )
    expected = sessions_by_hand([step for step in steps if isinstance(step, tuple)], 5)
    values = {where: [value for _, value in found] for where, found in expected.items()}
    assert told(got["agg"], "n", "total", "hi", "mean") == {
        where: (len(of), sum(of), expected[where][-1][0], sum(of) / len(of)) for where, of in values.items()
    }
    assert got["late"] == []
    sums = {(row.k, millis(row.window_start), millis(row.window_end)): row.v for row in got["sums"]}
    assert sums == {where: sum(of) for where, of in values.items()} and len(sums) == len(got["sums"])
    spread = {(row.k, millis(row.window_start), millis(row.window_end)): row.spread for row in got["spread"]}
    assert spread == {where: max(of) - min(of) for where, of in values.items() if len(of) > 1}


def test_of_sessions_that_become_one_that_which_was_begun_first_comes_first() -> None:
    def pipeline(env: cw.Environment) -> None:
        events = env.read(cw.from_rows([], "k string, ts long, v long"), uid="in")
        timed = events.with_timestamps("ts", out_of_orderness="1s").key_by("k").window(cw.session("10ms"))
        timed.agg(first=cw.first("v"), last=cw.last("v"), all=cw.collect_list("v")).uid("s").collect("out")

    arrived = [("a", 0, 1), ("a", 20, 2), ("a", 5, 3), ("a", 12, 4)]
    [row] = run(pipeline, {"in": script(*([each] for each in arrived))})["out"]
    assert (row.first, row.last, row.all) == (1, 4, [1, 3, 2, 4])


def test_a_sliding_window_is_in_the_order_of_its_slides_and_of_arrival_within_each() -> None:
    def pipeline(env: cw.Environment) -> None:
        events = env.read(cw.from_rows([], "k string, ts long, v long"), uid="in")
        timed = events.with_timestamps("ts", out_of_orderness="1s").key_by("k").window(cw.sliding("10ms", "5ms"))
        timed.agg(first=cw.first("v"), last=cw.last("v"), all=cw.collect_list("v")).uid("s").collect("out")

    arrived = [("a", 7, 1), ("a", 2, 2), ("a", 8, 3), ("a", 1, 4)]
    told = {row.window_start: row for row in run(pipeline, {"in": script(*([each] for each in arrived))})["out"]}
    found = [(row.first, row.last, row.all) for _, row in sorted(told.items())]
    assert found == [(2, 4, [2, 4]), (2, 3, [2, 4, 1, 3]), (1, 3, [1, 3])]


def test_a_late_record_joins_sessions_that_were_told_while_lateness_lasts() -> None:
    def pipeline(env: cw.Environment) -> None:
        events = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts")
        told = events.key_by("k").window(cw.session("5ms"), allowed_lateness="30ms").agg(n=cw.count()).uid("s")
        told.collect("out")
        told.side_output("late").collect("late")

    rows = [
        ("a", 0, 0),
        ("a", 8, 0),
        ("b", 30, 0),
        ADVANCE("1s"),
        ("a", 4, 0),
        ("b", 90, 0),
        ADVANCE("1s"),
        ("a", 6, 0),
    ]
    got = run(pipeline, {"in": script(*rows)})
    assert [(row.k, millis(row.window_start), millis(row.window_end), row.n) for row in got["out"]] == [
        ("a", 0, 5, 1), ("a", 8, 13, 1), ("a", 0, 13, 3), ("b", 30, 35, 1), ("b", 90, 95, 1),
    ]  # fmt: skip
    assert [tuple(row) for row in got["late"]] == [("a", 6, 0)]


@settings(max_examples=60)
@given(steps=STEPS, lateness=st.sampled_from([None, "5ms", "30ms"]), seed=st.integers(0, 2**32))
def test_late_records_of_sessions_come_out_beside_and_the_last_told_counts_all_others(
    steps: list[Any], lateness: str | None, seed: int
) -> None:
    def pipeline(env: cw.Environment) -> None:
        events = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts", out_of_orderness="5ms")
        windowed = events.key_by("k").window(cw.session("5ms"), allowed_lateness=lateness or "0s")
        told = windowed.agg(n=cw.count()).uid("s")
        told.collect("out")
        told.side_output("late").collect("late")

    got = run(pipeline, {"in": script(*steps)}, choose=random.Random(seed).randrange)
    events = Counter(step for step in steps if isinstance(step, tuple))
    late = Counter((row.k, row.ts, row.v) for row in got["late"])
    assert not late - events
    counted = {(row.k, millis(row.window_start), millis(row.window_end)): row.n for row in got["out"]}
    for key in {key for key, _, _ in events}:
        # Of sessions that grew, the latest covers those that were told before.
        spans = sorted((start, end, n) for (k, start, end), n in counted.items() if k == key)
        largest = [s for s in spans if not any(o[0] <= s[0] and s[1] <= o[1] and o != s for o in spans)]
        in_time = sum(n for (k, _, _), n in (events - late).items() if k == key)
        assert sum(n for _, _, n in largest) == in_time or lateness is None


def test_sessions_by_the_clock_end_a_gap_behind_the_last_record() -> None:
    def pipeline(env: cw.Environment) -> None:
        words = env.read(cw.from_rows([], "word string"), uid="in")
        windowed = words.key_by("word").window(cw.session("5s"), time="processing")
        windowed.agg(n=cw.count()).uid("s").collect("out")

    steps = script(["a"], ADVANCE("3s"), ["a", "b"], CHECKPOINT, FAIL, ADVANCE("4s"), ["a"], ADVANCE("6s"), ["a"])
    got = run(pipeline, {"in": steps})["out"]
    assert sorted((row.word, row.n) for row in got) == [("a", 1), ("a", 3), ("b", 1)]


def test_keys_of_several_columns() -> None:
    def pipeline(env: cw.Environment) -> None:
        events = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts")
        keyed = events.key_by("k", "v")
        keyed.window(cw.tumbling("10ms")).agg(n=cw.count()).uid("agg").collect("agg")
        keyed.window(cw.session("5ms")).agg(n=cw.count()).uid("sessions").collect("sessions")
        keyed.window(cw.session("5ms")).process(
            lambda rows, ctx: [(ctx.key.k, ctx.key.v, len(rows))], "k string, v long, n long"
        ).uid("process").collect("process")
        keyed.window(cw.tumbling("10ms")).process(
            lambda rows, ctx: [(ctx.key.k, ctx.key.v, len(rows))], "k string, v long, n long"
        ).uid("rows").collect("rows")

    steps = script([("a", 1, 1), ("a", 2, 2)], CHECKPOINT, FAIL, [("a", 3, 1), (None, 4, 1)])
    got = run(pipeline, {"in": steps}, parallelism=2)
    for name in ("agg", "sessions", "process", "rows"):
        assert sorted(((row.k, row.v, row.n) for row in got[name]), key=str) == [
            ("a", 1, 2), ("a", 2, 1), (None, 1, 1),
        ]  # fmt: skip


class Collected(cw.AggregateFunction):
    accumulator_type = "array<long>"
    result_type = "long"

    def create(self) -> Any:
        return []

    def add(self, accumulator: Any, row: Any) -> Any:
        return [*accumulator, row.v]

    def merge(self, a: Any, b: Any) -> Any:
        return [*a, *b]

    def result(self, accumulator: Any) -> Any:
        return len(accumulator)


TOLD_BY: dict[str, Any] = {
    "columns": lambda w: w.agg(n=cw.count()),
    "expressions": lambda w: w.agg(n=cw.count(), values=cw.collect_list("v")),
    "own": lambda w: w.agg(n=Collected()),
    "process": lambda w: w.process(lambda rows, ctx: [(ctx.key, len(rows))], "k string, n long"),
    "reduce": lambda w: w.reduce(lambda a, b: (a.k, b.ts, a.v + b.v)),
}
"""Each kind of window operator; ``n``, or ``v`` of the reduced row, counts."""


def early_pipeline(windows: Any, how: str, time: Any = "event", lateness: str = "0s") -> Any:
    def pipeline(env: cw.Environment) -> None:
        events = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts", out_of_orderness="60ms")
        windowed = events.key_by("k").window(windows, time=time, early="1s", allowed_lateness=lateness)
        TOLD_BY[how](windowed).uid("w").collect("out")

    return pipeline


def counted_of(rows: list[Any]) -> list[Any]:
    return [(row.k, millis(row.window_start), row["n" if "n" in row._fields else "v"], row.early) for row in rows]


@pytest.mark.parametrize("how", TOLD_BY)
@pytest.mark.parametrize("windows", [cw.tumbling("100ms"), cw.session("50ms")])
def test_with_early_what_changed_is_told_by_the_clock_before_the_window_is_over(windows: Any, how: str) -> None:
    steps = script([("a", 0, 1), ("b", 0, 1)], ADVANCE("1s"), [("a", 10, 1)], ADVANCE("1s"), ADVANCE("5s"))
    got = counted_of(run(early_pipeline(windows, how), {"in": steps})["out"])
    assert got[:3] == [("a", 0, 1, True), ("b", 0, 1, True), ("a", 0, 2, True)]
    assert sorted(got[3:]) == [("a", 0, 2, False), ("b", 0, 1, False)]


@pytest.mark.parametrize("how", TOLD_BY)
@pytest.mark.parametrize("windows", [cw.tumbling("1 min"), cw.session("1 min")])
def test_early_results_come_by_the_clock_too_and_behind_a_restore_once_more(windows: Any, how: str) -> None:
    steps = script([("a", 0, 1), ("b", 0, 1)], ADVANCE("1s"), CHECKPOINT, FAIL, ADVANCE("1s"), [("a", 0, 1)])
    got = run(early_pipeline(windows, how, "processing"), {"in": steps})["out"]
    told = [(row.k, row["n" if "n" in row._fields else "v"], row.early) for row in got]
    assert sorted(told[:2]) == sorted(told[2:4]) == [("a", 1, True), ("b", 1, True)]
    assert sorted(told[4:]) == [("a", 2, False), ("b", 1, False)]


@settings(max_examples=60)
@given(
    steps=STEPS, windows=st.sampled_from([*KINDS, cw.session("5ms")]), how=st.sampled_from(sorted(TOLD_BY)),
    parallelism=st.integers(1, 3), seed=st.integers(0, 2**32),
)  # fmt: skip
def test_early_results_change_nothing_about_the_final_ones(
    steps: list[Any], windows: Any, how: str, parallelism: int, seed: int
) -> None:
    steps = [ADVANCE("1s") if step == ADVANCE("100ms") else step for step in steps]

    def plain(env: cw.Environment) -> None:
        events = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts", out_of_orderness="60ms")
        TOLD_BY[how](events.key_by("k").window(windows)).uid("w").collect("out")

    inputs = {"in": script(*steps)}
    choose = random.Random(seed).randrange
    got = run(early_pipeline(windows, how), inputs, parallelism=parallelism, choose=choose)["out"]
    without = run(plain, inputs, parallelism=parallelism)["out"]
    value = "v" if how == "reduce" else "n"

    def facts(rows: list[Any]) -> Counter[Any]:
        return Counter((row.k, row.window_start, row.window_end, row[value]) for row in rows)

    final = [row for row in got if not row.early]
    assert facts(final) == facts(without)
    if not hasattr(windows, "gap"):
        assert {each[:3] for each in facts(got)} == {each[:3] for each in facts(final)}


def test_early_has_to_be_a_duration_and_its_column_is_reserved() -> None:
    env = cw.Environment(checkpointing=None)
    keyed = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts").key_by("k")
    with pytest.raises(cw.ConfigError, match="early=5: a bare number"):
        keyed.window(cw.tumbling("5s"), early=5)  # type: ignore[arg-type]
    with pytest.raises(cw.SchemaError, match="'early' is a column of every result of windows with early="):
        keyed.window(cw.tumbling("5s"), early="1s").agg(early=cw.count())
    assert "early" in keyed.window(cw.tumbling("5s")).agg(early=cw.count()).schema.names
    with pytest.raises(cw.ConfigError, match="early has no meaning for a join"):
        keyed.window(cw.tumbling("5s"), early="1s").join(keyed)


@settings(max_examples=60)
@given(
    steps=STEPS, how=st.sampled_from(sorted(TOLD_BY)), lateness=st.sampled_from(["0s", "5ms", "30ms"]),
    windows=st.sampled_from(KINDS), parallelism=st.integers(1, 3), seed=st.integers(0, 2**32),
)  # fmt: skip
def test_whatever_is_kept_late_records_come_out_beside_and_the_last_told_counts_all_others(
    steps: list[Any], how: str, lateness: str, windows: Windows, parallelism: int, seed: int
) -> None:
    def pipeline(env: cw.Environment) -> None:
        events = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts", out_of_orderness="5ms")
        told = TOLD_BY[how](events.key_by("k").window(windows, allowed_lateness=lateness)).uid("w")
        told.collect("out")
        told.side_output("late").collect("late")

    # a reduced row adds up: each record counts one
    steps = [(step[0], step[1], 1) if isinstance(step, tuple) else step for step in steps]
    choose = random.Random(seed).randrange
    got = run(pipeline, {"in": script(*steps)}, parallelism=parallelism, choose=choose)
    events = Counter(step for step in steps if isinstance(step, tuple))
    late = Counter((row.k, row.ts, row.v) for row in got["late"])
    assert not late - events
    expected = {where: n for where, (n, *_) in by_hand(list((events - late).elements()), windows).items()}
    latest: dict[Any, int] = {}
    for row in got["out"]:
        n = row["v" if how == "reduce" else "n"]
        latest[row.k, millis(row.window_start), millis(row.window_end)] = n
    assert all(latest.get(where, 0) <= n for where, n in expected.items())
    assert latest.keys() <= expected.keys()
    if windows.size == windows.slide:
        assert latest == expected
    assert lateness != "0s" or len(latest) == len(got["out"]), "only allowed lateness tells a window again"


IDLING = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 400), st.just(1)),
        st.sampled_from([CHECKPOINT, TRIGGER, FAIL, ADVANCE("1s"), ADVANCE("20s"), ADVANCE("20s")]),
    ),
    max_size=20,
)


def told_of_sources_that_rest(
    left: list[Any], right: list[Any], parallelism: int, seed: int, *, late_is_read: bool
) -> dict[str, list[Any]]:
    def pipeline(env: cw.Environment) -> None:
        sides = [env.read(cw.from_rows([], EVENT), uid=uid).with_timestamps("ts", idle_after="10s") for uid in "lr"]
        windowed = sides[0].union(sides[1]).key_by("k").window(cw.tumbling("10ms")).agg(n=cw.count())
        windowed.uid("windows").collect("out")
        if late_is_read:
            windowed.side_output("late").collect("late")

    inputs = {"l": script(*left), "r": script(*right)}
    return run(pipeline, inputs, parallelism=parallelism, choose=random.Random(seed).randrange)


@settings(max_examples=60)
@given(left=IDLING, right=IDLING, parallelism=st.integers(1, 2), seed=st.integers(0, 2**32))
def test_records_of_a_source_that_rested_are_counted_or_late_never_lost(
    left: list[Any], right: list[Any], parallelism: int, seed: int
) -> None:
    """Nobody waits for a source that rests: what it brings later may be late, and only who gathers can tell."""
    result = told_of_sources_that_rest(left, right, parallelism, seed, late_is_read=True)
    sent = sum(isinstance(step, tuple) for step in [*left, *right])
    assert sum(row.n for row in result["out"]) + len(result["late"]) == sent


@settings(max_examples=40)
@given(left=IDLING, right=IDLING, parallelism=st.integers(1, 2), seed=st.integers(0, 2**32))
def test_where_nobody_reads_late_records_a_window_is_told_once_with_those_that_were_in_time(
    left: list[Any], right: list[Any], parallelism: int, seed: int
) -> None:
    """Those of a source that rested are combined all the same: who gathers them leaves out what is late."""
    result = told_of_sources_that_rest(left, right, parallelism, seed, late_is_read=False)["out"]
    found = {(row.k, millis(row.window_start), millis(row.window_end)): row.n for row in result}
    assert len(found) == len(result)
    records = by_hand([step for step in [*left, *right] if isinstance(step, tuple)], cw.tumbling("10ms"))
    assert all(n <= records[where][0] for where, n in found.items())


@pytest.mark.parametrize("seed", range(4))
def test_what_comes_in_time_behind_a_rest_is_counted(seed: int) -> None:
    def pipeline(env: cw.Environment) -> None:
        events = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts", idle_after="10s")
        events.key_by("k").window(cw.tumbling("1s")).agg(n=cw.count()).uid("windows").collect("out")

    def at(*times: int) -> list[Any]:
        return [("a", time, 1) for time in times]

    steps = [*at(500), ADVANCE("20s"), ADVANCE("1s"), CHECKPOINT, FAIL, at(20000, 30000), ADVANCE("1s"), *at(40000)]
    found = run(pipeline, {"in": script(*steps)}, choose=random.Random(seed).randrange)["out"]
    assert sorted(millis(row.window_start) for row in found) == [0, 20000, 30000, 40000]


@pytest.mark.parametrize("windows", [cw.tumbling("1s"), cw.session("1s")])
@pytest.mark.parametrize("kind", ["event_time", "processing_time"])
def test_a_function_of_windows_that_sets_a_timer_hears_that_there_are_none(windows: Any, kind: str) -> None:
    class Reminding(cw.WindowProcess):
        def process(self, rows: list[Any], ctx: Any) -> Any:
            getattr(ctx.timers, kind)(5)

    def pipeline(env: cw.Environment) -> None:
        events = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts")
        events.key_by("k").window(windows).process(Reminding(), "n long").uid("o").collect("out")

    with pytest.raises(cw.JobFailed, match=rf"ctx\.timers\.{kind}: a function of windows has no timers"):
        run(pipeline, {"in": [("a", 5, 1)]})


def test_a_column_that_is_not_there_is_told_with_those_that_are_and_no_other() -> None:
    env = cw.Environment(checkpointing=None)
    events = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts").key_by("k")
    with pytest.raises(cw.SchemaError, match=r"no column 'w'.*; available: k, ts, v$"):
        events.window(cw.tumbling("1s")).agg(total=cw.sum("w"))


@pytest.mark.parametrize("incremental", [False, True])
@pytest.mark.parametrize("backend", [cw.Memory, cw.RocksDB])
@pytest.mark.parametrize(
    "tell",
    [
        lambda w: w.process(lambda rows, ctx: [(ctx.key, len(rows))], "k string, m long"),
        lambda w: w.agg(m=cw.count_distinct("window_start")),
    ],
    ids=["process", "expression"],
)
def test_windows_of_windows_that_keep_their_rows_are_restored(tell: Any, backend: Any, incremental: bool) -> None:
    """The rows have a ``window_start`` of their own."""

    def pipeline(env: cw.Environment) -> None:
        events = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts")
        small = events.key_by("k").window(cw.tumbling("1s")).agg(n=cw.count()).uid("small")
        tell(small.key_by("k").window(cw.tumbling("10s"))).uid("large").collect("out")

    events = [("a", time, 1) for time in range(0, 25_000, 250)]
    steps = script(events[:30], CHECKPOINT, FAIL, events[30:])
    told = run(pipeline, {"in": steps}, state_backend=backend(incremental=incremental))["out"]
    assert [row.m for row in told] == [10, 10, 5]


def test_a_column_that_windows_store_their_key_groups_in_is_refused_where_they_keep_their_rows() -> None:
    events = cw.Environment().read(cw.from_rows([], "k string, ts long, key_group long"), uid="in")
    with pytest.raises(cw.SchemaError, match=r"window: 'key_group'.*choose another name"):
        events.with_timestamps("ts").key_by("k").window(cw.tumbling("1s")).process(lambda rows, ctx: [], "n long")
