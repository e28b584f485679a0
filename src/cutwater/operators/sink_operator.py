"""Drives a sink from the subtask: plain ones are flushed at each cut, two-phase ones commit what checkpoints cover."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from cutwater.connectors.sink import PlainSink, Sink, SinkContext, TwoPhaseCommitSink
from cutwater.errors import ConfigError, CutwaterError
from cutwater.flow.ids import CheckpointId
from cutwater.operators.operator import Collector, Operator, OperatorContext, OperatorSnapshot
from cutwater.operators.transactions import Retry, Transactions


class SinkOperator(Operator):
    """The last operator of a path. Emits nothing."""

    def __init__(self, sink: Sink, schema: pa.Schema | None = None, *, retry: Retry | None = None) -> None:
        """``schema``: of the records; taken from the pipeline when ``output_schema`` is asked for."""
        if not isinstance(sink, PlainSink | TwoPhaseCommitSink):
            raise ConfigError(f"sink={sink!r}: derive it from cw.TwoPhaseCommitSink")
        self.sink: PlainSink | TwoPhaseCommitSink = sink
        self.schema = schema
        self._retry = retry or Retry()
        self._transactions: Transactions | None = None
        self._ended = False
        self._touched = False

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        self.schema = inputs[0]
        return inputs[0]

    def open(self, ctx: OperatorContext) -> None:
        """Returns when everything that the restored checkpoint lists is committed, and nothing else of ours is open."""
        if self.schema is None:
            raise ConfigError(f"sink {ctx.uid!r}: the schema of its records is not known; give SinkOperator one")
        self._ctx = ctx
        self._sink_ctx = SinkContext(
            ctx.job, ctx.uid, ctx.subtask, ctx.parallelism, ctx.attempt, ctx.incarnation, self.schema
        )
        self._sink_ctx.print_lines = ctx.driver.printed
        self._sink_ctx.visible_up_to = ctx.visible_up_to
        self._touched = True
        self.sink.open(self._sink_ctx)
        if isinstance(self.sink, TwoPhaseCommitSink):
            self._transactions = Transactions(self.sink, self._sink_ctx, self._retry)
            self._transactions.restore(ctx.restored.inline if ctx.restored else ())

    def process(self, batch: pa.RecordBatch, port: int, out: Collector) -> None:
        if self._ended:
            raise CutwaterError(f"sink {self._ctx.uid!r}: records came behind the end of input")
        if not batch.num_rows:
            return
        if self._transactions is not None:
            self._transactions.write(batch)
        elif isinstance(self.sink, PlainSink):
            self.sink.write(batch)

    def end_of_input(self, out: Collector, *, drain: bool) -> Iterator[None]:
        """The final checkpoint takes care of what is written. Without checkpoints there is none, so it is done here."""
        self._ended = True
        if not self._ctx.checkpointed:
            self._finish_without_checkpoint()
        yield from ()

    def _finish_without_checkpoint(self) -> None:
        if self._transactions is not None:
            self._transactions.swap(CheckpointId(0))
            self._transactions.prepare(CheckpointId(0))
            self._transactions.commit(CheckpointId(0))
        elif isinstance(self.sink, PlainSink):
            self.sink.flush()

    def snapshot(self, checkpoint: CheckpointId) -> OperatorSnapshot | None:
        if isinstance(self.sink, PlainSink):
            self.sink.flush()
            return None
        transactions = self._transactions
        assert transactions is not None, "snapshot comes after open"
        transactions.swap(checkpoint)
        if self.sink.prepare_in_background:
            return OperatorSnapshot(inline=lambda: transactions.prepare(checkpoint))
        return OperatorSnapshot(inline=transactions.prepare(checkpoint))

    def checkpoint_completed(self, checkpoint: CheckpointId) -> None:
        if self._transactions is not None:
            self._transactions.commit(checkpoint)

    def close(self) -> None:
        """What is open is abandoned, what is prepared stays: the next attempt decides, by its checkpoint, about both."""
        if self._transactions is not None:
            self._transactions.close()
        if self._touched:
            self.sink.close()
