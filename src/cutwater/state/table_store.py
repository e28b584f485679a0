"""What stores of all backends do alike: tables by name, and what a checkpoint may bring back into them."""

from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from cutwater.encodings import decoded_type
from cutwater.errors import ConfigError, RestoreError, SchemaError
from cutwater.flow.hashing import hash_columns, key_groups
from cutwater.flow.ids import CheckpointId
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state.expiry import without_expiry
from cutwater.state.frozen import KEY_GROUP_COLUMN, FrozenTable
from cutwater.state.stored import StoredState

_BEGIN_ANEW = (
    "or give the state another name (or its operator another uid) and drop this one with allow_non_restored_state=True."
)

ENOUGH_BITS = 32
"""Of the indices of a dictionary: no batch has more rows than they can tell apart."""


class StoredTable(Protocol):
    """What a store asks of its tables."""

    name: str
    key_columns: tuple[str, ...]

    @property
    def stored_schema(self) -> pa.Schema: ...

    @property
    def holds_whole_rows(self) -> bool:
        """Whether keys stand among the other columns of a row, in any order."""

    def freeze(self) -> FrozenTable: ...

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Put rows back as a frozen table gave them. Their columns were checked."""


T = TypeVar("T", bound=StoredTable)


class TableStore(Generic[T]):
    """The part of a ``KeyedStateStore`` that is the same for all backends."""

    def __init__(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> None:
        self._uid = uid
        self._key_groups = key_groups
        self._max_parallelism = max_parallelism
        self._tables: dict[str, T] = {}
        self._early: dict[str, Iterable[pa.RecordBatch]] = {}
        """What was restored before its table was declared. Not read before it is, but for the first batch: all of an operator's
        state would be in memory at once."""

    def freeze(self, checkpoint: CheckpointId | None = None) -> list[FrozenTable]:
        if self._early:
            raise never_declared(self._uid, self._early)
        return [table.freeze() for table in self._tables.values()]

    def restore(self, name: str, batches: Iterable[pa.RecordBatch]) -> None:
        own = map(self._own, batches)
        if name in self._tables:
            self._restore_into(self._tables[name], own)
            return
        if (first := next(own, None)) is not None:
            self._early[name] = chain(self._early.get(name, ()), [first], own)

    def expect(self, keys: Sequence[Any]) -> None:
        """All of it is at hand."""

    def confirm(self, checkpoint: CheckpointId) -> None:
        """Nothing builds on anything here."""

    def abort(self, checkpoint: CheckpointId) -> None:
        """Nothing was kept for it."""

    def resume(self, checkpoint: CheckpointId, state: StoredState) -> Collection[str]:
        return ()

    def adopt(self, state: StoredState) -> Collection[str]:
        return ()

    def close(self) -> None:
        self._tables.clear()
        self._early.clear()

    def _check_new(self, *names: str) -> None:
        for name in names:
            if name in self._tables:
                raise ConfigError(f"{self._uid}: the state {name!r} is declared twice.")

    def _add(self, table: T) -> None:
        self._check_new(table.name)
        self._check_columns(table)
        self._tables[table.name] = table
        self._restore_into(table, self._early.pop(table.name, ()))

    def _check_columns(self, table: T) -> None:
        """No stream has dictionaries (``encodings``), so nobody needs narrow ones here: batches that are kept are joined, and what
        each of them has indices for may be too much for those of one."""
        for field in table.stored_schema:
            if _has_narrow_indices(field.type):
                raise SchemaError(
                    f"{self._uid}: state {table.name!r}, column {field.name!r} is {field.type}, whose indices may not do for "
                    f"the values of several batches together. Cast it to {decoded_type(field.type)}."
                )

    def _own(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        groups = batch.column(KEY_GROUP_COLUMN).to_numpy()
        mine = (groups >= self._key_groups.first) & (groups <= self._key_groups.last)
        return batch if mine.all() else batch.filter(mine)

    def _restore_into(self, table: T, batches: Iterable[pa.RecordBatch]) -> None:
        table.restore(self._checked(table, batch) for batch in batches)

    def _checked(self, table: T, batch: pa.RecordBatch) -> pa.RecordBatch:
        self._check_keys(table, batch)
        for field in table.stored_schema:
            at = batch.schema.get_field_index(field.name)
            found = batch.schema.field(at).type if at >= 0 else None
            if found != field.type:
                raise RestoreError(f"{self._uid}: state {table.name!r}{_difference(field.name, field.type, found)}")
        if table.holds_whole_rows:
            self._check_groups(table, batch)
        return batch

    def _check_keys(self, table: T, batch: pa.RecordBatch) -> None:
        """Other keys would be merged, or the same in another order be looked for in other key groups."""
        own = {name for name in table.stored_schema.names if name not in table.key_columns}
        held = [name for name in batch.schema.names if name not in own]
        if held != [name for name in table.stored_schema.names if name in table.key_columns]:
            raise RestoreError(
                f"{self._uid}: state {table.name!r}: the program keys it by {', '.join(table.key_columns)}, the checkpoint "
                f"holds it by {', '.join(held)}. Write key_by as it was, {_BEGIN_ANEW}"
            )

    def _check_groups(self, table: T, batch: pa.RecordBatch) -> None:
        """Which columns of a whole row were its key is told by nothing but the key groups."""
        groups = key_groups(hash_columns(batch, table.key_columns), self._max_parallelism)
        if not np.array_equal(groups, batch.column(KEY_GROUP_COLUMN).to_numpy()):
            raise RestoreError(
                f"{self._uid}: state {table.name!r}: the program keys it by {', '.join(table.key_columns)}, the checkpoint "
                f"by other columns or in another order. Write key_by as it was, {_BEGIN_ANEW}"
            )


def never_declared(uid: str, names: Iterable[str]) -> RestoreError:
    return RestoreError(f"{uid}: restored state {', '.join(sorted(names))} was never declared.")


def _has_narrow_indices(data_type: pa.DataType) -> bool:
    if isinstance(data_type, pa.DictionaryType):
        return data_type.index_type.bit_width < ENOUGH_BITS or _has_narrow_indices(data_type.value_type)
    return any(_has_narrow_indices(data_type.field(i).type) for i in range(data_type.num_fields))


def _difference(column: str, declared: pa.DataType, held: pa.DataType | None) -> str:
    """In the words of who declared it: how a ttl is stored is nothing that they wrote."""
    lasting, lasted = without_expiry(declared), None if held is None else without_expiry(held)
    with_ttl, had_ttl = lasting is not None, lasted is not None
    program = lasting if with_ttl else declared
    checkpoint = "nothing" if held is None else lasted if had_ttl else held
    if held is None or with_ttl == had_ttl:
        return (
            f", column {column!r}: the program declares {program}, the checkpoint holds {checkpoint}. "
            f"Restore with the old program, {_BEGIN_ANEW}"
        )
    types = ("it", "it") if program == checkpoint else (program, checkpoint)
    ttls = ("with a ttl", "without one") if with_ttl else ("without a ttl", "with one")
    return (
        f": the program declares {types[0]} {ttls[0]}, the checkpoint holds {types[1]} {ttls[1]}. "
        f"Declare it as it was, {_BEGIN_ANEW}"
    )
