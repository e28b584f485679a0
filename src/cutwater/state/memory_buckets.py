"""The table of the Memory backend for windows of row functions: the rows themselves, by pane."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from cutwater.flow.partitioning import by_number
from cutwater.state.appended_rows import AppendedRows, HeldRows
from cutwater.state.bucket_changes import BucketChanges
from cutwater.state.bucket_history import BucketHistory, Moment
from cutwater.state.frozen import KEY_GROUP_COLUMN
from cutwater.state.tables import Size


class MemoryBuckets(BucketChanges):
    """Implements ``BucketTable``, ``KnowsSizes`` and ``TrackedTable``."""

    holds_whole_rows = True

    def __init__(self, name: str, schema: pa.Schema, keys: Sequence[str], bucket: str, max_parallelism: int) -> None:
        super().__init__()
        self.name = name
        self._schema = schema
        self.bucket_column = bucket
        self.max_parallelism = max_parallelism
        self._of: dict[int, AppendedRows] = {}
        self._history: BucketHistory[HeldRows] = BucketHistory()
        self.key_columns = tuple(keys)
        self.stored_schema = pa.schema([*schema, pa.field(bucket, pa.int64()), pa.field(KEY_GROUP_COLUMN, pa.int32())])

    def buckets(self) -> Iterable[int]:
        return self._of.keys()

    def add(self, bucket: int, rows: pa.RecordBatch) -> None:
        self._history.note(bucket, self._of.get(bucket))
        self._of.setdefault(bucket, AppendedRows(self._schema)).append(rows)

    def read(self, buckets: Iterable[int]) -> Iterator[pa.RecordBatch]:
        return iter([chunk for bucket in buckets if bucket in self._of for chunk in self._of[bucket].chunks])

    def size_in_memory(self, buckets: Iterable[int]) -> Size:
        present = [kept for bucket in buckets if (kept := self._of.get(bucket)) is not None]
        return Size(sum(map(len, present)), sum(kept.buffer_bytes for kept in present))

    def drop(self, bucket: int) -> None:
        self._history.note(bucket, self._of.get(bucket))
        self._of.pop(bucket, None)

    def moment(self) -> Moment[HeldRows]:
        return self._history.moment(self._of, lambda rows: rows)

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            rows = batch.select(self._schema.names).cast(self._schema)
            for bucket, part in by_number(rows, batch.column(self.bucket_column).to_numpy()):
                self.add(bucket, part)
                self._note_restored(bucket, self._of[bucket])
