"""The columnar table of the Memory backend: accumulators by key."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.errors import ConfigError, DataError
from cutwater.flow.arrow import Array
from cutwater.flow.batches import pieces
from cutwater.flow.columns import array_of_words, check_key_type, is_bytes, is_word, valid_of, words_of
from cutwater.state import accumulator_kernels as ak
from cutwater.state.frozen import KEY_GROUP_COLUMN
from cutwater.state.frozen_keys import FrozenKeys
from cutwater.state.index_kernels import CHUNK_ROWS
from cutwater.state.key_index import AddressedChunks, KeyIndex, same_key_twice
from cutwater.state.object_column import FrozenObjects, ObjectColumn
from cutwater.state.pointers import address
from cutwater.state.snapshots import Snapshots
from cutwater.state.tables import Column, Merge, Rows, Touched, Update
from cutwater.state.text_column import TextColumn
from cutwater.state.text_kernels import CELL_WORDS
from cutwater.state.undo_log import FrozenChunks, RowWords, UndoLog

FROZEN_BATCH_ROWS = 32 * CHUNK_ROWS
FROZEN_BATCH_BYTES = 32 << 20
"""Of texts and objects in a batch, roughly; a chunk of rows is always in one."""
RESTORED_ROWS = 2 * CHUNK_ROWS
COPIED_CHUNKS = 64
"""So many are copied before a batch, if a snapshot sees them: a few milliseconds. Rows of further ones are put aside."""

Words = npt.NDArray[np.int64]


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
        self._snapshots = Snapshots()
        self._texts: dict[int, TextColumn] = {}
        self._objects: dict[int, ObjectColumn] = {}
        self._width = ak.HEAD_WORDS + len(self._word_of)
        for c, column in enumerate(columns):
            if is_bytes(column.type):
                self._texts[c] = TextColumn(column, self._width, self._snapshots)
                self._width += CELL_WORDS
            elif c not in self._word_of:
                self._objects[c] = ObjectColumn(column)
        self._form = WordForm(self._columns, self._width, self._word_of, self._texts)
        self._words = AddressedChunks(self._width, words_behind=1)
        self._undo = UndoLog(self._width)
        self._frozen_rows = 0
        self._written = np.zeros(16, np.int64)
        """Of each chunk the epoch in which it was made or copied: a freeze of that epoch, or an older one, does not see it."""
        self.stamp = stamp

    def __len__(self) -> int:
        return len(self._index)

    @cached_property
    def stored_schema(self) -> pa.Schema:
        fields = [column.field for column in self._columns]
        return pa.schema([*self._index.keys, *fields, pa.field(KEY_GROUP_COLUMN, pa.int32())])

    @property
    def value_bytes(self) -> int:
        """What texts and Python objects take beside the rows, roughly."""
        of_texts = sum(column.live_bytes for column in self._texts.values())
        return of_texts + sum(column.live_bytes for column in self._objects.values())

    @property
    def chunks(self) -> int:
        return len(self._words.arrays)

    def locate(self, keys: pa.RecordBatch) -> Touched:
        touched = self._index.locate(keys.columns, keys.num_rows)
        self._add_chunks()
        return touched

    def find(self, keys: pa.RecordBatch) -> Rows:
        """The row of each key, -1 where there is none."""
        return self._index.find(keys.columns, keys.num_rows)

    def update(self, touched: Touched, updates: Sequence[Update]) -> None:
        if len(touched.unique) == 0:
            return
        self._save(touched.unique)
        self._update_words(touched.rows, [update for update in updates if update.column in self._word_of])
        chunks = self._words.addresses[: self.chunks]
        for update in updates:
            if update.column in self._word_of:
                continue
            assert update.values is not None
            if update.column in self._objects:
                self._objects[update.column].update(touched.rows, update.merge, update.values)
            else:
                texts = self._texts[update.column]
                texts.update(touched.rows, update.merge, update.values, chunks, self._width)
                texts.tidy(update.values.nbytes, chunks, self._width)

    def _save(self, rows: Rows) -> None:
        """What snapshots that are being read need of ``rows``."""
        being_read, epoch = self._snapshots.being_read, self._snapshots.epoch
        self._undo.follow_snapshots(being_read, epoch, self._words.addresses[: self.chunks])
        if not being_read:
            return
        latest = being_read[-1]
        shared = np.empty(COPIED_CHUNKS, np.int64)
        for chunk in shared[: ak.claim(rows, self._written, latest, epoch, shared)].tolist():
            self._words.replace(chunk)
        self._undo.save(rows, self._words.addresses, self._written, latest, epoch, self._frozen_rows)

    def read(self, rows: Rows) -> list[Array]:
        read = RowWords.room(len(rows), self._width)
        ak.read(rows, self._words.addresses, self._width, read.words, read.seen)
        return _columns(read, self._form, {c: o.read for c, o in self._objects.items()}, rows)

    def freeze(self) -> "FrozenAggregates":
        """On any thread, also on several at once, as long as the loop does not write meanwhile. It may ``find`` and ``read``:
        nothing changes here but the number of the freeze, and who objects are put aside for."""
        epoch = self._snapshots.freeze()
        self._frozen_rows = len(self)
        words = FrozenChunks(tuple(self._words.arrays), self._words.addresses, self._width, self._undo)
        objects = {c: column.freeze() for c, column in self._objects.items()}
        return FrozenAggregates(
            self.name, self.stored_schema, self._form, self._index.freeze(), words, objects, self._max_parallelism,
            self._snapshots, epoch, self._words, self._frozen_batch_rows(),
        )  # fmt: skip

    def _frozen_batch_rows(self) -> int:
        fitting = FROZEN_BATCH_BYTES * len(self) // max(self.value_bytes, 1)
        return max(1, min(FROZEN_BATCH_ROWS, fitting) // CHUNK_ROWS) * CHUNK_ROWS

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Put rows back as a frozen table gave them. Each key comes once, and is not there yet."""
        for batch in batches:
            self.append(batch)
        if not self.build():
            raise same_key_twice()

    def append(self, batch: pa.RecordBatch) -> None:
        """A part of ``restore``. The rows are not found before ``build``."""
        for piece in pieces(batch, RESTORED_ROWS):
            rows = self._index.append([piece.column(name) for name in self._index.keys.names], piece.num_rows)
            self._add_chunks()
            self._put(rows, [piece.column(column.name) for column in self._columns])

    def build(self) -> bool:
        """False: a key was appended twice. All rows are there, but are not found."""
        return self._index.build()

    def _put(self, rows: Rows, columns: Sequence[Array]) -> None:
        """``rows`` are new, and follow each other."""
        words = [Update(c, Merge.LAST, columns[c]) for c in self._word_of]
        self._update_words(rows, words)
        for c, objects in self._objects.items():
            objects.update(rows, Merge.LAST, columns[c])
        for c, texts in self._texts.items():
            texts.put(rows, columns[c], self._words.addresses, self._width)

    def _add_chunks(self) -> None:
        """For all rows that the index has."""
        while self.chunks * CHUNK_ROWS < len(self._index):
            self._words.add()
            for column in self._objects.values():
                column.add()
            if self.chunks > len(self._written):
                self._written = np.concatenate([self._written, np.zeros_like(self._written)])
            self._written[self.chunks - 1] = self._snapshots.epoch

    def _update_words(self, rows: Rows, updates: Sequence[Update]) -> None:
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
        mark = self._snapshots.epoch << ak.EPOCH_SHIFT | self.stamp
        overflow = ak.update(rows, self._words.addresses, self._width, merges, columns, values, valids, mark)
        if overflow >= 0:
            name = self._columns[updates[overflow].column].name
            raise DataError(
                f"{self._uid}: the sum {name!r} left the range of a long. Sum a double or a decimal instead."
            )


@dataclass(frozen=True, slots=True)
class WordForm:
    """What the words of a row mean."""

    columns: tuple[Column, ...]
    width: int
    word_of: Mapping[int, int]
    texts: Mapping[int, TextColumn]


def _columns(
    rows: RowWords, form: WordForm, objects: Mapping[int, Callable[[Rows], Array]], numbers: Rows
) -> list[Array]:
    """The accumulators of ``rows``. Objects know them by ``numbers``."""
    common = int(np.bitwise_and.reduce(rows.seen))
    read = []
    for c, column in enumerate(form.columns):
        if c in objects:
            read.append(objects[c](numbers))
        elif c in form.texts:
            cell = form.texts[c].word - ak.HEAD_WORDS
            read.append(form.texts[c].texts(rows.column(cell), rows.column(cell + 1)))
        else:
            bit = form.word_of[c]
            valid = None
            if column.nullable and not common >> bit & 1:
                valid = (rows.seen & np.uint64(1 << bit)) != 0
            read.append(array_of_words(rows.column(bit), column.type, valid))
    return read


@dataclass(frozen=True, slots=True)
class FrozenAggregates:
    """Implements ``FrozenTable``: the table as it was at the cut, read while the loop writes to it."""

    name: str
    schema: pa.Schema
    form: WordForm
    keys: FrozenKeys
    words: FrozenChunks
    objects: Mapping[int, FrozenObjects]
    max_parallelism: int
    snapshots: Snapshots
    epoch: int
    live: AddressedChunks
    batch_rows: int

    def batches(self) -> Iterator[pa.RecordBatch]:
        for start, stop in self.parts():
            yield self.part(start, stop)

    def parts(self) -> Iterator[tuple[int, int]]:
        """From which row to which a batch goes."""
        for start in range(0, self.keys.rows, self.batch_rows):
            yield start, min(start + self.batch_rows, self.keys.rows)

    def part(self, start: int, stop: int) -> pa.RecordBatch:
        """Rows ``start`` to ``stop``, where ``start`` begins a chunk."""
        keys, groups = self.keys.part(start, stop, self.max_parallelism)
        values = self._values(self.words.read(start, stop), np.arange(start, stop, dtype=np.int32))
        return pa.RecordBatch.from_arrays([*keys, *values, groups], schema=self.schema)

    def changed(self, since: int, known: int) -> Iterator[pa.RecordBatch]:
        """Rows with a stamp above ``since``, and all but the first ``known``."""
        for start, stop in self.parts():
            is_changed = self.words.stamps(start, stop) > since
            is_changed[max(0, known - start) :] = True
            if is_changed.any():
                yield self.some(start, stop, is_changed)

    def some(self, start: int, stop: int, is_wanted: npt.NDArray[np.bool_]) -> pa.RecordBatch:
        """Of one of the ``parts``."""
        rows = np.flatnonzero(is_wanted).astype(np.int32)
        numbers = rows + np.int32(start)
        keys, groups = self.keys.some(numbers, self.max_parallelism)
        values = self._values(self.words.read_some(start, stop, rows), numbers)
        return pa.RecordBatch.from_arrays([*keys, *values, groups], schema=self.schema)

    def _values(self, rows: RowWords, numbers: Rows) -> list[Array]:
        return _columns(rows, self.form, {c: column.read for c, column in self.objects.items()}, numbers)

    def release(self) -> None:
        for column in self.objects.values():
            column.release()
        self.snapshots.release(self.epoch, lambda: self.live.take_back(self.words.arrays))
