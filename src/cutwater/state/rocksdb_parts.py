"""Rows that are only added, on their way from memory to RocksDB.

They come into a table of the Memory backend. When that is full it is put aside, as a part, and another one begins; a part is
written step by step and stays readable until all of it is stored. What is in RocksDB carries the number of its part: numbers
that are not visible yet are left out by whoever reads.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

import numpy as np

from cutwater.state.cache_share import CacheShare
from cutwater.state.rocksdb_database import Family
from cutwater.state.rocksdb_keys import prefix_of

PART_BITS = 32
"""A number is that of the part, then one that counts within it."""

STEP_ROWS = 4096
"""So many rows are written in a step."""

M = TypeVar("M")


class Written:
    """The panes or buckets that one family holds, and the key groups of each."""

    def __init__(self, family: Family) -> None:
        self._family = family
        self.groups: dict[int, set[int]] = {}

    def note(self, namespace: int, groups: "np.typing.NDArray[np.int32]") -> None:
        self.groups.setdefault(namespace, set()).update(np.unique(groups).tolist())

    def drop(self, namespace: int) -> None:
        groups = self.groups.pop(namespace, None)
        if groups:
            self._family.drop(prefix_of(group, namespace) for group in groups)


class Part(Generic[M]):
    """Nothing is added to ``memory`` any more; buckets can be dropped from it."""

    def __init__(self, number: int, memory: M, size: int) -> None:
        self.number = number
        self.memory = memory
        self.size = size
        self.dropped: set[int] = set()
        """Buckets that need not be written any more."""
        self.steps: Iterator[None] = iter(())
        self._numbers = 0

    def take_numbers(self, count: int) -> int:
        """The first of ``count`` numbers of this part that nobody else has."""
        first = self.number << PART_BITS | self._numbers
        self._numbers += count
        return first


class Parts(Generic[M]):
    """``write`` stores a part, a bounded step before each yield. Belongs to the loop."""

    def __init__(
        self,
        share: CacheShare,
        families: Sequence[Family],
        begin: Callable[[], M],
        write: Callable[[Part[M]], Iterator[None]],
        drop: Callable[[M, int], None],
    ) -> None:
        self._share = share
        share.join()
        self._begin = begin
        self._write = write
        self._drop = drop
        self.recent = begin()
        self._recent_size = 0
        self._leaving: deque[Part[M]] = deque()
        self._next = 0
        self.written = tuple(Written(family) for family in families)

    @property
    def visible(self) -> int:
        """Stored numbers from this one on are those of rows that are still in memory."""
        return (self._leaving[0].number if self._leaving else self._next) << PART_BITS

    def memories(self) -> list[M]:
        """Oldest first; all of them are newer than what is stored."""
        return [*(part.memory for part in self._leaving), self.recent]

    def added(self, size: int) -> None:
        self._recent_size += size
        if self._recent_size > self._share.bytes // 2:
            self._put_aside()
        self._step()
        while self._leaving and sum(part.size for part in self._leaving) + self._recent_size > self._share.bytes:
            self._step()

    def drop(self, namespace: int) -> None:
        self._drop(self.recent, namespace)
        for part in self._leaving:
            self._drop(part.memory, namespace)
            part.dropped.add(namespace)
        for written in self.written:
            written.drop(namespace)

    def _put_aside(self) -> None:
        part = Part(self._next, self.recent, self._recent_size)
        part.steps = self._write(part)
        self._leaving.append(part)
        self._next += 1
        self.recent = self._begin()
        self._recent_size = 0

    def _step(self) -> None:
        if self._leaving and next(self._leaving[0].steps, self) is self:
            self._leaving.popleft()
