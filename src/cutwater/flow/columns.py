"""Arrow key columns as the flat numpy views that kernels read.

Every type that may be a key becomes one of three shapes. Two values are equal as keys if and only if their shapes hold equal
bits: floats are normalised (-0.0 is 0.0, all NaNs are one), narrow integers are widened, dictionaries are decoded.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.errors import SchemaError
from cutwater.flow.arrow import Array

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.int64]
Mask = npt.NDArray[np.uint8]

ALL_VALID: Mask = np.empty(0, np.uint8)
"""An empty mask stands for: no nulls. Else one byte for each value, 1 for valid."""


@dataclass(frozen=True, slots=True)
class WordColumn:
    """One 64-bit word for each value."""

    words: Words
    valid: Mask


@dataclass(frozen=True, slots=True)
class WideColumn:
    """``width`` bytes for each value."""

    data: Bytes
    width: int
    valid: Mask


@dataclass(frozen=True, slots=True)
class BytesColumn:
    """Value i is ``data[offsets[i]:offsets[i + 1]]``."""

    offsets: npt.NDArray[np.int64]
    data: Bytes
    valid: Mask


FlatColumn = WordColumn | WideColumn | BytesColumn


def is_word(data_type: pa.DataType) -> bool:
    """Does a value of this type fit into 64 bits, so that its hash identifies it?"""
    t = pa.types
    return (
        t.is_integer(data_type)
        or t.is_floating(data_type)
        or t.is_boolean(data_type)
        or (t.is_temporal(data_type) and not t.is_interval(data_type))
    )


def is_bytes(data_type: pa.DataType) -> bool:
    """Is a value of this type a text, or bytes, of any length?"""
    return any(check(data_type) for check in _BYTES_CHECKS)


def check_key_type(name: str, data_type: pa.DataType) -> None:
    """SchemaError for a type that cannot be a key, or a part of one."""
    t = pa.types
    if t.is_struct(data_type):
        for child in data_type:
            check_key_type(f"{name}.{child.name}", child.type)
        return
    if t.is_dictionary(data_type):
        check_key_type(name, data_type.value_type)
        return
    allowed = (
        is_word(data_type) or t.is_null(data_type) or t.is_decimal(data_type) or t.is_fixed_size_binary(data_type)
        or is_bytes(data_type)
    )  # fmt: skip
    if not allowed:
        raise SchemaError(
            f"key column {name!r} has the type {data_type}, which cannot be a key. "
            "Allowed are numbers, booleans, strings, binary, dates, timestamps, decimals and structs of those."
        )


def flatten(array: Array) -> FlatColumn:
    """The flat view of a column that is not a struct; without a copy for 64-bit integers and for strings."""
    t = pa.types
    data_type = array.type
    if t.is_dictionary(data_type):
        array = array.dictionary_decode()  # type: ignore[attr-defined]
        data_type = array.type
    if t.is_null(data_type):
        return WordColumn(np.zeros(len(array), np.int64), np.zeros(len(array), np.uint8))
    if is_word(data_type):
        return WordColumn(words_of(array), valid_of(array))
    if is_bytes(data_type):
        return _bytes_of(array)
    if t.is_decimal(data_type) or t.is_fixed_size_binary(data_type):
        width = data_type.bit_width // 8
        return WideColumn(_buffer(array.buffers()[1], array.offset * width, len(array) * width), width, valid_of(array))
    raise SchemaError(f"a column of type {data_type} cannot be a key.")


def valid_of(array: Array) -> Mask:
    """The validity mask; empty if there are no nulls."""
    if array.null_count == 0:
        return ALL_VALID
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False)).view(np.uint8)


def words_of(array: Array, *, normalise: bool = True) -> Words:
    """Values of a type for which ``is_word`` holds as 64-bit words; what stands at a null is undefined."""
    t = pa.types
    data_type = array.type
    if t.is_boolean(data_type):
        array = array.cast(pa.uint8())
        data_type = array.type
    if t.is_floating(data_type):
        if not t.is_float64(data_type):
            array = array.cast(pa.float64())
        floats = _buffer(array.buffers()[1], array.offset * 8, len(array) * 8).view(np.float64)
        if not normalise:
            return floats.view(np.int64)
        normal = floats + 0.0  # -0.0 + 0.0 is 0.0
        normal[np.isnan(normal)] = np.nan
        return normal.view(np.int64)
    width = data_type.bit_width // 8
    raw = _buffer(array.buffers()[1], array.offset * width, len(array) * width)
    if width == 8:
        return raw.view(np.int64)
    signed = not t.is_unsigned_integer(data_type)
    return raw.view(np.dtype(f"{'i' if signed else 'u'}{width}")).astype(np.int64)


def shown_keys(array: Array) -> Array:
    """A key column as results show it: of floats that are the same key one, 0.0 for -0.0, and one NaN."""
    match array:
        case pa.StructArray() if _has_floats(array.type):
            shown = [shown_keys(array.field(i)) for i in range(array.type.num_fields)]
            mask = array.is_null() if array.null_count else None
            return pa.StructArray.from_arrays(shown, fields=list(array.type), mask=mask)
        case pa.DictionaryArray() if pa.types.is_floating(array.dictionary.type):
            return pa.DictionaryArray.from_arrays(
                array.indices, shown_keys(array.dictionary), ordered=array.type.ordered
            )
        case _ if pa.types.is_floating(array.type):
            valid = valid_of(array)
            return array_of_words(words_of(array), array.type, valid.view(np.bool_) if len(valid) else None)
        case _:
            return array


def _has_floats(data_type: pa.DataType) -> bool:
    if isinstance(data_type, pa.DictionaryType):
        return _has_floats(data_type.value_type)
    if isinstance(data_type, pa.StructType):
        return any(_has_floats(field.type) for field in data_type)
    return pa.types.is_floating(data_type)


def array_of_words(words: Words, data_type: pa.DataType, valid: npt.NDArray[np.bool_] | None = None) -> Array:
    """The inverse of ``words_of``. The array may share the memory of ``words``, which nobody writes to any more."""
    t = pa.types
    nulls = None if valid is None else ~valid
    if t.is_floating(data_type):
        return _nulled(pa.array(words.view(np.float64)).cast(data_type), nulls)
    if t.is_boolean(data_type):
        return _nulled(pa.array(words != 0), nulls)
    if t.is_unsigned_integer(data_type) or t.is_signed_integer(data_type):
        return _nulled(pa.array(words.astype(data_type.to_pandas_dtype(), copy=False)), nulls)
    narrow = words.astype(np.int32) if data_type.bit_width == 32 else words
    return _nulled(pa.array(narrow).view(data_type), nulls)


def array_of_bytes(offsets: Words, data: Bytes, valid: npt.NDArray[np.bool_], data_type: pa.DataType) -> Array:
    """Texts or bytes that stand one behind the other in ``data``. The array shares its memory."""
    t = pa.types
    is_text = t.is_string(data_type) or t.is_large_string(data_type) or t.is_string_view(data_type)
    nulls = None if valid.all() else null_mask_buffer(valid)
    buffers = [nulls, pa.py_buffer(offsets.data), pa.py_buffer(data.data)]
    large = pa.Array.from_buffers(pa.large_string() if is_text else pa.large_binary(), len(valid), buffers)
    return large.cast(data_type)


def null_mask_buffer(valid: npt.NDArray[np.bool_]) -> pa.Buffer:
    """A validity bitmap for ``pa.Array.from_buffers``."""
    return pa.py_buffer(np.packbits(valid, bitorder="little").data)


def _nulled(array: Array, nulls: npt.NDArray[np.bool_] | None) -> Array:
    if nulls is None or not nulls.any():
        return array
    buffers = array.buffers()
    return pa.Array.from_buffers(array.type, len(array), [null_mask_buffer(~nulls), *buffers[1:]], offset=array.offset)


def _bytes_of(array: Array) -> BytesColumn:
    t = pa.types
    data_type = array.type
    if not (t.is_large_string(data_type) or t.is_large_binary(data_type)):
        if t.is_string_view(data_type) or t.is_binary_view(data_type):
            array = array.cast(pa.large_binary())
        else:
            _, offsets, data = array.buffers()
            narrow = _buffer(offsets, array.offset * 4, (len(array) + 1) * 4).view(np.int32)
            return BytesColumn(narrow.astype(np.int64), _whole(data), valid_of(array))
    _, offsets, data = array.buffers()
    return BytesColumn(
        _buffer(offsets, array.offset * 8, (len(array) + 1) * 8).view(np.int64), _whole(data), valid_of(array)
    )


def _whole(buffer: pa.Buffer | None) -> Bytes:
    return np.empty(0, np.uint8) if buffer is None else np.frombuffer(memoryview(buffer), np.uint8)


def _buffer(buffer: pa.Buffer | None, start: int, size: int) -> Bytes:
    if buffer is None or size == 0:
        return np.zeros(size, np.uint8)
    part = np.frombuffer(memoryview(buffer), np.uint8, count=size, offset=start)
    # Kernels load whole words; a buffer that came over the network may stand at any address.
    return part if part.ctypes.data % 8 == 0 else part.copy()


_BYTES_CHECKS = (
    pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary,
    pa.types.is_string_view, pa.types.is_binary_view,
)  # fmt: skip
