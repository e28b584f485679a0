"""Keys of a table as they were at a cut, and as columns again."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.flow.arrow import Array
from cutwater.flow.columns import array_of_words, is_word
from cutwater.flow.hashing import key_groups, unhash_words
from cutwater.state import index_kernels as ix
from cutwater.state.encoded_keys import decode


@dataclass(frozen=True, slots=True)
class FrozenKeys:
    """The keys of the first ``rows`` rows: rows are only ever appended, so this needs no copy."""

    schema: pa.Schema
    rows: int
    null_row: int
    hashes: "FrozenColumn"
    located: "FrozenColumn"
    arenas: Sequence[npt.NDArray[np.uint8]]

    def part(self, start: int, stop: int, max_parallelism: int) -> tuple[list[Array], Array]:
        """Key columns and key groups of rows ``start`` to ``stop``; ``start`` begins a chunk."""
        hashes = rows_of_chunks(self.hashes.chunks, 1, start, stop)
        groups = pa.array(key_groups(hashes, max_parallelism))
        if not is_exact(self.schema):
            located = rows_of_chunks(self.located.chunks, 2, start, stop)
            return decode(np.ascontiguousarray(located[::2]), self.schema), groups
        return self._exact(hashes, self.null_row - start), groups

    def some(self, rows: npt.NDArray[np.int32], max_parallelism: int) -> tuple[list[Array], Array]:
        """The same of any rows, ascending."""
        hashes = self.hashes.gathered(rows, 1).view(np.uint64)
        groups = pa.array(key_groups(hashes, max_parallelism))
        if not is_exact(self.schema):
            located = self.located.gathered(rows, 2)
            return decode(np.ascontiguousarray(located[::2]), self.schema), groups
        at = int(np.searchsorted(rows, self.null_row))
        return self._exact(hashes, at if at < len(rows) and rows[at] == self.null_row else -1), groups

    def _exact(self, hashes: npt.NDArray[np.uint64], null_at: int) -> list[Array]:
        valid = None
        if 0 <= null_at < len(hashes):
            valid = np.ones(len(hashes), np.bool_)
            valid[null_at] = False
        return [array_of_words(unhash_words(hashes), self.schema.field(0).type, valid)]


@dataclass(frozen=True, slots=True)
class FrozenColumn:
    """What the index keeps of each row, in chunks to which nothing but rows is added."""

    chunks: Sequence[npt.NDArray[Any]]
    addresses: npt.NDArray[np.int64]

    def gathered(self, rows: npt.NDArray[np.int32], words: int) -> npt.NDArray[np.int64]:
        out = np.empty(len(rows) * words, np.int64)
        ix.gather(rows, self.addresses, words, out)
        return out


def rows_of_chunks(chunks: Sequence[npt.NDArray[Any]], words: int, start: int, stop: int) -> npt.NDArray[Any]:
    """The words of rows ``start`` to ``stop``, where ``start`` begins a chunk."""
    first, last = start // ix.CHUNK_ROWS, (stop - 1) // ix.CHUNK_ROWS
    joined = np.concatenate(chunks[first : last + 1]) if last > first else chunks[first]
    return joined[: (stop - start) * words]


def is_exact(keys: pa.Schema) -> bool:
    """Does the hash identify the key, so that no key need be kept beside it?"""
    return len(keys) == 1 and is_word(keys.field(0).type)
