"""Rows of typed columns as bytes, one value each, and back: exactly what went in, and nothing that could run.

Structs, lists and maps are taken apart (``flat_leaves``). Numbers and times first (a bit each that says whether it is there, then
64 bits each), then texts, bytes and decimals with their sizes, then what is left as an Arrow message.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.flow.arrow import Array
from cutwater.flow.columns import array_of_words, is_word, valid_of, words_of
from cutwater.state.encoded_keys import apart, decode, encode, joined, plain
from cutwater.state.flat_leaves import shape_of
from cutwater.state.key_kernels import put_each
from cutwater.state.pointers import address
from cutwater.state.rocksdb_keys import fitted


class RowCodec:
    def __init__(self, schema: pa.Schema, *, leaves: bool = True) -> None:
        """Without ``leaves`` all that is nested is an Arrow message for each row, as it once was."""
        self._schema = schema
        self._plain = [plain(field.type) for field in schema]
        self._shapes = [shape_of(kind) if leaves else None for kind in self._plain]
        shapes = zip(self._plain, self._shapes, strict=True)
        types = [leaf for kind, shape in shapes for leaf in ((kind,) if shape is None else shape.types)]
        self._words = [i for i, kind in enumerate(types) if is_word(kind)]
        self._flat = [i for i, kind in enumerate(types) if _is_flat(kind)]
        self._nested = [i for i in range(len(types)) if i not in self._words and i not in self._flat]
        self._types = types
        self._flat_schema = pa.schema([pa.field(str(i), types[i]) for i in self._flat])
        self._nested_schema = pa.schema([pa.field(str(i), types[i]) for i in self._nested])
        self._mask_bytes = -(-len(self._words) // 8)
        self._head = self._mask_bytes + 8 * len(self._words)

    def encode(self, columns: Sequence[Array], records: int) -> list[bytes]:
        plain_columns = self._apart([fitted(column, kind) for column, kind in zip(columns, self._plain, strict=True)])
        whole, starts = encode([plain_columns[i] for i in self._flat], records, head=self._head)
        if self._words:
            words = self._encoded_words(plain_columns, records)
            if self._flat:
                put_each(starts[:-1], 0, words.reshape(-1), self._head, whole)
            else:
                whole = words.reshape(-1)
        values = apart(whole, starts)
        if self._nested:
            batch = pa.RecordBatch.from_arrays([plain_columns[i] for i in self._nested], schema=self._nested_schema)
            values = [v + batch.slice(i, 1).serialize().to_pybytes() for i, v in enumerate(values)]
        return values

    def decode(self, values: Sequence[bytes]) -> list[Array]:
        records = len(values)
        raw, starts = joined(values)
        columns: dict[int, Array] = dict(zip(self._words, self._decoded_words(raw, starts[:-1]), strict=True))
        cursor = starts[:-1] + self._head + address(raw)
        if self._flat:
            columns.update(zip(self._flat, decode(cursor, self._flat_schema), strict=True))
        if self._nested:
            sizes = self._sizes_of_flat([columns[i] for i in self._flat], records)
            messages = [
                pa.ipc.read_record_batch(pa.py_buffer(value[self._head + size :]), self._nested_schema)
                for value, size in zip(values, sizes, strict=True)
            ]
            if messages:
                rows: pa.RecordBatch = pa.concat_batches(messages)  # type: ignore[attr-defined]  # the stubs lack it
                columns.update(zip(self._nested, rows.columns, strict=True))
            else:
                columns.update({i: pa.array([], self._types[i]) for i in self._nested})
        leaves = iter([columns[i] for i in range(len(self._types))])
        whole = [next(leaves) if shape is None else shape.together(leaves) for shape in self._shapes]
        return [fitted(column, field.type) for column, field in zip(whole, self._schema, strict=True)]

    def _apart(self, columns: Sequence[Array]) -> list[Array]:
        shapes = zip(columns, self._shapes, strict=True)
        return [leaf for column, shape in shapes for leaf in ([column] if shape is None else shape.apart(column))]

    def _encoded_words(self, columns: Sequence[Array], records: int) -> npt.NDArray[np.uint8]:
        rows = np.zeros((records, self._head), np.uint8)
        present = np.ones((records, len(self._words)), np.bool_)
        words = np.zeros((records, len(self._words)), np.int64)
        for at, i in enumerate(self._words):
            valid = valid_of(columns[i])
            words[:, at] = words_of(columns[i], normalise=False)
            if len(valid):
                present[:, at] = valid
                words[~present[:, at], at] = 0
        rows[:, : self._mask_bytes] = np.packbits(present, axis=1)
        rows[:, self._mask_bytes :] = words.view(np.uint8).reshape(records, 8 * len(self._words))
        return rows

    def _decoded_words(self, raw: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]) -> list[Array]:
        if not self._words:
            return []
        is_alike = not self._flat and not self._nested
        rows = raw.reshape(-1, self._head) if is_alike else raw[starts[:, None] + np.arange(self._head)]
        present = np.unpackbits(rows[:, : self._mask_bytes], axis=1).astype(np.bool_)
        words = np.ascontiguousarray(rows[:, self._mask_bytes :]).view(np.int64)
        return [
            array_of_words(np.ascontiguousarray(words[:, at]), self._types[i], present[:, at])
            for at, i in enumerate(self._words)
        ]

    @staticmethod
    def _sizes_of_flat(columns: Sequence[Array], records: int) -> list[int]:
        if not columns:
            return [0] * records
        sizes: list[int] = np.diff(encode(columns, records)[1]).tolist()
        return sizes


def _is_flat(data_type: pa.DataType) -> bool:
    t = pa.types
    checks = (
        t.is_string, t.is_large_string, t.is_string_view, t.is_binary, t.is_large_binary, t.is_binary_view,
        t.is_fixed_size_binary, t.is_decimal,
    )  # fmt: skip
    return any(check(data_type) for check in checks)
