"""Ten million keys, of which one in a hundred changes: what an increment costs beside all of it."""

import time
from pathlib import Path

import numpy as np
import pytest

from cutwater.checkpoint.file_storage import FileStorage
from tests.increments import Job, ManyKeys, opened

pytestmark = pytest.mark.timeout(1800)

KEYS = 10_000_000


def test_an_increment_takes_5_percent_of_the_bytes_and_20_percent_of_the_time(tmp_path: Path) -> None:
    job = Job(opened(), FileStorage(str(tmp_path)))
    many = ManyKeys(job.store)
    many.write(np.arange(KEYS))
    began = time.monotonic()
    full = job.checkpoint()
    full_seconds = time.monotonic() - began
    chance = np.random.default_rng(1)
    seconds = []
    for _ in range(5):
        many.write(chance.choice(KEYS, KEYS // 100, replace=False))
        began = time.monotonic()
        stored = job.checkpoint()
        seconds.append(time.monotonic() - began)
    base, *changes = (file.size for file in stored.files)
    assert (len(changes), stored.files[0]) == (5, full.files[0])
    assert max(changes) < 0.05 * base
    assert sorted(seconds)[2] < 0.2 * full_seconds, (seconds, full_seconds)

    store = opened()
    again = ManyKeys(store)
    store.restore("n", job.restored(stored).batches("n"))
    assert len(again.table) == KEYS
    counts = sum(int(again.counts(np.arange(at, at + 100_000)).sum()) for at in range(0, KEYS, 100_000))
    assert counts == KEYS + 5 * (KEYS // 100)
