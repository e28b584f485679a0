"""How rows of a state stand in RocksDB, so that whoever has the database can give them back as columns."""

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa

from cutwater.errors import RestoreError
from cutwater.flow.arrow import Array
from cutwater.flow.batches import joined
from cutwater.state.encoded_keys import plain_schema
from cutwater.state.rocksdb_family import Entries, Entry, in_lists
from cutwater.state.rocksdb_keys import Numbers, fitted, groups_in, key_columns, namespaces_of, number_of
from cutwater.state.row_codec import RowCodec

READ_ROWS = 8192
"""So many entries are decoded at once; fewer of wide ones (``READ_BYTES``)."""

Json = Any


class Content(StrEnum):
    """What a key and its value hold. Every key begins with its key group."""

    BY_KEY = "by_key"
    """The key's columns; all other columns."""
    BY_PANE_AND_KEY = "by_pane_and_key"
    """A pane, the key's columns, a number; all other columns. Rows of a key are to be merged, in the order of the numbers."""
    WHOLE_ROWS = "whole_rows"
    """A bucket, the key's columns, a number; the whole row."""
    ROWS_OR_BATCHES = "rows_or_batches"
    """A bucket, a number; a whole row if the number is odd, else a batch of them."""


@dataclass(frozen=True, slots=True)
class Layout:
    """``schema`` is that of the stored table; ``keys`` are its key columns, a pane or bucket not among them."""

    content: Content
    schema: pa.Schema
    keys: tuple[str, ...]
    leaves: bool = True
    """Whether what is nested was taken apart (``RowCodec``)."""

    def to_json(self) -> Json:
        schema = base64.b64encode(self.schema.serialize().to_pybytes()).decode()
        return {"content": self.content, "schema": schema, "keys": self.keys, "leaves": self.leaves}

    @staticmethod
    def from_json(value: Json) -> "Layout":
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value["schema"])))
        if value["content"] not in list(Content):
            raise RestoreError(
                f"A state was stored in the form {value['content']!r}, which this version of Cutwater does not read: go on with "
                "the one that stored it, or start with restore='fresh'."
            )
        return Layout(Content(value["content"]), schema, tuple(value["keys"]), value.get("leaves", False))

    def batches(self, entries: Iterator[Entry]) -> Iterator[pa.RecordBatch]:
        """The rows of ``entries``, in columns."""
        return self.decoded(in_lists(entries, READ_ROWS))

    def decoded(self, entries: Iterable[Entries]) -> Iterator[pa.RecordBatch]:
        """The same, of many entries at once."""
        codec = self.codec()
        for keys, encoded in entries:
            match self.content:
                case Content.WHOLE_ROWS:
                    yield self._whole_rows(keys, codec.decode(encoded))
                case Content.ROWS_OR_BATCHES:
                    yield self._rows_or_batches(keys, encoded, codec)
                case _:
                    yield self._with_keys(keys, codec.decode(encoded))

    def codec(self) -> RowCodec:
        """Of what is in values, but for batches."""
        fields = list(self.schema)
        match self.content:
            case Content.BY_KEY:
                in_values = fields[len(self.keys) : -1]
            case Content.BY_PANE_AND_KEY:
                in_values = fields[len(self.keys) + 1 : -1]
            case _:
                in_values = fields[:-2]
        return RowCodec(pa.schema(in_values), leaves=self.leaves)

    def _with_keys(self, keys: Sequence[bytes], values: Sequence[Array]) -> pa.RecordBatch:
        has_pane = self.content is Content.BY_PANE_AND_KEY
        key_schema = pa.schema([self.schema.field(name) for name in self.keys])
        of_key, groups = key_columns(keys, key_schema, namespace=has_pane)
        panes = [pa.array(namespaces_of(keys))] if has_pane else []
        return pa.RecordBatch.from_arrays([*of_key, *panes, *values, groups], schema=self.schema)

    def _whole_rows(
        self, keys: Sequence[bytes], columns: Sequence[Array], each: Sequence[int] = (1,)
    ) -> pa.RecordBatch:
        """``each``: how many rows a key has, if not one."""
        buckets, groups = (pa.array(np.repeat(of(keys), each)) for of in (namespaces_of, groups_in))
        return pa.RecordBatch.from_arrays([*columns, buckets, groups], schema=self.schema)

    def _rows_or_batches(self, keys: Sequence[bytes], encoded: Sequence[bytes], codec: RowCodec) -> pa.RecordBatch:
        schema = pa.schema(list(self.schema)[:-2])
        stored = plain_schema(schema)
        pairs = zip(keys, encoded, strict=True)
        found = [value if is_of_row(key) else _read(value, stored, schema) for key, value in pairs]
        rows = together(found, codec, schema)
        return self._whole_rows(keys, rows.columns, [1 if isinstance(each, bytes) else each.num_rows for each in found])


def together(found: Sequence[bytes | pa.RecordBatch], codec: RowCodec, schema: pa.Schema) -> pa.RecordBatch:
    """Stored rows and batches, at least one, in their order. All rows are decoded at once, wherever they stand."""
    rows = [each for each in found if isinstance(each, bytes)]
    batches = [each for each in found if not isinstance(each, bytes)]
    if not rows:
        return joined(batches)
    decoded = pa.RecordBatch.from_arrays(codec.decode(rows), schema=schema)
    if not batches:
        return decoded
    counts = np.array([1 if isinstance(each, bytes) else each.num_rows for each in found])
    is_row = np.array([isinstance(each, bytes) for each in found])
    starts = np.where(is_row, np.cumsum(is_row) - 1, len(rows) + np.cumsum(np.where(is_row, 0, counts)) - counts)
    before = np.cumsum(counts) - counts
    return joined([decoded, *batches]).take(np.repeat(starts - before, counts) + np.arange(counts.sum()))


def numbers_of_rows(taken: Numbers) -> Numbers:
    """Of twice as many as there are rows. The first one that is taken is always even."""
    return taken[1::2]


def numbers_of_batches(taken: Numbers) -> Numbers:
    """The same."""
    return taken[::2]


def is_of_row(key: bytes) -> bool:
    """Whether the value is a row, where it could be a batch."""
    return number_of(key) % 2 == 1


def message_of(batch: pa.RecordBatch) -> bytes:
    """Rows without their schema; of ``plain_rows``."""
    return batch.serialize().to_pybytes()


def plain_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Messages have no room for dictionaries."""
    schema = plain_schema(batch.schema)
    return pa.RecordBatch.from_arrays(_columns(batch, schema), schema=schema)


def batch_of(message: bytes, schema: pa.Schema) -> pa.RecordBatch:
    return _read(message, plain_schema(schema), schema)


def _read(message: bytes, stored: pa.Schema, schema: pa.Schema) -> pa.RecordBatch:
    batch = pa.ipc.read_record_batch(pa.py_buffer(message), stored)
    return pa.RecordBatch.from_arrays(_columns(batch, schema), schema=schema)


def _columns(batch: pa.RecordBatch, schema: pa.Schema) -> Sequence[Array]:
    return [fitted(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
