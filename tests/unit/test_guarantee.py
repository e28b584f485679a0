"""The guarantee of a path is that of its weakest part, and a promise that cannot be kept is refused."""

from datetime import UTC, datetime, timedelta
from functools import partial, wraps
from pathlib import Path
from typing import Any

import pytest

import cutwater as cw
from cutwater.guarantee import path_guarantee, path_guarantees


def checkpointing(**settings: object) -> cw.Checkpointing:
    return cw.Checkpointing("1s", storage="memory", **settings)  # type: ignore[arg-type]


REPLAYABLE = cw.sequence(10)
SOCKET = cw.socket("localhost", 9999, allow_data_loss=True)


@pytest.mark.parametrize(
    ("source", "sink", "settings", "guarantee", "because"),
    [
        (REPLAYABLE, cw.parquet_sink("out"), {}, "exactly once", "replayable source"),
        (REPLAYABLE, cw.discard(), {}, "exactly once", "replayable source"),
        (REPLAYABLE, cw.print_sink(), {}, "at least once", "may repeat after a failure"),
        (REPLAYABLE, cw.parquet_sink("out"), {"mode": "at_least_once"}, "at least once", "mode='at_least_once'"),
        (REPLAYABLE, cw.parquet_sink("out"), {"mode": "at_most_once"}, "at most once", "mode='at_most_once'"),
        (SOCKET, cw.parquet_sink("out"), {}, "at most once", "cannot be read again"),
        (SOCKET, cw.parquet_sink("out"), {"mode": "at_least_once"}, "at most once", "cannot be read again"),
    ],
)
def test_the_weakest_part_decides_and_is_named(
    source: cw.Source, sink: object, settings: dict[str, str], guarantee: str, because: str
) -> None:
    told, reason = path_guarantee(source, sink, checkpointing(**settings))  # type: ignore[arg-type]
    assert told == guarantee
    assert because in reason


def test_without_checkpoints_nothing_is_promised() -> None:
    told, reason = path_guarantee(REPLAYABLE, cw.print_sink(), None)
    assert told == "none"
    assert "starts over" in reason


def test_a_two_phase_sink_without_checkpoints_is_refused_with_the_setting_that_would_do(tmp_path: Path) -> None:
    env = cw.Environment(checkpointing=None)
    env.read(REPLAYABLE).write(cw.parquet_sink(tmp_path / "out"), uid="out")
    with pytest.raises(cw.ConfigError, match=r"uid 'out'\) commits its output with checkpoints.*cw\.Checkpointing\("):
        env.define("job", 1)


def test_who_says_nothing_about_checkpoints_gets_exactly_once(tmp_path: Path) -> None:
    env = cw.Environment()
    env.read(REPLAYABLE).write(cw.parquet_sink(tmp_path / "out"), uid="out")
    settings = env.define("job", 1).checkpointing
    assert settings is not None
    assert (settings.mode, settings.storage, settings.interval) == (
        "exactly_once", "file:checkpoints", timedelta(seconds=10)
    )  # fmt: skip
    careless = cw.Environment()
    careless.read(cw.socket("localhost", 9999)).write(cw.discard())
    with pytest.raises(cw.ConfigError, match="allow_data_loss=True"):
        careless.define("job", 1)


@pytest.mark.parametrize("mode", ["at_most_once", "at_least_once"])
def test_a_socket_may_be_read_where_exactly_once_is_not_asked_for(mode: str) -> None:
    env = cw.Environment(checkpointing=checkpointing(mode=mode))
    env.read(cw.socket("localhost", 9999)).write(cw.discard())
    assert env.define("job", 1).checkpointing is not None


def test_a_socket_under_exactly_once_is_refused_until_the_loss_is_accepted() -> None:
    env = cw.Environment(checkpointing=checkpointing())
    env.read(cw.socket("localhost", 9999), uid="lines").write(cw.discard())
    with pytest.raises(
        cw.ConfigError, match=r"socket\(localhost:9999\) \(uid 'lines'\) cannot be read again.*allow_data_loss"
    ):
        env.define("job", 1)
    accepted = cw.Environment(checkpointing=checkpointing())
    accepted.read(SOCKET, uid="lines").write(cw.discard())
    assert set(accepted.define("job", 1).sources) == {"lines"}


class Forgets(cw.KeyedProcess):
    seen = cw.ValueState("boolean", ttl="1h")

    def process(self, row: object, ctx: object) -> None: ...


class Stamps(cw.Process):
    def process(self, row: Any, ctx: Any) -> Any:
        yield from [(row.k, ctx.now)]


class Waits(cw.KeyedProcess):
    def process(self, row: Any, ctx: Any) -> Any:
        self.wait(ctx)

    @staticmethod
    def wait(ctx: Any) -> None:
        def later() -> None:
            ctx.timers.processing_time(5)

        later()


class WaitsToo(Waits):
    """As it inherits."""


def noting(method: Any) -> Any:
    @wraps(method)
    def noted(*args: Any) -> Any:
        return method(*args)

    return noted


class WaitsNoted(cw.KeyedProcess):
    @noting
    def process(self, row: Any, ctx: Any) -> Any:
        ctx.timers.processing_time(5)


class WaitsAsGiven(cw.KeyedProcess):
    def __init__(self) -> None:
        self.wait = partial(lambda seconds, ctx: ctx.timers.processing_time(seconds), 5)

    def process(self, row: Any, ctx: Any) -> Any:
        self.wait(ctx)


class Aged(cw.KeyedProcess):
    def process(self, row: Any, ctx: Any) -> Any:
        self.ctx = ctx
        yield (self.age,)

    @property
    def age(self) -> Any:
        return self.ctx.now


class Dated(cw.WindowProcess):
    def process(self, rows: Any, ctx: Any) -> Any:
        return [(datetime.now(UTC).isoformat(),)]


class Plain(cw.KeyedProcess):
    seen = cw.ValueState("boolean")

    def process(self, row: Any, ctx: Any) -> Any:
        ctx.timers.event_time(ctx.timestamp + 5)


@pytest.mark.parametrize("fn", [Waits, WaitsToo, WaitsNoted, WaitsAsGiven, Aged, Forgets, Plain])
def test_a_function_whose_code_names_the_clock_goes_by_it(fn: type[cw.KeyedProcess]) -> None:
    env = cw.Environment(checkpointing=checkpointing())
    rows = env.read(cw.from_rows([], "k string, ts long"), uid="rows").with_timestamps("ts")
    rows.key_by("k").process(fn, "k string").uid("fn").write(cw.discard(), uid="out")
    assert ("fn goes by the clock" in str(env.explain())) is (fn is not Plain)


def test_functions_of_windows_and_without_keys_go_by_the_clock_that_they_name() -> None:
    env = cw.Environment(checkpointing=checkpointing())
    rows = env.read(cw.from_rows([], "k string, ts long"), uid="rows").with_timestamps("ts")
    rows.process(Stamps, "k string, now timestamp").uid("stamps").write(cw.discard(), uid="a")
    for name, windows in (("grid", cw.tumbling("1s")), ("session", cw.session("1s"))):
        rows.key_by("k").window(windows).process(Dated, "told string").uid(name).write(cw.discard(), uid=f"of-{name}")
    told = str(env.explain())
    for uid in ("stamps", "grid", "session"):
        assert f"{uid} goes by the clock" in told


class Calling:
    """A plain function, though an object."""

    def __call__(self, rows: Any, ctx: Any) -> Any:
        return [(str(ctx.now),)]


@pytest.mark.parametrize("windows", [cw.tumbling("1s"), cw.session("1s")], ids=["grid", "session"])
@pytest.mark.parametrize("fn", [lambda rows, ctx: [(str(ctx.now),)], Calling(), lambda rows, ctx: [(ctx.key,)]])
def test_plain_functions_of_windows_go_by_the_clock_that_they_name(windows: Any, fn: Any) -> None:
    env = cw.Environment(checkpointing=checkpointing())
    rows = env.read(cw.from_rows([], "k string, ts long"), uid="rows").with_timestamps("ts")
    rows.key_by("k").window(windows).process(fn, "told string").uid("fn").write(cw.discard(), uid="out")
    names_it = isinstance(fn, Calling) or "now" in fn.__code__.co_names
    assert ("fn goes by the clock" in str(env.explain())) is names_it


def test_a_path_through_what_goes_by_the_clock_is_not_reproducible_and_says_why() -> None:
    env = cw.Environment(checkpointing=checkpointing())
    rows = env.read(cw.from_rows([], "k string, ts long"), uid="rows").with_timestamps("ts").key_by("k")
    minute = cw.tumbling("1 min")
    rows.window(minute).agg(n=cw.count()).uid("by-event").write(cw.discard(), uid="a")
    rows.window(minute, time="processing").agg(n=cw.count()).uid("by-clock").write(cw.discard(), uid="b")
    rows.window(minute, early="1s").agg(n=cw.count()).uid("early").write(cw.discard(), uid="c")
    rows.window(cw.session("1s"), time="processing").agg(n=cw.count()).uid("session").write(cw.discard(), uid="d")
    rows.window(minute, time="processing").reduce(lambda a, b: a).uid("reduce").write(cw.discard(), uid="e")
    forgets = rows.process(Forgets, "k string").uid("forgets")
    forgets.key_by("k").window(minute, time="processing").agg(n=cw.count()).uid("twice").write(cw.discard(), uid="f")
    graph = env.define("job", 1)
    paths = path_guarantees(graph.plan.graph, dict(graph.sources), dict(graph.sinks), graph.checkpointing)
    assert {path.sink: path.by_clock for path in paths} == {
        "a": (), "b": ("by-clock",), "c": ("early",), "d": ("session",), "e": ("reduce",), "f": ("forgets", "twice"),
    }  # fmt: skip
    told = str(env.explain())
    assert "rows -> a: exactly once (replayable source" in told
    assert "rows -> b: exactly once, not reproducible (replayable source" in told
    assert "by-clock goes by the clock, so that records which are read again after a failure may give other" in told
    assert "forgets, twice go by the clock" in told
