"""From keys to row numbers: dense, in the order of first appearance, never reused."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.errors import DataError
from cutwater.flow.arrow import Array
from cutwater.flow.columns import ALL_VALID, array_of_words, is_word, valid_of
from cutwater.flow.hashing import hash_arrays, key_groups, unhash_words
from cutwater.state import index_kernels as ix
from cutwater.state.encoded_keys import decode, encode, plain
from cutwater.state.pointers import address
from cutwater.state.tables import Touched

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

    def replace(self, chunk: int) -> None:
        """Go on with a copy; whoever holds the old array keeps it as it is."""
        copy = self._spare.pop() if self._spare else np.empty(self._shape, self._dtype)
        np.copyto(copy, self.arrays[chunk])
        self.arrays[chunk] = copy
        self.addresses[chunk] = address(copy)

    def take_back(self, arrays: Sequence[npt.NDArray[Any]]) -> None:
        """Arrays that were ours at one moment and that nobody reads any more, unless they still are ours. From any thread."""
        self._spare.extend(old for old, own in zip(arrays, self.arrays, strict=False) if old is not own)


@dataclass(frozen=True, slots=True)
class FrozenKeys:
    """The keys of the first ``rows`` rows: rows are only ever appended, so this needs no copy."""

    schema: pa.Schema
    rows: int
    null_row: int
    hashes: Sequence[npt.NDArray[np.uint64]]
    located: Sequence[npt.NDArray[np.int64]]
    arenas: Sequence[npt.NDArray[np.uint8]]

    def part(self, start: int, stop: int, max_parallelism: int) -> tuple[list[Array], Array]:
        """Key columns and key groups of rows ``start`` to ``stop``; ``start`` begins a chunk."""
        hashes = rows_of_chunks(self.hashes, 1, start, stop)
        groups = pa.array(key_groups(hashes, max_parallelism))
        if not is_exact(self.schema):
            located = rows_of_chunks(self.located, 2, start, stop)
            return decode(np.ascontiguousarray(located[::2]), self.schema), groups
        return self._exact(hashes, self.null_row - start), groups

    def some(self, rows: npt.NDArray[np.int32], max_parallelism: int) -> tuple[list[Array], Array]:
        """The same of any rows, ascending."""
        hashes = _gathered(rows, self.hashes, 1).view(np.uint64)
        groups = pa.array(key_groups(hashes, max_parallelism))
        if not is_exact(self.schema):
            located = _gathered(rows, self.located, 2)
            return decode(np.ascontiguousarray(located[::2]), self.schema), groups
        at = int(np.searchsorted(rows, self.null_row))
        return self._exact(hashes, at if at < len(rows) and rows[at] == self.null_row else -1), groups

    def _exact(self, hashes: npt.NDArray[np.uint64], null_at: int) -> list[Array]:
        valid = None
        if 0 <= null_at < len(hashes):
            valid = np.ones(len(hashes), np.bool_)
            valid[null_at] = False
        return [array_of_words(unhash_words(hashes), self.schema.field(0).type, valid)]


def _gathered(rows: npt.NDArray[np.int32], chunks: Sequence[npt.NDArray[Any]], words: int) -> npt.NDArray[np.int64]:
    out = np.empty(len(rows) * words, np.int64)
    ix.gather(rows, np.array([address(chunk) for chunk in chunks], np.int64), words, out)
    return out


def rows_of_chunks(chunks: Sequence[npt.NDArray[Any]], words: int, start: int, stop: int) -> npt.NDArray[Any]:
    """The words of rows ``start`` to ``stop``, where ``start`` begins a chunk."""
    first, last = start // ix.CHUNK_ROWS, (stop - 1) // ix.CHUNK_ROWS
    joined = np.concatenate(chunks[first : last + 1]) if last > first else chunks[first]
    return joined[: (stop - start) * words]


def is_exact(keys: pa.Schema) -> bool:
    """Does the hash identify the key, so that no key need be kept beside it?"""
    return len(keys) == 1 and is_word(keys.field(0).type)


class KeyIndex:
    """Belongs to one table. The parts double one after the other, not together: no single batch pays for all of them."""

    def __init__(self, keys: pa.Schema, expected: int = 0) -> None:
        """Keys are kept and given back in the plain types of ``keys``. So many ``expected`` ones need no growing."""
        self.keys = pa.schema([field.with_type(plain(field.type)) for field in keys])
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
            tuple(self._hashes.arrays),
            tuple(self._located.arrays),
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
        self._parts[part] = grown
        self._at[part] = address(grown)
        self._mask[part] = slots - 1
        self._limit[part] = int(_LOAD[part] * slots)

    def _add_chunk(self) -> None:
        if self._state[ix.CAPACITY] >= MAX_ROWS - ix.CHUNK_ROWS:
            raise DataError(f"more than {MAX_ROWS:,} keys in one subtask: raise the parallelism.")
        self._hashes.add()
        if not self._exact:
            self._located.add()
        self._state[ix.CAPACITY] += ix.CHUNK_ROWS

    def _add_arena(self, needed: int) -> None:
        arena = np.empty(max(ARENA_BYTES, needed), np.uint8)
        self._arenas.append(arena)
        self._state[ix.ARENA_AT] = address(arena)
        self._state[ix.ARENA_END] = address(arena) + len(arena)
