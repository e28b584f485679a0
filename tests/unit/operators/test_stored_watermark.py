"""How far time has come behind a restore."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from cutwater.flow.watermarks import MIN_WATERMARK
from cutwater.operators.operator import OperatorContext
from cutwater.operators.stored_watermark import restored_due, restored_watermark, stored_watermark
from tests.unit.operators.test_process import context


class Restored:
    """``inline``: as ``plan_restore`` deals it out, one part or none."""

    def __init__(self, *inline: Any) -> None:
        self.inline: Sequence[Any] = inline

    def tables(self) -> Sequence[str]:
        return ()

    def batches(self, table: str) -> Iterator[pa.RecordBatch]:
        raise AssertionError("no tables here")


def restored(*inline: Any) -> OperatorContext:
    return replace(context(), restored=Restored(*inline))


def test_what_was_due_and_not_done_is_done_at_equal_parallelism() -> None:
    own = restored(stored_watermark(7, 20))
    assert (restored_watermark(own), restored_due(own)) == (7, 20)


def test_at_another_parallelism_nothing_is_due_behind_the_slowest() -> None:
    """Rows on their way to that one would be late."""
    of_two = restored({"watermarks": [7, -4]})
    assert (restored_watermark(of_two), restored_due(of_two)) == (-4, -4)


@pytest.mark.parametrize("unknown", [context(), restored(), restored({}), restored(stored_watermark(MIN_WATERMARK))])
def test_where_no_time_was_known_none_is(unknown: OperatorContext) -> None:
    assert (restored_watermark(unknown), restored_due(unknown)) == (MIN_WATERMARK, MIN_WATERMARK)
