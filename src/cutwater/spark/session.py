"""Our own local session, for users who bring none."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import psutil
from pyspark.sql import SparkSession

from cutwater.errors import ConfigError, PlanError
from cutwater.spark.settings import DEFAULT_SLOTS, check_session, spark_conf


def local_session(slots_needed: int) -> SparkSession:
    """The active session if it can run the job, else a new local one with slots enough."""
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    return open_session(None, {}, slots=max(DEFAULT_SLOTS, slots_needed))


def open_session(master: str | None, settings: Mapping[str, str], slots: int | None = None) -> SparkSession:
    """A session with what Cutwater needs and ``settings`` laid over it; without ``master`` a local one."""
    require_java()
    conf = spark_conf(master=master, slots=slots)
    conf.set("spark.ui.enabled", "false")
    if master is None or master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        conf.set("spark.driver.host", "127.0.0.1")
    conf.set("spark.driver.memory", "2g")
    conf.set("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={quiet_logging()}")
    local = _local_folder()
    conf.set("spark.local.dir", str(local))
    conf.set("spark.sql.warehouse.dir", str(local / "warehouse"))
    for key, value in settings.items():
        conf.set(key, value)
    return SparkSession.builder.config(conf=conf).getOrCreate()


def quiet_logging() -> str:
    """Spark tells of every failed attempt at length; the cause is reported by the job itself."""
    return str(files("cutwater.spark").joinpath("log4j2-quiet.properties"))


def _local_folder() -> Path:
    """For Spark's own files. Not in the system's temporary folder: a cleaner there would fail every later attempt.

    Removed when this process ends; what killed processes left is removed by the next one.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cutwater"
    base.mkdir(parents=True, exist_ok=True)
    for left in base.glob("spark-local-*"):
        owner = left.name.split("-")[2]
        if not (owner.isdigit() and psutil.pid_exists(int(owner))):
            shutil.rmtree(left, ignore_errors=True)
    local = Path(tempfile.mkdtemp(prefix=f"spark-local-{os.getpid()}-", dir=base))
    atexit.register(shutil.rmtree, local, ignore_errors=True)
    return local


def require_java() -> str:
    """The java that Spark will start; PlanError says how to get one."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if found is None:
        raise PlanError(
            "Spark needs Java 17, and no java was found. On Debian: apt-get install openjdk-17-jre-headless."
        )
    return found


def refuse_unfit(spark: object) -> None:
    """Before anything starts: is this a session, and does it have the settings that jobs need?"""
    if not isinstance(spark, SparkSession):
        raise ConfigError(
            f"spark={spark!r} is no SparkSession: pass SparkSession.builder.config(conf=cw.spark_conf(...)).getOrCreate(), "
            f"or leave it out to get a local one."
        )
    problems = check_session(spark)
    if problems:
        told = "".join(f"\n  - {problem}" for problem in problems)
        raise PlanError(
            f"This Spark session cannot run Cutwater jobs:{told}\n"
            f"Make the session with SparkSession.builder.config(conf=cw.spark_conf(...)).getOrCreate()."
        )
