"""Behind a restore at another parallelism: how far time had come for the old subtask of a key, and what it had told by then.

An unaligned checkpoint finds some subtasks further in time than others. Time goes on where the slowest stood, and what the
others had told by then must not be told again: not of the keys that were theirs. For those, a record that comes behind the time
of the old subtask is late still: what it belongs to was told, and is forgotten. Windows that allowed lateness still held are told
again all the same: that is what they do, and one that changed meanwhile would be missed. Those that it held no longer are not:
some of their panes are gone. Nor is one that was told ever told early: it is over.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.flow.event_time import Times
from cutwater.flow.hashing import hash_columns, key_groups
from cutwater.flow.watermarks import MIN_WATERMARK, Milliseconds
from cutwater.operators.operator import OperatorContext

_TOLD = "told"


class ToldBefore:
    """Stored as long as the own time is behind: lists of first key group, last one, and how far time had come for them."""

    def __init__(self, ctx: OperatorContext, keys: Sequence[str], lateness: Milliseconds = 0) -> None:
        """``lateness``: so long behind its end a window was held, to be told again."""
        parts = ctx.restored.inline if ctx.restored is not None else ()
        self._entries: list[list[int]] = [entry for part in parts for entry in part.get(_TOLD, ())]
        self._keys = tuple(keys)
        self._lateness = lateness
        self._max_parallelism = ctx.max_parallelism
        self._until = max((time for _, _, time in self._entries), default=MIN_WATERMARK)
        self._by_group = np.full(ctx.max_parallelism if self._entries else 0, MIN_WATERMARK, np.int64)
        for first, last, time in self._entries:
            np.maximum(self._by_group[first : last + 1], time, out=self._by_group[first : last + 1])

    def is_ahead_of(self, reached: Milliseconds) -> bool:
        """Whether time had come further for some keys."""
        return self._until > reached

    def time_of(self, rows: pa.RecordBatch, reached: Milliseconds) -> Times | Milliseconds:
        """How far time has come for the key of each row, where it has come to ``reached`` for all."""
        if not self.is_ahead_of(reached):
            return reached
        groups = key_groups(hash_columns(rows, self._keys), self._max_parallelism)
        return np.maximum(self._by_group[groups], reached)

    def any_of(self, end: Milliseconds, *, early: bool) -> bool:
        """Whether some keys may be none of those that the window which ends there is to be told of."""
        return self._told_by(end, early) <= self._until

    def untold(self, keys: pa.RecordBatch, end: Milliseconds, *, early: bool) -> npt.NDArray[np.bool_]:
        """Whether it is still to be told of each key, if only once more; ``early``: whether it is still open for it."""
        return np.full(keys.num_rows, self.time_of(keys, MIN_WATERMARK) < self._told_by(end, early))

    def _told_by(self, end: Milliseconds, early: bool) -> Milliseconds:
        """When it is over, or done with."""
        return end - 1 + (0 if early else self._lateness)

    def stored(self, reached: Milliseconds) -> Mapping[str, Any]:
        """The inline part of a snapshot."""
        ahead = [entry for entry in self._entries if entry[2] > reached]
        return {_TOLD: ahead} if ahead else {}
