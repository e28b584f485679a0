"""The table of the RocksDB backend for row functions: Python values that changed in layered dicts, all others in RocksDB.

A freeze starts a new top layer, as in the Memory backend. The layers below are written to RocksDB step by step, after each
batch of records and each step of timers, and what was read or written lately is kept beside.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

from cutwater.rows import values_of
from cutwater.state.cache_share import CacheShare
from cutwater.state.frozen import FrozenTable
from cutwater.state.rocksdb_bulk import ingest_rows
from cutwater.state.rocksdb_cut import Gate, StoreCut
from cutwater.state.rocksdb_family import Entry, Family
from cutwater.state.rocksdb_keys import stored_keys
from cutwater.state.rocksdb_layout import Content, Layout
from cutwater.state.row_layers import GONE, MISSING, Layer, LayeredRows, RowForm, newest_items

Json = Any

WRITE_STEP = 2048
_OBJECT_OVERHEAD = 4
"""How much larger Python's objects are than their bytes, roughly."""


class RocksDBRowTable(LayeredRows):
    """Implements ``RowTable``."""

    def __init__(
        self,
        uid: str,
        name: str,
        keys: pa.Schema,
        value: pa.DataType,
        max_parallelism: int,
        family: Family,
        share: CacheShare,
        gate: Gate,
    ) -> None:
        super().__init__(uid, name, keys, value, max_parallelism)
        self.layout = Layout(Content.BY_KEY, self.stored_schema, self.key_columns)
        self._codec = self.layout.codec()
        self._gate = gate
        self._cut: tuple[StoreCut, tuple[Layer, ...]] | None = None
        """The last one, and the layers that it brings to RocksDB, until it is known what became of it."""
        self._clean = 0
        """How many of the layers below, from the last one on, are in RocksDB already."""
        self._family = family
        self._share = share
        share.join()
        self._entry_bytes = 256.0
        """What an entry was seen to take, in memory."""
        self._writing: Iterator[tuple[Any, Any]] | None = None
        """What of the last layer below is not written yet; layers are written from that one on, and never changed."""
        self._recent: Layer = {}
        """As in RocksDB. A snapshot may see these values."""
        self._expected: Layer = {}
        """The same, of the keys of the batch that is being processed; GONE where there is nothing."""
        self._is_unasked = False
        """Whether nothing of what was expected was asked for, so far."""
        self._put_off: Sequence[Any] = ()
        """Keys of the batch that are not read before one of them is asked for."""

    def get(self, key: Any) -> Any:
        for layer in (self._top, *self._below, self._recent):
            value = layer.get(key, MISSING)
            if value is not MISSING:
                return None if value is GONE else value
        value = self._expected.get(key, MISSING)
        if value is not MISSING:
            self._is_unasked = False
            return None if value is GONE else value
        if self._put_off:
            self._read_ahead(self._put_off)
            return self.get(key)
        return None if self._family.is_empty else self._read(key)

    def expect(self, keys: Sequence[Any]) -> None:
        """Read at once what would else be read one by one: now, or if nothing was asked for the last time, when it is."""
        if self._family.is_empty:
            return
        if self._is_unasked:
            self._put_off = keys
        else:
            self._read_ahead(keys)

    def _read_ahead(self, keys: Iterable[Any]) -> None:
        self._put_off = ()
        self._keep_expected()
        layers = (self._top, *self._below, self._recent)
        missing = [key for key in dict.fromkeys(keys) if not any(key in layer for layer in layers)]
        if not missing:
            return
        asked = self._stored_keys(missing)
        found = self._family.get(asked)
        present = [value for value in found if value is not None]
        self._note_sizes(asked, present)
        values = iter(values_of(self._codec.decode(present)[0]))
        self._expected = {
            key: GONE if value is None else next(values) for key, value in zip(missing, found, strict=True)
        }
        self._is_unasked = True

    def delete(self, key: Any) -> None:
        self._top[key] = GONE

    def items(self) -> Iterator[tuple[Any, Any]]:
        layers = (self._top, *self._below)
        yield from newest_items(layers)
        for batch in _stored_batches(self._form, self.layout, self._family.cut(), layers):
            *keys, values, _ = batch.columns
            yield from zip(self._form.keys_of(keys), values_of(values), strict=True)

    def freeze(self) -> FrozenTable:
        self._seal()
        return FrozenRocksDBRows(self._form, self.layout, self._family.cut(), self._below)

    def freeze_into(self, cut: StoreCut) -> FrozenTable:
        self._hear_of_cut()
        frozen = self.freeze()
        handed_over = self._below[: len(self._below) - self._clean]
        self._cut = cut, handed_over
        cut.before_link(lambda: self._write_layers(handed_over))
        return frozen

    def details(self) -> Json:
        return {}

    def resume(self, parts: Sequence[Json]) -> None:
        """All of it is in RocksDB."""

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Columns to columns: nothing becomes a Python value before it is asked for."""
        ingest_rows(self._family, self.layout, batches, self._share.bytes // 2)

    def tend(self) -> None:
        """Write a bounded part of what is to be written; more only if it would not fit into memory."""
        self._put_off = ()
        self._keep_expected()
        if len(self._top) * self._entry_bytes > self._share.bytes / 2:
            self._seal()
        # In this order: a cut that ends in between has been heard of before anything of it is written.
        held = int((len(self._top) + sum(map(len, self._below))) * self._entry_bytes)
        may_write = self._gate.lets_write(held, self._share.bytes)
        self._hear_of_cut()
        left = WRITE_STEP
        while self._below and (self._clean or may_write):
            left -= self._write_step()
            if left <= 0 and sum(map(len, self._below)) * self._entry_bytes <= self._share.bytes:
                return

    def _hear_of_cut(self) -> None:
        if self._cut is None or not self._cut[0].is_over:
            return
        cut, layers = self._cut
        self._cut = None
        if cut.is_linked and layers:
            newest = next(at for at, layer in enumerate(self._below) if layer is layers[0])
            self._clean = len(self._below) - newest

    def _write_step(self) -> int:
        """A part of the oldest layer, which goes when all of it is written. How many entries."""
        if self._writing is None:
            self._writing = iter(self._below[-1].items())
        part = list(islice(self._writing, WRITE_STEP))
        if not self._clean:
            self._write_items(part)
        self._keep(part)
        if len(part) < WRITE_STEP:
            self._below = self._below[:-1]
            self._writing = None
            self._clean = max(self._clean - 1, 0)
        return len(part)

    def _write_layers(self, layers: Sequence[Layer]) -> None:
        """By whoever links the cut; oldest first, so that the newest value stays."""
        for layer in reversed(layers):
            items = iter(layer.items())
            while part := list(islice(items, WRITE_STEP)):
                self._write_items(part)

    def _write_items(self, items: list[tuple[Any, Any]]) -> None:
        for batch in self._form.batches((key, value) for key, value in items if value is not GONE):
            self._write(batch)
        gone = [key for key, value in items if value is GONE]
        if gone:
            self._family.write((), (), self._stored_keys(gone))

    def _read(self, key: Any) -> Any:
        self._is_unasked = False
        asked = self._stored_keys([key])
        [found] = self._family.get(asked)
        if found is None:
            return None
        self._note_sizes(asked, [found])
        [value] = values_of(self._codec.decode([found])[0])
        self._keep([(key, value)])
        return value

    def _keep_expected(self) -> None:
        if self._expected:
            self._keep([item for item in self._expected.items() if item[1] is not GONE])
            self._expected = {}

    def _keep(self, part: list[tuple[Any, Any]]) -> None:
        for key, value in part:
            self._recent.pop(key, None)
            if value is not GONE:
                self._recent[key] = value
        surplus = len(self._recent) - int(self._share.bytes / 2 / self._entry_bytes)
        for key in list(islice(self._recent, max(surplus, 0))):
            del self._recent[key]

    def _stored_keys(self, keys: list[Any]) -> list[bytes]:
        *columns, _, groups = self._form.batch(keys, [None] * len(keys)).columns
        return stored_keys(columns, groups.to_numpy())

    def _write(self, batch: pa.RecordBatch) -> None:
        *columns, values, groups = batch.columns
        keys = stored_keys(columns, groups.to_numpy())
        encoded = self._codec.encode([values], batch.num_rows)
        self._note_sizes(keys, encoded)
        self._family.write(keys, encoded)

    def _note_sizes(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        if values:
            seen = _OBJECT_OVERHEAD * (sum(map(len, keys)) / len(keys) + sum(map(len, values)) / len(values))
            self._entry_bytes += (seen - self._entry_bytes) / 2


def _stored_batches(
    form: RowForm, layout: Layout, stored: Iterator[Entry], layers: tuple[Layer, ...]
) -> Iterator[pa.RecordBatch]:
    """What RocksDB has under keys that no layer knows."""
    for batch in layout.batches(stored):
        if not layers:
            yield batch
            continue
        keys = form.keys_of(batch.columns[: len(layout.keys)])
        alone = batch.filter(pa.array([not any(key in layer for layer in layers) for key in keys]))
        if alone.num_rows:
            yield alone


@dataclass(frozen=True, slots=True)
class FrozenRocksDBRows:
    """Implements ``FrozenTable``."""

    form: RowForm
    layout: Layout
    stored: Iterator[Entry]
    layers: tuple[Layer, ...]

    @property
    def name(self) -> str:
        return self.form.name

    @property
    def schema(self) -> pa.Schema:
        return self.form.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from self.form.batches(newest_items(self.layers))
        yield from _stored_batches(self.form, self.layout, self.stored, self.layers)

    def release(self) -> None:
        """The layers are never changed, and the cut goes with this object."""
