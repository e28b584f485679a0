"""The same program on our own local session, on ``local-cluster``, on a standalone cluster, and where it cannot run."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.spark.program import RECORDS
from tests.spark.workers import wait_until

pytestmark = pytest.mark.timeout(900)
PROGRAM = Path(__file__).with_name("program.py")
SPARK_HOME = Path(pyspark.__file__).parent


def run(folder: Path, *session: str) -> dict[str, Any]:
    """In a process of its own: a JVM has one session, and this one's is shared."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), *session],
        capture_output=True, text=True, timeout=600, cwd=folder, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def assert_exact(told: dict[str, Any], master: str) -> None:
    assert told["status"] == "finished" and told["master"].startswith(master), told
    assert (told["count"], told["total"]) == (RECORDS, RECORDS * (RECORDS - 1) // 2), told
    assert told["checkpoints"] >= 2, told


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def spark_daemon(folder: Path, name: str, *arguments: str) -> Iterator[Path]:
    """A part of a standalone cluster, started from the pyspark package; its log."""
    log = folder / f"{name}.txt"
    environment = {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
    }
    command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
    with log.open("wb") as told:
        process = subprocess.Popen(command, env=environment, stdout=told, stderr=subprocess.STDOUT, cwd=folder)
    try:
        yield log
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """A master and one worker with eight cores."""
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    host = ("--host", "127.0.0.1", "--webui-port", "0")
    cores = ("--cores", "8", "--memory", "2g", "--work-dir", str(tmp_path / "work"))
    with spark_daemon(tmp_path, "master.Master", *host, "--port", str(port)):
        wait_until(lambda: is_listening(port), "the master listens")
        with spark_daemon(tmp_path, "worker.Worker", *host, *cores, url) as log:
            wait_until(lambda: "Successfully registered with master" in log.read_text(), "the worker registered")
            yield url


def test_the_program_runs_without_a_session_of_the_users(tmp_path: Path) -> None:
    assert_exact(run(tmp_path), "local[")


def test_the_program_runs_on_a_local_cluster_that_authenticates(tmp_path: Path) -> None:
    """Spark does not protect its pipelined exchange; who asked for authentication gets sealed payloads.

    The job needs all slots of both executors, which register while it starts.
    """
    told = run(tmp_path, "local-cluster[2,2,1024]", "spark.authenticate=true", "spark.authenticate.secret=s3cret")
    assert_exact(told, "local-cluster[")
    assert told["sealed"]


def test_the_program_runs_on_a_standalone_cluster(tmp_path: Path, standalone: str) -> None:
    assert_exact(run(tmp_path, standalone), "spark://")


def test_a_session_with_too_few_slots_is_told_how_many_are_needed(tmp_path: Path) -> None:
    told = run(tmp_path, "local[2]")
    assert told["error"] == "PlanError"
    assert "needs 4 slots" in told["message"] and "local[2]) has 2" in told["message"], told
    assert "local[4]" in told["message"]
