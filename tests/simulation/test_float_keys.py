"""One rule for floats as keys: -0.0 is the key 0.0, and every NaN the same one. Rows keep what they hold."""

import math
from collections.abc import Callable
from typing import Any

import pytest

import cutwater as cw
from cutwater.testing import ADVANCE, CHECKPOINT, FAIL, run, script

ROWS = [(-0.0, "a", 1), (0.0, "b", 2), (-math.nan, "a", 3), (math.nan, "b", 4), (None, "a", 5), (-1.5, "b", 6)]
KEYS = ["-1.5", "0.0", "None", "nan"]
STEPS = script(
    ROWS[:1], CHECKPOINT, FAIL, ROWS[1:4], CHECKPOINT, FAIL, ADVANCE("10s"), ROWS[4:], ROWS[:1], ADVANCE("10s")
)
BACKENDS = [cw.Memory(), cw.Memory(incremental=True), cw.RocksDB(), cw.RocksDB(incremental=True)]
Made = Callable[[Any], Any]


def shown(value: Any) -> str:
    """With the sign of a zero, which no comparison tells."""
    return "nan" if value != value else repr(value)


class AllOfAKey(cw.KeyedProcess):
    """Says what the key and the row are, at once and from a timer."""

    seen = cw.ValueState("long")
    columns = cw.MapState("double", "long")

    def process(self, row: Any, ctx: Any) -> Any:
        self.seen.value = (self.seen.value or 0) + 1
        if row.x is not None:
            self.columns[row.x] = row.n
        ctx.timers.processing_time(ctx.now + 1000)
        yield "row", ctx.key, row.x, [*self.columns]

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield "timer", ctx.key, None, [*self.columns]


@pytest.mark.parametrize("backend", BACKENDS, ids=repr)
def test_functions_timers_and_maps_know_one_zero_also_behind_a_restore(backend: cw.StateBackend) -> None:
    def pipeline(env: cw.Environment) -> None:
        rows = env.read(cw.from_rows([], "x double, k string, n long"), uid="in")
        told = rows.key_by("x").process(AllOfAKey, "kind string, key double, x double, columns array<double>")
        told.uid("all").collect("out")

    out = run(pipeline, {"in": STEPS}, state_backend=backend)["out"]
    assert sorted({shown(row.key) for row in out}) == KEYS
    assert {shown(row.key) for row in out if row.kind == "timer"} == set(KEYS)
    assert {shown(x) for row in out for x in row.columns} == {"0.0", "nan", "-1.5"}
    assert [shown(row.x) for row in out if row.kind == "row"].count("-0.0") == 2, "a row keeps what it holds"


@pytest.mark.parametrize("backend", BACKENDS[::3], ids=repr)
@pytest.mark.parametrize(
    "made",
    [
        lambda k: k.agg(n=cw.sum("n")),
        lambda k: k.agg(n=cw.count_distinct("n")),
        lambda k: k.window(cw.tumbling("5s"), time="processing").agg(n=cw.sum("n")),
        lambda k: k.window(cw.tumbling("5s"), time="processing").agg(n=cw.sum("n"), all=cw.collect_list("n")),
        lambda k: k.window(cw.tumbling("5s"), time="processing").process(
            lambda rows, ctx: [(ctx.key if isinstance(ctx.key, float | None) else ctx.key[0],)], "x double"
        ),
        lambda k: k.window(cw.session("5s"), time="processing").agg(n=cw.sum("n")),
        lambda k: k.window(cw.session("5s"), time="processing").process(
            lambda rows, ctx: [(ctx.key if isinstance(ctx.key, float | None) else ctx.key[0],)], "x double"
        ),
    ],
    ids=["agg", "kept", "windows", "rows", "function", "sessions", "function of sessions"],
)
@pytest.mark.parametrize("keys", [("x",), ("x", "k")], ids="+".join)
def test_results_show_one_zero(made: Made, keys: tuple[str, ...], backend: cw.StateBackend) -> None:
    def pipeline(env: cw.Environment) -> None:
        rows = env.read(cw.from_rows([], "x double, k string, n long"), uid="in")
        made(rows.key_by(*keys)).uid("told").collect("out")

    out = run(pipeline, {"in": STEPS}, state_backend=backend)["out"]
    assert sorted({shown(row.x) for row in out}) == KEYS


def test_keys_that_are_rows_show_one_zero_too() -> None:
    def pipeline(env: cw.Environment) -> None:
        rows = env.read(cw.from_rows([], "key struct<x: double, k: string>, n long"), uid="in")
        rows.key_by("key").agg(n=cw.sum("n")).uid("told").collect("out")

    out = run(pipeline, {"in": [((-0.0, "a"), 1), ((0.0, "a"), 2), (None, 3)]})["out"]
    assert {None if row.key is None else shown(row.key.x) for row in out} == {"0.0", None}
    assert max(row.n for row in out) == 3


class Rates(cw.BroadcastProcess):
    rates = cw.BroadcastState("double", "long")

    def process_broadcast(self, row: Any, ctx: Any) -> Any:
        self.rates[row.x] = row.n
        return ()

    def process(self, row: Any, ctx: Any) -> Any:
        for key in self.rates:
            yield key, self.rates[row.x]


def test_broadcast_state_shows_one_zero_also_behind_a_restore() -> None:
    def pipeline(env: cw.Environment) -> None:
        rows = env.read(cw.from_rows([], "x double"), uid="in")
        rates = env.read(cw.from_rows([], "x double, n long"), uid="rates").broadcast()
        rows.connect(rates).process(Rates(), "x double, n long").uid("rated").collect("out")

    steps = script(ADVANCE("1s"), [0.0, -0.0], CHECKPOINT, FAIL, [0.0])
    out = run(pipeline, {"in": steps, "rates": script([(-0.0, 7)], ADVANCE("20s"))})["out"]
    assert [(shown(row.x), row.n) for row in out] == [("0.0", 7)] * 3
