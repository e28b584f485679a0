"""Where keyed state lives: the setting that users choose and the store that each operator opens from it."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from cutwater.errors import ConfigError
from cutwater.flow.ids import CheckpointId
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state.frozen import FrozenTable
from cutwater.state.stored import StoredState
from cutwater.state.tables import AggregateTable, BucketTable, Column, JoinSide, JoinTable, Merge, PaneTable, RowTable


class KeyedStateStore(Protocol):
    """The keyed state of one operator in one subtask. Belongs to the loop; only frozen tables are read elsewhere.

    A table is created once per ``open`` of its operator, under a name that stays the same over restarts. ``restore`` may
    come before or after the table is created; what it brings is there when the first record is processed. A store has all of
    these methods, also those that it has nothing to do for: operators call them whatever the backend's ``incremental`` is.
    """

    def aggregates(self, name: str, keys: pa.Schema, columns: Sequence[Column]) -> AggregateTable:
        """A columnar table for vectorised operators: one row of ``columns`` for each key."""

    def rows(self, name: str, keys: pa.Schema, value: pa.DataType, slot: str | None = None) -> RowTable:
        """A table for row functions: under each key one Python value that Arrow can store as ``value``.

        With ``slot``, which is what its column is called in snapshots, there is one under each key and number: the table's keys
        are tuples with the number as the last element, and a key group has all numbers of a key.
        """

    def panes(self, name: str, keys: pa.Schema, pane: str, columns: Sequence[tuple[Column, Merge]]) -> PaneTable:
        """A columnar table for windows. ``pane`` is what its column is called in snapshots; each accumulator comes with how
        partial values of it merge."""

    def buckets(self, name: str, schema: pa.Schema, keys: Sequence[str], bucket: str) -> BucketTable:
        """A columnar table of whole rows. ``bucket`` is what its column is called in snapshots."""

    def join(self, name: str, left: JoinSide, right: JoinSide, bucket: str) -> JoinTable:
        """Two columnar tables, ``name.left`` and ``name.right``. ``bucket`` is what its column is called in snapshots."""

    def freeze(self, checkpoint: CheckpointId | None = None) -> list[FrozenTable]:
        """All tables as they are now, however many, each once; those without rows too. Copies no data: a few milliseconds at
        most, whatever the size.

        With ``incremental``, tables may implement ``StoresItself`` and build on the checkpoint that was last confirmed.
        Without a ``checkpoint`` the freeze is none that a later one may build on.
        """

    def confirm(self, checkpoint: CheckpointId) -> None:
        """The checkpoint completed: what was stored of the tables frozen for it may be referenced, and from the next freeze
        on nothing older is. If that was told before, of it or of a later one, or it was not frozen here, nothing changes."""

    def abort(self, checkpoint: CheckpointId) -> None:
        """What was frozen for it, if anything was, is never referenced. May be told more than once, and when a later one has
        completed. The tables stay as they are."""

    def resume(self, checkpoint: CheckpointId, state: StoredState) -> Collection[str]:
        """Called first, if what is restored is all that the confirmed ``checkpoint`` holds of this store and nothing else:
        the next freeze may build on it. The names of the tables that the store took over from ``state`` by itself, whole: it is
        taken at its word, and only the others come through ``restore``. Another backend may have written the files."""

    def adopt(self, state: StoredState) -> Collection[str]:
        """Called first, if ``resume`` is not: ``state`` holds the own key groups, and perhaps others. The names of the tables
        that the store took over from its files by itself, as with ``resume``. Also called if the backend is not
        ``incremental``."""

    def restore(self, name: str, batches: Iterable[pa.RecordBatch]) -> None:
        """Put back what a frozen table of that name once gave; rows of other key groups are left out."""

    def expect(self, keys: Sequence[Any]) -> None:
        """Rows with these keys, as row tables know them, are processed next, before ``tend``: their values may be read at
        once."""

    def tend(self) -> None:
        """A bounded step of housekeeping; called by the operator after each batch and each step of timers."""

    def close(self) -> None:
        """Called once, also after a failure."""


@runtime_checkable
class WritesAlong(Protocol):
    """A store that, with the rows that come, writes older ones."""

    @property
    def rows_at_once(self) -> int:
        """The loop brings no more in a batch: writing takes longer than taking rows in, and it would stand still."""


@runtime_checkable
class StateBackend(Protocol):
    """The setting: immutable, picklable, the same for all operators of a job."""

    @property
    def incremental(self) -> bool: ...

    @property
    def asynchronous(self) -> bool: ...

    def open(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> KeyedStateStore:
        """In the subtask, once for each stateful operator: an empty store for the state of ``uid``."""


def checked_backend(given: object, where: str) -> StateBackend:
    """ConfigError, which begins with ``where``, if it is none."""
    if isinstance(given, type):
        # As users write it: ours stand in cw, theirs where they put them.
        name = f"cw.{given.__name__}" if given.__module__.startswith("cutwater.") else given.__name__
        raise ConfigError(f"{where}{given!r} is the class, not a setting: write {name}().")
    if not isinstance(given, StateBackend):
        lacks = ", ".join(name for name in ("incremental", "asynchronous", "open") if not hasattr(given, name))
        raise ConfigError(
            f"{where}{given!r}: pass cw.Memory() or cw.RocksDB(). For a cw.StateBackend of your own it lacks {lacks}."
        )
    return given
