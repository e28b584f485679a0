"""The table of the RocksDB backend for row functions: Python values that changed in layered dicts, all others in RocksDB.

A freeze starts a new top layer, as in the Memory backend. The layers below are written to RocksDB step by step, after each
batch of records and each step of timers, and what was read or written lately is kept beside.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

from cutwater.flow.arrow import Array
from cutwater.rows import values_of
from cutwater.state.cache_share import CacheShare
from cutwater.state.frozen import FrozenTable
from cutwater.state.rocksdb_bulk import ingest_rows
from cutwater.state.rocksdb_cut import Gate, StoreCut
from cutwater.state.rocksdb_family import Entry, Family
from cutwater.state.rocksdb_keys import key_columns, stored_keys
from cutwater.state.rocksdb_layout import Content, Layout
from cutwater.state.row_layers import GONE, MISSING, LayeredRows, RowForm, newest_items
from cutwater.state.tables import See
from cutwater.state.value_sizes import size_of

Json = Any
Layer = dict[Any, Any]

WRITE_STEP = 2048
WRITE_BYTES = 4 << 20
"""A step has so many entries, or so many bytes of Python values, whatever is less. Fewer than go into what is read or stored at
once (``READ_BYTES``, ``FROZEN_BATCH_BYTES``): the loop does nothing else meanwhile, and nothing but memory bounds those."""
PACE = 1.25
"""So many times what a batch added is written behind it, a step at least: a layer is stored before the next one is full."""
LOOKED_AT = 16
"""So many entries stand for all that a batch wrote."""
REMEMBERED = 64
"""The size of an entry is the mean of so many that were seen last, roughly."""
_ENTRY_BYTES = 80
"""In a layer, beside its key and value."""


class RocksDBRowTable(LayeredRows):
    """Implements ``RowTable``, ``ReadsAhead``, ``RestoresColumns`` and ``RestoresKeys``."""

    _top: Layer
    _below: tuple[Layer, ...]

    def __init__(self, form: RowForm, family: Family, share: CacheShare, gate: Gate) -> None:
        super().__init__(form)
        self.layout = Layout(Content.BY_KEY, self.stored_schema, self._form.identity)
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
        self._seen = 0
        """How many entries that is known from, at most ``REMEMBERED``."""
        self._known = 0
        """How many entries the top had when it was last looked at."""
        self._batch_keys: Sequence[Any] = ()
        """Keys of the batch that is being processed: what is in memory under them may have grown."""
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
        self.see: See | None = None
        """Gets what is restored, as it comes by."""

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
        self._batch_keys = keys
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

    def restored(self, most: int) -> Iterator[tuple[list[Any], Array]]:
        """Nothing of RocksDB is held between two parts, as its iterators hold files."""
        return iter(()) if self._family.is_empty else self._restored(most)

    def _restored(self, most: int) -> Iterator[tuple[list[Any], Array]]:
        last = b""
        while (entries := self._family.first_behind(last, most)) is not None:
            last = entries[0][-1]
            for batch in self.layout.decoded([entries]):
                *keys, values, _ = batch.columns
                yield self._form.keys_of(keys), values

    def restored_keys(self, most: int) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([self.stored_schema.field(name) for name in self.layout.keys])
        stored = self._family.keys()
        while some := list(islice(stored, most)):
            yield pa.RecordBatch.from_arrays(key_columns(some, schema)[0], schema=schema)

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
        ingest_rows(self._family, self.layout, map(self._shown, batches), self._share.bytes // 2)
        self.see = None

    def _shown(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.see is not None:
            *names, value, _ = self.stored_schema.names
            self.see(self._form.keys_of([batch.column(name) for name in names]), batch.column(value))
        return batch

    def tend(self) -> None:
        """Write a part of what is to be written, in proportion to what came; more only if it would not fit into memory."""
        self._put_off = ()
        added = self._look_at_batch()
        self._keep_expected()
        if len(self._top) * self._entry_bytes > self._share.bytes / 2:
            self._seal()
        # In this order: a cut that ends in between has been heard of before anything of it is written.
        held = int((len(self._top) + sum(map(len, self._below))) * self._entry_bytes)
        may_write = self._gate.lets_write(held, self._share.bytes)
        self._hear_of_cut()
        step = self._in_a_step()
        left = max(step, int(PACE * added))
        while self._below and (self._clean or may_write):
            left -= self._write_step(step)
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

    def _seal(self) -> None:
        super()._seal()
        self._known = 0

    def _look_at_batch(self) -> int:
        """How large is what the batch put into the top? Not asked with each put, which many functions do for each record. Tells
        how many entries came."""
        added = len(self._top) - self._known
        newest = islice(reversed(self._top.items()), 0, added, added // LOOKED_AT + 1)
        keys = self._batch_keys[:: len(self._batch_keys) // LOOKED_AT + 1]
        self._note_sizes([*newest, *((key, self._top[key]) for key in keys if key in self._top)])
        self._known = len(self._top)
        self._batch_keys = ()
        return added

    def _in_a_step(self) -> int:
        return max(1, min(WRITE_STEP, int(WRITE_BYTES / self._entry_bytes)))

    def _write_step(self, step: int) -> int:
        """A part of the oldest layer, which goes when all of it is written. How many entries."""
        if self._writing is None:
            self._writing = iter(self._below[-1].items())
        part = list(islice(self._writing, step))
        if not self._clean:
            self._write_items(part)
        self._keep(part)
        if len(part) < step:
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
        self._note_sizes(part[:: len(part) // LOOKED_AT + 1])
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
        self._family.write(keys, encoded)

    def _note_sizes(self, entries: Sequence[tuple[Any, Any]]) -> None:
        """On the loop, as all that asks for the size of entries is."""
        if entries:
            mean = sum(_ENTRY_BYTES + size_of(key) + size_of(value) for key, value in entries) / len(entries)
            self._seen = min(self._seen + len(entries), REMEMBERED)
            self._entry_bytes += (mean - self._entry_bytes) * len(entries) / self._seen


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
