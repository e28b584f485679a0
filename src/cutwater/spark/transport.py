"""Spark's side of the Transport: rows out through a generator, rows in through a reader thread.

Spark's JVM looks one row ahead: each consumer's newest row stays behind until another row for the same consumer arrives. So
a small pad row follows whatever must arrive now. This module alone knows of pads.
"""

import threading
from collections.abc import Callable, Iterator

import pyarrow as pa

from cutwater.flow.envelope import Row, RowKind, from_exchange, pad_row, to_exchange
from cutwater.flow.seal import Seal
from cutwater.flow.transport import Emit, RowReceiver
from cutwater.subtask.relay import Relay

_GATHER_BYTES = 64 * 1024
"""Small rows share a batch up to this size; a large row travels alone, uncopied."""


class ExchangeWriter:
    """Turns emitted rows into batches for Spark, with pads where they are needed."""

    def __init__(self, seal: Seal | None = None) -> None:
        self._seal = seal
        self._bare: set[int] = set()
        """Targets whose newest row still waits in the look-ahead."""

    def batches(self, emit: Emit) -> Iterator[pa.RecordBatch]:
        rows = list(emit.rows) if self._seal is None else [self._seal.close(row) for row in emit.rows]
        self._bare.update(row.target for row in rows)
        if emit.urgent:
            rows.extend(pad_row(target) for target in sorted(self._bare))
            self._bare.clear()
        gathered: list[Row] = []
        size = 0
        for row in rows:
            if gathered and size + row.size > _GATHER_BYTES:
                yield to_exchange(gathered)
                gathered, size = [], 0
            gathered.append(row)
            size += row.size
        if gathered:
            yield to_exchange(gathered)


class ExchangeBroken(Exception):
    """Nothing more comes off the exchange: some other task failed first, and Spark knows why."""


class ExchangeReader(threading.Thread):
    """Takes rows off Spark's one iterator and offers them until they are taken: back pressure reaches the sender this way.

    Spark fails a job whose consumer returns before its producers ended, so the iterator is always read to its end.
    """

    def __init__(
        self,
        iterator: Iterator[pa.RecordBatch],
        receiver: RowReceiver,
        changed: threading.Condition,
        failed: Callable[[BaseException], None],
        seal: Seal | None = None,
    ) -> None:
        super().__init__(name="cutwater-reader", daemon=True)
        self._iterator = iterator
        self._receiver = receiver
        self._changed = changed
        self._failed = failed
        self._seal = seal

    def run(self) -> None:
        try:
            for batch in self._batches():
                for row in from_exchange(batch):
                    self._offer(row if self._seal is None else self._seal.open(row))
        except BaseException as error:
            self._failed(error)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while True:
            try:
                batch = next(self._iterator)
            except StopIteration:
                return
            except BaseException as error:
                raise ExchangeBroken(str(error)) from error
            yield batch

    def _offer(self, row: Row) -> None:
        while not self._receiver.offer(row):
            with self._changed:
                # Space may have come between the refusal and this line; the short wait makes that harmless.
                self._changed.wait(0.005)


def relay_rows(iterator: Iterator[pa.RecordBatch], relay: Relay) -> Iterator[pa.RecordBatch]:
    """Pass rows on in order, sealed as they are. A pad says that what came before it must arrive now: pads go out too."""
    writer = ExchangeWriter()
    for batch in iterator:
        padded = RowKind.PAD in batch.column(2).to_pylist()
        rows = tuple(relay.pass_on(row) for row in from_exchange(batch))
        yield from writer.batches(Emit(rows, urgent=padded))
