"""An operator of a stream on its own, what it emits, and the driver that it has nothing for."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

import cutwater as cw
from cutwater.flow.ids import CheckpointId
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.flow.watermarks import Milliseconds
from cutwater.operators.operator import Operator, OperatorContext
from cutwater.operators.steps import Steps
from cutwater.state.backend import KeyedStateStore, StateBackend


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


class Opened:
    """Implements ``StateBackend`` with a store that is there already."""

    incremental = False
    asynchronous = True

    def __init__(self, store: KeyedStateStore) -> None:
        self._store = store

    def open(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> KeyedStateStore:
        return self._store


def opened(
    stream: cw.Stream, backend: StateBackend, now: Callable[[], Milliseconds] = lambda: 0, steps: Steps | None = None
) -> Operator:
    """The last operator of ``stream``, the only subtask of it."""
    operator = stream._inputs[0].draft.body
    assert isinstance(operator, Operator)
    operator.open(
        OperatorContext(
            job="job", uid="w", name="window", subtask=0, parallelism=1, max_parallelism=128, attempt=1, incarnation="i",
            key_groups=KeyGroupRange(0, 127), backend=backend, now=now, driver=NoDriver(),
            steps=steps or Steps(),
        )
    )  # fmt: skip
    return operator
