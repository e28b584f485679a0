"""Blocks of whole lines out of a byte range of a file. All work is on arrays of offsets, none per line."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cutwater.errors import DataError

Offsets = npt.NDArray[np.int64]
BLOCK_BYTES = 2 << 20
LONGEST_LINE_BYTES = 256 << 20
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
NEWLINE, RETURN = 10, 13


@dataclass(frozen=True, slots=True)
class ByteRange:
    """The lines that begin in [begin, end) of a file that had ``size`` bytes when it was found."""

    path: str
    begin: int
    end: int
    size: int


@dataclass(frozen=True, slots=True)
class LineBlock:
    """Whole lines. Offsets count from the block's begin: line i is ``data[starts[i]:ends[i]]``, the next begins at ``nexts[i]``."""

    data: bytes
    offset: int
    starts: Offsets
    ends: Offsets
    nexts: Offsets

    def __len__(self) -> int:
        return len(self.starts)

    def line(self, index: int) -> bytes:
        return self.data[self.starts[index] : self.ends[index]]

    def piece(self, low: int, high: int) -> bytes:
        """Lines low..high-1 as they stand in the file, line ends included."""
        return self.data[self.starts[low] : self.nexts[high - 1]]


Boundaries = Callable[[bytes], Offsets]
"""Finds where records end: the offsets of the newlines that count."""


def every_newline(data: bytes) -> Offsets:
    return np.flatnonzero(np.frombuffer(data, np.uint8) == NEWLINE)


class LineBlocks:
    """Reads forward from an offset; the file is opened for each block only, so that many splits need few descriptors."""

    def __init__(self, where: str, part: ByteRange, boundaries: Boundaries = every_newline) -> None:
        self._where, self._part, self._boundaries = where, part, boundaries

    def first_line_start(self) -> int:
        """Where the first line of the range begins: a line belongs to the range that it begins in."""
        begin = self._part.begin
        if begin == 0:
            return 0
        while begin <= self._part.size:
            data = self.read(begin - 1, BLOCK_BYTES)
            found = data.find(b"\n")
            if found >= 0:
                return begin + found
            begin += len(data)
            if not data:
                break
        return self._part.size

    def block(self, at: int) -> LineBlock | None:
        """The lines from offset ``at`` on; None behind the end of the range."""
        if at >= self._part.end:
            return None
        wanted = BLOCK_BYTES
        while True:
            data = self.read(at, wanted)
            at_end = at + len(data) == self._part.size
            newlines = self._boundaries(data)
            if at_end or len(newlines):
                return self._cut(data, at, newlines, at_end=at_end)
            if wanted > LONGEST_LINE_BYTES:
                raise DataError(
                    f"{self._where}: {self._part.path} has no line end in {wanted} bytes from byte {at} on; "
                    "is this a file of lines?"
                )
            wanted *= 4

    def read(self, at: int, count: int) -> bytes:
        """Bytes of the file as it was found; DataError when it is gone or became shorter."""
        count = min(count, self._part.size - at)
        try:
            with open(self._part.path, "rb", buffering=0) as file:
                file.seek(at)
                data = file.read(count) or b""
                while len(data) < count and (more := file.read(count - len(data))):
                    data += more
        except OSError as error:
            raise DataError(
                f"{self._where}: {self._part.path} cannot be read: {error.strerror}; put the file back as it was"
            ) from error
        if len(data) < count:
            raise DataError(
                f"{self._where}: {self._part.path} had {self._part.size} bytes and now ends at {at + len(data)}; "
                "files must not change once they are found"
            )
        return data

    def newlines_before(self, offset: int, known: tuple[int, int] = (0, 0)) -> int:
        """How many line ends lie before ``offset``; ``known`` is an earlier (offset, answer)."""
        at, count = known
        while at < offset:
            data = self.read(at, min(BLOCK_BYTES, offset - at))
            count += data.count(b"\n")
            at += len(data)
        return count

    def _cut(self, data: bytes, at: int, newlines: Offsets, *, at_end: bool) -> LineBlock:
        nexts = newlines + 1
        if at_end and len(data) > (nexts[-1] if len(nexts) else 0):
            nexts = np.append(nexts, len(data))
        starts = np.concatenate((np.zeros(1, np.int64), nexts[:-1]))
        mine = int(np.searchsorted(starts, self._part.end - at, "left"))
        starts, nexts = starts[:mine], nexts[:mine]
        if at == 0 and data.startswith(BYTE_ORDER_MARK):
            starts[0] = len(BYTE_ORDER_MARK)
        ends = nexts.copy()
        octets = np.frombuffer(data, np.uint8)
        for end_byte in (NEWLINE, RETURN):
            ends -= (ends > starts) & (octets[ends - 1] == end_byte)
        return LineBlock(data, at, starts, ends, nexts)
