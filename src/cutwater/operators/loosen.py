"""What makes a stream fit into a union whose other streams may have nulls where it has none."""

from collections.abc import Sequence

import pyarrow as pa

from cutwater.nullability import loosened
from cutwater.operators.operator import Collector, Operator


class Loosen(Operator):
    """The same records under a schema that allows more nulls: whoever is behind a union sees one schema in all its batches."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        return self.schema

    def process(self, batch: pa.RecordBatch, port: int, out: Collector) -> None:
        out.emit(loosened(batch, self.schema))
