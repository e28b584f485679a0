"""How rows of a state stand in RocksDB, so that whoever has the database can give them back as columns."""

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa

from cutwater.state.encoded_keys import plain
from cutwater.state.rocksdb_family import Entries, Entry, in_lists
from cutwater.state.rocksdb_keys import fitted, groups_in, key_columns, namespaces_of
from cutwater.state.row_codec import RowCodec

READ_ROWS = 8192
"""So many rows are decoded at once; fewer of wide ones (``READ_BYTES``)."""
READ_BATCHES = 16
"""So many batches of rows."""

Json = Any


class Content(StrEnum):
    """What a key and its value hold. Every key begins with its key group."""

    BY_KEY = "by_key"
    """The key's columns; all other columns."""
    BY_PANE_AND_KEY = "by_pane_and_key"
    """A pane, the key's columns, a number; all other columns. Rows of a key are to be merged, in the order of the numbers."""
    WHOLE_ROWS = "whole_rows"
    """A bucket, the key's columns, a number; the whole row."""
    BATCHES = "batches"
    """A bucket, a number; a batch of whole rows."""


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
        return Layout(Content(value["content"]), schema, tuple(value["keys"]), value.get("leaves", False))

    @property
    def read_at_once(self) -> int:
        """How many entries may be in memory."""
        return READ_BATCHES if self.content is Content.BATCHES else READ_ROWS

    def batches(self, entries: Iterator[Entry]) -> Iterator[pa.RecordBatch]:
        """The rows of ``entries``, in columns."""
        return self.decoded(in_lists(entries, self.read_at_once))

    def decoded(self, entries: Iterable[Entries]) -> Iterator[pa.RecordBatch]:
        """The same, of many entries at once."""
        if self.content is Content.BATCHES:
            for keys, encoded in entries:
                yield from map(self._batch, keys, encoded)
            return
        codec = self.codec()
        for keys, encoded in entries:
            values = codec.decode(encoded)
            if self.content is Content.WHOLE_ROWS:
                columns = [*values, pa.array(namespaces_of(keys)), pa.array(groups_in(keys))]
            else:
                has_pane = self.content is Content.BY_PANE_AND_KEY
                key_schema = pa.schema([self.schema.field(name) for name in self.keys])
                of_key, groups = key_columns(keys, key_schema, namespace=has_pane)
                columns = [*of_key, *([pa.array(namespaces_of(keys))] if has_pane else []), *values, groups]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def codec(self) -> RowCodec:
        """Of what is in values."""
        fields = list(self.schema)
        match self.content:
            case Content.BY_KEY:
                in_values = fields[len(self.keys) : -1]
            case Content.BY_PANE_AND_KEY:
                in_values = fields[len(self.keys) + 1 : -1]
            case _:
                in_values = fields[:-2]
        return RowCodec(pa.schema(in_values), leaves=self.leaves)

    def _batch(self, key: bytes, value: bytes) -> pa.RecordBatch:
        rows = batch_of(value, pa.schema(list(self.schema)[:-2]))
        bucket = pa.array(np.repeat(namespaces_of([key]), rows.num_rows))
        group = pa.array(np.repeat(groups_in([key]), rows.num_rows))
        return pa.RecordBatch.from_arrays([*rows.columns, bucket, group], schema=self.schema)


def message_of(batch: pa.RecordBatch) -> bytes:
    """Rows without their schema."""
    schema = _plain(batch.schema)
    return pa.RecordBatch.from_arrays(_columns(batch, schema), schema=schema).serialize().to_pybytes()


def batch_of(message: bytes, schema: pa.Schema) -> pa.RecordBatch:
    batch = pa.ipc.read_record_batch(pa.py_buffer(message), _plain(schema))
    return pa.RecordBatch.from_arrays(_columns(batch, schema), schema=schema)


def _plain(schema: pa.Schema) -> pa.Schema:
    """Messages have no room for dictionaries."""
    return pa.schema([field.with_type(plain(field.type)) for field in schema])


def _columns(batch: pa.RecordBatch, schema: pa.Schema) -> "Sequence[pa.Array[Any]]":
    return [fitted(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
