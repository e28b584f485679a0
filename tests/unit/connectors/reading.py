"""Reads a source as the runtime does: in sessions that end anywhere, each resumed from the stored position."""

import json
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import pyarrow as pa

from cutwater.connectors.source import END, Source, SourceContext

CTX = SourceContext(job="job", uid="source", subtask=0, parallelism=1, attempt=1)
NOW = timedelta(0)
FOR_EVER = 10**9


def read_split(
    source: Source, split: Any, sessions: Iterable[tuple[int, int]] = ()
) -> tuple[list[Any], list[dict[str, Any]]]:
    """Rows and malformed records of a split. Each session is (batches to read, rows per batch); then one reads to the end."""
    plan: Iterator[tuple[int, int]] = iter([*sessions, (FOR_EVER, 1000)])
    rows: list[Any] = []
    side: list[dict[str, Any]] = []
    position: Any = None
    split = json.loads(json.dumps(split))
    for batches, max_rows in plan:
        reader = source.open(split, json.loads(json.dumps(position)), CTX)
        try:
            for _ in range(batches):
                batch = reader.next_batch(max_rows, NOW)
                if batch is END:
                    assert reader.next_batch(max_rows, NOW) is END
                    break
                assert isinstance(batch, pa.RecordBatch)
                assert batch.num_rows <= max_rows
                assert batch.schema.equals(source.schema)
                batch.validate(full=True)
                rows += batch.to_pylist()
                for more in reader.side_batches().values():
                    side += more.to_pylist()
                assert reader.side_batches() == {}
            position = reader.position()
        finally:
            reader.close()
    return rows, side


def read_all(source: Source, parallelism: int = 1, sessions: Iterable[tuple[int, int]] = ()) -> list[Any]:
    sessions = list(sessions)
    return [row for split in source.splits_for(parallelism) for row in read_split(source, split, sessions)[0]]
