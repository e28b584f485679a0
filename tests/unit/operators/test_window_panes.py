"""Records on their way to windows: which are combined, and which travel as they are."""

import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.flow.event_time import EventTime
from cutwater.operators.window_aggregate import PARTIAL, EventTimeWindows
from cutwater.operators.window_panes import DOUBTFUL, AssignPanes
from cutwater.operators.window_results import LATE
from cutwater.pipeline import to_graph
from tests.unit.operators.collecting import Collected, after, opened

SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.int64())])


def records(*times: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(["a"] * len(times)), pa.array(times)], schema=SCHEMA)


@pytest.mark.parametrize("late_is_read", [False, True])
def test_behind_a_rest_records_are_combined_on_unless_late_ones_are_read(*, late_is_read: bool) -> None:
    assign = AssignPanes(cw.tumbling("10ms"), EventTime(("ts",)), 0)
    assign.output_schema([SCHEMA])
    assign.sides_read = frozenset([LATE] if late_is_read else [])
    out = Collected()
    after(assign.on_watermark(25, out))
    assign.process(records(5, 27), 0, out)
    assert out.taken() == [("a", 27, 20)]
    assign.on_idle(out)
    assign.process(records(35), 0, out)
    assert out.taken() == ([] if late_is_read else [("a", 35, 30)])
    assert out.side == {DOUBTFUL: [("a", 5), ("a", 35)] if late_is_read else [("a", 5)]}


@pytest.mark.parametrize("late_is_read", [False, True])
def test_the_way_to_a_window_knows_whether_its_late_records_are_read(*, late_is_read: bool) -> None:
    env = cw.Environment(checkpointing=None)
    events = env.read(cw.from_rows([], "k string, ts long"), uid="in").with_timestamps("ts")
    counted = events.key_by("k").window(cw.tumbling("10ms")).agg(n=cw.count()).uid("windows")
    counted.collect("out")
    if late_is_read:
        counted.side_output("late").collect("late")
    [assign] = [node.body for node in to_graph(env.drafts, 1).nodes if isinstance(node.body, AssignPanes)]
    assert assign.sides_read == ({"late"} if late_is_read else set())


def test_combined_rows_of_a_window_that_is_over_leave_nothing_behind() -> None:
    env = cw.Environment(checkpointing=None)
    events = env.read(cw.from_rows([], "k string, ts long"), uid="in").with_timestamps("ts")
    operator = opened(events.key_by("k").window(cw.tumbling("10ms")).agg(n=cw.count()), cw.Memory())
    assert isinstance(operator, EventTimeWindows)
    out = Collected()
    after(operator.on_watermark(25, out))
    partial = pa.record_batch({"k": ["a", "a"], "$pane": pa.array([0, 20]), "n": pa.array([1, 2])})
    schema = operator._plan.partial_schema
    operator.process(partial.rename_columns(schema.names).cast(schema), PARTIAL, out)
    assert list(operator._table.panes()) == [20]
    after(operator.on_watermark(40, out))
    assert [row[-1] for row in out.rows()] == [2]
