"""A source that is read at a given rate: so that there is time to look at a stream, and to kill it."""

import time
from collections.abc import Sequence
from datetime import timedelta

import pyarrow as pa

from cutwater.connectors.source import EndOfSplit, Json, Source, SourceContext, SplitReader

CHUNK_SECONDS = 0.02


class Paced(Source):
    """Another source, at most ``rate`` rows a second in each of its splits. Positions are those of the other one."""

    def __init__(self, source: Source, rate: float) -> None:
        self._source, self._rate = source, rate
        self.schema, self.replayable, self.bounded = source.schema, source.replayable, source.bounded
        self.side_schemas = source.side_schemas

    def splits(self) -> Sequence[Json]:
        return self._source.splits()

    def splits_for(self, parallelism: int) -> Sequence[Json]:
        return self._source.splits_for(parallelism)

    def discover(self, known: Sequence[Json]) -> Sequence[Json]:
        return self._source.discover(known)

    def open(self, split: Json, position: Json | None, ctx: SourceContext) -> SplitReader:
        return PacedReader(self._source.open(split, position, ctx), self._rate)

    def describe(self) -> str:
        return f"{self._source.describe()} at {self._rate:g} rows/s"


class PacedReader(SplitReader):
    def __init__(self, reader: SplitReader, rate: float) -> None:
        self._reader, self._rate = reader, rate
        self._due = time.monotonic()

    def next_batch(self, max_rows: int, timeout: timedelta) -> pa.RecordBatch | EndOfSplit | None:
        wait = self._due - time.monotonic()
        if wait > 0:
            time.sleep(min(wait, timeout.total_seconds()))
            if wait > timeout.total_seconds():
                return None
        taken = self._reader.next_batch(min(max_rows, max(1, int(self._rate * CHUNK_SECONDS))), timeout)
        if isinstance(taken, pa.RecordBatch):
            # What was late is not made good: a burst would hide what the display is to show.
            self._due = max(self._due, time.monotonic() - CHUNK_SECONDS) + taken.num_rows / self._rate
        return taken

    def position(self) -> Json:
        return self._reader.position()

    def side_batches(self) -> dict[str, pa.RecordBatch]:
        return self._reader.side_batches()

    def checkpoint_completed(self, checkpoint_id: int, position: Json) -> None:
        self._reader.checkpoint_completed(checkpoint_id, position)

    def close(self) -> None:
        self._reader.close()
