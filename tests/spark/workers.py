"""The Python workers of a running job, and what happens to them."""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import psutil

DEADLINE_SECONDS = 120.0


def wait_until(condition: Callable[[], Any], what: str, seconds: float = DEADLINE_SECONDS) -> Any:
    """What ``condition`` gives as soon as that is true; fails with ``what`` when it never is."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.01)
    return found


def worker_pids(job: Any) -> dict[str, int]:
    """By subtask (``sums[1]``), of the attempt that is running now; empty while none is."""
    attempt = job._runner._attempt
    if attempt is None or not attempt.driver.started or attempt.driver.finishing:
        return {}
    return {str(subtask): hello.pid for subtask, hello in attempt.driver.processes.items()}


def completed_checkpoints(job: Any) -> int:
    return sum(1 for each in job.checkpoints() if each.status == "completed")


def attempt_number(job: Any) -> int | None:
    """Of the attempt whose subtasks all run; None while there is none."""
    attempt = job._runner._attempt
    return int(attempt._attempt) if attempt is not None and attempt.driver.started else None


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def kill_worker(job: Any, subtask: str) -> int:
    """SIGKILL the worker of ``subtask`` as soon as it runs."""
    pids = wait_until(lambda: worker_pids(job), f"{subtask} runs")
    kill(pids[subtask])
    return int(pids[subtask])


def resident_bytes(pid: int) -> int:
    with contextlib.suppress(psutil.NoSuchProcess):
        return int(psutil.Process(pid).memory_info().rss)
    return 0
