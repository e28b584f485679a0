"""What a reader hands over is what the source's schema says, or it is refused with the source's name."""

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.connectors.source import SourceContext
from cutwater.errors import DataError
from cutwater.schema import arrow_schema
from cutwater.subtask.source_input import SourceInput

CONTEXT = SourceContext("job", "orders", 0, 1, 1)
SCHEMA = arrow_schema("id long, text string")


class Given(cw.Source, cw.SplitReader):
    """Gives one batch, whatever it is, and what stands beside it."""

    schema = "id long, text string"
    side_schemas = {"bad": "line string"}  # noqa: RUF012 (never mutated)

    def __init__(self, batch: Any, side: dict[str, Any] | None = None) -> None:
        self.batch, self.side = batch, side or {}

    def splits(self) -> list[int]:
        return [0]

    def open(self, split: int, position: Any, ctx: SourceContext) -> "Given":
        return self

    def next_batch(self, max_rows: int, timeout: timedelta) -> Any:
        return self.batch

    def side_batches(self) -> dict[str, pa.RecordBatch]:
        return self.side

    def position(self) -> int:
        return 0


def read(batch: Any, side: dict[str, Any] | None = None) -> Any:
    source_input = SourceInput(Given(batch, side), CONTEXT, [{"split": 0, "position": None}])
    return source_input.next(10, timedelta(0))


def main(batch: Any) -> pa.RecordBatch:
    taken = read(batch).main
    assert isinstance(taken, pa.RecordBatch) and taken.schema.equals(SCHEMA)
    return taken


def test_a_batch_of_the_schema_is_passed_on_as_it_is() -> None:
    batch = pa.RecordBatch.from_pylist([{"id": 1, "text": "x"}], schema=SCHEMA)
    assert main(batch) is batch


def test_narrower_types_are_widened_and_columns_put_in_order() -> None:
    narrow = pa.record_batch({"text": pa.array(["x", "y"], pa.large_string()), "id": pa.array([1, -2], pa.int32())})
    assert main(narrow).to_pylist() == [{"id": 1, "text": "x"}, {"id": -2, "text": "y"}]


def test_a_table_in_several_pieces_becomes_one_batch() -> None:
    piece = pa.table({"id": [1], "text": ["x"]})
    assert main(pa.concat_tables([piece, piece])).to_pylist() == [{"id": 1, "text": "x"}] * 2


@pytest.mark.parametrize(
    ("batch", "parts"),
    [
        (pa.record_batch({"id": ["1"], "text": ["x"]}), ["'id'", "string", "int64"]),
        (pa.record_batch({"id": [1.5], "text": ["x"]}), ["'id'", "double", "int64"]),
        (pa.record_batch({"id": pa.array([2**63], pa.uint64()), "text": ["x"]}), ["'id'", "uint64", "int64"]),
        (pa.record_batch({"id": [1]}), ["'text'", "available: id"]),
        (
            pa.record_batch({"id": [1], "text": ["x"], "more": [1]}),
            ["'more'", "which the schema has not", "which has: id, text"],
        ),
        ([{"id": 1, "text": "x"}], ["list", "pyarrow.RecordBatch", "cw.END"]),
    ],
)
def test_a_batch_that_does_not_fit_is_refused_with_source_column_and_types(batch: Any, parts: list[str]) -> None:
    with pytest.raises(DataError) as refused:
        read(batch)
    for part in ["source 'orders'", "next_batch", *parts]:
        assert part in str(refused.value)


def test_side_batches_are_held_to_their_schema_too() -> None:
    fits = pa.record_batch({"id": [1], "text": ["x"]}, schema=SCHEMA)
    large = pa.record_batch({"line": pa.array(["{"], pa.large_string())})
    assert read(fits, {"bad": large}).side["bad"].schema.equals(arrow_schema("line string"))
    with pytest.raises(DataError, match=r"source 'orders', side_batches\(\)\['bad'\]: column 'line' is int64"):
        read(fits, {"bad": pa.record_batch({"line": [1]})})
    with pytest.raises(DataError, match=r"\['other'\]: this side output has no schema"):
        read(fits, {"other": large})
