"""How many rows of a batch are joined at once, so that a key with very many rows does not make more pairs than memory holds."""

import sys

import pyarrow as pa

from cutwater.state.tables import TooManyPairs

PAIRS_BYTES = 16 << 20
"""So many bytes of pairs are made at once, about: more than one record has may be."""
ENOUGH_BYTES = 4 * PAIRS_BYTES
"""Who has given out so many in one slice leaves the rest: what is given out waits in memory until the slice ends."""


class JoinedRows:
    """Of one input. As many rows as there are until their pairs are too many; then as many as the last ones allow for."""

    def __init__(self) -> None:
        self._rows = sys.maxsize

    def next(self, left: int) -> int:
        return min(left, self._rows)

    def joined(self, rows: int, pairs_bytes: int) -> None:
        """So many rows have pairs of so many bytes."""
        with_room = rows * PAIRS_BYTES // (2 * max(pairs_bytes, 1))
        self._rows = max(self._rows, 2 * rows) if with_room >= 2 * rows else max(1, with_room)

    def failed(self, rows: int, error: TooManyPairs) -> None:
        """So many have too many pairs. More than one: one is always joined, whatever it has."""
        self._rows = max(1, min(rows // 2, int(rows * error.share) or rows // 4))


class Joined:
    """What becomes of rows that are joined at once."""

    def __init__(self, *, bounded: bool) -> None:
        self._bounded = bounded
        self.late: list[pa.RecordBatch] = []
        self.pairs: list[pa.RecordBatch] = []
        self.pairs_bytes = 0
        self.rows: list[tuple[int, pa.RecordBatch]] = []
        """To be kept, by bucket."""

    @property
    def room(self) -> int | None:
        """For more pairs, in bytes."""
        return max(PAIRS_BYTES - self.pairs_bytes, 0) if self._bounded else None

    def add(self, pairs: pa.RecordBatch) -> None:
        self.pairs.append(pairs)
        self.pairs_bytes += pairs.nbytes
