"""What leaves a subtask: routed to channels, gathered into payloads, numbered.

The watermark travels with the records. A channel that has none to carry it gets it alone, but not often: each such row costs
two on the exchange (rule 23).
"""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from cutwater.flow.batches import joined
from cutwater.flow.envelope import Row, barrier_row, data_row, end_row, idle_row, watermark_row
from cutwater.flow.hashing import hash_columns, key_groups
from cutwater.flow.ids import ChannelId, CheckpointId
from cutwater.flow.partitioning import partition
from cutwater.flow.watermarks import MIN_WATERMARK, Milliseconds
from cutwater.graph.logical import Exchange
from cutwater.graph.plan import OutputRoute
from cutwater.subtask.flow_rate import FlowRate
from cutwater.subtask.limits import FlowLimits


class _ChannelBuffer:
    """Records of one channel that wait for their payload to fill."""

    def __init__(self, channel: ChannelId, target: int) -> None:
        self.channel = channel
        self.target = target
        self.seq = 0
        self.bytes = 0
        self._batches: list[pa.RecordBatch] = []
        self._watermark = self._told = MIN_WATERMARK
        """Where the sender is, and what the receiver knows of it."""
        self._idle = self._told_idle = False

    def add(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        self._batches.append(batch)
        self.bytes += batch.nbytes
        # The receiver takes a channel that delivers for an active one.
        self._told_idle = False

    def advance(self, watermark: Milliseconds) -> None:
        self._watermark = watermark
        self._idle = False

    def rest(self) -> None:
        self._idle = True

    @property
    def owes_time(self) -> bool:
        """Whether the receiver has to hear of a watermark that no record carries."""
        return not self._batches and (self._watermark > self._told or self._idle != self._told_idle)

    def take_time(self) -> list[Row]:
        rows: list[Row] = []
        if self._batches:
            return rows
        if self._watermark > self._told or (self._told_idle and not self._idle):
            rows.append(watermark_row(self.target, self.channel, self.next_seq(), self._watermark))
            self._told, self._told_idle = self._watermark, False
        if self._idle and not self._told_idle:
            rows.append(idle_row(self.target, self.channel, self.next_seq()))
            self._told_idle = True
        return rows

    def take(self, payload_bytes: int) -> list[Row]:
        """All records, in payloads of at most about ``payload_bytes``. The last one tells the watermark behind them."""
        if not self._batches:
            return []
        whole = joined(self._batches)
        pieces = max(1, -(-self.bytes // payload_bytes))
        step = max(1, -(-whole.num_rows // pieces))
        self._batches, self.bytes = [], 0
        starts = range(0, whole.num_rows, step)
        rows = [
            data_row(self.target, self.channel, self.next_seq(), whole.slice(start, step), self._told)
            for start in starts
        ]
        rows[-1].mark = self._told = self._watermark
        return rows

    def next_seq(self) -> int:
        self.seq += 1
        return self.seq - 1


class _Router:
    """One outgoing edge."""

    def __init__(self, route: OutputRoute, max_parallelism: int, first_target: int) -> None:
        self.route = route
        self.buffers = [_ChannelBuffer(channel, hop) for channel, hop in zip(route.channels, route.hops, strict=True)]
        self._max_parallelism = max_parallelism
        self._following = first_target % len(self.buffers)

    def send(self, batch: pa.RecordBatch) -> None:
        width = len(self.buffers)
        match self.route.exchange:
            case Exchange.BROADCAST:
                for buffer in self.buffers:
                    buffer.add(batch)
            case Exchange.KEY_GROUP if width > 1:
                groups = key_groups(hash_columns(batch, self.route.key), self._max_parallelism)
                targets = (groups.astype(np.int64) * width // self._max_parallelism).astype(np.int32)
                for buffer, part in zip(self.buffers, partition(batch, targets, width), strict=True):
                    if part is not None:
                        buffer.add(part)
            case Exchange.REBALANCE if width > 1:
                self.buffers[self._following].add(batch)
                self._following = (self._following + 1) % width
            case _:
                self.buffers[0].add(batch)


class Outputs:
    """All outgoing edges of one subtask. What ``sends`` gives takes records in; the loop takes rows out."""

    def __init__(self, routes: Iterable[OutputRoute], max_parallelism: int, limits: FlowLimits, subtask: int) -> None:
        self._limits = limits
        # Senders begin their round robin at different receivers, or all first batches would meet at one.
        self._routers = [_Router(route, max_parallelism, subtask) for route in routes]
        self._buffers = [buffer for router in self._routers for buffer in router.buffers]
        self._rate = FlowRate()
        self._oldest: float | None = None
        self._time_told_at = 0.0
        self.records_out = 0
        self.bytes_out = 0

    @property
    def channels(self) -> frozenset[ChannelId]:
        return frozenset(buffer.channel for buffer in self._buffers)

    def sends(self) -> "list[tuple[str, str | None, _Send]]":
        return [(router.route.source, router.route.tag, _Send(self, router)) for router in self._routers]

    def has_waiting(self) -> bool:
        return any(buffer.bytes for buffer in self._buffers)

    def full(self, now: float) -> list[Row]:
        """The payloads that are ready by size."""
        limit = self._payload_bytes
        rows = [row for buffer in self._buffers if buffer.bytes >= limit for row in buffer.take(limit)]
        self._left(rows, now)
        return rows

    @property
    def _payload_bytes(self) -> int:
        limits = self._limits
        least = min(limits.least_payload_bytes, limits.payload_bytes)
        return self._rate.bytes_in(limits.linger_seconds, least=least, most=limits.payload_bytes)

    def _left(self, rows: Iterable[Row], now: float) -> None:
        if size := sum(row.size for row in rows):
            self._rate.add(size, now)

    def overdue(self, now: float) -> bool:
        """Whether a record has waited its linger time (the clock starts at the first look after it came), or a watermark."""
        if not self.has_waiting():
            self._oldest = None
        elif self._oldest is None:
            self._oldest = now
        elif now - self._oldest >= self._limits.linger_seconds:
            return True
        time_due = self.time_due()
        return time_due is not None and now >= time_due

    def flush(self, now: float) -> list[Row]:
        """All records, and the watermark to whom it is due without any."""
        rows = self._records()
        self._left(rows, now)
        if now >= self._time_told_at + self._limits.watermark_seconds and (alone := self._time()):
            self._time_told_at = now
            rows.extend(alone)
        return rows

    def time_due(self) -> float | None:
        """When ``flush`` has a watermark to tell that no record carries; None: there is none."""
        if not any(buffer.owes_time for buffer in self._buffers):
            return None
        return self._time_told_at + self._limits.watermark_seconds

    def _records(self) -> list[Row]:
        self._oldest = None
        return [row for buffer in self._buffers for row in buffer.take(self._payload_bytes)]

    def _time(self) -> list[Row]:
        return [row for buffer in self._buffers for row in buffer.take_time()]

    def barrier(
        self, checkpoint: CheckpointId, triggered_at: float, *, savepoint: bool = False, unaligned: bool = False
    ) -> list[Row]:
        """Everything gathered so far, then the barrier, on every channel. Behind it the receiver knows what the sender did."""
        rows = [*self._records(), *self._time()]
        rows.extend(
            barrier_row(
                buffer.target,
                buffer.channel,
                buffer.next_seq(),
                checkpoint,
                triggered_at,
                savepoint=savepoint,
                unaligned=unaligned,
            )
            for buffer in self._buffers
        )
        return rows

    def end(self, *, drain: bool) -> list[Row]:
        """Everything gathered so far, then END: with ``drain`` it stands for the last watermark of all."""
        rows = self._records() if drain else [*self._records(), *self._time()]
        rows.extend(end_row(buffer.target, buffer.channel, buffer.next_seq(), drain=drain) for buffer in self._buffers)
        return rows


class _Send:
    """Where the records of one edge go in, and what is known of their time."""

    def __init__(self, outputs: Outputs, router: _Router) -> None:
        self._outputs = outputs
        self._router = router

    def __call__(self, batch: pa.RecordBatch) -> None:
        self._outputs.records_out += batch.num_rows
        self._outputs.bytes_out += batch.nbytes
        self._router.send(batch)

    def advance(self, watermark: Milliseconds) -> None:
        for buffer in self._router.buffers:
            buffer.advance(watermark)

    def rest(self) -> None:
        for buffer in self._router.buffers:
            buffer.rest()
