"""What waits for its time as it was restored: given in order, and let go when all of it is given."""

import gc
import weakref

import numpy as np

from cutwater.operators.restored_timers import RESTORED_AT_ONCE, RestoredEntries


class Key:
    """Of which one can know that nobody holds it."""


def test_nothing_is_held_of_what_was_given() -> None:
    count = RESTORED_AT_ONCE + 10
    keys = [Key() for _ in range(count)]
    last = weakref.ref(keys[-1])
    entries = RestoredEntries([np.arange(count)[::-1] // 2], keys)
    del keys
    heap: list[tuple[int, int, Key]] = []
    times = []
    while True:
        entries.fill(heap)
        if not heap:
            break
        times.append(heap.pop(0)[0])
    assert times == sorted(times)
    assert (len(times), len(entries)) == (count, count)
    gc.collect()
    assert last() is None
