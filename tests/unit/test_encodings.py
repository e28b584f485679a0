"""Columns that come encoded flow as the values that they stand for."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cutwater as cw
from cutwater.connectors.source import SourceContext
from cutwater.schema import arrow_schema, arrow_type
from cutwater.subtask.source_input import SourceInput
from cutwater.testing import CHECKPOINT, FAIL, run, script

WORDS = pa.dictionary(pa.int8(), pa.string())
ENCODED = [WORDS, pa.string_view(), pa.dictionary(pa.int32(), pa.large_string())]


def test_a_schema_names_values_not_their_encoding() -> None:
    encoded = pa.schema(
        [
            pa.field("d", WORDS, nullable=False),
            ("l", pa.list_(WORDS)),
            ("s", pa.struct([pa.field("x", pa.binary_view(), nullable=False)])),
            ("m", pa.map_(pa.string_view(), WORDS)),
            ("f", pa.list_(WORDS, 2)),
        ]
    )
    assert arrow_schema(encoded) == pa.schema(
        [
            pa.field("d", pa.string(), nullable=False),
            ("l", pa.list_(pa.string())),
            ("s", pa.struct([pa.field("x", pa.binary(), nullable=False)])),
            ("m", pa.map_(pa.string(), pa.string())),
            ("f", pa.list_(pa.string(), 2)),
        ]
    )
    assert arrow_type(WORDS) == pa.string()
    plain = arrow_schema("word string, n array<long>")
    assert arrow_schema(plain) is plain


class Count(cw.KeyedProcess):
    seen = cw.ValueState(pa.struct([("word", WORDS), ("n", pa.int64())]))

    def process(self, row: Any, ctx: Any) -> Any:
        self.seen.value = (row.v, 1 + (self.seen.value.n if self.seen.value is not None else 0))
        yield row.k, self.seen.value.n


@pytest.mark.parametrize("data_type", ENCODED, ids=str)
def test_encoded_columns_cross_exchanges_and_come_back_from_checkpoints(data_type: pa.DataType) -> None:
    schema = pa.schema([("k", data_type), ("v", data_type)])

    def pipeline(env: cw.Environment) -> None:
        rows = env.read(cw.from_rows([], schema), uid="in").rebalance().map(lambda row: row, schema)
        rows.key_by("k").process(Count, pa.schema([("k", data_type), ("n", pa.int64())])).uid("count").collect("n")
        rows.key_by("k").agg(first=cw.first("v")).uid("first").collect("first")

    rows = [("a", "x"), (None, "y"), ("b", None), ("a", "z")]
    found = run(pipeline, inputs={"in": script(rows, CHECKPOINT, rows, FAIL)}, parallelism=2)
    counts = {row.k: row.n for row in sorted(found["n"], key=lambda row: row.n)}
    assert counts == {"a": 4, None: 2, "b": 2}
    assert {row.k: row["first"] for row in found["first"]} == {"a": "x", None: "y", "b": None}


def test_categories_of_a_parquet_file_are_read_as_their_values(tmp_path: Path) -> None:
    table = pa.table({"c": pa.array(["a", "b", None, "a"]).dictionary_encode(), "n": [1, 2, 3, 4]})
    pq.write_table(table, tmp_path / "a.parquet")
    source = cw.parquet_files(tmp_path)
    assert arrow_schema(source.schema) == pa.schema([("c", pa.string()), ("n", pa.int64())])
    read = SourceInput(source, SourceContext("job", "in", 0, 1, 1), [{"split": each} for each in source.splits()])
    batch = read.next(10, timedelta(0))
    assert batch is not None and batch.main is not None
    assert batch.main.schema == arrow_schema(source.schema)
    assert batch.main.column("c").to_pylist() == ["a", "b", None, "a"]
