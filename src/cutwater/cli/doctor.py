"""``cutwater doctor``: what this machine has, what is missing, and what to do about it."""

import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import metadata

import typer
from rich.text import Text

from cutwater.cli.answer import FAILED, answer, console
from cutwater.errors import PlanError

OLDEST_JAVA = 17
OLDEST_PYTHON = (3, 11)
FEWEST_FILES, ENOUGH_FILES = 1024, 4096
"""A local job of parallelism 4 opens about 850 files and sockets, one of parallelism 16 about 3,500."""
PACKAGES = (
    "pyarrow",
    "polars",
    "pandas",
    "numpy",
    "numba",
    "rocksdict",
    "pyzmq",
    "xxhash",
    "cloudpickle",
    "cryptography",
    "psutil",
)


class Health(StrEnum):
    GOOD = "good"
    WARNING = "warning"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    what: str
    health: Health
    found: str
    advice: str = ""


def doctor(*, as_json: bool) -> None:
    findings = [python(), java(), spark_version(), *packages(), open_files()]
    if all(finding.health is not Health.WRONG for finding in findings):
        findings.extend(session())
    healthy = all(finding.health is not Health.WRONG for finding in findings)
    value = {"healthy": healthy, "findings": [asdict(finding) for finding in findings]}
    answer(value, lambda: _tell(findings, healthy=healthy), as_json=as_json)
    if not healthy:
        raise typer.Exit(FAILED)


def python() -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] >= OLDEST_PYTHON:
        return Finding("Python", Health.GOOD, f"{found} ({sys.executable})")
    return Finding("Python", Health.WRONG, found, "Python 3.11 or newer is needed.")


def java() -> Finding:
    from cutwater.spark.session import require_java

    try:
        path = require_java()
    except PlanError as error:
        return Finding("Java", Health.WRONG, "none", str(error))
    try:
        told = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("Java", Health.WRONG, path, f"{path} -version does not run: {error}")
    return judge_java(path, told.stderr + told.stdout)


def judge_java(path: str, version_output: str) -> Finding:
    version = re.search(r'version "((\d+)[^"]*)"', version_output)
    if version is None:
        return Finding("Java", Health.WRONG, path, f"{path} -version does not say which version it is.")
    if int(version[2]) < OLDEST_JAVA:
        advice = "Spark 4.3 needs Java 17 or newer: apt-get install openjdk-17-jre-headless, or set JAVA_HOME to one."
        return Finding("Java", Health.WRONG, f"{version[1]} ({path})", advice)
    return Finding("Java", Health.GOOD, f"{version[1]} ({path})")


def spark_version() -> Finding:
    from cutwater.spark.settings import SUPPORTED_SPARK

    found = _installed("pyspark")
    if found is None or not found.startswith(SUPPORTED_SPARK):
        return Finding("Spark", Health.WRONG, found or "none", "pip install pyspark==4.3.0")
    return Finding("Spark", Health.GOOD, found)


def packages() -> Iterator[Finding]:
    for name in PACKAGES:
        found = _installed(name)
        if found is None:
            yield Finding(name, Health.WRONG, "none", f"pip install {name}")
        elif name == "pandas" and int(found.split(".")[0]) >= 3:
            yield Finding(name, Health.WRONG, found, "PySpark 4.3 needs pandas 2: pip install 'pandas<3'")
        else:
            yield Finding(name, Health.GOOD, found)


def open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return judge_open_files(soft, hard)


def judge_open_files(soft: int, hard: int) -> Finding:
    """Java raises its own limit to the hard one, so that is what counts."""
    found = f"{_limit(soft)}, at most {_limit(hard)}"
    if hard != resource.RLIM_INFINITY and hard < ENOUGH_FILES:
        health = Health.WRONG if hard < FEWEST_FILES else Health.WARNING
        advice = (
            f"Connections grow with the square of the parallelism: raise the hard limit to {ENOUGH_FILES} or more "
            "(ulimit -Hn, or nofile in /etc/security/limits.conf), or keep the parallelism below 8."
        )
        return Finding("open files (ulimit -n)", health, found, advice)
    return Finding("open files (ulimit -n)", Health.GOOD, found)


def session() -> Iterator[Finding]:
    """The session that a job without one of its own would get."""
    from cutwater.spark.session import local_session
    from cutwater.spark.settings import check_session
    from cutwater.spark.slots import total_slots

    try:
        spark = local_session(0)
    except Exception as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        yield Finding("local session", Health.WRONG, "does not start", first)
        return
    try:
        problems = check_session(spark)
        slots = f"{spark.sparkContext.master}, {total_slots(spark)} slots, {os.cpu_count()} cores"
        yield Finding("local session", Health.GOOD, slots)
        if problems:
            yield from (Finding("Spark setting", Health.WRONG, problem) for problem in problems)
        else:
            yield Finding("Spark settings", Health.GOOD, "all that are needed (cutwater conf lists them)")
    finally:
        spark.stop()


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)


def _tell(findings: list[Finding], *, healthy: bool) -> None:
    out = console()
    marks = {Health.GOOD: ("ok", "green"), Health.WARNING: ("!", "yellow"), Health.WRONG: ("no", "red")}
    width = max(len(finding.what) for finding in findings)
    for finding in findings:
        mark, style = marks[finding.health]
        out.print(Text(f"{mark:>2}", style=style), Text(f"{finding.what:<{width}}  {finding.found}"))
        if finding.advice:
            out.print(Text(f"{'':{width + 5}}{finding.advice}", style=style))
    out.print("Everything that is needed is there." if healthy else "Jobs cannot run here as it is.")
