"""The columnar table of the Memory backend: accumulators by key, copied chunk by chunk when a snapshot still needs them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.errors import ConfigError, DataError
from cutwater.flow.arrow import Array
from cutwater.flow.columns import array_of_words, check_key_type, is_bytes, is_word, valid_of, words_of
from cutwater.state import accumulator_kernels as ak
from cutwater.state.frozen import KEY_GROUP_COLUMN
from cutwater.state.index_kernels import CHUNK_ROWS
from cutwater.state.key_index import AddressedChunks, FrozenKeys, KeyIndex
from cutwater.state.object_column import FrozenObjects, ObjectColumn
from cutwater.state.pointers import address
from cutwater.state.snapshots import Snapshots
from cutwater.state.tables import Column, Merge, Rows, Touched, Update
from cutwater.state.text_column import FrozenTexts, TextColumn

FROZEN_BATCH_ROWS = 16 * CHUNK_ROWS
LOOKED_AT_ROWS = 64 * FROZEN_BATCH_ROWS
"""So that what changed comes in batches of some size, though it be few among many."""


def fits_words(data_type: pa.DataType) -> bool:
    """Can the kernels keep this type? Unsigned 64-bit integers cannot be told from negative ones there."""
    return is_word(data_type) and not pa.types.is_uint64(data_type)


class MemoryAggregateTable:
    """Implements ``AggregateTable``."""

    holds_whole_rows = False

    def __init__(
        self,
        uid: str,
        name: str,
        keys: pa.Schema,
        columns: Sequence[Column],
        max_parallelism: int,
        *,
        stamp: int = 0,
        expected_keys: int = 0,
    ) -> None:
        """``stamp``: what rows that are written from now on are marked with; 0 where nobody asks what changed."""
        for field in keys:
            check_key_type(field.name, field.type)
        stored = [*keys.names, *(column.name for column in columns), KEY_GROUP_COLUMN]
        if len(set(stored)) < len(stored):
            raise ConfigError(f"{uid}: columns of the state {name!r} must have different names, but are {stored}.")
        if len(columns) > ak.MAX_COLUMNS:
            raise ConfigError(f"{uid}: {len(columns)} accumulators in one table; at most {ak.MAX_COLUMNS} are allowed.")
        self.name = name
        self.key_columns = tuple(keys.names)
        self._uid = uid
        self._columns = tuple(columns)
        self._max_parallelism = max_parallelism
        self._index = KeyIndex(keys, expected_keys)
        self._word_of = {c: i for i, c in enumerate(c for c, col in enumerate(columns) if fits_words(col.type))}
        self._width = 1 + len(self._word_of)
        self._words = AddressedChunks(self._width)
        others = {c: column for c, column in enumerate(columns) if c not in self._word_of}
        self._texts = {c: TextColumn(column) for c, column in others.items() if is_bytes(column.type)}
        objects = {c: ObjectColumn(column) for c, column in others.items() if c not in self._texts}
        self._beside: dict[int, TextColumn | ObjectColumn] = {**self._texts, **objects}
        """The columns that are no words."""
        self._written = np.zeros(16, np.int64)
        self._snapshots = Snapshots()
        self.stamp = stamp

    def __len__(self) -> int:
        return len(self._index)

    @property
    def stored_schema(self) -> pa.Schema:
        fields = [column.field for column in self._columns]
        return pa.schema([*self._index.keys, *fields, pa.field(KEY_GROUP_COLUMN, pa.int32())])

    @property
    def chunks(self) -> int:
        return len(self._words.arrays)

    def locate(self, keys: pa.RecordBatch) -> Touched:
        touched = self._index.locate(keys.columns, keys.num_rows)
        while self.chunks * CHUNK_ROWS < len(self._index):
            self._add_chunk()
        return touched

    def find(self, keys: pa.RecordBatch) -> Rows:
        """The row of each key, -1 where there is none."""
        return self._index.find(keys.columns, keys.num_rows)

    def update(self, touched: Touched, updates: Sequence[Update]) -> None:
        if len(touched.unique) == 0:
            return
        self._copy_shared(touched.unique)
        self._update_words(touched.rows, [update for update in updates if update.column in self._word_of])
        for update in updates:
            if update.column not in self._beside:
                continue
            assert update.values is not None
            self._beside[update.column].update(touched.rows, update.merge, update.values)
            if update.column in self._texts:
                self._tidy(self._texts[update.column], update.values.nbytes)

    def read(self, rows: Rows) -> list[Array]:
        return _read(rows, self._columns, self._words.addresses, self._word_of, self._beside)

    def freeze(self) -> "FrozenAggregates":
        epoch = self._snapshots.freeze()
        beside = {c: column.freeze() for c, column in self._beside.items()}
        return FrozenAggregates(
            self.name, self.stored_schema, self._columns, self._index.freeze(), self._words, tuple(self._words.arrays),
            self._words.addresses.copy(), self._word_of, beside, self._max_parallelism, self._snapshots, epoch,
        )  # fmt: skip

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Put rows back as a frozen table gave them."""
        for batch in batches:
            keys = batch.select(self._index.keys.names)
            touched = self.locate(keys)
            columns = [batch.column(column.name) for column in self._columns]
            self.update(touched, [Update(c, Merge.LAST, values) for c, values in enumerate(columns)])

    def _add_chunk(self) -> None:
        self._words.add()
        for column in self._beside.values():
            column.add()
        if self.chunks > len(self._written):
            self._written = np.concatenate([self._written, np.zeros_like(self._written)])
        self._written[self.chunks - 1] = self._snapshots.epoch

    def _copy_shared(self, rows: Rows) -> None:
        """Copy on write: a frozen table keeps the old arrays, the loop goes on with new ones."""
        latest = self._snapshots.latest
        if latest == 0:
            return
        shared = np.empty(self.chunks, np.int64)
        count = ak.claim(rows, self._written, latest, self._snapshots.epoch, shared)
        for chunk in shared[:count].tolist():
            self._words.replace(chunk)
            for column in self._beside.values():
                column.replace(chunk)

    def _tidy(self, column: TextColumn, written: int) -> None:
        for chunk in column.chunks_to_move(written):
            self._copy_shared(np.array([chunk * CHUNK_ROWS], np.int32))
            column.move(chunk)

    def _update_words(self, rows: Rows, updates: Sequence[Update]) -> None:
        if not updates and not self.stamp:
            return
        merges, columns, values, valids = (np.zeros(len(updates), np.int64) for _ in range(4))
        alive: list[Any] = []  # the arrays behind the addresses
        for j, update in enumerate(updates):
            merges[j] = update.merge
            columns[j] = self._word_of[update.column]
            if update.values is None:
                continue
            valid = valid_of(update.values)
            valids[j] = address(valid) if len(valid) else 0
            alive.append(valid)
            if update.merge != Merge.COUNT:
                is_float = pa.types.is_floating(self._columns[update.column].type)
                words = words_of(update.values, normalise=False)
                merges[j] += ak.FLOAT if is_float else 0
                values[j] = address(words)
                alive.append(words)
        overflow = ak.update(rows, self._words.addresses, self._width, merges, columns, values, valids, self.stamp)
        if overflow >= 0:
            name = self._columns[updates[overflow].column].name
            raise DataError(
                f"{self._uid}: the sum {name!r} left the range of a long. Sum a double or a decimal instead."
            )


def _read(
    rows: Rows | range,
    columns: Sequence[Column],
    chunks: npt.NDArray[np.int64],
    word_of: Mapping[int, int],
    beside: Mapping[int, TextColumn | ObjectColumn | FrozenTexts | FrozenObjects],
) -> list[Array]:
    """The accumulators of ``rows`` as columns; ``chunks`` are the addresses of the words."""
    count = len(rows)
    words = np.empty(count * len(word_of), np.int64)
    seen = np.empty(count, np.uint64)
    width = 1 + len(word_of)
    if isinstance(rows, range):
        common = int(ak.read_run(rows.start, chunks, width, words, seen))
    else:
        common = int(ak.read(rows, chunks, width, words, seen))
    numbers = np.arange(rows.start, rows.stop, dtype=np.int32) if isinstance(rows, range) else rows
    read = []
    for c, column in enumerate(columns):
        if c in beside:
            read.append(beside[c].read(numbers))
            continue
        word = word_of[c]
        valid = None
        if column.nullable and not common >> word & 1:
            valid = (seen & np.uint64(1 << word)) != 0
        read.append(array_of_words(words[word * count : (word + 1) * count], column.type, valid))
    return read


@dataclass(frozen=True, slots=True)
class FrozenAggregates:
    """Implements ``FrozenTable``: the arrays as they were at the cut. The loop replaces what it writes, we read the old ones."""

    name: str
    schema: pa.Schema
    columns: tuple[Column, ...]
    keys: FrozenKeys
    live: AddressedChunks
    words: Sequence[npt.NDArray[np.int64]]
    """Kept alive for the addresses."""
    addresses: npt.NDArray[np.int64]
    word_of: Mapping[int, int]
    beside: Mapping[int, FrozenTexts | FrozenObjects]
    max_parallelism: int
    snapshots: Snapshots
    epoch: int

    def batches(self) -> Iterator[pa.RecordBatch]:
        for start in range(0, self.keys.rows, FROZEN_BATCH_ROWS):
            yield self.part(start, min(start + FROZEN_BATCH_ROWS, self.keys.rows))

    def part(self, start: int, stop: int) -> pa.RecordBatch:
        """Rows ``start`` to ``stop``, where ``start`` begins a chunk."""
        keys, groups = self.keys.part(start, stop, self.max_parallelism)
        values = _read(range(start, stop), self.columns, self.addresses, self.word_of, self.beside)
        return pa.RecordBatch.from_arrays([*keys, *values, groups], schema=self.schema)

    def changed(self, since: int, known: int) -> Iterator[pa.RecordBatch]:
        """Rows with a stamp above ``since``, and all but the first ``known``."""
        for start in range(0, self.keys.rows, LOOKED_AT_ROWS):
            out = np.empty(min(LOOKED_AT_ROWS, self.keys.rows - start), np.int32)
            width = 1 + len(self.word_of)
            rows = out[: ak.changed(self.addresses, width, start, known, since, out)]
            for at in range(0, len(rows), FROZEN_BATCH_ROWS):
                part = rows[at : at + FROZEN_BATCH_ROWS]
                keys, groups = self.keys.some(part, self.max_parallelism)
                values = _read(part, self.columns, self.addresses, self.word_of, self.beside)
                yield pa.RecordBatch.from_arrays([*keys, *values, groups], schema=self.schema)

    def release(self) -> None:
        self.snapshots.release(self.epoch, self._give_back)

    def _give_back(self) -> None:
        self.live.take_back(self.words)
        for column in self.beside.values():
            column.release()
