"""What is written of the parts with each batch that is added."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from cutwater.state.cache_share import CacheShare
from cutwater.state.rocksdb_cut import Gate
from cutwater.state.rocksdb_parts import FASTER, PACE, STEP_ROWS, Part, Parts

ROW_BYTES = 8
SHARE_ROWS = 64 * STEP_ROWS


class Written:
    """Parts that only count: a memory is the list of the rows of each batch."""

    def __init__(self) -> None:
        self.rows = 0
        self.gate = Gate()
        self.parts = Parts[list[int]](
            CacheShare(SHARE_ROWS * ROW_BYTES), self.gate, (), list, self._write, lambda *_: None
        )

    def with_added(self, rows: int) -> int:
        """How many are written with so many that are added."""
        before = self.rows
        self.parts.recent.append(rows)
        self.parts.added(pa.record_batch({"n": np.zeros(rows, np.int64)}))
        return self.rows - before

    @property
    def held(self) -> int:
        return sum(map(sum, self.parts.memories()))

    def _write(self, part: Part[list[int]]) -> Iterator[int]:
        left = sum(part.memory)
        while left > 0:
            step = min(left, STEP_ROWS)
            self.rows += step
            left -= step
            yield step


@pytest.mark.parametrize("batch", [1000, STEP_ROWS, 4 * STEP_ROWS, 16 * STEP_ROWS])
def test_each_batch_writes_in_proportion_to_it(batch: int) -> None:
    """The rest of a part is never written at once, and the memory stays bounded all the same."""
    written = Written()
    for _ in range(8 * SHARE_ROWS // batch):
        assert written.with_added(batch) <= PACE * batch + STEP_ROWS
        assert written.held <= SHARE_ROWS + batch


def test_what_came_while_nothing_could_be_written_is_written_with_what_comes_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = Written()
    batch = 2 * STEP_ROWS
    monkeypatch.setattr(written.gate, "lets_write", lambda *_: False)
    while written.held < 1.7 * SHARE_ROWS:
        assert written.with_added(batch) == 0
    monkeypatch.undo()
    for _ in range(2 * SHARE_ROWS // batch):
        assert written.with_added(batch) <= FASTER * batch + STEP_ROWS
        assert written.held <= 2 * SHARE_ROWS
    assert written.held <= SHARE_ROWS


def test_small_batches_write_together_what_one_large_one_would() -> None:
    """A step of many rows is not made with each of them."""
    written = Written()
    while not written.rows:
        written.with_added(STEP_ROWS)
    before, added = written.rows, 500 * 100
    most = max(written.with_added(100) for _ in range(500))
    assert most <= STEP_ROWS
    assert added <= written.rows - before <= PACE * added + STEP_ROWS
