"""States in RocksDB as a snapshot sees them: all rows, or the files of the database."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cutwater.errors import StorageError
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.flow.partitioning import by_number
from cutwater.state.frozen import FilePlace, FrozenTable
from cutwater.state.rocksdb_bulk import BulkRows, come_far_apart, ingest_many
from cutwater.state.rocksdb_cut import StoreCut
from cutwater.state.rocksdb_family import Family
from cutwater.state.rocksdb_layout import Layout
from cutwater.state.rocksdb_parts import Part, Parts
from cutwater.state.stored import Form, StoredTable

Json = Any


class FrozenParts:
    """Implements ``FrozenTable``: what is stored, then what came later, in the order in which it did."""

    def __init__(
        self,
        name: str,
        layout: Layout,
        family: Family,
        parts: Parts[Any],
        as_table: Callable[[Any], Any],
    ) -> None:
        """``as_table``: what of a part's memory can be frozen."""
        self.name = name
        self.schema = layout.schema
        self._layout = layout
        self._stored = parts.frozen(family.cut())
        self._recent: list[FrozenTable] = [as_table(memory).freeze() for memory in parts.memories()]

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from self._layout.batches(self._stored)
        for each in self._recent:
            yield from each.batches()

    def release(self) -> None:
        for each in self._recent:
            each.release()


class TableInParts(ABC):
    """What tables of rows that are only added have in common."""

    name: str
    layout: Layout
    parts: Parts[Any]
    _family: Family
    _added: pa.Schema
    """Of rows as they are added."""
    _namespace: str
    """The column that tells the pane or bucket of a stored row."""
    _at = 0
    """Which of the parts' families is that of this table."""

    def freeze(self) -> FrozenTable:
        return FrozenParts(self.name, self.layout, self._family, self.parts, self._as_table)

    def freeze_into(self, cut: StoreCut) -> FrozenTable:
        frozen = self.freeze()
        for write in self.parts.freeze():
            cut.before_link(write)
        return frozen

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Rows of a pane or bucket that come far apart become rows of RocksDB at once, the others are added."""
        apart, batches = come_far_apart(batches, self._namespace)
        if apart:
            self._ingest(batches)
        else:
            self._add_all(batches)

    def _ingest(self, batches: Iterable[pa.RecordBatch]) -> None:
        part = self.parts.restored_part()
        most = self.parts.share.bytes // 2
        in_layout = (batch.select(self.layout.schema.names).cast(self.layout.schema) for batch in batches)
        ingest_many(self._family, self.layout, in_layout, lambda rows: self._bulk_rows(rows, part), most)
        self.parts.know_restored(part)

    def _add_all(self, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            rows = batch.select(self._added.names).cast(self._added)
            for namespace, own in by_number(rows, batch.column(self._namespace).to_numpy()):
                self._add_restored(namespace, own)

    @abstractmethod
    def _add_restored(self, namespace: int, rows: pa.RecordBatch) -> None: ...

    @abstractmethod
    def _bulk_rows(self, rows: pa.RecordBatch, part: Part[Any]) -> BulkRows:
        """Stored rows, which ``part`` brings."""

    def details(self) -> Json:
        return {"next": self.parts.next}

    def resume(self, parts: Sequence[Json]) -> None:
        self.parts.resume(self._at, max(details["next"] for details in parts))

    def _as_table(self, memory: Any) -> Any:
        """What of a part's memory can be frozen."""
        return memory


@dataclass(frozen=True, slots=True)
class FrozenFiles:
    """Implements ``FrozenTable`` and ``StoresItself``: ``rows`` can be written as such, or left where they are."""

    rows: FrozenTable
    layout: Layout
    cut: StoreCut
    family: Family
    key_groups: KeyGroupRange
    details: Json

    @property
    def name(self) -> str:
        return self.rows.name

    @property
    def schema(self) -> pa.Schema:
        return self.rows.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        # All rows take long to be written: the loop need not wait for that with what it writes to RocksDB. If that takes nothing
        # more, they can still be read.
        with suppress(StorageError):
            self.cut.link()
        return self.rows.batches()

    def store(self, place: FilePlace) -> StoredTable:
        files = self.cut.files(place)
        first, last = (0, -1) if self.family.is_empty else (self.key_groups.first, self.key_groups.last)
        details = {"layout": self.layout.to_json(), **self.details}
        return StoredTable(self.name, files, self.family.about, first, last, Form.ROCKSDB, details)

    def release(self) -> None:
        self.cut.release(self.rows)
