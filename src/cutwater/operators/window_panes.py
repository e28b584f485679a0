"""Before the exchange: each record gets the pane it belongs to, and those that may be late go a way of their own."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.flow.event_time import EventTime, Times
from cutwater.flow.ids import CheckpointId
from cutwater.flow.watermarks import MIN_WATERMARK, Milliseconds
from cutwater.operators.late_records import in_time
from cutwater.operators.operator import Collector, Operator, OperatorContext, OperatorSnapshot
from cutwater.operators.stored_watermark import restored_watermark, stored_watermark
from cutwater.operators.window_results import LATE
from cutwater.windows import Windows

PANE = "$pane"
"""The column of a record's pane on the way to the window operator; no column that a user would name."""

DOUBTFUL = "doubtful"
_RESTED = "rested"


def with_pane(batch: pa.RecordBatch, panes: Times) -> pa.RecordBatch:
    return batch.append_column(pa.field(PANE, pa.int64()), pa.array(panes))


def is_over(
    windows: Windows, lateness: Milliseconds, panes: Times, time: Times | Milliseconds
) -> npt.NDArray[np.bool_]:
    """Whether all windows of each pane were over, and done with, when the watermark had come to ``time`` (of each, or of all)."""
    over: npt.NDArray[np.bool_] = windows.last_ends(panes) - 1 + lateness <= time
    return over


class AssignPanes(Operator):
    """Records that are in time by this subtask's watermark are in time at the receiver too, whose watermark is that of the
    slowest sender: they are combined on the way. What is late here may be in time there, and travels as it is, so that the
    receiver can tell, and give a late record away unchanged.

    Nobody waits for a sender that rests, so the receiver may have gone further than it. From then on only the receiver can
    tell, and everything travels as it is; unless nobody reads late records: then those of a pane that is over are dropped there,
    combined or not.
    """

    def __init__(self, windows: Windows, time: EventTime, lateness: Milliseconds) -> None:
        self._windows = windows
        self._time = time
        self._lateness = lateness
        self._watermark = MIN_WATERMARK
        self._rested = False
        self.where = "window"

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        self._time.check(inputs[0], self.where)
        self._schema = inputs[0]
        return inputs[0].append(pa.field(PANE, pa.int64()))

    def side_schemas(self) -> Mapping[str, pa.Schema]:
        return {DOUBTFUL: self._schema}

    def open(self, ctx: OperatorContext) -> None:
        self.where = f"window ({self.told_as})"
        # Never behind what the receivers know: what is late there would be taken for in time here, and be lost.
        self._watermark = restored_watermark(ctx)
        self._rested = ctx.restored is not None and any(part.get(_RESTED) for part in ctx.restored.inline)

    def process(self, batch: pa.RecordBatch, port: int, out: Collector) -> None:
        if self._rested and LATE in self.sides_read:
            out.emit_side(DOUBTFUL, batch)
            return
        panes = self._windows.panes_of_times(self._time.of(batch, self.where))
        late = is_over(self._windows, self._lateness, panes, self._watermark)
        out.emit(with_pane(*in_time(batch, panes, late, lambda rows: out.emit_side(DOUBTFUL, rows))))

    def on_watermark(self, watermark: Milliseconds, out: Collector) -> Iterator[None]:
        self._watermark = max(watermark, self._watermark)
        out.advance(watermark)
        yield from ()

    def on_idle(self, out: Collector) -> None:
        self._rested = True
        out.rest()

    def snapshot(self, checkpoint: CheckpointId) -> OperatorSnapshot:
        return OperatorSnapshot(inline={**stored_watermark(self._watermark), _RESTED: [True] if self._rested else []})
