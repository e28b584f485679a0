"""The threads beside the loop."""

import threading
import time

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


def test_storing_that_pauses_keeps_its_turn() -> None:
    done: list[str] = []
    threads = BackgroundThreads(lambda: True)
    began = time.monotonic()
    threads.snapshot(lambda: done.append("state"), pause=0.02)
    threads.snapshot(lambda: done.append("rows"))
    threads.finish()
    assert done == ["state", "rows"]
    assert time.monotonic() - began >= 0.02


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
