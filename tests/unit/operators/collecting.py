"""What operators of a test emit, and the driver that they have nothing for."""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from cutwater.flow.ids import CheckpointId
from cutwater.flow.watermarks import Milliseconds


class Collected:
    """A collector that keeps what it gets."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.side: dict[str, list[tuple[Any, ...]]] = {}
        self.times: list[Milliseconds | None] = []
        """The watermarks; None: nothing comes for now."""

    def emit(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)

    def emit_side(self, tag: str, batch: pa.RecordBatch) -> None:
        self.side.setdefault(tag, []).extend(tuple(row.values()) for row in batch.to_pylist())

    def advance(self, watermark: Milliseconds) -> None:
        self.times.append(watermark)

    def rest(self) -> None:
        self.times.append(None)

    def rows(self) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for batch in self.batches for row in batch.to_pylist()]

    def taken(self) -> list[tuple[Any, ...]]:
        taken = self.rows()
        self.batches.clear()
        return taken


def after(steps: Iterable[None]) -> None:
    """Something that an operator does in steps, to its end."""
    for _ in steps:
        pass


class NoDriver:
    def collected(self, uid: str, checkpoint: CheckpointId, writer: int, rows: bytes) -> None:
        raise AssertionError("nothing is collected")

    def printed(self, lines: Sequence[str]) -> None:
        raise AssertionError("nothing is printed")
