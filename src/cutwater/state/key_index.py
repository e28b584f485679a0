"""From keys to row numbers: dense, in the order of first appearance, never reused."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.errors import DataError, RestoreError
from cutwater.flow.arrow import Array
from cutwater.flow.columns import ALL_VALID, valid_of
from cutwater.flow.hashing import hash_arrays
from cutwater.state import index_building as ib
from cutwater.state import index_kernels as ix
from cutwater.state.encoded_keys import encode, plain_schema
from cutwater.state.frozen_keys import FrozenColumn, FrozenKeys, is_exact
from cutwater.state.pointers import address
from cutwater.state.tables import Rows, Touched

FIRST_SLOTS = 64
ARENA_BYTES = 1 << 18
MAX_ROWS = 2**31 - 2
_NO_OFFSETS = np.zeros(1, np.int64)
_PART_NUMBERS = np.arange(ix.PARTS, dtype=np.int64)
_LOAD = np.linspace(0.4, 0.7, ix.PARTS)
"""How full a part may be. Each has another limit, so that they do not all grow with the same batch."""


class AddressedChunks:
    """A growing list of equal arrays, with their addresses side by side for the kernels."""

    def __init__(self, words_per_row: int, dtype: type[np.generic] = np.int64, *, words_behind: int = 0) -> None:
        self._words_per_row = words_per_row
        self._shape = ix.CHUNK_ROWS * words_per_row + words_behind
        self._dtype = dtype
        self.arrays: list[npt.NDArray[Any]] = []
        self.addresses = np.zeros(16, np.int64)
        self._spare: list[npt.NDArray[Any]] = []
        """Arrays of snapshots that were read: fresh memory would have to be cleared by the kernel, page by page, first."""

    def add(self) -> None:
        self.arrays.append(np.zeros(self._shape, self._dtype))
        if len(self.arrays) > len(self.addresses):
            self.addresses = np.concatenate([self.addresses, np.zeros_like(self.addresses)])
        self.addresses[len(self.arrays) - 1] = address(self.arrays[-1])

    def put(self, row: int, words: npt.NDArray[Any]) -> None:
        """The words of rows from ``row`` on; there are chunks for all of them."""
        chunk_words = ix.CHUNK_ROWS * self._words_per_row
        at, done = row * self._words_per_row, 0
        while done < len(words):
            chunk, start = divmod(at + done, chunk_words)
            size = min(chunk_words - start, len(words) - done)
            self.arrays[chunk][start : start + size] = words[done : done + size]
            done += size

    def replace(self, chunk: int) -> None:
        """Go on with a copy; whoever holds the old array keeps it as it is."""
        copy = self._spare.pop() if self._spare else np.empty(self._shape, self._dtype)
        np.copyto(copy, self.arrays[chunk])
        self.arrays[chunk] = copy
        self.addresses[chunk] = address(copy)

    def take_back(self, arrays: Sequence[npt.NDArray[Any]]) -> None:
        """Arrays that were ours at one moment and that nobody reads any more, unless they still are ours. From any thread."""
        self._spare.extend(old for old, own in zip(arrays, self.arrays, strict=False) if old is not own)


class KeyIndex:
    """Belongs to one table. The parts double one after the other, not together: no single batch pays for all of them."""

    def __init__(self, keys: pa.Schema, expected: int = 0) -> None:
        """Keys are kept and given back in the plain types of ``keys``. So many ``expected`` ones need no growing."""
        self.keys = plain_schema(keys)
        self._exact = is_exact(self.keys)
        self._state = np.zeros(ix.FIELDS, np.int64)
        self._state[ix.NULL_ROW] = -1
        # In one piece at first: there are many small indexes, and each part by itself would cost more than what is in it.
        slots = max(FIRST_SLOTS, 1 << int(expected / ix.PARTS / _LOAD[0]).bit_length())
        first = np.zeros((ix.PARTS, 2 * slots), np.uint64)
        self._parts = list(first)
        self._at = address(first) + first.strides[0] * _PART_NUMBERS
        self._mask = np.full(ix.PARTS, slots - 1, np.int64)
        self._used = np.zeros(ix.PARTS, np.int64)
        self._limit = (_LOAD * slots).astype(np.int64)
        self._hashes = AddressedChunks(1, np.uint64)
        self._located = AddressedChunks(2)
        self._arenas: list[npt.NDArray[np.uint8]] = []
        self.nbytes = first.nbytes
        """About what it takes in memory."""

    def __len__(self) -> int:
        return int(self._state[ix.ROWS])

    def locate(self, columns: Sequence[Array], records: int) -> Touched:
        """The rows of ``records`` keys; new keys get the next numbers."""
        hashes = hash_arrays(columns, records)
        rows = np.empty(records, np.int32)
        first = np.empty(records, np.int64)
        unique = np.empty(records, np.int32)
        encoded, offsets, valid = self._encoded(columns, records)
        self._next_batch()
        where = 0 if self._exact else address(encoded)
        while True:
            reason = ix.locate(
                hashes, valid, where, offsets, self._state, self._at, self._mask, self._used, self._limit,
                self._hashes.addresses, self._located.addresses, rows, first, unique,
            )  # fmt: skip
            match reason:
                case ix.DONE:
                    break
                case ix.GROW_PART:
                    self._grow(int(self._state[ix.PART]))
                case ix.ADD_CHUNK:
                    self._add_chunk()
                case ix.ADD_ARENA:
                    self._add_arena(int(self._state[ix.NEEDED]))
        touched = int(self._state[ix.TOUCHED])
        return Touched(rows, first[:touched], unique[:touched])

    def append(self, columns: Sequence[Array], records: int) -> Rows:
        """The rows of ``records`` new keys, all different. They are not found before ``build``."""
        start = len(self)
        encoded, offsets, valid = self._encoded(columns, records)
        while self._state[ix.CAPACITY] < start + records:
            self._add_chunk()
        self._hashes.put(start, hash_arrays(columns, records))
        if not self._exact:
            self._keep_arena(encoded)
            self._located.put(start, np.stack([offsets[:-1] + address(encoded), np.diff(offsets)], axis=1).ravel())
        if len(valid):
            [null, *more] = np.flatnonzero(valid == 0).tolist()
            if more or self._state[ix.NULL_ROW] >= 0:
                raise same_key_twice()
            self._state[ix.NULL_ROW] = start + null
        self._state[ix.ROWS] = start + records
        return np.arange(start, start + records, dtype=np.int32)

    def build(self) -> bool:
        """Let all rows be found. Much faster than to look for each key, and to grow again and again, while they come. False: they
        are not, as a key is there twice."""
        null_row = int(self._state[ix.NULL_ROW])
        ib.count(self._hashes.addresses, len(self), null_row, self._used)
        ends = np.cumsum(self._used) - self._used
        hashes, rows = np.empty(len(self), np.uint64), np.empty(len(self), np.int32)
        ib.by_part(self._hashes.addresses, len(self), null_row, ends, hashes, rows)
        located = self._located.addresses[: 0 if self._exact else None]
        for part, (count, end) in enumerate(zip(self._used.tolist(), ends.tolist(), strict=True)):
            slots = FIRST_SLOTS
            while _LOAD[part] * slots < count + 1:
                slots *= 2
            self._set_part(part, np.zeros(2 * slots, np.uint64))
            own = slice(end - count, end)
            if not ib.build(hashes[own], rows[own], located, self._parts[part]):
                return False
        return True

    def find(self, columns: Sequence[Array], records: int) -> npt.NDArray[np.int32]:
        """The rows of those keys that have one, -1 for the others. Changes nothing."""
        rows = np.empty(records, np.int32)
        encoded, offsets, valid = self._encoded(columns, records)
        where = 0 if self._exact else address(encoded)
        ix.find(
            hash_arrays(columns, records), valid, where, offsets, self._state, self._at, self._mask,
            self._located.addresses, rows,
        )  # fmt: skip
        return rows

    def _encoded(
        self, columns: Sequence[Array], records: int
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
        """The bytes of the keys, where each begins, and which are null: as the kernels want them."""
        if self._exact:
            return np.empty(0, np.uint8), _NO_OFFSETS, valid_of(columns[0])
        encoded, offsets = encode(columns, records)
        return encoded, offsets, ALL_VALID

    def freeze(self) -> FrozenKeys:
        return FrozenKeys(
            self.keys,
            len(self),
            int(self._state[ix.NULL_ROW]),
            _frozen(self._hashes),
            _frozen(self._located),
            tuple(self._arenas),
        )

    def _next_batch(self) -> None:
        self._state[ix.RESUME] = 0
        self._state[ix.TOUCHED] = 0
        self._state[ix.STAMP] += 1
        if self._state[ix.STAMP] == 1 << 32:
            for part in self._parts:
                ix.clear_stamps(part)
            self._state[ix.STAMP] = 1
            self._state[ix.NULL_STAMP] = 0

    def _grow(self, part: int) -> None:
        slots = 2 * (int(self._mask[part]) + 1)
        grown = np.zeros(2 * slots, np.uint64)
        ix.rehash(self._parts[part], grown)
        self._set_part(part, grown)

    def _set_part(self, part: int, entries: npt.NDArray[np.uint64]) -> None:
        slots = len(entries) // 2
        self.nbytes += entries.nbytes - self._parts[part].nbytes
        self._parts[part] = entries
        self._at[part] = address(entries)
        self._mask[part] = slots - 1
        self._limit[part] = int(_LOAD[part] * slots)

    def _add_chunk(self) -> None:
        if self._state[ix.CAPACITY] >= MAX_ROWS - ix.CHUNK_ROWS:
            raise DataError(f"more than {MAX_ROWS:,} keys in one subtask: raise the parallelism.")
        self._hashes.add()
        self.nbytes += self._hashes.arrays[-1].nbytes
        if not self._exact:
            self._located.add()
            self.nbytes += self._located.arrays[-1].nbytes
        self._state[ix.CAPACITY] += ix.CHUNK_ROWS

    def _add_arena(self, needed: int) -> None:
        arena = np.empty(max(ARENA_BYTES, needed), np.uint8)
        self._keep_arena(arena)
        self._state[ix.ARENA_AT] = address(arena)
        self._state[ix.ARENA_END] = address(arena) + len(arena)

    def _keep_arena(self, arena: npt.NDArray[np.uint8]) -> None:
        self._arenas.append(arena)
        self.nbytes += arena.nbytes


def _frozen(column: AddressedChunks) -> FrozenColumn:
    # No chunk of it is ever replaced: later addresses come behind, or all of them go to a larger array.
    return FrozenColumn(tuple(column.arrays), column.addresses)


def same_key_twice() -> RestoreError:
    return RestoreError("restored state holds a key twice: its files do not belong together.")
