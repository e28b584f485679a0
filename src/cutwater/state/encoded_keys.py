"""Keys of any type as bytes that are equal if and only if the keys are, and back to columns."""

import operator
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.flow.arrow import Array, Field
from cutwater.flow.columns import (
    ALL_VALID,
    BytesColumn,
    FlatColumn,
    WideColumn,
    WordColumn,
    array_of_bytes,
    array_of_words,
    flatten,
    is_word,
    null_mask_buffer,
    valid_of,
)
from cutwater.state import key_kernels as kk

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.int64]


def encode(columns: Sequence[Array], records: int, *, head: int = 0, tail: int = 0) -> tuple[Bytes, Words]:
    """The keys' bytes one after the other, and where each begins (and the last ends). Each has ``head`` bytes of room before, and
    ``tail`` behind."""
    leaves = [leaf for column in columns for leaf in _leaves(column)]
    sizes = np.full(records, head + tail, np.int64)
    for leaf in leaves:
        match leaf:
            case WordColumn(_, valid):
                kk.add_fixed_sizes(8, valid, sizes)
            case WideColumn(_, width, valid):
                kk.add_fixed_sizes(width, valid, sizes)
            case BytesColumn(offsets, _, valid):
                kk.add_bytes_sizes(offsets, valid, sizes)
    starts = np.zeros(records + 1, np.int64)
    np.cumsum(sizes, out=starts[1:])
    out = np.empty(int(starts[-1]), np.uint8)
    cursor = starts[:-1] + head
    for leaf in leaves:
        match leaf:
            case WordColumn(words, valid):
                kk.encode_fixed(words.view(np.uint8), 8, valid, cursor, out)
            case WideColumn(data, width, valid):
                kk.encode_fixed(data, width, valid, cursor, out)
            case BytesColumn(offsets, data, valid):
                kk.encode_bytes(offsets, data, valid, cursor, out)
    return out, starts


def decode(addresses: Words, keys: pa.Schema) -> list[Array]:
    """The columns of the keys whose bytes begin at ``addresses``."""
    cursor = addresses.copy()
    return [_decode_column(cursor, field.type) for field in keys]


def apart(whole: Bytes, starts: Words) -> list[bytes]:
    """What ``encode`` gave, each by itself."""
    records = len(starts) - 1
    width = len(whole) // max(records, 1)
    if width and (np.diff(starts) == width).all():
        alike: list[bytes] = whole.view(f"V{width}").tolist()
        return alike
    raw, ends = whole.tobytes(), starts.tolist()
    return [raw[start:end] for start, end in pairwise(ends)]


def joined(parts: Sequence[bytes]) -> tuple[Bytes, Words]:
    """The inverse of ``apart``."""
    starts = np.zeros(len(parts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)), out=starts[1:])
    return np.frombuffer(b"".join(parts), np.uint8), starts


def plain(data_type: pa.DataType) -> pa.DataType:
    """The type that a decoded column has: dictionaries become their values. The same object where there are none."""
    if isinstance(data_type, pa.DictionaryType):
        return plain(data_type.value_type)
    if isinstance(data_type, pa.StructType):
        fields = list(data_type)
        decoded = list(map(plain_field, fields))
        return data_type if all(map(operator.is_, decoded, fields)) else pa.struct(decoded)
    return data_type


def plain_field(field: Field) -> Field:
    was = field.type
    decoded = plain(was)
    # Only where it differs: others get the interpreter where a field gets its type, and tables are also made in a cut.
    return field if decoded is was else field.with_type(decoded)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema(list(map(plain_field, schema)))


def _leaves(column: Array) -> Iterator[FlatColumn]:
    if not isinstance(column, pa.StructArray):
        yield flatten(column)
        return
    valid = valid_of(column)
    yield WordColumn((valid if len(valid) else np.ones(len(column), np.uint8)).astype(np.int64), ALL_VALID)
    for field in column.flatten():
        yield from _leaves(field)


def _decode_column(cursor: Words, data_type: pa.DataType) -> Array:
    t = pa.types
    if isinstance(data_type, pa.DictionaryType):
        return _decode_column(cursor, data_type.value_type)
    if isinstance(data_type, pa.StructType):
        present, _ = _decode_fixed(cursor, 8)
        children = [_decode_column(cursor, field.type) for field in data_type]
        mask = pa.array(present.view(np.int64) == 0)
        return pa.StructArray.from_arrays(children, fields=list(map(plain_field, data_type)), mask=mask)
    if t.is_null(data_type):
        _decode_fixed(cursor, 8)
        return pa.nulls(len(cursor))
    if is_word(data_type):
        data, valid = _decode_fixed(cursor, 8)
        return array_of_words(data.view(np.int64), data_type, valid)
    if t.is_decimal(data_type) or t.is_fixed_size_binary(data_type):
        data, valid = _decode_fixed(cursor, data_type.bit_width // 8)
        return pa.Array.from_buffers(data_type, len(cursor), [null_mask_buffer(valid), pa.py_buffer(data.data)])
    return _decode_bytes(cursor, data_type)


def _decode_fixed(cursor: Words, width: int) -> tuple[Bytes, npt.NDArray[np.bool_]]:
    data = np.zeros(len(cursor) * width, np.uint8)
    valid = np.empty(len(cursor), np.uint8)
    kk.decode_fixed(cursor, width, data, valid)
    return data, valid.view(np.bool_)


def _decode_bytes(cursor: Words, data_type: pa.DataType) -> Array:
    offsets = np.zeros(len(cursor) + 1, np.int64)
    valid = np.empty(len(cursor), np.uint8)
    kk.decode_sizes(cursor, offsets, valid)
    data = np.empty(int(offsets[-1]), np.uint8)
    kk.decode_bytes(cursor, offsets, valid, data)
    return array_of_bytes(offsets, data, valid.view(np.bool_), data_type)
