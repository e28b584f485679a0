"""Rows of a held channel, in order: in memory first, then in a local file that vanishes with the process."""

import os
import tempfile
from collections.abc import Iterator

import pyarrow as pa

from cutwater.errors import StorageError
from cutwater.flow.envelope import Row


class HeldQueue:
    """Filled while its channel is held, drained once when it is released."""

    def __init__(self, memory_limit: int, folder: str | None) -> None:
        self._memory_limit = memory_limit
        self._folder = folder
        self._rows: list[tuple[Row, int | None, int]] = []
        self._spill: int | None = None
        self._spilled = 0
        self.bytes = 0

    def append(self, row: Row) -> None:
        size = row.size
        self.bytes += size
        if self.bytes - self._spilled <= self._memory_limit or size == 0:
            self._rows.append((row, None, size))
            return
        try:
            offset = self._write(row.payload)
        except OSError as error:
            where = self._folder or tempfile.gettempdir()
            raise StorageError(
                f"Rows that wait for a barrier cannot be kept in {where}: {error.strerror or error}. Make room there, or set "
                "TMPDIR for Spark's executors to another folder."
            ) from error
        row.payload = pa.py_buffer(b"")
        self._rows.append((row, offset, size))

    @property
    def spilled_bytes(self) -> int:
        return self._spilled

    def _write(self, payload: pa.Buffer) -> int:
        if self._spill is None:
            # The name is removed at once: whatever happens to this process, nothing is left behind.
            self._spill, path = tempfile.mkstemp(prefix="cutwater-held-", dir=self._folder)
            os.unlink(path)
        offset = self._spilled
        view = memoryview(payload)
        while view:
            view = view[os.pwrite(self._spill, view, self._spilled) :]
            self._spilled = offset + payload.size - len(view)
        return offset

    def drain(self) -> Iterator[Row]:
        for row, offset, size in self._rows:
            if offset is not None:
                assert self._spill is not None
                row.payload = pa.py_buffer(os.pread(self._spill, size, offset))
            yield row
        self.discard()

    def discard(self) -> None:
        self._rows.clear()
        if self._spill is not None:
            os.close(self._spill)
            self._spill = None
