"""A storage that never answers holds up neither a cancel nor the end, and nothing of it is forgotten."""

import sys
import threading

import pytest

from cutwater.errors import StorageError
from cutwater.spark.storage_calls import StorageCalls
from cutwater.spark.storage_thread import StorageThread

PATIENCE = 20.0


def test_a_call_gives_what_the_storage_answers_and_raises_what_it_raises() -> None:
    calls = StorageCalls()

    def refused() -> None:
        raise StorageError("disk full")

    assert calls.call(lambda: 7, may_give_up=lambda: True) == 7
    with pytest.raises(StorageError, match="disk full"):
        calls.call(refused, may_give_up=lambda: False)


def test_a_silent_storage_is_given_up_only_when_somebody_wants_to_leave() -> None:
    answers, canceled = threading.Event(), threading.Event()
    looked: list[bool] = []

    def may_give_up() -> bool:
        looked.append(canceled.is_set())
        if len(looked) == 3:
            canceled.set()
        return looked[-1]

    with pytest.raises(StorageError, match="has not answered"):
        StorageCalls(silence=0.0).call(lambda: answers.wait(PATIENCE), may_give_up=may_give_up)
    assert looked == [False, False, False, True]
    answers.set()


def test_the_lock_is_let_go_when_the_storage_has_answered_what_was_given_up() -> None:
    answers, released = threading.Event(), threading.Event()
    calls = StorageCalls(silence=0.0)
    with pytest.raises(StorageError):
        calls.call(lambda: answers.wait(PATIENCE), may_give_up=lambda: True)
    assert not calls.release(released.set)
    assert not released.is_set()
    answers.set()
    assert released.wait(PATIENCE)
    calls.await_answers(lambda: False)
    assert calls.release(lambda: None)


def test_storage_work_that_hangs_is_left_and_what_waits_behind_it_is_never_begun() -> None:
    answers, hanging, begun = threading.Event(), threading.Event(), threading.Event()
    work, results = StorageThread(), []

    def hang() -> None:
        hanging.set()
        answers.wait(PATIENCE)

    work.submit(lambda: 1, results.append)
    work.submit(hang, results.append)
    work.submit(begun.set, results.append)
    assert hanging.wait(PATIENCE)
    work.finish(lambda: True, silence=0.1)
    assert work.is_alive()
    assert results == [1]
    answers.set()
    work.join(PATIENCE)
    assert not work.is_alive()
    assert not begun.is_set()


def test_whoever_waits_for_results_is_told_of_each_when_it_is_there() -> None:
    told, results = threading.Event(), []
    work = StorageThread(told.set)
    work.submit(lambda: 1, results.append)
    assert told.wait(PATIENCE)
    work.deliver()
    assert results == [1]
    work.finish(lambda: False)


def test_a_sys_exit_in_user_code_is_a_failure_of_that_work_and_the_next_is_done() -> None:
    work, results = StorageThread(), []
    work.submit(lambda: sys.exit("no licence"), results.append)
    work.submit(lambda: 2, results.append)
    work.finish(lambda: False)
    assert isinstance(results[0], StorageError) and "no licence" in str(results[0])
    assert results[1] == 2


def test_what_the_last_results_lead_to_is_done_too() -> None:
    work, done = StorageThread(), []

    def published(_: object) -> None:
        work.submit(lambda: done.append("older one deleted"), deleted)

    def deleted(_: object) -> None:
        work.submit(lambda: done.append("end noted"), lambda _: done.append("told"))

    work.submit(lambda: done.append("published"), published)
    work.finish(lambda: True)
    assert done == ["published", "older one deleted", "end noted", "told"]
    assert not work.is_alive()


def test_storage_work_of_a_finished_attempt_is_waited_for() -> None:
    answers, results = threading.Event(), []
    work = StorageThread()
    work.submit(lambda: answers.wait(PATIENCE), results.append)
    looked: list[None] = []

    def never() -> bool:
        looked.append(None)
        if len(looked) == 2:
            answers.set()
        return False

    work.finish(never, silence=0.05)
    assert results == [True]
