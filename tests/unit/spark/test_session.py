"""Why there is no session: one line each. And the folder of one."""

import os
import socket
import subprocess
from pathlib import Path

import pytest
from pyspark.errors import PySparkRuntimeError

from cutwater.spark.session import local_folder, not_started


class JavaException:
    def toString(self) -> str:
        return "java.lang.NumberFormatException: Size must be specified as bytes (b)\n\tat org.apache.spark.Somewhere"


class Py4JError(Exception):
    java_exception = JavaException()


def test_a_java_process_that_ended_is_told_without_a_stack_trace() -> None:
    exited = PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
    told = not_started("local[4]", exited)
    assert told.startswith("Spark does not start with master local[4]: its Java process ended")
    assert len(told.splitlines()) == 1


def test_what_java_said_is_the_reason() -> None:
    told = not_started("yarn", Py4JError("An error occurred while calling None.JavaSparkContext.\n: java.lang..."))
    assert "master yarn: java.lang.NumberFormatException: Size must be specified as bytes (b)." in told
    assert len(told.splitlines()) == 1


def test_any_other_error_is_named() -> None:
    assert "FileNotFoundError: spark-submit" in not_started("local", FileNotFoundError("spark-submit"))


def test_folders_of_dead_processes_of_this_machine_are_removed_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    here = socket.gethostname()
    with subprocess.Popen(["true"]) as dead:
        dead.wait()
    names = [
        f"spark-local-{here}-{dead.pid}-a",
        f"spark-local-{here}-{os.getpid()}-b",
        f"spark-local-elsewhere-{dead.pid}-c",
    ]
    for name in names:
        (tmp_path / "cutwater" / name).mkdir(parents=True)
    mine = local_folder()
    left = {path.name for path in (tmp_path / "cutwater").iterdir()}
    assert left == {*names[1:], mine.name}
