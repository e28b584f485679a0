"""Payloads on local disk, in segments that are never changed: whoever has a row of one can read it (rule 25).

The same row may wait in an inbox for the loop and in a recording for the snapshot thread. A segment is there as long as any
row of it is, and no longer: its file has no name, so that whatever happens to this process, nothing is left behind.
"""

import os
import tempfile
import weakref
from dataclasses import dataclass

import pyarrow as pa

from cutwater.errors import StorageError
from cutwater.flow.envelope import Row
from cutwater.subtask.limits import MIB

SEGMENT_BYTES = 16 * MIB
"""A segment that has as many takes no more, so that disk is given back while later rows still wait."""


class _Segment:
    """Written by one thread, at its end only; read by any."""

    def __init__(self, folder: str | None) -> None:
        self._file, path = tempfile.mkstemp(prefix="cutwater-spill-", dir=folder)
        weakref.finalize(self, os.close, self._file)
        os.unlink(path)
        self.size = 0

    def append(self, payload: pa.Buffer) -> int:
        """Where it stands."""
        offset, view = self.size, memoryview(payload)
        while view:
            written = os.pwrite(self._file, view, self.size)
            view = view[written:]
            self.size += written
        return offset

    def read(self, offset: int, size: int) -> bytes:
        found = os.pread(self._file, size, offset)
        if len(found) < size:
            raise StorageError(f"{size - len(found)} of {size} bytes that were put aside on local disk are missing.")
        return found


@dataclass(frozen=True, slots=True)
class _Aside:
    """Implements ``PayloadAside``."""

    segment: _Segment
    offset: int
    size: int

    def read(self) -> pa.Buffer:
        return pa.py_buffer(self.segment.read(self.offset, self.size))


class Spill:
    """Keeps rows in memory up to ``memory_limit`` bytes, and the payloads of others in one segment after the other.

    Not thread-safe.
    """

    def __init__(self, memory_limit: int, folder: str | None) -> None:
        self._room = memory_limit
        self._folder = folder
        self._segment: _Segment | None = None

    def keep(self, row: Row) -> None:
        """Whoever else has the row reads it from disk too, if it is put there. A disk that does not take it leaves it as it
        is, and StorageError says so."""
        payload = row.payload
        if not isinstance(payload, pa.Buffer) or not payload.size:
            return
        if payload.size <= self._room:
            self._room -= payload.size
            return
        try:
            if self._segment is None or self._segment.size >= SEGMENT_BYTES:
                self._segment = _Segment(self._folder)
            offset = self._segment.append(payload)
        except OSError as error:
            where = self._folder or tempfile.gettempdir()
            raise StorageError(
                f"Rows that wait for a barrier cannot be kept in {where}: {error.strerror or error}. Make room there, or set "
                "TMPDIR for Spark's executors to another folder."
            ) from error
        row.payload = _Aside(self._segment, offset, payload.size)
