"""Columns of structs, lists and maps as columns of numbers and bytes, as many values in each, and back.

A struct is whether it is there, then its fields. A list is its length, then for each column that its elements are made of the
elements' values of a row, one behind the other, as bytes.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.flow.arrow import Array
from cutwater.flow.columns import (
    BytesColumn,
    WideColumn,
    WordColumn,
    array_of_bytes,
    array_of_words,
    flatten,
    is_bytes,
    is_word,
    null_mask_buffer,
    valid_of,
    words_of,
)

_BYTES = pa.large_binary()
_WORD = 8
_NULL = -1
"""In the place of a size."""

Bytes = npt.NDArray[np.uint8]
Edges = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Shape(ABC):
    """How values of one type are taken apart. ``types`` are those of its leaves: numbers, texts, bytes and decimals."""

    types: tuple[pa.DataType, ...]

    @abstractmethod
    def apart(self, column: Array) -> list[Array]: ...

    @abstractmethod
    def together(self, leaves: Iterator[Array]) -> Array:
        """Takes as many as there are ``types``."""


def shape_of(data_type: pa.DataType) -> Shape | None:
    """None: values of the type cannot be taken apart. Of a type without dictionaries."""
    t = pa.types
    if is_word(data_type) or is_bytes(data_type) or t.is_decimal(data_type) or t.is_fixed_size_binary(data_type):
        return _Leaf(data_type)
    if isinstance(data_type, pa.StructType):
        return _shape_of_struct(data_type)
    if isinstance(data_type, pa.MapType):
        pair = _shape_of_struct(pa.struct([data_type.key_field, data_type.item_field]), may_be_null=False)
        return None if pair is None else _List(data_type, pair)
    if isinstance(data_type, pa.ListType):
        element = shape_of(data_type.value_type)
        return None if element is None else _List(data_type, element)
    return None


def _shape_of_struct(data_type: pa.StructType, *, may_be_null: bool = True) -> "_Struct | None":
    fields = [shape_of(field.type) for field in data_type]
    known = [field for field in fields if field is not None]
    return _Struct(data_type, known, may_be_null=may_be_null) if len(known) == len(fields) else None


class _Leaf(Shape):
    def __init__(self, data_type: pa.DataType) -> None:
        self.types = (data_type,)

    def apart(self, column: Array) -> list[Array]:
        return [column]

    def together(self, leaves: Iterator[Array]) -> Array:
        return next(leaves)


class _Struct(Shape):
    def __init__(self, data_type: pa.StructType, fields: Sequence[Shape], *, may_be_null: bool) -> None:
        self._type = data_type
        self._fields = fields
        # Without fields, the only thing that tells how many there are.
        self._tells = may_be_null or not fields
        told = [pa.bool_()] if self._tells else []
        self.types = (*told, *(leaf for field in fields for leaf in field.types))

    def apart(self, column: Any) -> list[Array]:
        told = [column.is_valid()] if self._tells else []
        fields = zip(self._fields, column.flatten(), strict=True)
        return [*told, *(leaf for shape, field in fields for leaf in shape.apart(field))]

    def together(self, leaves: Iterator[Array]) -> Array:
        valid = next(leaves).to_numpy(zero_copy_only=False) if self._tells else None
        fields: list[Any] = [field.together(leaves) for field in self._fields]
        count = len(fields[0]) if valid is None else len(valid)
        mask = None if valid is None else _mask(valid)
        return pa.Array.from_buffers(self._type, count, [mask], children=fields)


class _List(Shape):
    """Of a map too: a list of pairs."""

    def __init__(self, data_type: Any, element: Shape) -> None:
        self._type = data_type
        self._element = element
        self.types = (pa.int64(), *(_BYTES for _ in element.types for _ in range(2)))

    def apart(self, column: Any) -> list[Array]:
        edges = column.offsets.to_numpy().astype(np.int64)
        elements = _elements(column).slice(int(edges[0]), int(edges[-1] - edges[0]))
        lengths = np.diff(edges)
        valid = valid_of(column).view(np.bool_)
        if len(valid) and lengths[~valid].any():  # what stands behind a null is nobody's
            elements = elements.filter(pa.array(np.repeat(valid, lengths)))
            lengths[~valid] = 0
        edges = _summed(lengths)
        told = array_of_words(lengths, pa.int64(), valid if len(valid) else None)
        return [told, *(part for leaf in self._element.apart(elements) for part in _gathered(leaf, edges))]

    def together(self, leaves: Iterator[Array]) -> Array:
        told = next(leaves)
        valid = valid_of(told).view(np.bool_) if told.null_count else np.ones(len(told), np.bool_)
        lengths = np.where(valid, words_of(told), 0)
        edges = _summed(lengths)
        elements: Any = self._element.together(
            _scattered(next(leaves), next(leaves), leaf, lengths) for leaf in self._element.types
        )
        offsets = pa.py_buffer(edges.astype(np.int32).data)
        return pa.Array.from_buffers(self._type, len(told), [_mask(valid), offsets], children=[elements])


def _elements(column: Any) -> Any:
    if not isinstance(column, pa.MapArray):
        return column.values
    fields: Any = [column.type.key_field, column.type.item_field]
    return pa.StructArray.from_arrays([column.keys, column.items], fields=fields)


def _gathered(leaf: Array, edges: Edges) -> tuple[Array, Array]:
    """Of a leaf of elements: the values of each row, and what tells how to read them (sizes, or which are there)."""
    if is_word(leaf.type):
        return _values(WideColumn(words_of(leaf, normalise=False).view(np.uint8), _WORD, valid_of(leaf)), edges)
    match flatten(leaf):
        case WideColumn() as wide:
            return _values(wide, edges)
        case BytesColumn(offsets, data, valid):
            sizes = np.diff(offsets).astype(np.int32)
            if len(valid):
                offsets, data = _without_nulls(offsets, data, valid.view(np.bool_))
                sizes[~valid.view(np.bool_)] = _NULL
            contents = data[offsets[0] : offsets[-1]]
            return _rows((offsets - offsets[0])[edges], contents), _rows(edges * 4, sizes.view(np.uint8))
        case WordColumn():
            raise AssertionError("numbers were taken before")


def _values(column: WideColumn, edges: Edges) -> tuple[Array, Array]:
    if len(column.valid) == 0:
        return _rows(edges * column.width, column.data), _rows(np.zeros_like(edges), column.valid)
    data = column.data.reshape(-1, column.width).copy()
    data[~column.valid.view(np.bool_)] = 0  # what stands at a null is whatever was in memory
    return _rows(edges * column.width, data.reshape(-1)), _rows(edges, column.valid)


def _without_nulls(offsets: Edges, data: Bytes, valid: Flags) -> tuple[Edges, Bytes]:
    """The same bytes, none of them at a null."""
    sizes = np.diff(offsets)
    if not sizes[~valid].any():
        return offsets, data
    kept = data[offsets[0] : offsets[-1]][np.repeat(valid, sizes)]
    return _summed(np.where(valid, sizes, 0)), kept


def _scattered(values: Array, told: Array, leaf: pa.DataType, lengths: Edges) -> Array:
    """The inverse of ``_gathered``."""
    count = int(lengths.sum())
    raw = _content(values)
    if is_bytes(leaf):
        sizes = _content(told).view(np.int32).astype(np.int64)
        valid = sizes != _NULL
        return array_of_bytes(_summed(np.where(valid, sizes, 0)), raw, valid, leaf)
    present = np.ones(count, np.bool_)
    is_told = np.diff(_edges_of(told)) > 0
    present[np.repeat(is_told, lengths)] = _content(told).view(np.bool_)
    if is_word(leaf):
        return array_of_words(raw.view(np.int64), leaf, present)
    return pa.Array.from_buffers(leaf, count, [_mask(present), pa.py_buffer(raw.data)])


def _rows(edges: Edges, data: Bytes) -> Array:
    edges, data = np.ascontiguousarray(edges), np.ascontiguousarray(data)
    return pa.Array.from_buffers(_BYTES, len(edges) - 1, [None, pa.py_buffer(edges.data), pa.py_buffer(data.data)])


def _edges_of(rows: Array) -> Edges:
    flat = flatten(rows)
    assert isinstance(flat, BytesColumn)
    return flat.offsets


def _content(rows: Array) -> Bytes:
    """All bytes of a column of bytes; they stand at a whole number of words, so that numbers can be read."""
    flat = flatten(rows)
    assert isinstance(flat, BytesColumn)
    content = flat.data[flat.offsets[0] : flat.offsets[-1]]
    return content if content.ctypes.data % _WORD == 0 else content.copy()


def _summed(sizes: npt.NDArray[np.int64]) -> Edges:
    edges = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=edges[1:])
    return edges


def _mask(valid: Flags) -> pa.Buffer | None:
    return None if valid.all() else null_mask_buffer(valid)
