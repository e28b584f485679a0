"""``k.agg(...)``: running aggregates by key, whole batches at a time."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from cutwater.aggregates import AggregateSpec
from cutwater.errors import PlanError
from cutwater.flow.columns import shown_keys
from cutwater.operators.accumulators import AccumulatorPlan, plan_aggregates, plan_partials
from cutwater.operators.keyed_state import KeyedStateOperator
from cutwater.operators.operator import Collector, OperatorContext
from cutwater.state.tables import AggregateTable

TABLE = "aggregates"


class Aggregate(KeyedStateOperator):
    """For each batch one row per key in it, in the order of first touch, with the values after the batch.

    With ``partial`` the input is what a ``Combine`` of the same arguments emits; the output is the same. ``output_schema``
    binds it to the schema of its input.
    """

    def __init__(self, keys: Sequence[str], results: Mapping[str, AggregateSpec], *, partial: bool = False) -> None:
        self._keys = tuple(keys)
        self.results = dict(results)
        self._partial = partial
        self._bound: AccumulatorPlan | None = None
        self._table: AggregateTable | None = None

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        plan = plan_partials if self._partial else plan_aggregates
        self._bound = plan(inputs[0], self._keys, self.results)
        return self._bound.output_schema

    @property
    def _plan(self) -> AccumulatorPlan:
        if self._bound is None:
            raise PlanError("agg() does not know the schema of its input: output_schema must be called before open.")
        return self._bound

    def open(self, ctx: OperatorContext) -> None:
        self._open_store(ctx)
        self._table = self.store.aggregates(TABLE, self._plan.key_schema, self._plan.columns)

    def process(self, batch: pa.RecordBatch, port: int, out: Collector) -> None:
        if batch.num_rows == 0:
            return
        assert self._table is not None
        keys = batch.select(list(self._plan.keys))
        touched = self._table.locate(keys)
        self._table.update(touched, self._plan.merges(batch) if self._partial else self._plan.updates(batch))
        if len(touched.first) < batch.num_rows:
            keys = keys.take(touched.first)
        out.emit(self._plan.output([*map(shown_keys, keys.columns)], self._table.read(touched.unique)))
        self.store.tend()
