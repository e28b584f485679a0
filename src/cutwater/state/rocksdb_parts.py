"""Rows that are only added, on their way from memory to RocksDB.

They come into a table of the Memory backend. When that is full it is put aside, as a part, and another one begins; a part is
written step by step and stays readable until all of it is stored. What is in RocksDB carries the number of its part: numbers
that are not visible yet are left out by whoever reads. Parts are written, and buckets dropped, in the order in which that came.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from cutwater.flow.key_groups import MAX_MAX_PARALLELISM
from cutwater.state.cache_share import CacheShare
from cutwater.state.rocksdb_cut import MOST_SHARES, Gate
from cutwater.state.rocksdb_family import Entry, Family
from cutwater.state.rocksdb_keys import PREFIX_BYTES, number_of, prefix_of, prefix_parts

GROUP_BITS = (MAX_MAX_PARALLELISM - 1).bit_length()
PART_BITS = 32
"""A number is that of the part, then one that counts within it."""

STEP_ROWS = 4096
"""So many rows are written in a step."""

PACE, FASTER = 1.25, 2.5
"""So many times what is added is written with it: a part is stored before the next one is full. Faster where the cache is more
than full, as behind a cut."""

STEP_BUCKETS = 16
"""So many buckets are let go with each batch that is added and each bucket that is dropped. Few, as many of these follow each
other; but more than come with one of them."""

M = TypeVar("M")
Groups = dict[int, set[int]]
"""The key groups of each pane or bucket."""


class Part(Generic[M]):
    """Nothing is added to ``memory`` any more; buckets can be dropped from it."""

    def __init__(self, number: int, memory: M, size: int, rows: int, families: int) -> None:
        self.number = number
        self.memory = memory
        self.size = size
        self._row_bytes = size / max(rows, 1)
        self.written: tuple[Groups, ...] = tuple({} for _ in range(families))
        """What is in each family."""
        self.is_frozen = False
        """Whether a snapshot needs all of it, as it was put aside."""
        self.dropped: set[int] = set()
        self.steps: Iterator[int] = iter(())
        self.is_done = False
        self.is_known = False
        """Whether what it brought can be read in RocksDB: until then it is read in memory."""
        self.going: Iterator[None] = iter(())
        """What is to be done when it is stored."""
        self._error: Exception | None = None
        self._numbers = 0

    def take_numbers(self, count: int) -> "np.typing.NDArray[np.int64]":
        """So many that nobody else has, which ascend."""
        first = self.number << PART_BITS | self._numbers
        self._numbers += count
        return np.arange(first, first + count)

    def needs(self, namespace: int) -> bool:
        return self.is_frozen or namespace not in self.dropped

    def note(self, family: int, namespace: int, groups: "np.typing.NDArray[np.int32]") -> None:
        self.written[family].setdefault(namespace, set()).update(np.unique(groups).tolist())

    def note_each(
        self, family: int, namespaces: "np.typing.NDArray[np.int64]", groups: "np.typing.NDArray[np.int32]"
    ) -> None:
        """The same of rows of many."""
        different, which = np.unique(namespaces, return_inverse=True)
        cells = np.unique(which.astype(np.int64) << GROUP_BITS | groups)
        own, starts = np.unique(cells >> GROUP_BITS, return_index=True)
        for at, some in zip(own.tolist(), np.split(cells & (1 << GROUP_BITS) - 1, starts[1:]), strict=True):
            self.written[family].setdefault(int(different[at]), set()).update(some.tolist())

    def step(self) -> float:
        """How many bytes of its size are done with."""
        if self._error is not None:
            raise self._error
        try:
            rows = next(self.steps, None)
            self.is_done = rows is None
            return (rows or 0) * self._row_bytes
        except Exception as error:
            # What raised is over for Python. It is not done: nobody may forget what is in memory.
            self._error = error
            raise


class Drop:
    """What buckets had in RocksDB, and what earlier parts brought of them, is to go."""

    size = 0

    def __init__(self, families: Sequence[Family], parts: "Sequence[Part[M]]", others: Sequence[Groups]) -> None:
        """``others``: what can be read in each family."""
        self._families = families
        self._parts = parts
        self._others = others
        self.namespaces: dict[int, Sequence[set[int]]] = {}
        """In each family the key groups in which there was something."""
        self._left: deque[int] = deque()
        self.is_frozen = False
        """Whether a snapshot goes by what is in it: others that are dropped do not come to these any more."""

    @property
    def is_done(self) -> bool:
        return not self._left

    def add(self, namespace: int, groups: Sequence[set[int]]) -> None:
        """One that is in it already got no rows since but in memory: they would have come behind it."""
        if namespace not in self.namespaces:
            self.namespaces[namespace] = groups
            self._left.append(namespace)

    def step(self) -> float:
        """It has no bytes in memory."""
        some = list(islice(self._left, STEP_BUCKETS))
        for at, family in enumerate(self._families):
            prefixes = [prefix_of(group, namespace) for namespace in some for group in self._groups(at, namespace)]
            if prefixes:
                family.drop(prefixes, share=len(some) / (len(self._others[at]) + len(self._left)))
        for _ in some:
            self._left.popleft()
        return 0

    def _groups(self, at: int, namespace: int) -> set[int]:
        of_parts = (part.written[at].get(namespace, ()) for part in self._parts)
        return self.namespaces[namespace][at].union(*of_parts)


class Parts(Generic[M]):
    """``write`` stores a part, a bounded step before each yield, which tells its rows; ``beside_rows`` tells what a table takes in
    memory beside its rows. Belongs to the loop, but for what a cut took of it."""

    def __init__(
        self,
        share: CacheShare,
        gate: Gate,
        families: Sequence[Family],
        begin: Callable[[], M],
        write: Callable[[Part[M]], Iterator[int]],
        drop: Callable[[M, int], None],
        beside_rows: Callable[[M], int] = lambda _: 0,
    ) -> None:
        self.share = share
        share.join()
        self._gate = gate
        self._families = tuple(families)
        self._begin = begin
        self._write = write
        self._drop = drop
        self._beside_rows = beside_rows
        self.recent = begin()
        self._recent_size = 0
        self._recent_rows = 0
        self._leaving: deque[Part[M] | Drop] = deque()
        self.next = 0
        """The number of the next part."""
        self._ahead = 0.0
        """So many bytes were written beyond what was due: a step has many rows, however few are added at a time."""
        self.written: tuple[Groups, ...] = tuple({} for _ in families)
        """What can be read in each family."""

    @property
    def visible(self) -> int:
        """Stored numbers from this one on are those of rows that are still in memory."""
        parts = self._parts()
        return (parts[0].number if parts else self.next) << PART_BITS

    def stored(self, entries: Iterator[Entry]) -> Iterator[Entry]:
        """Those that are not in memory too, nor of a bucket that was dropped and only waits to go, at this moment."""
        return self.stored_by_now()(entries)

    def stored_by_now(self) -> Callable[[Iterator[Entry]], Iterator[Entry]]:
        """The same, of entries that are looked for later."""
        visible = self.visible
        going = [each.namespaces for each in self._leaving if isinstance(each, Drop)]
        if not going:
            return lambda entries: (entry for entry in entries if number_of(entry[0]) < visible)
        return lambda entries: (
            entry
            for entry in entries
            if number_of(entry[0]) < visible and not _is_in(prefix_parts(entry[0][:PREFIX_BYTES])[1], going)
        )

    def frozen(self, entries: Iterator[Entry]) -> Iterator[Entry]:
        """The same, whatever is dropped before they are read."""
        self._freeze_drops()
        return self.stored(entries)

    def memories(self) -> list[M]:
        """Oldest first; all of them are newer than what is stored."""
        return [*(part.memory for part in self._parts()), self.recent]

    def added(self, rows: pa.RecordBatch) -> None:
        """To what is recent. In proportion to that older rows are written: whoever wrote less would have to write very many at
        once, as the memory of a part is free only when all of it is stored."""
        size = rows.nbytes
        self._recent_size += size
        self._recent_rows += rows.num_rows
        if self._recent_size + self._beside_rows(self.recent) > self.share.bytes // 2:
            self._put_aside()
        held, share = self._size(), self.share.bytes
        if self._gate.lets_write(held, share):
            whole_step = STEP_ROWS * size / max(rows.num_rows, 1)
            left = size * (PACE if held <= share else FASTER) - self._ahead
            while self._leaving and (left > 0 or self._size() > MOST_SHARES * share):
                # One that only lets buckets go takes its time too.
                written = self._step()
                left = max(left, 0) - written if written else max(left - whole_step, 0)
            self._ahead = max(-left, 0)

    def drop(self, namespace: int) -> None:
        self._drop(self.recent, namespace)
        parts = self._parts()
        for part in parts:
            self._drop(part.memory, namespace)
            part.dropped.add(namespace)
        held = [groups.pop(namespace, set()) for groups in self.written]
        if any(held) or parts:
            self._last_drop(parts).add(namespace, held)
        if not self._gate.is_shut:
            self._forget_done()
            while self._leaving and isinstance(first := self._leaving[0], Drop):
                self._step()
                if not first.is_done:
                    break  # very many had to wait: the others that are dropped now take them along

    def freeze(self) -> list[Callable[[], None]]:
        """Everything in memory, to be brought into RocksDB by whoever calls these, one after the other."""
        if self._recent_size:
            self._put_aside()
        for part in self._parts():
            part.is_frozen = True
        self._freeze_drops()
        return [_finish(each) for each in self._leaving]

    def resume(self, family: int, following: int) -> None:
        """Go on with what is in RocksDB."""
        self._store_waiting()
        self.written[family].update(self._families[family].namespaces())
        self.next = max(self.next, following)

    def restored_part(self) -> Part[M]:
        """One that is written to RocksDB by itself."""
        self._store_waiting()
        part = Part(self.next, self._begin(), 0, 0, len(self._families))
        self.next += 1
        return part

    def _store_waiting(self) -> None:
        """Of another family that was restored before: as long as a part waits, what has a higher number is not ``visible``."""
        while self._leaving:
            self._step()

    def know_restored(self, part: Part[M]) -> None:
        """What it brought can be read from now on."""
        for known, written in zip(self.written, part.written, strict=True):
            for namespace, groups in written.items():
                known.setdefault(namespace, set()).update(groups)

    def _put_aside(self) -> None:
        part = Part(self.next, self.recent, self._recent_size, self._recent_rows, len(self._families))
        part.steps = self._write(part)
        part.going = self._let_go(part)
        self._leaving.append(part)
        self.next += 1
        self.recent = self._begin()
        self._recent_size = 0
        self._recent_rows = 0

    def _last_drop(self, parts: list[Part[M]]) -> Drop:
        """One that is behind all of ``parts``. However many wait, they are few: whoever adds or reads looks at each."""
        last = self._leaving[-1] if self._leaving else None
        if not isinstance(last, Drop) or last.is_frozen:
            last = Drop(self._families, parts, self.written)
            self._leaving.append(last)
        return last

    def _freeze_drops(self) -> None:
        for each in self._leaving:
            if isinstance(each, Drop):
                each.is_frozen = True

    def _parts(self) -> list[Part[M]]:
        """Those that are read in memory."""
        return [each for each in self._leaving if isinstance(each, Part) and not each.is_known]

    def _size(self) -> int:
        rows = sum(each.size for each in self._leaving) + self._recent_size
        return rows + sum(self._beside_rows(memory) for memory in self.memories())

    def _step(self) -> float:
        """The gate is open. How many bytes of a part are done with."""
        self._forget_done()
        if not self._leaving:
            return 0
        done_with = self._leaving[0].step()
        self._forget_done()
        return done_with

    def _forget_done(self) -> None:
        while self._leaving and (first := self._leaving[0]).is_done:
            if isinstance(first, Part) and sum(1 for _ in islice(first.going, STEP_BUCKETS)) == STEP_BUCKETS:
                break
            self._leaving.popleft()
        for part in self._parts():
            part.is_frozen = False  # the gate is open: whatever snapshot needed it is linked, or given up

    def _let_go(self, part: Part[M]) -> Iterator[None]:
        """What it brought becomes known, and only then its memory is emptied. One bucket before each yield: there may be very many,
        and what was in memory takes long to go at once."""
        for known, written in zip(self.written, part.written, strict=True):
            for namespace, groups in written.items():
                if namespace not in part.dropped:
                    known.setdefault(namespace, set()).update(groups)
                yield
        part.is_known = True
        for namespace in chain.from_iterable(part.written):
            self._drop(part.memory, namespace)
            yield


def put_in_steps(
    part: Part[M],
    batches: Iterable[pa.RecordBatch],
    bucket_at: int,
    rows: int,
    put: Callable[[int, pa.RecordBatch], None],
) -> Iterator[int]:
    """``put`` gets so many rows at a time, unless their bucket was dropped meanwhile. Each batch is of one bucket, which its
    column ``bucket_at`` tells."""
    for whole in batches:
        bucket = whole.column(bucket_at)[0].as_py()
        for start in range(0, whole.num_rows, rows):
            some = whole.slice(start, rows)
            if part.needs(bucket):
                put(bucket, some)
            yield some.num_rows


def _is_in(namespace: int, going: Sequence[Mapping[int, object]]) -> bool:
    return any(namespace in namespaces for namespaces in going)


def _finish(leaving: "Part[M] | Drop") -> Callable[[], None]:
    def finish() -> None:
        while not leaving.is_done:
            leaving.step()

    return finish
