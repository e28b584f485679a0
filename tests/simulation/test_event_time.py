"""Watermarks through the real subtasks: no record is overtaken, idle inputs wait for nobody, END is the end of time."""

import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cutwater as cw
from cutwater.checkpoint.job_store import JobStore
from cutwater.flow.envelope import Row
from cutwater.flow.watermarks import MAX_WATERMARK
from cutwater.subtask.operator_subtask import OperatorSubtask
from cutwater.subtask.source_input import MOST_OPEN_SPLITS
from cutwater.testing import ADVANCE, CHECKPOINT, FAIL, TRIGGER, run, script

EVENT = "k string, ts long"


class Times(cw.KeyedProcess):
    """Every record with the watermark it met, and a timer at its own time."""

    def process(self, row: Any, ctx: Any) -> Any:
        yield "row", row.k, ctx.timestamp, ctx.watermark
        ctx.timers.event_time(ctx.timestamp)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield "timer", ctx.key, timestamp, ctx.watermark


SEEN = "what string, k string, ts long, watermark long"


def one_source(env: cw.Environment) -> None:
    events = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts", out_of_orderness="10ms")
    events.key_by("k").process(Times(), SEEN).uid("times").collect("out")


def two_sources(env: cw.Environment) -> None:
    left = env.read(cw.from_rows([], EVENT), uid="left").with_timestamps("ts", idle_after="5s")
    right = env.read(cw.from_rows([], EVENT), uid="right").with_timestamps("ts", idle_after="5s")
    left.union(right).key_by("k").process(Times(), SEEN).uid("times").collect("out")


def timers(rows: list[Any]) -> list[tuple[str, int]]:
    return sorted((row.k, row.ts) for row in rows if row.what == "timer")


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from("abc"), st.integers(0, 200)),
        st.sampled_from([CHECKPOINT, TRIGGER, FAIL, ADVANCE("100ms")]),
    ),
    max_size=25,
)


@settings(max_examples=60)
@given(steps=STEPS, parallelism=st.integers(1, 3), seed=st.integers(0, 2**32))
def test_every_timer_fires_once_whatever_the_schedule_and_no_row_in_time_is_overtaken(
    steps: list[Any], parallelism: int, seed: int
) -> None:
    got = run(one_source, {"in": script(steps)}, parallelism=parallelism, choose=random.Random(seed).randrange)["out"]
    events = [step for step in steps if isinstance(step, tuple)]
    assert sorted((row.k, row.ts) for row in got if row.what == "row") == sorted(events)
    latest = -1
    in_time: set[tuple[str, int]] = set()
    for key, ts in events:
        latest = max(latest, ts)
        if ts >= latest - 10:
            in_time.add((key, ts))
    for row in got:
        if row.what == "timer":
            assert row.ts <= row.watermark
        elif (row.k, row.ts) in in_time and events.count((row.k, row.ts)) == 1:
            assert row.watermark is None or row.ts > row.watermark, "it was in time and met a later watermark"
    fired = timers(got)
    assert set(fired) == set(events)
    # Late ones set their timer anew, after it fired: then it fires again.
    assert len(fired) <= len(events)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_records_of_files_that_are_not_opened_yet_are_in_time(tmp_path: Path, parallelism: int) -> None:
    """All begin at the same time, and only some are open: each is in order."""
    files, minutes = 4 * MOST_OPEN_SPLITS, 30
    for number in range(files):
        lines = [json.dumps({"k": "a", "ts": minute * 60_000}) for minute in range(minutes)]
        (tmp_path / f"part-{number:05}.json").write_text("\n".join(lines))

    def pipeline(env: cw.Environment) -> None:
        events = env.read(cw.json_files(tmp_path, EVENT), uid="in").with_timestamps("ts")
        windows = events.key_by("k").window(cw.tumbling("10 min"))
        counts = windows.agg(n=cw.count()).uid("counts")
        counts.collect("out")
        counts.side_output("late").collect("late")

    got = run(pipeline, {}, parallelism=parallelism)
    assert [row.n for row in got["out"]] == [10 * files] * 3
    assert got["late"] == []


def test_the_slower_of_two_sources_decides_until_it_is_idle() -> None:
    rows = run(
        two_sources,
        {
            "left": script([("a", 1000)], ADVANCE("1s"), [("a", 2000)], ADVANCE("10s"), [("a", 3000)]),
            "right": script([("b", 500)]),
        },
    )["out"]
    assert timers(rows) == [("a", 1000), ("a", 2000), ("a", 3000), ("b", 500)]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_an_idle_source_wakes_without_pulling_time_back(parallelism: int) -> None:
    silent = script(ADVANCE("20s"), [("b", 1500)])
    rows = run(
        two_sources,
        {"left": script([("a", 1000), ("a", 2000)], ADVANCE("10s"), [("a", 5000)], ADVANCE("3s")), "right": silent},
        parallelism=parallelism,
    )["out"]
    met = {row.ts: row.watermark for row in rows if row.what == "timer"}
    assert met[1000] < 3000, "fired while the other source was silent"
    assert timers(rows) == [("a", 1000), ("a", 2000), ("a", 5000), ("b", 1500)]


class Controlled(cw.BroadcastProcess):
    """Every record with the watermark it met, control records too, and a timer at its own time."""

    process = Times.process
    on_timer = Times.on_timer

    def process_broadcast(self, row: Any, ctx: Any) -> Any:
        yield "control", row.k, ctx.timestamp, ctx.watermark


class Both(cw.CoProcess):
    process_left = Times.process
    process_right = Controlled.process_broadcast
    on_timer = Times.on_timer


def controlled(env: cw.Environment) -> None:
    """The stream that steers has no times."""
    events = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts").key_by("k")
    control = env.read(cw.from_rows([], "k string"), uid="control").broadcast()
    seen = events.connect(control).process(Controlled(), SEEN).uid("times")
    seen.collect("out")
    seen.filter("what = 'row'").key_by("k").window(cw.tumbling("1s")).agg(n=cw.count()).uid("windows").collect(
        "windows"
    )


def beside_records_without_times(env: cw.Environment) -> None:
    events = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts").key_by("k")
    control = env.read(cw.from_rows([], "k string"), uid="control").key_by("k")
    events.connect(control).process(Both(), SEEN).uid("times").collect("out")


FOUR_EVENTS = [[("a", 500)], ADVANCE("1s"), [("b", 1500)], ADVANCE("1s"), [("a", 3500)], ADVANCE("1s"), [("a", 9000)]]

LONGER = script([("go",)], *[ADVANCE("1s")] * 20, [("stop",)])


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("pipeline", [controlled, beside_records_without_times])
def test_an_input_without_times_holds_nobody_back(pipeline: Any, parallelism: int) -> None:
    """It stays open for longer than the one with times: what had to wait for its end would meet the end of time."""
    rows = run(pipeline, {"in": script(*FOUR_EVENTS), "control": LONGER}, parallelism=parallelism)["out"]
    assert sorted((row.ts, row.watermark) for row in rows if row.what == "timer") == [
        (500, 1499),
        (1500, 3499),
        (3500, 8999),
        (9000, MAX_WATERMARK),
    ]


def test_windows_behind_a_control_stream_end_while_it_goes_on() -> None:
    control = script([("go",)], *[ADVANCE("1s")] * 20, CHECKPOINT, FAIL, [("stop",)])
    got = run(controlled, {"in": script(*FOUR_EVENTS[:3], CHECKPOINT, FAIL, *FOUR_EVENTS[3:]), "control": control})
    assert sorted((row.k, row.window_end.timestamp(), row.n) for row in got["windows"]) == [
        ("a", 1.0, 1),
        ("a", 4.0, 1),
        ("a", 10.0, 1),
        ("b", 2.0, 1),
    ]


def test_when_all_that_has_times_ended_time_stands_still_until_the_rest_ends_too() -> None:
    """What the rest brings meanwhile meets the time that was reached; after a failure as well."""
    control = script(*[ADVANCE("1s")] * 3, ("first",), CHECKPOINT, FAIL, ("second",), ADVANCE("1s"), ("third",))
    rows = run(controlled, {"in": script([("a", 1000), ("a", 2000)]), "control": control})["out"]
    assert [(row.k, row.watermark) for row in rows if row.what == "control"] == [
        ("first", 1999),
        ("second", 1999),
        ("third", 1999),
    ]
    assert [(row.ts, row.watermark) for row in rows if row.what == "timer"] == [(1000, 1999), (2000, MAX_WATERMARK)]


def test_a_watermark_that_waited_for_inputs_without_times_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cutwater.graph.plan.edges_that_tell_time", lambda graph, edges: frozenset(range(len(edges))))
    rows = run(controlled, {"in": script(*FOUR_EVENTS), "control": LONGER})["out"]
    assert all(row.watermark == MAX_WATERMARK for row in rows if row.what == "timer")


def test_the_end_of_all_input_is_the_end_of_time() -> None:
    rows = run(one_source, {"in": [("a", 5)]})["out"]
    assert [(row.what, row.watermark) for row in rows] == [("row", None), ("timer", MAX_WATERMARK)]


def test_a_record_that_was_late_is_late_again_after_a_failure() -> None:
    def met(*steps: Any) -> list[Any]:
        rows = run(one_source, {"in": script(*steps)})["out"]
        return [(row.ts, row.watermark) for row in rows if row.what == "row"]

    before, late = [("a", 1000)], [("a", 100)]
    assert met(before, CHECKPOINT, late) == met(before, CHECKPOINT, FAIL, late) == [(1000, None), (100, 989)]


@pytest.mark.parametrize(
    ("behind", "met"),
    [([], MAX_WATERMARK), ([("a", 500)], MAX_WATERMARK), ([("a", 2000)], 1989)],
    ids=["nothing follows", "time stands still", "time goes on"],
)
def test_a_timer_for_a_time_that_has_passed_waits_for_the_next_watermark_behind_a_failure_too(
    behind: list[Any], met: int
) -> None:
    def seen(*steps: Any) -> list[Any]:
        late = script([("a", 1000)], ADVANCE("1s"), [("b", 100)], *steps, behind, ADVANCE("1s"))
        return run(one_source, {"in": late})["out"]

    rows = seen(CHECKPOINT)
    assert rows == seen(CHECKPOINT, FAIL)
    assert [row.watermark for row in rows if row.what == "timer" and row.k == "b"] == [met]


def test_a_watermark_that_overtook_its_records_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 23, broken: what the header says counts before the records behind it."""
    process = OperatorSubtask._process

    def told_first(self: OperatorSubtask, row: Row) -> Any:
        self._watermark.advance(row.channel, row.mark)
        yield from self._tell_time()
        yield from process(self, row)

    monkeypatch.setattr(OperatorSubtask, "_process", told_first)
    rows = run(one_source, {"in": [("a", 1000), ("a", 2000)]})["out"]
    assert any(row.what == "row" and row.watermark is not None and row.ts <= row.watermark for row in rows)


@pytest.mark.parametrize("ts", [None, 2**63 - 1, -(2**63), 1_700_000_000_000_000, 1_700_000_000_000_000_000])
def test_a_record_whose_time_is_none_is_refused_where_times_begin(ts: int | None) -> None:
    """Not by what happens to come behind, under a name that the user never wrote."""

    def pipeline(env: cw.Environment) -> None:
        events = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts").uid("when")
        events.key_by("k").window(cw.tumbling("1s")).agg(n=cw.count()).uid("o").collect("out")

    with pytest.raises(cw.CutwaterError, match=r"with_timestamps .*\(when\): .*time column 'ts'"):
        run(pipeline, {"in": [("a", 5), ("a", ts)]})


@pytest.mark.parametrize("named", [True, False])
def test_a_time_that_was_lost_behind_with_timestamps_is_told_of_the_window_that_the_user_wrote(*, named: bool) -> None:
    def pipeline(env: cw.Environment) -> None:
        events = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts")
        lost = events.map(lambda row: (row.k, None), EVENT)
        counts = lost.key_by("k").window(cw.tumbling("1s")).agg(n=cw.count())
        (counts.uid("counts") if named else counts).collect("out")

    uid = "counts" if named else r"window-\w+"
    with pytest.raises(cw.JobFailed, match=rf"window \({uid}\): 1 of 1 records have no value") as failure:
        run(pipeline, {"in": [("a", 5)]})
    told = str(failure.value).splitlines()[0]
    assert "panes" not in told


NEARLY_10000 = 253_402_300_799_000


@pytest.mark.parametrize(
    "windowed",
    [
        lambda keyed: keyed.window(cw.tumbling("7 days")).agg(n=cw.count()),
        lambda keyed: keyed.window(cw.sliding("2s", "1s", offset="100ms")).reduce(lambda a, b: a),
        lambda keyed: keyed.window(cw.session("1 day")).agg(n=cw.count()),
        lambda keyed: keyed.window(cw.tumbling("7 days")).process(lambda rows, ctx: [(len(rows),)], "n long"),
        lambda keyed: keyed.window(cw.tumbling("7 days")).join(keyed),
    ],
)
def test_a_window_that_no_calendar_has_is_refused_in_words_before_a_checkpoint_holds_it(
    windowed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a checkpoint holds no filter takes out again."""
    monkeypatch.setattr(JobStore, "publish", lambda *_: pytest.fail("a checkpoint holds it"))

    def pipeline(env: cw.Environment) -> None:
        keyed = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts").key_by("k")
        windowed(keyed).uid("w").collect("out")

    with pytest.raises(
        cw.JobFailed, match=r"w\[0\].*DataError: a window from \d+ to \d+ .* not in the years 1 to 9999"
    ):
        run(pipeline, {"in": script(("a", NEARLY_10000), CHECKPOINT, ("a", 5))})


class Ago(cw.Process):
    def process(self, row: Any, ctx: Any) -> Any:
        yield (ctx.timestamp,)


def test_time_is_known_as_long_as_the_column_is_kept() -> None:
    def pipeline(env: cw.Environment) -> None:
        events = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts")
        events.map(lambda row: (row.ts + 1, "x"), "ts long, x string").process(Ago(), "t long").collect("kept")
        events.select("k").process(Ago(), "t long").collect("lost")

    got = run(pipeline, {"in": [("a", 5)]})
    assert [row.t for row in got["kept"]] == [6]
    assert [row.t for row in got["lost"]] == [None]


def test_streams_that_go_by_different_times_or_by_none_have_none_together() -> None:
    """Records of one would be put into windows by a column that their watermark says nothing about."""
    env = cw.Environment(checkpointing=None)
    plain = [env.read(cw.from_rows([], "k string, ts long, seen long"), uid=uid) for uid in ("a", "b")]
    happened, seen = plain[0].with_timestamps("ts"), plain[1].with_timestamps("seen")
    for one, other in ((happened, seen), (seen, happened), (happened, plain[1]), (plain[1], happened)):
        with pytest.raises(cw.ConfigError, match="the records have no event time here"):
            one.union(other).key_by("k").window(cw.tumbling("1s"))
    both = happened.union(plain[1].with_timestamps("ts", out_of_orderness="5s"))
    both.key_by("k").window(cw.tumbling("1s")).agg(n=cw.count())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"column": "nope"}, "'nope'"),
        ({"column": 5}, "5 is not the name of a column"),
        ({"column": "k"}, "the time column 'k' is string"),
        ({"column": "ts", "out_of_orderness": 5}, "out_of_orderness=5: a bare number has no unit"),
        ({"column": "ts", "idle_after": "0s"}, "idle_after"),
        ({"column": "ts", "idle_after": "soon"}, "idle_after='soon'"),
    ],
)
def test_a_wrong_argument_is_refused_at_the_call(arguments: dict[str, Any], says: str) -> None:
    env = cw.Environment(checkpointing=None)
    with pytest.raises(cw.CutwaterError, match=says):
        env.read(cw.from_rows([], EVENT), uid="in").with_timestamps(**arguments)


def test_late_records_keep_their_time_and_are_late_for_what_follows() -> None:
    def pipeline(env: cw.Environment) -> None:
        schema = f"{EVENT}, window_end timestamp"
        events = env.read(cw.from_rows([], schema), uid="in").with_timestamps("ts").key_by("k")
        told = events.window(cw.tumbling("10ms")).agg(n=cw.count()).uid("counts")
        told.collect("counts")
        late = told.side_output("late").key_by("k")
        late.process(Times(), SEEN).uid("times").collect("late")
        again = late.window(cw.tumbling("10ms")).agg(n=cw.count()).uid("again")
        again.collect("again")
        again.side_output("late").collect("late again")

    end = datetime(2000, 1, 1, tzinfo=UTC)
    got = run(
        pipeline, {"in": script(("a", 1000, end), ADVANCE("50ms"), ("a", 5, end), CHECKPOINT, FAIL, ("a", 6, end))}
    )
    assert [(row.what, row.ts) for row in got["late"] if row.what == "row"] == [("row", 5), ("row", 6)]
    assert timers(got["late"]) == [("a", 5), ("a", 6)]
    assert got["again"] == []
    assert [row.ts for row in got["late again"]] == [5, 6]
