"""Workers that must be dead before the next attempt opens a sink."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from cutwater.control.messages import Hello
from cutwater.flow.ids import SubtaskId
from cutwater.spark.processes import DeathWatch, confirm_dead, how_it_ended, is_alive

STUBBORN = "import signal, sys, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
WORKER = SubtaskId("sums", 1)


def start() -> tuple["subprocess.Popen[bytes]", Hello]:
    process = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    return process, Hello(socket.gethostname(), process.pid, psutil.Process(process.pid).create_time())


def test_a_worker_that_does_not_end_by_itself_is_killed() -> None:
    process, hello = start()
    lines: list[str] = []
    confirm_dead([(WORKER, hello)], lambda _: None, lines.append)
    assert process.wait(10) == -signal.SIGKILL
    assert str(hello.pid) in lines[0]


def test_a_later_process_with_the_same_pid_is_left_alone() -> None:
    process, hello = start()
    try:
        confirm_dead([(WORKER, Hello(hello.host, hello.pid, hello.process_started - 100))], lambda _: None, print)
        assert process.poll() is None
        assert is_alive(hello)
    finally:
        process.kill()
        process.wait()


def test_a_worker_that_nobody_reaped_is_dead() -> None:
    process, hello = start()
    os.kill(process.pid, signal.SIGKILL)
    confirm_dead([(WORKER, hello)], lambda _: None, print)
    assert not is_alive(hello)
    process.wait()


def test_a_worker_elsewhere_counts_as_dead_only_when_its_lease_has_run_out() -> None:
    began = time.monotonic()
    until = began + 0.3
    confirm_dead([(WORKER, Hello("another-host", 1, 0.0))], lambda _: until, print)
    assert time.monotonic() >= until


@pytest.fixture(params=["descriptors", "without descriptors"])
def death_watch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[DeathWatch]:
    if request.param == "without descriptors":
        monkeypatch.setattr(os, "pidfd_open", refuse)
    watch = DeathWatch()
    yield watch
    watch.close()


def refuse(pid: int) -> int:
    raise PermissionError(pid)


def test_a_death_is_noticed_before_anybody_reaps_the_process(death_watch: DeathWatch) -> None:
    process, hello = start()
    death_watch.add(WORKER, hello)
    assert death_watch.dead() == []
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert death_watch.dead() == [(WORKER, hello)]
    assert process.wait() == -signal.SIGKILL
    assert death_watch.dead() == [(WORKER, hello)]


def test_a_worker_that_had_died_before_it_was_watched_is_dead(death_watch: DeathWatch) -> None:
    process, hello = start()
    earlier = Hello(hello.host, hello.pid, hello.process_started - 100)
    try:
        death_watch.add(WORKER, earlier)
        assert death_watch.dead() == [(WORKER, earlier)]
    finally:
        process.kill()
        process.wait()


def test_workers_elsewhere_are_not_watched(death_watch: DeathWatch) -> None:
    death_watch.add(WORKER, Hello("another-host", 1, 0.0))
    assert death_watch.dead() == []


@pytest.mark.parametrize(
    ("frozen", "deadline", "says"),
    [
        (None, None, "died without a word"),
        (None, 101.0, "died without a word"),
        (None, 99.0, "its lease ran out, because it and this driver did not hear of each other"),
        (12.3, 99.0, "this driver was frozen, for 12 s"),
    ],
)
def test_a_worker_whose_lease_ran_out_was_not_killed(frozen: float | None, deadline: float | None, says: str) -> None:
    assert says in how_it_ended(frozen, deadline, now=100.0)
