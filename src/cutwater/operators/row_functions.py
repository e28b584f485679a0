"""Map, flat map and filter with a Python function that sees one row at a time."""

from collections.abc import Callable, Iterator, Sequence
from types import GeneratorType
from typing import Any

import pyarrow as pa

from cutwater.operators.operator import Collector, Operator, OperatorContext
from cutwater.operators.process import several
from cutwater.operators.turn import Turn
from cutwater.operators.user_code import user_error
from cutwater.rows import Row, RowsInTurn, batch_of
from cutwater.schema import SchemaLike, arrow_schema


class _RowFunction(Operator):
    """A stateless operator around one function."""

    verb: str

    def __init__(self, fn: Callable[[Row], Any]) -> None:
        self.fn = fn
        self.where = self.verb
        self._turn = Turn()

    def open(self, ctx: OperatorContext) -> None:
        self.where = f"{self.verb} {ctx.name!r} ({ctx.uid})"
        self._turn = ctx.turn

    def _run(
        self, batch: pa.RecordBatch, over: Callable[[Callable[[Row], Any], Iterator[Row]], list[Any]]
    ) -> list[Any]:
        """All results for the rows of its turn; the row in hand is found only when the function raised."""
        taken = RowsInTurn(batch)
        try:
            return over(self.fn, self._turn.of(taken.rows, batch.num_rows))
        except Exception as error:
            raise user_error(error, self.where, taken.last()) from error


# The function is called by loops of ours, never by map(): a StopIteration of the user would end that as if no row were left.


def _each(fn: Callable[[Row], Any], rows: Iterator[Row]) -> list[Any]:
    return [fn(row) for row in rows]


def _true(fn: Callable[[Row], Any], rows: Iterator[Row]) -> list[bool]:
    return [bool(fn(row)) for row in rows]


class Map(_RowFunction):
    """One result for each row."""

    verb = "map"

    def __init__(self, fn: Callable[[Row], Any], schema: SchemaLike) -> None:
        super().__init__(fn)
        self.schema = arrow_schema(schema, f"{self.verb}'s schema")

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        return self.schema

    def process(self, batch: pa.RecordBatch, port: int, out: Collector) -> None:
        if batch.num_rows:
            out.emit(batch_of(self._run(batch, _each), self.schema, self.where))


class FlatMap(Map):
    """Any number of results for each row: the function returns or yields them; None stands for none."""

    verb = "flat_map"

    def process(self, batch: pa.RecordBatch, port: int, out: Collector) -> None:
        results = self._run(batch, self._flat)
        if results:
            out.emit(batch_of(results, self.schema, self.where))

    def _flat(self, fn: Callable[[Row], Any], rows: Iterator[Row]) -> list[Any]:
        results: list[Any] = []
        extend = results.extend
        for row in rows:
            found = fn(row)
            kind = type(found)
            if kind is list or kind is GeneratorType:
                extend(found)
            elif found is not None:
                extend(several(found, self.schema, self.verb))
        return results


class Filter(_RowFunction):
    """The rows for which the function returns something true."""

    verb = "filter"

    def process(self, batch: pa.RecordBatch, port: int, out: Collector) -> None:
        kept = self._run(batch, _true)
        seen = batch if len(kept) == batch.num_rows else batch.slice(0, len(kept))
        if all(kept):
            if kept:
                out.emit(seen)
        elif any(kept):
            out.emit(seen.filter(pa.array(kept, pa.bool_())))
