"""A snapshot between two steps of what a watermark makes due: restored, the rest is done, and nothing twice."""

from collections.abc import Callable
from typing import Any

import pytest

import cutwater as cw
from cutwater.flow.ids import CheckpointId
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.flow.watermarks import MAX_WATERMARK
from cutwater.operators import kept_windows, keyed_process, session_windows, told_windows, window_rows
from cutwater.operators.operator import Operator, OperatorContext
from cutwater.operators.window_aggregate import RAW, EventTimeWindows
from cutwater.rows import batch_of
from cutwater.state.memory import Memory
from tests.unit.operators.collecting import Collected, NoDriver, after
from tests.unit.operators.test_keyed_process import Stored
from tests.unit.operators.test_window_steps import Rows

EVENT = "k string, ts long, v long"
WATERMARK = 5_000
RECORDS = [(f"k{n % 4}", 700 * n, n) for n in range(12)]
"""Windows before, around and behind the watermark."""


class Reminders(cw.KeyedProcess):
    def process(self, row: Any, ctx: Any) -> Any:
        ctx.timers.event_time(row.ts)
        ctx.timers.event_time(2_000)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.key, timestamp


def reminded(stream: cw.Stream) -> cw.Stream:
    return stream.key_by("k").process(Reminders(), "k string, at long")


def windowed(windows: Any, tell: Callable[[Any], cw.Stream], lateness: str) -> Callable[[cw.Stream], cw.Stream]:
    return lambda stream: tell(stream.key_by("k").window(windows, allowed_lateness=lateness))


TOLD_BY: dict[str, Callable[[Any], cw.Stream]] = {
    "columns": lambda w: w.agg(n=cw.count()),
    "own": lambda w: w.agg(n=Rows()),
    "expressions": lambda w: w.agg(values=cw.collect_list("v")),
    "reduce": lambda w: w.reduce(lambda a, b: a),
    "process": lambda w: w.process(lambda rows, ctx: [(ctx.key, len(rows))], "k string, n long"),
}
WINDOWS = {"tumbling": cw.tumbling("1s"), "sliding": cw.sliding("2s", "1s"), "session": cw.session("1s")}
OPERATORS: dict[str, Callable[[cw.Stream], cw.Stream]] = {
    "timers": reminded,
    **{
        f"{kind} {how} {lateness}": windowed(windows, tell, lateness)
        for kind, windows in WINDOWS.items()
        for how, tell in TOLD_BY.items()
        for lateness in ("0s", "10s")
    },
}


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_process, "TIMERS_A_STEP", 1)
    monkeypatch.setattr(kept_windows, "KEYS_A_STEP", 1)
    monkeypatch.setattr(session_windows, "SESSIONS_A_STEP", 1)
    monkeypatch.setattr(window_rows, "ROWS_A_STEP", 1)
    monkeypatch.setattr(told_windows, "WINDOWS_TOGETHER", 1)


def opened(build: Callable[[cw.Stream], cw.Stream], restored: Stored | None = None) -> Operator:
    env = cw.Environment(checkpointing=None)
    stream = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts")
    built = build(stream)
    operator = built._inputs[0].draft.body if built._inputs else built
    assert isinstance(operator, Operator)
    operator.open(
        OperatorContext(
            job="job", uid="w", name="window", subtask=0, parallelism=1, max_parallelism=128, attempt=1, incarnation="i",
            key_groups=KeyGroupRange(0, 127), backend=Memory(), now=lambda: 0, driver=NoDriver(), restored=restored,
        )
    )  # fmt: skip
    return operator


def fed(build: Callable[[cw.Stream], cw.Stream]) -> Operator:
    operator = opened(build)
    port = RAW if isinstance(operator, EventTimeWindows) else 0
    batch = batch_of(RECORDS, cw.Environment(checkpointing=None).read(cw.from_rows([], EVENT)).schema, "test")
    operator.process(batch, port, Collected())
    return operator


def told(operator: Operator, *watermarks: int) -> list[Any]:
    out = Collected()
    after(operator.resuming(out))
    for watermark in watermarks:
        after(operator.on_watermark(watermark, out))
    return [_hashable(row) for row in out.rows()]


def _hashable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(tuple(each) if isinstance(each, list) else each for each in row)


@pytest.mark.parametrize("together", [1, 2])
@pytest.mark.parametrize("which", OPERATORS)
@pytest.mark.parametrize("watermark", [WATERMARK, MAX_WATERMARK], ids=["some is due", "all is due"])
def test_what_was_not_done_at_the_cut_is_done_behind_the_restore_and_nothing_twice(
    which: str, watermark: int, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(told_windows, "WINDOWS_TOGETHER", together)
    build = OPERATORS[which]
    all_of_it = sorted(told(fed(build), watermark, MAX_WATERMARK))
    operator, out = fed(build), Collected()
    cuts = 0
    for _ in operator.on_watermark(watermark, out):
        if not operator.may_be_cut:
            continue
        before = [_hashable(row) for row in out.rows()]
        restored = Stored(operator)
        operator.checkpoint_ended(CheckpointId(1), completed=False)
        cuts += 0 < len(before) < len(all_of_it)
        at_once = told(opened(build, restored))
        later = told(opened(build, restored), watermark, MAX_WATERMARK)
        assert sorted(before + later) == all_of_it
        assert later[: len(at_once)] == at_once, "before anything else"
        due = sorted(told(fed(build), watermark))
        assert sorted(before + at_once) == due, "all that was due"
    assert cuts > 1, "no cut came in the middle"


@pytest.mark.parametrize("how", ["own", "expressions"])
def test_half_a_window_is_never_frozen(how: str) -> None:
    """Which of its keys were told is not in the state."""
    build = OPERATORS[f"sliding {how} 0s"]
    operator, out = fed(build), Collected()
    whole = sorted(told(fed(build), WATERMARK))
    halves = 0
    for _ in operator.on_watermark(WATERMARK, out):
        rows = sorted(map(_hashable, out.rows()))
        found = {row[1] for row in rows}
        is_whole = rows == [row for row in whole if row[1] in found]
        assert is_whole or not operator.may_be_cut
        halves += not is_whole
    assert halves > 1


@pytest.mark.parametrize("how", ["process", "expressions"])
def test_a_cut_may_come_while_the_rows_of_a_window_are_read(how: str) -> None:
    operator, out = fed(OPERATORS[f"tumbling {how} 0s"]), Collected()
    read = 0
    for _ in operator.on_watermark(WATERMARK, out):
        if out.batches:
            break
        assert operator.may_be_cut
        read += 1
    assert read > 1
    assert not operator.may_be_cut


def test_sessions_that_end_together_and_stay_for_late_records_are_told_whole() -> None:
    records = [(f"k{n}", 100, n) for n in range(4)]
    for lateness, expected in (("0s", True), ("10s", False)):
        operator = opened(OPERATORS[f"session own {lateness}"])
        schema = cw.Environment(checkpointing=None).read(cw.from_rows([], EVENT)).schema
        operator.process(batch_of(records, schema, "test"), 0, Collected())
        steps = operator.on_watermark(WATERMARK, Collected())
        next(steps)
        assert operator.may_be_cut is expected
        after(steps)
        assert operator.may_be_cut
