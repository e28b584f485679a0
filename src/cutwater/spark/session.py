"""Our own local session, for users who bring none: started for the first job, and anew for one that needs more slots."""

import atexit
import glob
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import psutil
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cutwater.errors import ConfigError, PlanError
from cutwater.spark.master import Tasks, refuse_silent, tasks_of
from cutwater.spark.settings import DEFAULT_SLOTS, HOW_TO_MAKE_A_SESSION, check_session, spark_conf
from cutwater.spark.slots import total_slots
from cutwater.spark.spark_errors import cause_in

choosing = threading.Lock()
"""Held from the choice of a session until its use is noted, so that nobody stops it in between."""

SETTLE_SECONDS = 2.0
"""How long Spark may take to tell that a job that ended is no longer active."""


@dataclass(eq=False, slots=True)
class SessionUse:
    """A job needs its session from the choice of it until ``end``, which comes before anybody hears of the job's end."""

    job: str
    _ended: bool = False

    @property
    def goes_on(self) -> bool:
        return not self._ended

    def end(self) -> None:
        self._ended = True


@dataclass(slots=True)
class _OwnSession:
    """``lent``: somebody outside has it and may have tables or jobs on it, so it stays until they stop it."""

    session: SparkSession
    lent: bool = False
    uses: list[SessionUse] = field(default_factory=list)

    def is_behind(self, session: SparkSession) -> bool:
        """Spark makes a new object each time one asks for the active session; their context is the same."""
        return self.session.sparkContext is session.sparkContext


_own: _OwnSession | None = None


def local_session(slots_needed: int) -> SparkSession:
    """For somebody to keep: the active session, whatever its size, else a new local one with slots enough."""
    session = _active() or _start(slots_needed)
    if _own is not None and _own.is_behind(session):
        _own.lent = True
    return session


def session_for_job(slots_needed: int) -> SparkSession:
    """The active session; our own is replaced by a larger one if it is too small and nobody needs it. Under ``choosing``."""
    active = _active()
    if active is None:
        return _start(slots_needed)
    if total_slots(active) >= slots_needed or kept_because(active) is not None:
        return active
    active.stop()
    return _start(slots_needed)


def kept_because(session: SparkSession) -> str | None:
    """Why ``session`` cannot give way to a larger one; None: it can."""
    if _own is None or not _own.is_behind(session):
        return "this one was made with settings of your own"
    _own.uses = [use for use in _own.uses if use.goes_on]
    if _own.uses:
        return f"the job {_own.uses[0].job!r} still runs on it: wait for its end"
    if _own.lent:
        return "env.spark gave it out, and what was made with it would be lost: stop() it first"
    if _has_active_jobs(session):
        return "a Spark job still runs on it: wait for its end"
    return None


def begin_use(session: SparkSession, job: str) -> SessionUse:
    """``job`` needs ``session`` from now on. Under ``choosing``."""
    use = SessionUse(job)
    if _own is not None and _own.is_behind(session):
        _own.uses.append(use)
    return use


def _has_active_jobs(session: SparkSession) -> bool:
    """Spark hears of a job's end a little after the job's own driver: a job of ours that just ended is not in the way."""
    tracker = session.sparkContext.statusTracker()
    until = time.monotonic() + SETTLE_SECONDS
    while tracker.getActiveJobsIds():
        if time.monotonic() >= until:
            return True
        time.sleep(0.05)
    return False


def _active() -> SparkSession | None:
    """Spark knows the active session by thread; another thread's is as good, unless its context was stopped under it."""
    last = SparkSession._instantiatedSession
    try:
        active = SparkSession.getActiveSession()
    except (Py4JError, OSError) as error:
        raise PlanError(
            "The Java process of this program's Spark session has ended, and PySpark starts no second one. "
            "Start the job again in a new Python process: it goes on where it was."
        ) from error
    return active or (last if last is not None and last._sc._jsc is not None else None)


def _start(slots_needed: int) -> SparkSession:
    global _own
    _own = _OwnSession(open_session(None, {}, slots=max(DEFAULT_SLOTS, slots_needed)))
    return _own.session


def open_session(master: str | None, settings: Mapping[str, str], slots: int | None = None) -> SparkSession:
    """A session with what Cutwater needs and ``settings`` laid over it; without ``master`` a local one.

    PlanError says why there can be none.
    """
    conf = spark_conf(master=master, slots=slots)
    if master is not None:
        refuse_silent(master)
    require_java()
    conf.set("spark.ui.enabled", "false")
    if master is None or tasks_of(master) is not Tasks.ON_A_CLUSTER:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        conf.set("spark.driver.host", "127.0.0.1")
    conf.set("spark.driver.memory", "2g")
    conf.set("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={quiet_logging()}")
    local = local_folder()
    conf.set("spark.local.dir", str(local))
    conf.set("spark.sql.warehouse.dir", str(local / "warehouse"))
    for key, value in settings.items():
        conf.set(key, value)
    try:
        return SparkSession.builder.config(conf=conf).getOrCreate()
    except Exception as error:  # of Java, of Py4J, of PySpark: whichever of them stumbles over the settings first
        told = not_started(conf.get("spark.master"), error)
        raise PlanError(told) from error


def not_started(master: str | None, error: Exception) -> str:
    """One line: Spark answers a setting that it cannot use with the stack traces of two languages."""
    if isinstance(error, PySparkException) and error.getCondition() == "JAVA_GATEWAY_EXITED":
        reason = "its Java process ended at once, and said why on standard error"
    else:
        reason = cause_in(_of_java(error) or f"{type(error).__name__}: {error}")
    return f"Spark does not start with master {master}: {reason}. Correct the master or the spark.* settings."


def _of_java(error: Exception) -> str | None:
    """Py4J's own message begins with which call failed; what Java said comes behind it."""
    raised = getattr(error, "java_exception", None)
    return None if raised is None else str(raised.toString())


def quiet_logging() -> str:
    """Spark tells of every failed attempt at length; the cause is reported by the job itself."""
    return str(files("cutwater.spark").joinpath("log4j2-quiet.properties"))


def local_folder() -> Path:
    """For Spark's own files. Not in the system's temporary folder: a cleaner there would fail every later attempt.

    Removed when this process ends; what killed processes left is removed by the next one.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cutwater"
    base.mkdir(parents=True, exist_ok=True)
    # A home may be shared by machines: each knows the processes of its own.
    ours = f"spark-local-{socket.gethostname()}-"
    for left in base.glob(f"{glob.escape(ours)}*"):
        owner = left.name.removeprefix(ours).split("-")[0]
        if not (owner.isdigit() and psutil.pid_exists(int(owner))):
            shutil.rmtree(left, ignore_errors=True)
    local = Path(tempfile.mkdtemp(prefix=f"{ours}{os.getpid()}-", dir=base))
    atexit.register(shutil.rmtree, local, ignore_errors=True)
    return local


def require_java() -> str:
    """The java that Spark will start; PlanError says how to get one."""
    home = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    found = shutil.which("java", path=f"{home}/bin") if home else on_path
    if found is not None:
        return found
    install = "On Debian: apt-get install openjdk-17-jre-headless."
    if not home:
        raise PlanError(f"Spark needs Java 17, and no java was found. {install}")
    instead = f"then {on_path} is used" if on_path else f"then install Java 17, as there is none on the PATH. {install}"
    raise PlanError(f"JAVA_HOME is {home}, and there is no {home}/bin/java. Correct it, or unset it: {instead}")


def refuse_unfit(spark: object) -> None:
    """Before anything starts: is this a session, and does it have the settings that jobs need?"""
    if not isinstance(spark, SparkSession):
        raise ConfigError(
            f"spark={spark!r} is no SparkSession: pass {HOW_TO_MAKE_A_SESSION}, or leave it out to get a local one."
        )
    problems = check_session(spark)
    if problems:
        told = "".join(f"\n  - {problem}" for problem in problems)
        raise PlanError(
            f"This Spark session cannot run Cutwater jobs:{told}\nMake the session with {HOW_TO_MAKE_A_SESSION}."
        )
