"""A sink for rows that nobody needs: benchmarks, and pipelines run for their side effects."""

import pyarrow as pa

from cutwater.arguments import takes_no_others
from cutwater.connectors.sink import Delivery, PlainSink


@takes_no_others
def discard() -> "DiscardSink":
    """Rows end here and are counted, nothing more."""
    return DiscardSink()


class DiscardSink(PlainSink):
    delivery = Delivery.EXACTLY_ONCE
    """Nothing is ever visible, so nothing is ever visible twice."""

    def describe(self) -> str:
        return "discard"

    def write(self, batch: pa.RecordBatch) -> None: ...
