"""Incremental snapshots of the Memory backend: a table is stored as a base and what changed since, again and again."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from cutwater.flow.ids import CheckpointId
from cutwater.state.changes import header_of
from cutwater.state.frozen import FilePlace, FrozenTable, TableRows, WholeTable
from cutwater.state.stored import Form, StoredTable

MOST_CHANGES = 8
"""Files of changes behind a base. A restore reads them all, and each is one more to store."""

SMALL_BYTES = 1 << 14
"""Changes that are no more than that are never too many: most of it is what a file takes without any rows."""

Mark = Any
"""Where a table stood at a freeze; only the table itself knows what it means."""


class TrackedTable(Protocol):
    """A table that knows what changed. All on the loop."""

    def restored_mark(self) -> Mark:
        """Where it stands when all that is restored is there, and nothing else."""

    def mark(self) -> Mark:
        """Called right after a freeze: where the table stood then."""

    def changes(self, since: Mark, frozen: FrozenTable) -> TableRows | None:
        """What changed between the mark and ``frozen``, which was frozen just now; read as long as that is not released.
        None: it is not known any more."""

    def forget(self, before: Mark) -> None:
        """Nobody will ask for changes since an older mark."""


class Increments:
    """Of one store: where its tables stood at the freezes that a later one may build on."""

    def __init__(self) -> None:
        self._marks: dict[CheckpointId, dict[str, Mark]] = {}
        self._base: CheckpointId | None = None
        self._resumed: CheckpointId | None = None

    def resume(self, checkpoint: CheckpointId) -> None:
        self._base = self._resumed = checkpoint

    def freeze(
        self, checkpoint: CheckpointId, tables: Mapping[str, TrackedTable], frozen: Collection[FrozenTable]
    ) -> list[FrozenTable]:
        increments: list[FrozenTable] = []
        marks: dict[str, Mark] = {}
        for each in frozen:
            table = tables[each.name]
            since = self._since(each.name, table)
            increments.append(FrozenIncrement(each, None if since is None else table.changes(since, each)))
            marks[each.name] = table.mark()
        self._marks[checkpoint] = marks
        return increments

    def confirm(self, checkpoint: CheckpointId, tables: Mapping[str, TrackedTable]) -> None:
        if checkpoint not in self._marks or (self._base is not None and checkpoint <= self._base):
            return
        self._base = checkpoint
        self._marks = {id: marks for id, marks in self._marks.items() if id >= checkpoint}
        for name, mark in self._marks[checkpoint].items():
            tables[name].forget(mark)

    def abort(self, checkpoint: CheckpointId) -> None:
        if checkpoint != self._base:
            self._marks.pop(checkpoint, None)

    def _since(self, name: str, table: TrackedTable) -> Mark | None:
        if self._base is not None and self._base == self._resumed:
            return table.restored_mark()
        return None if self._base is None else self._marks[self._base].get(name)


@dataclass(frozen=True, slots=True)
class FrozenIncrement(WholeTable):
    """Implements ``StoresItself`` too."""

    changes: TableRows | None

    def store(self, place: FilePlace) -> StoredTable:
        base = place.base
        if base is None or self.changes is None or not can_grow(base):
            return self._whole(place)
        batches = self.changes.batches()
        if place.most_bytes is not None:
            fitting = _within(batches, place.most_bytes - base.size - SMALL_BYTES)
            if fitting is None:
                # Beside its base: all rows as they are now may well fit.
                return self._whole(place)
            batches = iter(fitting)
        first = next(batches, None)
        if first is None and not header_of(self.changes.schema).dropped:
            return base
        return _behind(base, place.write(_Begun(self.changes.name, self.changes.schema, first, batches)))

    def _whole(self, place: FilePlace) -> StoredTable:
        return replace(place.write(self.table), form=Form.CHANGES)


def _within(batches: Iterator[pa.RecordBatch], room: int) -> list[pa.RecordBatch] | None:
    """All of them, if they are no more bytes than that."""
    taken: list[pa.RecordBatch] = []
    for batch in batches:
        room -= batch.nbytes
        if room < 0:
            return None
        taken.append(batch)
    return taken


def can_grow(base: StoredTable) -> bool:
    """Whether one more file of changes is worth it: the chain stays short, and shorter to read than twice its base."""
    if base.form is not Form.CHANGES:
        return False
    first, *changes = base.files
    enough = max(first.size // 2, SMALL_BYTES)
    return len(changes) < MOST_CHANGES and sum(file.size for file in changes) <= enough


def _behind(base: StoredTable, changes: StoredTable) -> StoredTable:
    parts = [part for part in (base, changes) if part.first_key_group <= part.last_key_group]
    return replace(
        base,
        files=(*base.files, *changes.files),
        rows=base.rows + changes.rows,
        first_key_group=min((part.first_key_group for part in parts), default=0),
        last_key_group=max((part.last_key_group for part in parts), default=-1),
    )


@dataclass(frozen=True, slots=True)
class _Begun:
    """Implements ``TableRows``: others, of which the first batch was already looked at."""

    name: str
    schema: pa.Schema
    first: pa.RecordBatch | None
    rest: Iterator[pa.RecordBatch]

    def batches(self) -> Iterator[pa.RecordBatch]:
        if self.first is not None:
            yield self.first
        yield from self.rest
