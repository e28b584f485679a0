"""What backends promise of rows by bucket: they can be read bit by bit, while the loop does other things."""

from collections.abc import Iterable

import pyarrow as pa

from cutwater.state.backend import KeyedStateStore, StateBackend
from cutwater.state.tables import ReadsInShares
from cutwater.testing.contract_tables import expect, opened

_SCHEMA = pa.schema([("key", pa.int64()), ("in", pa.int64()), ("number", pa.int64())])
_KEYS = 13
_READ = (3, -2)
_OTHER = 7
Rows = dict[int, list[tuple[int, int]]]
"""By key: in which bucket, and their numbers."""


def buckets_are_read_as_they_were_whatever_comes_and_is_frozen_meanwhile(backend: StateBackend) -> None:
    with opened(backend) as store:
        written = _Written(store)
        table = written.table
        for _ in range(4):
            written.add()
        rows, batches = written.rows(), table.read(_READ)
        written.add()
        expect(_found([batches], written), rows, "rows of buckets as they were")
        if isinstance(table, ReadsInShares):
            rows, shares = written.rows(), table.shares(_READ)
            written.add()
            expect(_found(shares, written), rows, "rows of buckets as they were, in shares")


class _Written:
    """Rows of some buckets, the same in each."""

    def __init__(self, store: KeyedStateStore) -> None:
        self._store = store
        self._count = 0
        self.table = store.buckets("rows", _SCHEMA, ["key"], "bucket")

    def add(self) -> None:
        numbers = range(self._count, self._count + 20)
        for bucket in (*_READ, _OTHER):
            rows = [{"key": number % _KEYS, "in": bucket, "number": number} for number in numbers]
            self.table.add(bucket, pa.RecordBatch.from_pylist(rows, _SCHEMA))
        self._count = numbers.stop
        self._store.tend()

    def rows(self) -> Rows:
        return {key: [(bucket, n) for bucket in _READ for n in range(key, self._count, _KEYS)] for key in range(_KEYS)}

    def check_frozen(self) -> None:
        [frozen] = self._store.freeze()
        held = sum(batch.num_rows for batch in frozen.batches())
        frozen.release()
        expect(held, len((*_READ, _OTHER)) * self._count, "frozen rows while buckets are read")


def _found(shares: Iterable[Iterable[pa.RecordBatch]], written: _Written) -> Rows:
    found: Rows = {}
    for share in shares:
        of_share: Rows = {}
        for at, batch in enumerate(share):
            for row in batch.to_pylist():
                of_share.setdefault(row["key"], []).append((row["in"], row["number"]))
            if at % 32 == 0:
                written.check_frozen()
                written.add()
        expect(found.keys() & of_share.keys(), set(), "keys that are in two shares")
        found |= of_share
    return found
