"""What a running job takes of the machine: memory of its processes, bytes on disk."""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

from tests.spark.workers import worker_pids

MIB = 1 << 20


@dataclass(frozen=True)
class Footprint:
    workers: int
    """Private bytes of all Python workers: what the daemon shares with them does not count."""
    driver: int
    """Of this process, in which the driver runs."""
    jvm: int
    disk: int
    """Spark's local folder, and files that workers hold open though their names are gone."""


def measure(spark: SparkSession, job: Any) -> Footprint:
    pids = list(worker_pids(job).values())
    jvm = psutil.Process(spark.sparkContext._gateway.proc.pid)
    local = Path(spark.sparkContext.getConf().get("spark.local.dir"))
    return Footprint(
        workers=sum(private_bytes(pid) for pid in pids),
        driver=private_bytes(os.getpid()),
        jvm=sum(process.memory_info().rss for process in [jvm, *jvm.children()] if "java" in process.name()),
        disk=bytes_below(local) + sum(_unnamed_bytes(pid) for pid in pids),
    )


def watch(
    spark: SparkSession, job: Any, seconds: float, each: Callable[[Footprint], None] = lambda _: None
) -> list[Footprint]:
    """One measure a second."""
    found = []
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        found.append(measure(spark, job))
        each(found[-1])
        time.sleep(min(1.0, left))
    return found


def growth(values: Sequence[int]) -> int:
    """From the middle third to the last: the first is warm-up. Compared by their highest values."""
    third = len(values) // 3
    return max(values[2 * third :]) - max(values[third : 2 * third])


def private_bytes(pid: int) -> int:
    with contextlib.suppress(psutil.NoSuchProcess):
        return int(psutil.Process(pid).memory_full_info().uss)
    return 0


def bytes_below(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.lstat().st_size if path.is_file() else 0
    return total


def _unnamed_bytes(pid: int) -> int:
    total = 0
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                if os.readlink(entry.path).endswith("(deleted)") and entry.is_file():
                    total += entry.stat().st_size
    return total
