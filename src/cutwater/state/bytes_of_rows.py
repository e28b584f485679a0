"""How many bytes rows of a batch have, each for itself: the mean says nothing of those that are asked for most often."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.flow.arrow import Array
from cutwater.flow.columns import is_bytes
from cutwater.flow.event_time import Times

OFFSET_BYTES = 4
"""Of a text, beside its own bytes, or of a list beside its elements."""


def bytes_of_rows(batch: pa.RecordBatch, rows: Times) -> Times:
    """About: nulls have none of their own."""
    total = np.zeros(len(rows), np.int64)
    for column in batch.columns:
        total += _between(column, rows, rows + 1)
    return total


def least_bytes(schema: pa.Schema) -> int:
    """Of any row of it; one at least."""
    return max(1, sum(_least(field.type) for field in schema))


def _between(column: Array, first: Times, behind: Times) -> Times:
    """Of the values from each of ``first`` on and before that of ``behind``."""
    kind = column.type
    own: Times = _least(kind) * (behind - first)
    if len(column) == 0 or _has_one_size(kind):
        return own
    match column:
        case pa.StructArray():
            for at in range(kind.num_fields):
                own += _between(column.field(at), first, behind) - _least(kind.field(at).type) * (behind - first)
            return own
        case pa.ListArray() | pa.LargeListArray():
            ends = column.offsets.to_numpy()
            return own + _between(column.values, ends[first].astype(np.int64), ends[behind].astype(np.int64))
        case _ if is_bytes(kind) and (starts := _starts(column)) is not None:
            return own + (starts[behind] - starts[first])
    return column.nbytes // len(column) * (behind - first)


def _starts(column: Array) -> "npt.NDArray[np.int32] | npt.NDArray[np.int64] | None":
    """Where each text begins, and the last one ends. None: this kind has them otherwise."""
    t = pa.types
    is_small = t.is_string(column.type) or t.is_binary(column.type)
    offsets = column.buffers()[1]
    if offsets is None or not (is_small or t.is_large_string(column.type) or t.is_large_binary(column.type)):
        return None
    found = np.frombuffer(memoryview(offsets), np.uint8)
    return (found.view(np.int32) if is_small else found.view(np.int64))[column.offset :]


def _least(kind: pa.DataType) -> int:
    if isinstance(kind, pa.DictionaryType):
        return _least(kind.index_type)
    if isinstance(kind, pa.StructType):
        return sum(_least(field.type) for field in kind)
    return (kind.bit_width + 7) // 8 if _is_fixed(kind) else OFFSET_BYTES


def _has_one_size(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.StructType):
        return all(_has_one_size(field.type) for field in kind)
    return isinstance(kind, pa.DictionaryType) or _is_fixed(kind)


def _is_fixed(kind: pa.DataType) -> bool:
    try:
        return kind.bit_width >= 0
    except ValueError:
        return False
