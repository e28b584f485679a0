"""A cut lets no other thread take the interpreter: it would have to wait for it again, each time, while the loop stands still."""

import gc
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.flow.ids import CheckpointId
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state.index_kernels import CHUNK_ROWS
from cutwater.state.tables import Column, JoinSide, Merge, Update

CUTS = 5
"""A gap is short, and not found each time."""
NUMPY_LETS_GO = 500
"""Of more elements than these, numpy lets others run while it goes through them."""
KEY = pa.schema([("k", pa.int64())])


OTHERS = 3
PAUSE = 0.0002
"""Who waits without a pause asks for its turn again before the one beside it has let go: such a one hardly ever finds a gap."""


class Others:
    """Threads that take the interpreter whenever it can be had, and give it back at once."""

    def __init__(self) -> None:
        self.turns = [0] * OTHERS
        self.is_over = False
        self.where: list[str] = []
        """The line that the main thread was at when one of these took the interpreter last, and those that called it."""
        self.threads = [threading.Thread(target=self._run, args=(at,)) for at in range(OTHERS)]

    def _run(self, at: int) -> None:
        main = threading.main_thread().ident
        assert main is not None
        while not self.is_over:
            self.turns[at] += 1
            frames = traceback.walk_stack(sys._current_frames()[main])
            self.where = [f"{frame.f_code.co_filename}:{line}" for frame, line in frames]
            time.sleep(PAUSE)


@contextmanager
def beside_other_threads() -> Iterator[Others]:
    """Nobody is made to give the interpreter away: it is taken only from those who let go of it."""
    others = Others()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(100)
    # A thread of somebody else may wait since before: it would still have it taken when the old interval is over.
    time.sleep(10 * interval)
    gc.disable()  # what other tests left may be finalised in the middle of the cut, and let others run
    try:
        for thread in others.threads:
            thread.start()
        yield others
    finally:
        others.is_over = True
        for thread in others.threads:
            thread.join()
        gc.enable()
        sys.setswitchinterval(interval)


def aggregates(store: Any, keys: int) -> Callable[[], None]:
    table = store.aggregates("n", KEY, (Column("n", pa.int64(), nullable=False), Column("m", pa.string())))

    def write(keys: int) -> None:
        for start in range(0, keys, 1 << 16):
            numbers = pa.array(np.arange(start, min(start + (1 << 16), keys)))
            touched = table.locate(pa.record_batch([numbers], schema=KEY))
            table.update(touched, [Update(0, Merge.COUNT), Update(1, Merge.MAX, numbers.cast(pa.string()))])

    write(keys)
    return lambda: write(NUMPY_LETS_GO * 4)


def panes(store: Any, keys: int) -> Callable[[], None]:
    table = store.panes("w", KEY, "pane", [(Column("n", pa.int64(), nullable=False), Merge.ADD)])

    def write(keys: int) -> None:
        for start in range(0, keys, 1 << 13):
            numbers = pa.array(np.arange(start, min(start + (1 << 13), keys)))
            table.merge(start % 3, pa.record_batch([numbers, numbers], names=["k", "n"]))

    write(keys)
    return lambda: write(NUMPY_LETS_GO * 4)


def buckets(store: Any, keys: int) -> Callable[[], None]:
    table = store.buckets("b", KEY, KEY.names, "bucket")

    def write(keys: int) -> None:
        for start in range(0, keys, 1 << 13):
            table.add(start % 3, pa.record_batch([np.arange(start, min(start + (1 << 13), keys))], schema=KEY))

    write(keys)
    return lambda: write(NUMPY_LETS_GO * 4)


def join(store: Any, keys: int) -> Callable[[], None]:
    side = JoinSide(KEY, tuple(KEY.names))
    table = store.join("j", side, side, "bucket")

    def write(keys: int) -> None:
        for start in range(0, keys, 1 << 13):
            rows = pa.record_batch([np.arange(start, min(start + (1 << 13), keys))], schema=KEY)
            table.add(start % 2, start % 3, rows)

    write(keys)
    return lambda: write(NUMPY_LETS_GO * 4)


def rows(store: Any, keys: int) -> Callable[[], None]:
    table = store.rows("r", KEY, pa.int64())

    def write(keys: int) -> None:
        for key in range(keys):
            table.put(key, key)
        store.tend()

    write(keys)
    return lambda: write(NUMPY_LETS_GO * 4)


@pytest.mark.parametrize("kind", [aggregates, panes, buckets, join, rows])
@pytest.mark.parametrize("incremental", [False, True], ids=["full", "incremental"])
@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "rocksdb"])
def test_a_cut_lets_nobody_else_take_the_interpreter(
    kind: Callable[[Any, int], Callable[[], None]], incremental: bool, on_disk: bool, tmp_path: Path
) -> None:
    backend: cw.StateBackend = cw.Memory(incremental=incremental)
    keys = (NUMPY_LETS_GO + 20) * (CHUNK_ROWS if kind is aggregates else 5)
    if on_disk:
        backend = cw.RocksDB(incremental=incremental, local_directories=[tmp_path], cache="4MB")
        keys = 100 * NUMPY_LETS_GO
    store = backend.open("u", KeyGroupRange(0, 127), 128)
    change = kind(store, keys)
    for number in range(1, 1 + CUTS):
        change()
        with beside_other_threads() as others:
            while not all(others.turns):
                time.sleep(PAUSE)
            before = others.turns.copy()
            frozen = store.freeze(CheckpointId(number))
            after = others.turns.copy()
        assert after == before, others.where
        for table in frozen:
            table.release()
    store.close()
