"""What a watermark makes due may be much: the loop comes by between parts of it."""

from typing import Any

import pytest

import cutwater as cw
from cutwater.operators.operator import Operator
from cutwater.operators.session_windows import SESSIONS_A_STEP
from cutwater.rows import batch_of
from cutwater.state.memory import Memory
from cutwater.windows import Sessions
from tests.unit.operators.collecting import Collected, opened

KEYS = 20_000


class Rows(cw.AggregateFunction):
    accumulator_type = "long"
    result_type = "long"

    def create(self) -> Any:
        return 0

    def add(self, accumulator: Any, row: Any) -> Any:
        return accumulator + 1

    def merge(self, a: Any, b: Any) -> Any:
        return a + b

    def result(self, accumulator: Any) -> Any:
        return accumulator


TOLD_BY: dict[str, Any] = {
    "own": lambda w: w.agg(n=Rows()),
    "expressions": lambda w: w.agg(values=cw.collect_list("v")),
    "reduce": lambda w: w.reduce(lambda a, b: a),
    "process": lambda w: w.process(lambda rows, ctx: [(len(rows),)], "n long"),
}


def told_in_steps(operator: Operator, watermark: int, out: Collected) -> list[int]:
    """How many rows each step gave."""
    told = [len(out.taken()) for _ in operator.on_watermark(watermark, out)]
    return [*told, len(out.taken())]


def kept_rows(operator: Operator) -> int:
    return sum(batch.num_rows for batch in operator.snapshot(2).tables[0].batches())  # type: ignore[arg-type, union-attr]


@pytest.mark.parametrize("lateness", ["0s", "10s"])
@pytest.mark.parametrize("windows", [cw.tumbling("1s"), cw.session("1s")])
@pytest.mark.parametrize("how", TOLD_BY)
def test_a_window_of_many_keys_is_told_in_steps_and_forgotten_in_steps(how: str, windows: Any, lateness: str) -> None:
    env = cw.Environment(checkpointing=None)
    stream = env.read(cw.from_rows([], "k string, ts long, v long"), uid="in").with_timestamps("ts")
    windowed = stream.key_by("k").window(windows, allowed_lateness=lateness)
    operator, out = opened(TOLD_BY[how](windowed), Memory()), Collected()
    operator.process(batch_of([(f"k{n}", 0, 1) for n in range(KEYS)], stream.schema, "test"), 0, out)
    told = told_in_steps(operator, 2_000, out)
    assert sum(told) == KEYS
    assert max(told) <= KEYS // 4
    if lateness != "0s":
        assert kept_rows(operator) > 0
        forgotten = told_in_steps(operator, 12_000, out)
        assert set(forgotten) == {0}
        if isinstance(windows, Sessions):
            assert len(forgotten) >= KEYS // SESSIONS_A_STEP, "forgetting is work too"
    assert out.times == ([2_000] if lateness == "0s" else [2_000, 12_000])
    assert kept_rows(operator) == 0


def test_sessions_that_are_told_and_forgotten_by_one_watermark_are_told_in_steps() -> None:
    env = cw.Environment(checkpointing=None)
    stream = env.read(cw.from_rows([], "k string, ts long, v long"), uid="in").with_timestamps("ts")
    operator = opened(stream.key_by("k").window(cw.session("1s"), allowed_lateness="1s").agg(n=Rows()), Memory())
    out = Collected()
    rows = [(f"k{n}", start, 1) for start in (0, 5_000) for n in range(KEYS // 2)]
    operator.process(batch_of(rows, stream.schema, "test"), 0, out)
    told = told_in_steps(operator, 20_000, out)
    assert sum(told) == KEYS
    assert max(told) <= KEYS // 4
    assert kept_rows(operator) == 0
