"""Which windows are to be told, and what of their records is done with, as time goes on."""

from typing import NoReturn

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cutwater as cw
from cutwater.operators.window_ends import WindowEnds
from cutwater.operators.window_panes import is_over
from cutwater.state.memory_buckets import MemoryBuckets
from cutwater.state.memory_panes import MemoryPanes
from cutwater.windows import Windows
from tests.unit.operators.collecting import Collected, after, opened

WINDOWS = st.sampled_from([Windows(10, 10), Windows(10, 5), Windows(10, 4, 3), Windows(7, 3, -1)])


@given(WINDOWS, st.sampled_from([0, 6]), st.lists(st.tuples(st.lists(st.integers(-40, 40)), st.integers(-50, 80))))
def test_each_pane_is_done_with_once_as_soon_as_its_last_window_is(
    windows: Windows, lateness: int, turns: list[tuple[list[int], int]]
) -> None:
    ends = WindowEnds(windows, lateness)
    kept: set[int] = set()
    for times, watermark in turns:
        panes = windows.panes_of_times(np.array(times, np.int64))
        for pane in panes[~is_over(windows, lateness, panes, ends.reached)].tolist():
            ends.expect(pane, windows.ends_of_pane(pane))
            kept.add(pane)
        dropped = list(ends.reach(watermark))
        over = {pane for pane in kept if is_over(windows, lateness, np.array([pane]), ends.reached)[0]}
        assert sorted(dropped) == sorted(over)
        kept -= over


@pytest.mark.parametrize("kept_by", ["panes", "rows"])
def test_a_window_is_told_without_a_look_at_all_that_are_kept(kept_by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    env = cw.Environment(checkpointing=None)
    stream = env.read(cw.from_rows([], "k long, ts long"), uid="in").with_timestamps("ts")
    windowed = stream.key_by("k").window(cw.tumbling("1s"), allowed_lateness="1s")
    results = windowed.agg(n=cw.count()) if kept_by == "panes" else windowed.agg(times=cw.collect_list("ts"))
    operator, out = opened(results, cw.Memory()), Collected()
    times = pa.array([0, 1000, 2000])
    operator.process(pa.RecordBatch.from_arrays([times, times], schema=stream.schema), int(kept_by == "panes"), out)

    def looked(table: object) -> NoReturn:
        raise AssertionError("all that are kept")

    monkeypatch.setattr(MemoryPanes, "panes", looked)
    monkeypatch.setattr(MemoryBuckets, "buckets", looked)
    after(operator.on_watermark(2_000, out))
    assert [row[0] for row in out.taken()] == [0, 1000]
    monkeypatch.undo()
    table = operator._table  # type: ignore[attr-defined]
    assert sorted(table.panes() if kept_by == "panes" else table.buckets()) == [1000, 2000]
