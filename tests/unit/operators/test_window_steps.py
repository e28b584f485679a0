"""What a watermark makes due may be much: the loop comes by between parts of it."""

from typing import Any

import pytest

import cutwater as cw
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.operators.operator import Operator, OperatorContext
from cutwater.rows import batch_of
from cutwater.state.memory import Memory
from tests.unit.operators.collecting import Collected, NoDriver

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


def opened(stream: cw.Stream) -> Operator:
    operator = stream._inputs[0].draft.body
    assert isinstance(operator, Operator)
    operator.open(
        OperatorContext(
            job="job", uid="w", name="window", subtask=0, parallelism=1, max_parallelism=128, attempt=1, incarnation="i",
            key_groups=KeyGroupRange(0, 127), backend=Memory(), now=lambda: 0, driver=NoDriver(),
        )
    )  # fmt: skip
    return operator


@pytest.mark.parametrize("windows", [cw.tumbling("1s"), cw.session("1s")])
@pytest.mark.parametrize("how", TOLD_BY)
def test_a_window_of_many_keys_is_told_in_steps(how: str, windows: Any) -> None:
    env = cw.Environment(checkpointing=None)
    stream = env.read(cw.from_rows([], "k string, ts long, v long"), uid="in").with_timestamps("ts")
    operator, out = opened(TOLD_BY[how](stream.key_by("k").window(windows))), Collected()
    operator.process(batch_of([(f"k{n}", 0, 1) for n in range(KEYS)], stream.schema, "test"), 0, out)
    told = []
    for _ in operator.on_watermark(2_000, out):
        told.append(sum(batch.num_rows for batch in out.batches))
        out.batches.clear()
    told.append(sum(batch.num_rows for batch in out.batches))
    assert sum(told) == KEYS
    assert max(told) <= KEYS // 4
    assert out.times == [2_000]
    assert sum(batch.num_rows for batch in operator.snapshot(2).tables[0].batches()) == 0  # type: ignore[arg-type, union-attr]
