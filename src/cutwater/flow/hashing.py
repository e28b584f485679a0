"""The hash that decides where a key lives. It is part of the stored format: it never changes."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.errors import SchemaError
from cutwater.flow.arrow import Array
from cutwater.flow.columns import BytesColumn, FlatColumn, WideColumn, WordColumn, flatten, valid_of
from cutwater.flow.compiled import inlined, kernel
from cutwater.flow.partitioning import partition

__all__ = ["hash_arrays", "hash_columns", "hash_flat", "key_groups", "partition", "unhash_words"]

Hashes = npt.NDArray[np.uint64]
Targets = npt.NDArray[np.int32]

SEED = np.uint64(0x9E3779B97F4A7C15)
NULL_HASH = np.uint64(0xC2B2AE3D27D4EB4F)
M1 = np.uint64(0xFF51AFD7ED558CCD)
M2 = np.uint64(0xC4CEB9FE1A85EC53)
M1_INVERSE = np.uint64(pow(0xFF51AFD7ED558CCD, -1, 2**64))
M2_INVERSE = np.uint64(pow(0xC4CEB9FE1A85EC53, -1, 2**64))
BLOCK = np.uint64(0xC6A4A7935BD1E995)
S6, S2, S47, S33 = np.uint64(6), np.uint64(2), np.uint64(47), np.uint64(33)


def hash_columns(batch: pa.RecordBatch, columns: Sequence[str]) -> Hashes:
    """A 64-bit hash of the key that ``columns`` form in each row; the same on every machine, in every version."""
    hashes = [_hash_array(batch.column(_index(batch.schema, name))) for name in columns]
    return _combined(hashes, batch.num_rows)


def hash_arrays(arrays: Sequence[Array], rows: int) -> Hashes:
    """``hash_columns`` of columns that are at hand."""
    return _combined([_hash_array(array) for array in arrays], rows)


def key_groups(hashes: Hashes, max_parallelism: int) -> Targets:
    """Key group = hash % max_parallelism."""
    groups = np.empty(len(hashes), np.int32)
    if max_parallelism & (max_parallelism - 1) == 0:
        _groups_of_power(hashes, max_parallelism - 1, groups)
    else:
        _groups_of_any(hashes, max_parallelism, groups)
    return groups


def unhash_words(hashes: Hashes) -> npt.NDArray[np.int64]:
    """The words whose hashes these are: on 64 bits the hash is a bijection."""
    words = np.empty(len(hashes), np.int64)
    _unhash(hashes, words)
    return words


def _index(schema: pa.Schema, name: str) -> int:
    index = schema.get_field_index(name)
    if index < 0:
        raise SchemaError(f"no key column {name!r}; available: {', '.join(schema.names)}")
    return index


def _combined(hashes: Sequence[Hashes], rows: int) -> Hashes:
    if not hashes:
        return np.full(rows, NULL_HASH, np.uint64)
    total = hashes[0]
    for more in hashes[1:]:
        _combine(total, more)
    return total


def _hash_array(array: Array) -> Hashes:
    if isinstance(array, pa.StructArray):
        fields = array.flatten()
        # A struct of one field must not hash like a tuple of nothing: each level is mixed once more.
        inner = _combined([_hash_array(field) for field in fields], len(array))
        _combine(inner, np.full(len(array), SEED, np.uint64))
        _put_nulls(inner, valid_of(array))
        return inner
    if isinstance(array, pa.DictionaryArray):
        of_values = np.append(_hash_array(array.dictionary), NULL_HASH)
        indices = array.indices.fill_null(len(array.dictionary)).to_numpy(zero_copy_only=False)
        return np.asarray(of_values[indices], dtype=np.uint64)
    return hash_flat(flatten(array))


def hash_flat(column: FlatColumn) -> Hashes:
    """The hash of a single flat column."""
    match column:
        case WordColumn(words, valid):
            hashes = np.empty(len(words), np.uint64)
            _hash_words(words, hashes)
        case WideColumn(data, width, valid):
            hashes = np.empty(len(data) // width, np.uint64)
            _hash_bytes(np.arange(len(hashes) + 1, dtype=np.int64) * width, data, hashes)
        case BytesColumn(offsets, data, valid):
            hashes = np.empty(len(offsets) - 1, np.uint64)
            _hash_bytes(offsets, data, hashes)
    _put_nulls(hashes, valid)
    return hashes


def _put_nulls(hashes: Hashes, valid: npt.NDArray[np.uint8]) -> None:
    if len(valid):
        hashes[valid == 0] = NULL_HASH


@inlined
def _mix(x):  # type: ignore[no-untyped-def]
    x ^= x >> S33
    x *= M1
    x ^= x >> S33
    x *= M2
    x ^= x >> S33
    return x


@kernel("void(ro(int64), rw(uint64))")
def _hash_words(words: npt.NDArray[np.int64], out: Hashes) -> None:
    for i in range(len(words)):
        out[i] = _mix(np.uint64(words[i]) ^ SEED)


@kernel("void(ro(uint64), rw(int64))")
def _unhash(hashes: Hashes, out: npt.NDArray[np.int64]) -> None:
    for i in range(len(hashes)):
        x = hashes[i]
        x ^= x >> S33
        x *= M2_INVERSE
        x ^= x >> S33
        x *= M1_INVERSE
        x ^= x >> S33
        out[i] = np.int64(x ^ SEED)


@kernel("void(ro(int64), ro(uint8), rw(uint64))")
def _hash_bytes(offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8], out: Hashes) -> None:
    for i in range(len(out)):
        at, end = offsets[i], offsets[i + 1]
        h = SEED ^ (np.uint64(end - at) * BLOCK)
        while at + 8 <= end:
            k = np.uint64(0)
            for b in range(8):
                k |= np.uint64(data[at + b]) << np.uint64(8 * b)
            k *= BLOCK
            k ^= k >> S47
            k *= BLOCK
            h ^= k
            h *= BLOCK
            at += 8
        if at < end:
            k = np.uint64(0)
            for b in range(end - at):
                k |= np.uint64(data[at + b]) << np.uint64(8 * b)
            h ^= k
            h *= BLOCK
        out[i] = _mix(h)


@kernel("void(rw(uint64), ro(uint64))")
def _combine(total: Hashes, more: Hashes) -> None:
    for i in range(len(total)):
        h = total[i]
        total[i] = _mix(h ^ (more[i] + SEED + (h << S6) + (h >> S2)))


@kernel("void(ro(uint64), int64, rw(int32))")
def _groups_of_power(hashes: Hashes, mask: int, out: Targets) -> None:
    for i in range(len(hashes)):
        out[i] = np.int32(hashes[i] & np.uint64(mask))


@kernel("void(ro(uint64), int64, rw(int32))")
def _groups_of_any(hashes: Hashes, modulus: int, out: Targets) -> None:
    for i in range(len(hashes)):
        out[i] = np.int32(hashes[i] % np.uint64(modulus))
