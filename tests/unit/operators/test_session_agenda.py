"""How much sessions keep in mind of what is to be done about them, and that it is done once."""

import pytest

import cutwater as cw
from cutwater.operators.session_windows import SessionWindows
from cutwater.rows import batch_of
from tests.unit.operators.collecting import Collected, after, opened

SCHEMA = "k long, ts long"
KEYS = range(5)


def sessions(lateness: str) -> tuple[SessionWindows, cw.Stream]:
    stream = cw.Environment(checkpointing=None).read(cw.from_rows([], SCHEMA), uid="in").with_timestamps("ts")
    windowed = stream.key_by("k").window(cw.session("1 min"), allowed_lateness=lateness).agg(n=cw.count())
    operator = opened(windowed, cw.Memory())
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
