"""Aggregation before the exchange: records of one key travel as one partial row."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from cutwater.aggregates import AggregateSpec, is_decided_by_order
from cutwater.errors import PlanError
from cutwater.flow.ids import CheckpointId
from cutwater.flow.watermarks import MAX_WATERMARK, Milliseconds
from cutwater.operators.accumulators import AccumulatorPlan, plan_aggregates
from cutwater.operators.operator import Collector, Operator, OperatorContext, OperatorSnapshot
from cutwater.state.memory_aggregates import MemoryAggregateTable

TABLE = "combine"
MAX_KEYS = 65_536
MAX_DELAY: Milliseconds = 5
MIN_SAMPLE = 4_096
WORTHWHILE = 0.7
"""Partial rows per record above which combining costs more than it saves."""
PASS_RECORDS = 2_000_000
"""How many records pass uncombined until it is tried again."""
FEW_RECORDS = 1_024
"""So few that came alone travel as they are: making a table for them costs more than sending them."""


@dataclass(slots=True)
class Worth:
    """Does combining pay? Judged by what it did last."""

    pass_on: int = 0
    """Records that still pass uncombined."""

    def combined(self, records: int, rows: int) -> None:
        if records >= MIN_SAMPLE and rows > WORTHWHILE * records:
            self.pass_on = PASS_RECORDS

    def passed(self, records: int) -> None:
        self.pass_on = max(0, self.pass_on - records)


class Combine(Operator):
    """Emits partial rows (key columns and accumulators) for an ``Aggregate(..., partial=True)`` of the same arguments.

    Holds rows back for a few milliseconds at most, with the watermark behind them, and never over an aligned barrier or the
    end. At an unaligned cut what it holds goes into the snapshot. Rows leave in the order in which their keys came first, so
    that what came first and last within a channel stays so. Where that decides a result, nothing is held at all: behind a restore
    at another parallelism it might leave by another channel than what follows.
    """

    def __init__(self, keys: Sequence[str], results: Mapping[str, AggregateSpec]) -> None:
        self._keys = tuple(keys)
        self._results = dict(results)
        self._order_decides = any(is_decided_by_order(each) for each in results.values())
        self._bound: AccumulatorPlan | None = None
        self._ctx: OperatorContext | None = None
        self._few: pa.RecordBatch | None = None
        """A small batch, kept as it came until another one follows."""
        self._buffer: MemoryAggregateTable | None = None
        self._records = 0
        self._last_keys = 0
        """How many the last buffer had: the next one will have about as many."""
        self._deadline: Milliseconds | None = None
        self._watermark: Milliseconds | None = None
        """To be passed on behind the rows held back."""
        self._worth = Worth()

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        self._bound = plan_aggregates(inputs[0], self._keys, self._results)
        return self._bound.partial_schema

    def open(self, ctx: OperatorContext) -> None:
        self._ctx = ctx
        if ctx.restored is None:
            return
        for name in ctx.restored.tables():
            for batch in ctx.restored.batches(name):
                self._merge(batch)

    def process(self, batch: pa.RecordBatch, port: int, out: Collector) -> None:
        if batch.num_rows == 0:
            return
        if self._worth.pass_on:
            out.emit(self._plan.partial_rows(batch))
            self._worth.passed(batch.num_rows)
            return
        if self._few is None and self._buffer is None and batch.num_rows <= FEW_RECORDS:
            self._few = batch
            self._deadline = self._now() + MAX_DELAY
        else:
            self._add_few()
            self._add(batch)
        if self._order_decides or self._is_due():
            self._flush(out)

    def on_watermark(self, watermark: Milliseconds, out: Collector) -> Iterator[None]:
        """It waits for the rows before it: with one in every batch little would be combined."""
        self._watermark = watermark
        if watermark == MAX_WATERMARK or (self._few is None and self._buffer is None):
            self._flush(out)
        yield from ()

    def on_idle(self, out: Collector) -> None:
        self._flush(out)
        out.rest()

    def next_timer(self) -> Milliseconds | None:
        return self._deadline

    def on_processing_time(self, now: Milliseconds, out: Collector) -> Iterator[None]:
        if self._deadline is not None and now >= self._deadline:
            self._flush(out)
        yield from ()

    def before_barrier(self, out: Collector) -> None:
        self._flush(out)

    def end_of_input(self, out: Collector, *, drain: bool) -> Iterator[None]:
        self._flush(out)
        yield from ()

    def snapshot(self, checkpoint: CheckpointId) -> OperatorSnapshot | None:
        self._add_few()
        return None if self._buffer is None else OperatorSnapshot(tables=[self._buffer.freeze()])

    @property
    def _plan(self) -> AccumulatorPlan:
        if self._bound is None:
            raise PlanError("combine does not know the schema of its input: output_schema must be called before open.")
        return self._bound

    def _now(self) -> Milliseconds:
        assert self._ctx is not None
        return self._ctx.now()

    def _filling(self) -> MemoryAggregateTable:
        if self._buffer is None:
            assert self._ctx is not None
            self._buffer = MemoryAggregateTable(
                self._ctx.uid, TABLE, self._plan.key_schema, self._plan.columns, self._ctx.max_parallelism,
                expected_keys=self._last_keys,
            )  # fmt: skip
            self._records = 0
            if self._deadline is None:
                self._deadline = self._now() + MAX_DELAY
        return self._buffer

    def _is_due(self) -> bool:
        if self._buffer is None:
            return False
        return len(self._buffer) >= MAX_KEYS or (self._deadline is not None and self._now() >= self._deadline)

    def _add(self, batch: pa.RecordBatch) -> None:
        buffer = self._filling()
        touched = buffer.locate(batch.select(list(self._keys)))
        buffer.update(touched, self._plan.updates(batch))
        self._records += batch.num_rows

    def _add_few(self) -> None:
        few, self._few = self._few, None
        if few is not None:
            self._add(few)

    def _merge(self, stored: pa.RecordBatch) -> None:
        """Take back what an unaligned cut had frozen."""
        buffer = self._filling()
        partial = stored.select(self._plan.partial_schema.names)
        buffer.update(buffer.locate(partial.select(list(self._keys))), self._plan.merges(partial))

    def _flush(self, out: Collector) -> None:
        few, buffer = self._few, self._buffer
        self._few = self._buffer = self._deadline = None
        if few is not None:
            out.emit(self._plan.partial_rows(few))
        if buffer is not None:
            self._last_keys = len(buffer)
            self._worth.combined(self._records, len(buffer))
            names = self._plan.partial_schema.names
            for batch in buffer.freeze().batches():
                out.emit(batch.select(names).cast(self._plan.partial_schema))
        watermark, self._watermark = self._watermark, None
        if watermark is not None:
            out.advance(watermark)
