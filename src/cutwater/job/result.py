"""What a job leaves behind."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pyarrow as pa

from cutwater.arguments import methods_take_no_others
from cutwater.errors import ConfigError
from cutwater.rows import rows_of


@dataclass(frozen=True, slots=True)
@methods_take_no_others
class JobResult:
    """``attempts`` counts tries, the first included; ``checkpoints`` those that completed.

    ``records_in`` of sources and ``records_out`` to sinks count once what a restart went back over. They are exact when the job
    finished by itself. Where an attempt was cut short and nothing is gone back over (a job that was canceled, and every failed
    attempt in ``mode="at_most_once"``), its last report counts, which is up to half a second old: more may have been written.
    """

    status: str
    attempts: int
    checkpoints: int
    records_in: int
    records_out: int
    seconds: float
    _collected: Callable[[str], list[bytes]] = field(repr=False)
    _schemas: dict[str, pa.Schema] = field(repr=False)

    def rows(self, name: str) -> list[Any]:
        """The rows of ``collect(name)``, as tuples with names."""
        return [row for batch in self._batches(name) for row in rows_of(batch)]

    def to_polars(self, name: str) -> pl.DataFrame:
        """The rows of ``collect(name)`` as a DataFrame."""
        table = pa.Table.from_batches(self._batches(name), self._schemas[name])
        frame = pl.from_arrow(table)
        assert isinstance(frame, pl.DataFrame)
        return frame

    def _batches(self, name: str) -> list[pa.RecordBatch]:
        if name not in self._schemas:
            known = ", ".join(sorted(self._schemas)) or "none"
            raise ConfigError(f"rows({name!r}): this job has no collect({name!r}) (it has: {known}).")
        batches: list[pa.RecordBatch] = []
        for part in self._collected(name):
            with pa.ipc.open_stream(pa.BufferReader(pa.py_buffer(part))) as reader:
                batches.extend(reader)
        return batches
