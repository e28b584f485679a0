"""The processes of a job that runs as a child of ours, and their deaths."""

import contextlib
import signal
from pathlib import Path

import psutil

DAEMON = "-m cutwater.spark.daemon"
"""As it is started; the name alone stands in the settings on a driver's command line too."""
EXECUTOR = "CoarseGrainedExecutorBackend"


def python_workers(driver: psutil.Process) -> list[psutil.Process]:
    """Forked from the daemon, so they have its command line and it as their parent."""
    found = _descendants(driver)
    daemons = {pid for pid, line in found.items() if DAEMON in line and DAEMON not in _parent_line(pid)}
    return [psutil.Process(pid) for pid, line in found.items() if DAEMON in line and _parent(pid) in daemons]


def executors(driver: psutil.Process) -> list[psutil.Process]:
    return [psutil.Process(pid) for pid, line in _descendants(driver).items() if EXECUTOR in line]


def kill(process: psutil.Process) -> bool:
    """Whether it was still there to be killed."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGKILL)
        return True
    return False


def kill_driver(driver: psutil.Process) -> None:
    """The driver and its JVM at once; what is below them must end by itself."""
    jvms = [child for child in driver.children() if "java" in child.name()]
    for process in (driver, *jvms):
        kill(process)
    driver.wait()


def storage_of(folder: Path) -> list[int]:
    """The checkpoints that are complete in the job's storage."""
    return sorted(int(path.parent.name.removeprefix("chk-")) for path in folder.glob("*/chk-*/metadata.json"))


def _descendants(process: psutil.Process) -> dict[int, str]:
    lines = {}
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in process.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                lines[child.pid] = " ".join(child.cmdline())
    return lines


def _parent(pid: int) -> int | None:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).ppid()
    return None


def _parent_line(pid: int) -> str:
    parent = _parent(pid)
    with contextlib.suppress(psutil.NoSuchProcess):
        return "" if parent is None else " ".join(psutil.Process(parent).cmdline())
    return ""
