"""Batches that wait on the local disk, to be read once."""

import os
from collections.abc import Iterator

import pyarrow as pa


class SpilledBatches:
    """Appended to, then iterated over, which removes them. ``path`` is where its files begin."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._files: list[str] = []
        self._schema: pa.Schema | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None

    def append(self, batch: pa.RecordBatch) -> None:
        if self._writer is None or batch.schema != self._schema:
            self._finish()
            self._files.append(f"{self._path}.{len(self._files)}")
            self._schema = batch.schema
            self._writer = pa.ipc.new_stream(self._files[-1], batch.schema)
        self._writer.write_batch(batch)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        self._finish()
        for path in self._files:
            with pa.OSFile(path, "rb") as file, pa.ipc.open_stream(file) as reader:
                yield from reader
            os.unlink(path)

    def _finish(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
