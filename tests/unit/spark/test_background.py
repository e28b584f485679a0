"""The threads beside the loop."""

import os
import threading

import pytest

from cutwater.errors import ControlError
from cutwater.spark.background import BackgroundThreads
from cutwater.spark.last_words import stack_of


def test_a_process_that_lost_its_lease_commits_nothing_more() -> None:
    failures: list[BaseException] = []
    done: list[str] = []
    lease = {"held": True}
    threads = BackgroundThreads(lambda: lease["held"])
    threads.report_to(failures.append)

    def lose_it() -> None:
        done.append("first")
        lease["held"] = False

    threads.commit(lose_it)
    threads.commit(lambda: done.append("second"))
    threads.snapshot(lambda: done.append("snapshot"))
    threads.finish()
    assert sorted(done) == ["first", "snapshot"], "a snapshot harms nobody"
    assert [type(failure) for failure in failures] == [ControlError]


def test_storing_steps_back_where_barriers_go_first_and_committing_does_not() -> None:
    nice: dict[str, int] = {}

    def note(who: str) -> None:
        nice[who] = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    for barriers_first in (False, True):
        threads = BackgroundThreads(lambda: True, barriers_first=barriers_first)
        threads.snapshot(lambda: note(f"storing, {barriers_first}"))  # noqa: B023
        threads.commit(lambda: note(f"committing, {barriers_first}"))  # noqa: B023
        threads.finish()
    note("the loop")
    steps_back = nice.pop("storing, True")
    assert steps_back > nice["the loop"]
    assert set(nice.values()) == {nice["the loop"]}


def test_a_process_that_may_not_change_priorities_stores_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError("not for you")

    monkeypatch.setattr(os, "setpriority", refuse)
    stored: list[str] = []
    threads = BackgroundThreads(lambda: True, barriers_first=True)
    threads.snapshot(lambda: stored.append("one"))
    threads.finish()
    assert stored == ["one"]


def test_where_a_busy_thread_is_can_be_told() -> None:
    inside, may_leave = threading.Event(), threading.Event()

    def stuck_in_a_call() -> None:
        inside.set()
        may_leave.wait(20)

    busy = threading.Thread(target=stuck_in_a_call)
    busy.start()
    assert inside.wait(20)
    assert busy.ident is not None
    assert "stuck_in_a_call" in stack_of(busy.ident)
    may_leave.set()
    busy.join()
    assert stack_of(busy.ident) == ""
