"""What backends promise of few rows holds for very many too: more than they look at, move or store at once."""

import random
from collections.abc import Mapping

import pyarrow as pa

from cutwater.state.backend import StateBackend
from cutwater.state.tables import Column, Merge, Update
from cutwater.testing.contract_batches import batches_of
from cutwater.testing.contract_tables import expect, opened

ROWS = 70_000
BATCH = 1_000
KEYS = pa.schema([("k", pa.int64())])
SUM = (Column("sum", pa.float64()),)
_FINE = 2.0**-40
"""What only a double keeps beside 0.1."""


def very_many_rows_are_all_there(backend: StateBackend) -> None:
    model = {key: key + 0.1 + _FINE for key in range(ROWS) if key % 3}
    with opened(backend) as store:
        table = store.rows("n", KEYS, pa.float64())
        for key in range(ROWS):
            table.put(key, key + 0.1 + _FINE)
            if key % 3 == 0:
                table.delete(key)
            if key % BATCH == 0:
                store.tend()
        _expect_same({key: table.get(key) for key in model}, model, "rows")
        batches = batches_of(store)["n"]
    with opened(backend) as store:
        store.restore("n", batches)
        table = store.rows("n", KEYS, pa.float64())
        _expect_same(dict(table.items()), model, "restored rows")


def very_many_keys_are_aggregated(backend: StateBackend) -> None:
    order = list(range(ROWS))
    with opened(backend) as store:
        table = store.aggregates("sums", KEYS, SUM)
        for _ in range(2):
            random.Random(1).shuffle(order)
            for start in range(0, ROWS, BATCH):
                some = order[start : start + BATCH]
                keys = pa.record_batch([pa.array(some, pa.int64())], schema=KEYS)
                values = pa.array([key + _FINE for key in some], pa.float64())
                table.update(table.locate(keys), [Update(0, Merge.ADD, values)])
                store.tend()
        batches = batches_of(store)["sums"]
    with opened(backend) as store:
        store.restore("sums", batches)
        table = store.aggregates("sums", KEYS, SUM)
        for start in range(0, ROWS, ROWS // 3):
            some = order[start : start + ROWS // 3]
            [sums] = table.read(table.locate(pa.record_batch([pa.array(some, pa.int64())], schema=KEYS)).rows)
            found = dict(zip(some, sums.to_pylist(), strict=True))
            _expect_same(found, {key: 2 * (key + _FINE) for key in some}, "sums")


def _expect_same(found: Mapping[int, object], wanted: Mapping[int, float], what: str) -> None:
    """They are too many to be told."""
    wrong = [key for key in wanted if found.get(key) != wanted[key]]
    if wrong:
        expect(
            found.get(wrong[0]), wanted[wrong[0]], f"one of {len(wrong)} wrong {what} of {len(wanted)}, key {wrong[0]}"
        )
    expect(len(found), len(wanted), f"how many {what} there are")
