"""``k.agg(...)`` with aggregates that are kept as Python values under each key: own ones, distinct values."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from cutwater.aggregates import Aggregation
from cutwater.operators.kept_contents import Accumulated
from cutwater.operators.keyed_state import KeyedStateOperator, bare_keys_of, key_schema
from cutwater.operators.operator import Collector, OperatorContext
from cutwater.operators.window_content import KeyWindow, Told
from cutwater.state.key_index import KeyIndex
from cutwater.state.tables import RowTable

TABLE = "aggregates"


class KeptAggregate(KeyedStateOperator):
    """For each batch one row per key in it, in the order of first touch, with the values after the batch."""

    def __init__(self, keys: Sequence[str], results: Mapping[str, Aggregation]) -> None:
        self._keys = tuple(keys)
        self._content = Accumulated(results)

    def describe(self) -> str:
        return self._content.describe()

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        results = self._content.bind(inputs[0], self._keys)
        self._key_schema = key_schema(inputs[0], self._keys, "key_by()")
        return results

    def open(self, ctx: OperatorContext) -> None:
        self._open_store(ctx)
        self._table: RowTable = self.store.rows(TABLE, self._key_schema, self._content.stored_type)
        self._content.open(ctx)

    def process(self, batch: pa.RecordBatch, port: int, out: Collector) -> None:
        if batch.num_rows == 0:
            return
        located = KeyIndex(self._key_schema).locate(batch.select(list(self._keys)).columns, batch.num_rows)
        order = np.argsort(located.rows, kind="stable")
        fragments = self._content.of_fragments(
            batch.take(order), located.rows[order].astype(np.int64), len(located.first)
        )
        told: list[Told] = []
        keys = bare_keys_of(batch.take(located.first), self._keys)
        self.store.expect(keys)
        for key, fragment in zip(keys, fragments, strict=True):
            content = self._content.added(self._table.get(key), fragment)
            self._table.put(key, content)
            told.append(Told(key, KeyWindow(0, 0, content)))
        out.emit(self._content.results(told, out)[0])
        self.store.tend()
