"""What holds for every test: bounded random search, and nothing left running behind it."""

import contextlib
import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

GRACE_SECONDS = 5.0
RUN_MARK = "CUTWATER_TEST_RUN"

# A deadline per example would fail on a busy machine and say nothing about the code; the time limit per test is pytest's.
settings.register_profile("ci", max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def _shared_processes() -> set[int]:
    """Processes that outlive one test by design: the JVM that PySpark keeps for the next session, Python's own tracker."""
    shared: set[int] = set()
    if pyspark := sys.modules.get("pyspark"):
        gateway = pyspark.SparkContext._gateway
        if gateway is not None and getattr(gateway, "proc", None) is not None:
            shared.add(gateway.proc.pid)
    if tracker := sys.modules.get("multiprocessing.resource_tracker"):
        shared.add(tracker._resource_tracker._pid)
    return shared


def _children(this: psutil.Process) -> list[psutil.Process]:
    """Asked twice a test: that there are none the kernel says at once; who they are takes a look at every process there is."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return []
    return this.children()


def _is_running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid}: {' '.join(process.cmdline())[:200]}"
    except psutil.Error:
        return str(process.pid)


@pytest.fixture(autouse=True)
def no_process_is_left_behind() -> Iterator[None]:
    """Fails a test whose own child processes are still there some seconds after it ended, and ends them."""
    this = psutil.Process()
    before = {child.pid for child in _children(this)}
    yield
    expected = before | _shared_processes()
    left = [child for child in _children(this) if child.pid not in expected and _is_running(child)]
    _, alive = psutil.wait_procs(left, timeout=GRACE_SECONDS)
    names = [_describe(process) for process in alive if _is_running(process)]
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    assert not names, "the test left processes running:\n  " + "\n  ".join(names)


@pytest.fixture(scope="session", autouse=True)
def no_orphan_is_left_behind() -> Iterator[None]:
    """Fails the run when a process that a test's child started survived its parent (the parent was SIGKILLed, say).

    Such a process is no child of ours any more, but it inherited our environment: the mark finds it, and pytest's own
    variable says which test it came from.
    """
    mark = f"{RUN_MARK}={uuid.uuid4()}"
    os.environ[RUN_MARK] = mark.partition("=")[2]
    yield
    this = psutil.Process()
    ours = {this.pid, *(child.pid for child in this.children(recursive=True))}
    orphans = [
        process for process in psutil.process_iter() if process.pid not in ours and mark in _environment(process)
    ]
    _, alive = psutil.wait_procs(orphans, timeout=GRACE_SECONDS)
    names = [f"{_describe(process)}, from {_test_of(process)}" for process in alive if _is_running(process)]
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    assert not names, "tests left orphaned processes running:\n  " + "\n  ".join(names)


def _environment(process: psutil.Process) -> list[str]:
    try:
        return Path(f"/proc/{process.pid}/environ").read_text(errors="replace").split("\0")
    except OSError:
        return []


def _test_of(process: psutil.Process) -> str:
    names = [entry.partition("=")[2] for entry in _environment(process) if entry.startswith("PYTEST_CURRENT_TEST=")]
    return names[0] if names else "an unknown test"
