"""Listeners hear of every checkpoint in order, and none of them can hold up the job."""

import threading

import pytest

from cutwater.checkpoint.statistics import CheckpointInfo, CheckpointKind, CheckpointStatus
from cutwater.flow.ids import CheckpointId
from cutwater.job.listeners import Listeners

PATIENCE = 20.0


def ended(number: int) -> CheckpointInfo:
    return CheckpointInfo(
        CheckpointId(number), CheckpointKind.CHECKPOINT, CheckpointStatus.COMPLETED, 0.0, 0.0, 0, 0, 0.0, 0.0, 0.0, 0.0,
        None, None, unaligned=False, subtasks=(),
    )  # fmt: skip


def test_everybody_was_told_everything_in_order_when_settle_returns() -> None:
    failures: list[str] = []
    listeners = Listeners(failures.append)
    first: list[int] = []
    second: list[int] = []
    listeners.tell(ended(1))  # nobody listens yet
    listeners.add(lambda info: first.append(info.id))
    listeners.add(lambda info: second.append(info.id))
    for number in (2, 3, 4):
        listeners.tell(ended(number))
    listeners.settle(PATIENCE)
    assert first == second == [2, 3, 4]
    assert failures == []


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_what_a_listener_raises_is_told_and_the_others_still_hear(error: type[BaseException]) -> None:
    failures: list[str] = []
    listeners = Listeners(failures.append)
    heard: list[int] = []

    def broken(info: CheckpointInfo) -> None:
        raise error(f"cannot take {info.id}")

    listeners.add(broken)
    listeners.add(lambda info: heard.append(info.id))
    listeners.tell(ended(1))
    listeners.settle(PATIENCE)
    assert heard == [1]
    assert failures == [f"on_checkpoint: {error.__name__}: cannot take 1"]


def test_the_end_of_the_job_does_not_wait_for_a_listener_that_waits_for_it() -> None:
    listeners = Listeners(lambda line: None)
    waiting, job_ended = threading.Event(), threading.Event()

    def cancels(info: CheckpointInfo) -> None:
        listeners.about_to_wait()
        waiting.set()
        job_ended.wait(PATIENCE)

    listeners.add(cancels)
    listeners.tell(ended(1))
    assert waiting.wait(PATIENCE)
    settled = threading.Thread(target=listeners.settle, args=(3600.0,), daemon=True)
    settled.start()
    settled.join(PATIENCE)
    assert not settled.is_alive()
    job_ended.set()


def test_waiting_elsewhere_excuses_no_slow_listener() -> None:
    listeners = Listeners(lambda line: None)
    begun, may_end = threading.Event(), threading.Event()

    def slow(info: CheckpointInfo) -> None:
        begun.set()
        may_end.wait(PATIENCE)

    listeners.add(slow)
    listeners.tell(ended(1))
    assert begun.wait(PATIENCE)
    listeners.about_to_wait()
    settled = threading.Thread(target=listeners.settle, args=(PATIENCE,), daemon=True)
    settled.start()
    settled.join(0.1)
    assert settled.is_alive()
    may_end.set()
    settled.join(PATIENCE)
    assert not settled.is_alive()
