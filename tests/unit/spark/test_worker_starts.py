"""How long an attempt waits for its subtasks."""

from cutwater.spark.worker_starts import HELLO_SECONDS, WorkerStarts


def test_nobody_reporting_in_for_long_is_hopeless() -> None:
    worker_starts = WorkerStarts(expected=3, now=100.0)
    assert not worker_starts.is_hopeless(100.0 + HELLO_SECONDS)
    assert worker_starts.is_hopeless(101.0 + HELLO_SECONDS)


def test_workers_that_come_slowly_but_come_are_waited_for() -> None:
    worker_starts = WorkerStarts(expected=400, now=0.0)
    for here in range(1, 400):
        now = here * HELLO_SECONDS / 2
        worker_starts.count(here, now)
        worker_starts.count(here, now + 1)
        assert not worker_starts.is_hopeless(now + HELLO_SECONDS - 1)
    assert worker_starts.is_hopeless(now + HELLO_SECONDS + 1), "the last one never came"


def test_when_all_are_here_nothing_is_waited_for() -> None:
    worker_starts = WorkerStarts(expected=2, now=0.0)
    assert str(worker_starts) == "2 of 2 workers have not started yet"
    worker_starts.count(1, 1.0)
    assert str(worker_starts) == "1 of 2 workers have not started yet"
    worker_starts.count(2, 2.0)
    assert str(worker_starts) == ""
    assert not worker_starts.is_hopeless(10 * HELLO_SECONDS)
