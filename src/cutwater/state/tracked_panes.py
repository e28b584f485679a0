"""The table of windows in the Memory backend that knows which of its rows changed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import pyarrow as pa

from cutwater.state.changes import Header, with_header
from cutwater.state.frozen import FrozenTable, TableRows
from cutwater.state.memory_panes import FrozenPanes, MemoryPanes, PanesMark
from cutwater.state.tables import Column, Merge
from cutwater.state.tracked_aggregates import RESTORED


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
        super().restore(batches)
        self._stamp = now
        self._restored = {pane: kept.serial for kind in (self._small, self._large) for pane, kept in kind.items()}

    def restored_mark(self) -> PanesMark:
        return PanesMark(RESTORED, self._restored)

    def mark(self) -> PanesMark:
        self._mark.is_wanted = True
        self._stamp += 1
        return self._mark

    def changes(self, since: PanesMark, frozen: FrozenTable) -> TableRows | None:
        assert isinstance(frozen, FrozenPanes)
        if since.extents is None:
            return None
        return ChangedPanes(frozen, since.stamp, since.extents, self.key_columns, self._pane)

    def forget(self, before: PanesMark) -> None:
        self._restored = {}


class ChangedPanes:
    """Implements ``TableRows``. Which panes are gone is found out when it is first asked for, on the snapshot thread."""

    def __init__(
        self, frozen: FrozenPanes, since: int, known: Mapping[int, int], identity: tuple[str, ...], pane_column: str
    ) -> None:
        """``known``: the serials of the panes that there were, when what was written had the stamp ``since``."""
        self.name = frozen.name
        self._frozen = frozen
        self._since = since
        self._known = known
        self._identity = identity
        self._pane_column = pane_column

    @cached_property
    def schema(self) -> pa.Schema:
        there = {pane: held.serial for pane, held in self._frozen.panes()}
        dropped = sorted(pane for pane, serial in self._known.items() if there.get(pane) != serial)
        header = Header(identity=self._identity, bucket=self._pane_column, dropped=tuple(dropped))
        return with_header(self._frozen.schema, header)

    def batches(self) -> Iterator[pa.RecordBatch]:
        return self._frozen.changed(self._since, self._known)
