"""A cut lets no other thread take the interpreter: it would have to wait for it again, each time, while the loop stands still."""

import gc
import sys
import threading
import time
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
from cutwater.state.tables import Column, Merge, Update

NUMPY_LETS_GO = 500
"""Of more elements than these, numpy lets others run while it goes through them."""
KEY = pa.schema([("k", pa.int64())])


class Other:
    """A thread that takes the interpreter whenever it can be had, and gives it back at once."""

    def __init__(self) -> None:
        self.turns = 0
        self.is_over = False

    def run(self) -> None:
        while not self.is_over:
            self.turns += 1
            time.sleep(0)


@contextmanager
def beside_another_thread() -> Iterator[Other]:
    """Nobody is made to give the interpreter away: it is taken only from those who let go of it."""
    other = Other()
    thread = threading.Thread(target=other.run)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(100)
    gc.disable()  # what other tests left may be finalised in the middle of the cut, and let others run
    try:
        thread.start()
        yield other
    finally:
        other.is_over = True
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


def rows(store: Any, keys: int) -> Callable[[], None]:
    table = store.rows("r", KEY, pa.int64())

    def write(keys: int) -> None:
        for key in range(keys):
            table.put(key, key)
        store.tend()

    write(keys)
    return lambda: write(NUMPY_LETS_GO * 4)


@pytest.mark.parametrize("kind", [aggregates, panes, rows])
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
    for number in (1, 2):
        change()
        with beside_another_thread() as other:
            while other.turns == 0:
                time.sleep(0)
            before = other.turns
            frozen = store.freeze(CheckpointId(number))
            after = other.turns
        assert after == before
        for table in frozen:
            table.release()
    store.close()
