"""Noticing that a worker died; making sure that all are dead before the next attempt opens its sinks (rule 30)."""

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterable

import psutil

from cutwater.control.messages import Hello
from cutwater.flow.ids import SubtaskId

_GRACE_SECONDS = 0.3
"""Workers exit by themselves when they hear AbortAttempt; after this they are killed where that is possible."""


def is_alive(process: Hello) -> bool:
    """Whether this very process still runs; a later one with the same pid is another."""
    try:
        found = psutil.Process(process.pid)
        return abs(found.create_time() - process.process_started) < 1.0 and found.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def is_here(process: Hello) -> bool:
    return process.host == socket.gethostname()


class DeathWatch:
    """Over the workers of this machine, for a loop that looks often: a process descriptor becomes readable when its process ends,
    and one system call asks them all. Where there are none (another system, a strict sandbox) each process is looked at."""

    def __init__(self) -> None:
        self._descriptors: dict[int, tuple[SubtaskId, Hello]] = {}
        self._poll = select.poll()
        self._looked_at: list[tuple[SubtaskId, Hello]] = []

    def add(self, subtask: SubtaskId, process: Hello) -> None:
        if not is_here(process):
            return
        try:
            descriptor = os.pidfd_open(process.pid)
        except (AttributeError, OSError):
            self._looked_at.append((subtask, process))
            return
        if not is_alive(process):  # before the descriptor was opened, which may be another's with its pid
            os.close(descriptor)
            self._looked_at.append((subtask, process))
            return
        self._descriptors[descriptor] = (subtask, process)
        self._poll.register(descriptor, select.POLLIN)

    def dead(self) -> list[tuple[SubtaskId, Hello]]:
        ended = [self._descriptors[descriptor] for descriptor, _ in self._poll.poll(0)]
        return ended + [each for each in self._looked_at if not is_alive(each[1])]

    def close(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()
        self._poll = select.poll()


def how_it_ended(driver_was_frozen: float | None, lease_deadline: float | None, now: float) -> str:
    """Of a worker that is gone and did not say why. Times are those of ``time.monotonic``."""
    if driver_was_frozen is not None:
        return f"ended itself: its lease ran out while this driver was frozen, for {driver_was_frozen:.0f} s"
    if lease_deadline is not None and now > lease_deadline:
        return (
            "ended itself: its lease ran out, because it and this driver did not hear of each other in time. "
            "Is the machine or the network overloaded? A lower parallelism needs fewer workers"
        )
    return "died without a word (killed, or out of memory)"


def confirm_dead(
    processes: Iterable[tuple[SubtaskId, Hello]],
    lease_deadline: Callable[[SubtaskId], float | None],
    log: Callable[[str], None],
) -> None:
    """Returns when every worker is known to be dead: seen to be gone, killed here, or its lease has run out elsewhere."""
    waiting = list(processes)
    began = time.monotonic()
    killed: set[SubtaskId] = set()
    while waiting:
        waiting = [(subtask, process) for subtask, process in waiting if not _is_gone(subtask, process, lease_deadline)]
        if not waiting:
            return
        if time.monotonic() - began > _GRACE_SECONDS:
            for subtask, process in waiting:
                if is_here(process) and subtask not in killed:
                    killed.add(subtask)
                    log(f"worker {process.pid} of {subtask} did not end by itself and is killed")
                    _kill(process.pid)
        time.sleep(0.01)


def _is_gone(subtask: SubtaskId, process: Hello, lease_deadline: Callable[[SubtaskId], float | None]) -> bool:
    if is_here(process):
        return not is_alive(process)
    deadline = lease_deadline(subtask)
    return deadline is None or time.monotonic() > deadline


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
