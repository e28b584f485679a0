"""Integers of a stored batch in the narrowest type that holds them all: counts, numbers of key groups and most keys are small,
and every byte of a checkpoint is hashed, copied to the kernel, put on a disk and deleted again."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.flow.arrow import Array
from cutwater.flow.compiled import kernel

_HALF = {pa.int64(): pa.int32(), pa.int32(): pa.int16(), pa.int16(): pa.int8()}

Integers = npt.NDArray[Any]


def narrowed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows; ``widened`` is its inverse."""
    columns = [_narrowest(column) for column in batch.columns]
    fields = [field.with_type(column.type) for field, column in zip(batch.schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def widened(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """As the table was declared."""
    return batch if batch.schema == schema else batch.cast(schema)


def _narrowest(column: Array) -> Array:
    while column.type in _HALF and column.offset == 0:
        half = _HALF[column.type]
        validity, values = column.buffers()
        assert values is not None
        wide = np.frombuffer(memoryview(values), column.type.to_pandas_dtype(), len(column))
        narrow = np.empty(len(column), half.to_pandas_dtype())
        if not _fits_half(wide, narrow):
            break
        column = pa.Array.from_buffers(half, len(column), [validity, pa.py_buffer(narrow.data)])
    return column


@kernel(
    "boolean(ro(int64), rw(int32))", "boolean(ro(int32), rw(int16))", "boolean(ro(int16), rw(int8))"
)  # fmt: skip
def _fits_half(wide: Integers, narrow: Integers) -> bool:
    """Copy, and tell whether nothing was lost. What stands at a null is copied too, and may cost the narrower type."""
    lost = wide.dtype.type(0)
    for i in range(len(wide)):
        narrow[i] = wide[i]
        lost |= wide[i] ^ wide.dtype.type(narrow[i])
    return bool(lost == 0)
