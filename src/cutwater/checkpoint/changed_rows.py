"""The rows of a table that is stored as a base and the changes since: of each row the newest, as if all were in one file."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.flow.arrow import Array
from cutwater.flow.batches import pieces
from cutwater.state.changes import Header
from cutwater.state.frozen import KEY_GROUP_COLUMN
from cutwater.state.key_index import KeyIndex

PIECE_ROWS = 8192


@dataclass(frozen=True, slots=True)
class StoredRows:
    """One file of a table."""

    header: Header
    schema: pa.Schema
    batches: Callable[[], Iterator[pa.RecordBatch]]


def newest_rows(files: Sequence[StoredRows]) -> Iterator[pa.RecordBatch]:
    """In the order of the files. The changes are gone through from the newest back, then the base as it streams by."""
    base, *changes = files
    later = _Later()
    newest_first: list[list[pa.RecordBatch]] = []
    for file in reversed(changes):
        batches = list(file.batches())
        newest_first.append([kept for batch in batches if (kept := _present(later.kept(batch))).num_rows])
        later.add(file, batches)
    for batch in base.batches():
        for piece in pieces(batch, PIECE_ROWS) if changes else (batch,):
            if (kept := later.kept(piece)).num_rows:
                yield kept
    for batches in reversed(newest_first):
        yield from batches


def _present(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Without rows that only say that earlier ones are gone."""
    groups = batch.column(KEY_GROUP_COLUMN).to_numpy()
    return batch if (groups >= 0).all() else batch.filter(pa.array(groups >= 0))


class _Later:
    """What the files behind the one that is looked at say of it."""

    def __init__(self) -> None:
        self._identity: tuple[str, ...] = ()
        self._replaced: KeyIndex | None = None
        self._bucket: str | None = None
        self._dropped: set[int] = set()

    def add(self, file: StoredRows, batches: Sequence[pa.RecordBatch]) -> None:
        self._bucket = file.header.bucket
        self._dropped.update(file.header.dropped)
        if not file.header.identity:
            return
        if self._replaced is None:
            self._identity = file.header.identity
            self._replaced = KeyIndex(pa.schema([file.schema.field(name) for name in self._identity]))
        for batch in batches:
            self._replaced.locate(self._keys(batch), batch.num_rows)

    def kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        gone: npt.NDArray[np.bool_] | None = None
        if self._replaced is not None:
            gone = self._replaced.find(self._keys(batch), batch.num_rows) >= 0
        if self._dropped and self._bucket is not None:
            dropped = np.isin(batch.column(self._bucket).to_numpy(), list(self._dropped))
            gone = dropped if gone is None else gone | dropped
        return batch if gone is None or not gone.any() else batch.filter(pa.array(~gone))

    def _keys(self, batch: pa.RecordBatch) -> list[Array]:
        return [batch.column(name) for name in self._identity]
