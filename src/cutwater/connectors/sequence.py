"""Whole numbers in order, as fast as they are taken or at a given rate."""

import math
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

import numpy as np
import pyarrow as pa

from cutwater.arguments import takes_no_others
from cutwater.connectors.source import END, EndOfSplit, Json, Source, SourceContext, SplitReader
from cutwater.errors import ConfigError

SCHEMA = pa.schema([pa.field("value", pa.int64(), nullable=False)])
LOWEST, HIGHEST = -(2**63), 2**63 - 2
"""One less than a long can hold, so that the number behind the last one is a long too."""
CHUNK_SECONDS = 0.01
"""Rows of a paced split come in chunks of this much time, so that a high rate does not mean tiny batches."""
CATCH_UP_SECONDS = 0.2
"""A split that was held up makes good at most this much; what lies further back is not sent in a burst."""


@takes_no_others
def sequence(n: int | None, rate: float | None = None, start: int = 0) -> "SequenceSource":
    """``n`` numbers from ``start`` on (None: without end) as column ``value``; ``rate``: rows/s of the whole source."""
    return SequenceSource(n, rate, start)


class SequenceSource(Source):
    """Split s of p emits start+s, start+s+p, ...; the split carries s and p, so that a rescale keeps every number."""

    schema = SCHEMA

    def __init__(self, n: int | None, rate: float | None, start: int) -> None:
        if n is not None and (not _is_int(n) or n < 0):
            raise ConfigError(f"sequence: n={n!r}; allowed are a whole number from 0 on, or None for no end")
        if rate is not None and not _is_positive(rate):
            raise ConfigError(f"sequence: rate={rate!r}; allowed are rows per second above 0, or None for no limit")
        if not _is_int(start) or not LOWEST <= start <= HIGHEST:
            raise ConfigError(f"sequence: start={start!r}; allowed are whole numbers from {LOWEST} to {HIGHEST}")
        if n is not None and start + n - 1 > HIGHEST:
            raise ConfigError(
                f"sequence: n={n!r}, start={start!r}; the last number would be {start + n - 1}, allowed are numbers up to "
                f"{HIGHEST}; for a sequence without end pass n=None"
            )
        self.n, self.rate, self.start = n, rate, start
        self.bounded = n is not None

    def splits(self) -> Sequence[Json]:
        return self.splits_for(1)

    def splits_for(self, parallelism: int) -> Sequence[Json]:
        return [{"s": s, "p": parallelism} for s in range(parallelism)]

    def open(self, split: Json, position: Json | None, ctx: SourceContext) -> "SequenceReader":
        return SequenceReader(self, split["s"], split["p"], position or 0)

    def describe(self) -> str:
        return f"sequence({'unbounded' if self.n is None else self.n})"


class SequenceReader(SplitReader):
    """Position: how many numbers of the split were returned."""

    def __init__(
        self,
        source: SequenceSource,
        s: int,
        p: int,
        emitted: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._first, self._step, self._emitted = source.start + s, p, emitted
        self._total = None if source.n is None else max(0, -(-(source.n - s) // p))
        self._pace = None if source.rate is None else _Pace(source.rate / p, clock, sleep)

    def next_batch(self, max_rows: int, timeout: timedelta) -> pa.RecordBatch | EndOfSplit | None:
        wanted = max_rows if self._total is None else min(max_rows, self._total - self._emitted)
        if wanted <= 0:
            return END
        count = wanted if self._pace is None else self._pace.take(wanted, timeout.total_seconds())
        if count == 0:
            return None
        begin = self._first + self._emitted * self._step
        last = begin + (count - 1) * self._step
        values = np.arange(begin, last + 1, self._step, dtype=np.int64)
        self._emitted += count
        column = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(values.data)])
        return pa.RecordBatch.from_arrays([column], schema=SCHEMA)

    def position(self) -> Json:
        return self._emitted


class _Pace:
    """How many rows are due. ``_since`` is the moment up to which rows were handed out."""

    def __init__(self, rate: float, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._rate, self._clock, self._sleep = rate, clock, sleep
        self._chunk = max(1, int(rate * CHUNK_SECONDS))
        self._catch_up = max(CATCH_UP_SECONDS, 2 / rate)
        self._since = clock()

    def take(self, wanted: int, timeout: float) -> int:
        """Wait for the next chunk, at most ``timeout``; 0 when it is not due by then."""
        chunk = min(self._chunk, wanted)
        due = self._since + chunk / self._rate
        wait = due - self._clock()
        if wait > 0:
            self._sleep(min(wait, timeout))
            if wait > timeout:
                return 0
        now = max(self._clock(), due)
        self._since = max(self._since, now - self._catch_up)
        count = min(wanted, max(chunk, int((now - self._since) * self._rate)))
        self._since += count / self._rate
        return count


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
