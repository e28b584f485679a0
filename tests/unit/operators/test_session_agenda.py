"""How much sessions keep in mind of what is to be done about them, and that it is done once."""

import random

import pytest

import cutwater as cw
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.operators.session_windows import SessionWindows
from cutwater.rows import batch_of
from tests.unit.operators.collecting import Collected, Opened, after, opened

SCHEMA = "k long, ts long"
KEYS = range(5)


def sessions(lateness: str, backend: cw.StateBackend | None = None) -> tuple[SessionWindows, cw.Stream]:
    stream = cw.Environment(checkpointing=None).read(cw.from_rows([], SCHEMA), uid="in").with_timestamps("ts")
    windowed = stream.key_by("k").window(cw.session("1 min"), allowed_lateness=lateness).agg(n=cw.count())
    operator = opened(windowed, backend or cw.Memory())
    assert isinstance(operator, SessionWindows)
    return operator, stream


@pytest.mark.parametrize("lateness", ["0s", "1 day"])
def test_a_session_that_becomes_longer_with_every_batch_has_one_entry(lateness: str) -> None:
    operator, stream = sessions(lateness)
    out = Collected()
    for second in range(300):
        operator.process(batch_of([(key, second * 1000) for key in KEYS], stream.schema, "t"), 0, out)
        after(operator.on_watermark(second * 1000 - 1, out))
        assert len(operator._agenda) == len(KEYS)
    after(operator.on_watermark(1_000_000, out))
    assert sorted((row[0], row[-1]) for row in out.rows()) == [(key, 300) for key in KEYS]
    assert len(operator._agenda) == (0 if lateness == "0s" else len(KEYS)), "to be forgotten when nothing late may come"


def test_sessions_that_become_one_which_goes_on_do_not_leave_an_entry_each_for_ever() -> None:
    """Records come out of order, so that each is a session of its own first; time comes on in small steps."""
    operator, stream = sessions("0s")
    chance, out = random.Random(1), Collected()
    for minute in range(0, 300, 10):
        times = [minute * 60_000 + step * 30_000 for step in range(20)]
        chance.shuffle(times)
        for time in times:
            operator.process(batch_of([(1, time)], stream.schema, "t"), 0, out)
        for time in sorted(times):
            after(operator.on_watermark(time - 600_000, out))
        assert len(operator._agenda) <= 40
        assert len(operator._again) <= 1
    assert out.rows() == []
    after(operator.on_watermark(1_000_000_000, out))
    assert [(row[0], row[-1]) for row in out.rows()] == [(1, 600)]
    assert (operator._agenda, operator._again) == ([], {})


@pytest.mark.parametrize("lateness", ["0s", "1 day"])
@pytest.mark.parametrize("between", [30_000, 95_000], ids=["up to the later one", "beyond both"])
def test_sessions_that_become_one_are_told_once(lateness: str, between: int) -> None:
    """Each of the two has an entry, and both lead to the one that they are now."""
    operator, stream = sessions(lateness)
    out = Collected()
    for at in (0, 70_000, between, 40_000):
        operator.process(batch_of([(1, at)], stream.schema, "t"), 0, out)
    for watermark in (65_000, 140_000, 200_000):
        after(operator.on_watermark(watermark, out))
    assert [(row[0], row[-1]) for row in out.rows()] == [(1, 4)]


@pytest.mark.parametrize("backend", [cw.Memory(), cw.RocksDB()], ids=["memory", "rocksdb"])
def test_restored_sessions_wait_in_columns_and_are_told_among_new_ones(backend: cw.StateBackend) -> None:
    before, stream = sessions("0s", backend)
    before.process(batch_of([(key, key % 7 * 1000) for key in range(3000)], stream.schema, "t"), 0, Collected())
    store = backend.open("w", KeyGroupRange(0, 127), 128)
    for table in before.store.freeze():
        store.restore(table.name, list(table.batches()))
    operator, stream = sessions("0s", Opened(store))
    assert operator._agenda == []
    out = Collected()
    # One becomes longer, one is new.
    operator.process(batch_of([(5, 30_000), (5000, 1500)], stream.schema, "t"), 0, out)
    after(operator.on_watermark(62_000, out))
    told = [(row[0], row[-1]) for row in out.taken()]
    assert sorted(told) == sorted([(5000, 1), *((key, 1) for key in range(3000) if key % 7 <= 2)])
    after(operator.on_watermark(1_000_000, out))
    rest = {row[0]: row[-1] for row in out.taken()}
    assert rest == {key: 2 if key == 5 else 1 for key in range(3000) if key % 7 > 2}
    before.close()
    operator.close()
