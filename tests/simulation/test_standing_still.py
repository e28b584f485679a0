"""Behind an unaligned cut the loop leaves the interpreter to its reader until the barriers are there, but not for ever (r14)."""

from collections.abc import Callable
from pathlib import Path

import pytest

import cutwater as cw
from cutwater.subtask.operator_subtask import OTHERS_SECONDS, STAND_STILL_SECONDS
from cutwater.testing import ADVANCE, script
from cutwater.testing.actors import BackgroundQueues
from tests.examples.looking import LookedAt, looked_at

MARK = ADVANCE("1s")
INPUTS = {uid: script([1], MARK, [2]).items for uid in "ab"}


def _pipeline(env: cw.Environment) -> None:
    a, b = (env.read(cw.from_rows([], "value long"), uid=uid) for uid in "ab")
    a.union(b).rebalance().filter("value > 0").uid("both").collect("out")


def _cut_with_a_barrier_missing(looking: LookedAt) -> float:
    """One row of each input was processed, and one of ``a`` waits behind its barrier; that of ``b`` does not come. When it
    was that the operator cut."""
    looking.let("a", "b", "both", "both<-0", "both<-1", "driver")
    looking.trigger()
    looking.let("driver", "a", "both", "both<-0")
    cut_at = looking.simulation._clock.monotonic()
    looking.pass_mark("a")
    looking.let("a", "both<-0", "both")
    assert looking.records_in("both") == 2, "it did not stand still"
    return cut_at


def test_a_barrier_that_does_not_come_is_not_waited_for_any_longer(tmp_path: Path) -> None:
    with looked_at(_pipeline, INPUTS, tmp_path, unaligned=True) as looking:
        cut_at = _cut_with_a_barrier_missing(looking)
        looking.wait_for("both")
        looking.let("both")
        assert looking.records_in("both") == 3
        assert looking.simulation._clock.monotonic() - cut_at == pytest.approx(STAND_STILL_SECONDS, abs=0.001)
        assert not looking.simulation.answers, "the checkpoint waits for it all the same"


def test_the_last_barrier_ends_it_at_once(tmp_path: Path) -> None:
    with looked_at(_pipeline, INPUTS, tmp_path, unaligned=True) as looking:
        cut_at = _cut_with_a_barrier_missing(looking)
        now = looking.simulation._clock.monotonic()
        looking.let("b", "both<-1", "both")
        assert looking.records_in("both") == 3
        assert looking.simulation._clock.monotonic() == now < cut_at + STAND_STILL_SECONDS


@pytest.mark.parametrize("seconds", [0.01, 0.2])
def test_storing_waits_as_long_again_as_the_barriers_took_but_not_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    pauses: list[float] = []
    submit = BackgroundQueues.snapshot

    def noting(queues: BackgroundQueues, work: Callable[[], None], pause: float = 0.0) -> None:
        pauses.append(pause)
        submit(queues, work)

    monkeypatch.setattr(BackgroundQueues, "snapshot", noting)
    with looked_at(_pipeline, INPUTS, tmp_path, unaligned=True) as looking:
        looking.let("a", "b", "both", "both<-0", "both<-1", "driver")
        looking.trigger()
        looking.let("driver", "a", "b", "both", "both<-0")
        before = len(pauses)
        looking.simulation._clock.advance(seconds)
        looking.let("both<-1")
    state, rows = pauses[before:]
    assert state == pytest.approx(min(seconds, OTHERS_SECONDS))
    assert rows == 0
