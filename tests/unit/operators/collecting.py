"""What operators of a test emit, and the driver that they have nothing for."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from cutwater.flow.ids import CheckpointId


class Collected:
    """A collector that keeps the rows it gets."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.side: dict[str, list[tuple[Any, ...]]] = {}

    def emit(self, batch: pa.RecordBatch) -> None:
        self.rows += [tuple(row.values()) for row in batch.to_pylist()]

    def emit_side(self, tag: str, batch: pa.RecordBatch) -> None:
        self.side.setdefault(tag, []).extend(tuple(row.values()) for row in batch.to_pylist())

    def taken(self) -> list[tuple[Any, ...]]:
        taken, self.rows = self.rows, []
        return taken


class NoDriver:
    def collected(self, uid: str, checkpoint: CheckpointId, writer: int, rows: bytes) -> None:
        raise AssertionError("nothing is collected")

    def printed(self, lines: Sequence[str]) -> None:
        raise AssertionError("nothing is printed")
