"""The table of windows in the Memory backend that knows which of its rows changed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cutwater.state.changes import Header, with_header
from cutwater.state.frozen import FrozenTable, TableRows
from cutwater.state.memory_panes import FrozenPanes, MemoryPanes
from cutwater.state.tables import Column, Merge
from cutwater.state.tracked_aggregates import RESTORED


class PanesMark(NamedTuple):
    """``serials``: of each pane that there was."""

    stamp: int
    serials: Mapping[int, int]


class TrackedPanes(MemoryPanes):
    """Implements ``TrackedTable``."""

    def __init__(
        self,
        uid: str,
        name: str,
        keys: pa.Schema,
        pane: str,
        columns: Sequence[tuple[Column, Merge]],
        max_parallelism: int,
    ) -> None:
        super().__init__(uid, name, keys, pane, columns, max_parallelism)
        self._stamp = RESTORED + 1
        self._restored: dict[int, int] = {}

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        now, self._stamp = self._stamp, RESTORED
        for batch in batches:
            super().restore([batch])
            for pane in np.unique(batch.column(self._pane).to_numpy()).tolist():
                self._restored[pane] = self._of[pane].serial
        self._stamp = now

    def restored_mark(self) -> PanesMark:
        return PanesMark(RESTORED, self._restored)

    def mark(self) -> PanesMark:
        at = PanesMark(self._stamp, self._serials())
        self._stamp += 1
        return at

    def changes(self, since: PanesMark, frozen: FrozenTable) -> TableRows:
        assert isinstance(frozen, FrozenPanes)
        there = self._serials()
        dropped = sorted(pane for pane, serial in since.serials.items() if there.get(pane) != serial)
        header = Header(identity=self.key_columns, bucket=self._pane, dropped=tuple(dropped))
        return ChangedPanes(frozen, with_header(self.stored_schema, header), since.stamp, since.serials)

    def forget(self, before: PanesMark) -> None:
        self._restored = {}

    def _serials(self) -> dict[int, int]:
        return {pane: kept.serial for pane, kept in self._of.items()}


@dataclass(frozen=True, slots=True)
class ChangedPanes:
    """Implements ``TableRows``."""

    frozen: FrozenPanes
    schema: pa.Schema
    since: int
    known: Mapping[int, int]

    @property
    def name(self) -> str:
        return self.frozen.name

    def batches(self) -> Iterator[pa.RecordBatch]:
        return self.frozen.changed(self.since, self.known)
