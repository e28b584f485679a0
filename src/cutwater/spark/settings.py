"""The Spark settings that Cutwater needs, and what is wrong with a session that lacks them."""

import math
import os
import sys
from typing import Final

from pyspark import SparkConf
from pyspark.sql import SparkSession

from cutwater.arguments import takes_no_others
from cutwater.errors import ConfigError
from cutwater.schema import did_you_mean
from cutwater.spark.master import Tasks, checked_master, repeats_tasks, tasks_of

SUPPORTED_SPARK: Final = "4.3."
DEFAULT_SLOTS: Final = 64

REQUIRED: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.task.maxFailures": "1",
    "spark.speculation": "false",
    "spark.dynamicAllocation.enabled": "false",
    "spark.python.udf.pipelined.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.execution.pandas.udf.buffer.size": "64",
    "spark.python.daemon.module": "cutwater.spark.daemon",
}
"""Without these a job does not start, hangs, or is not exactly once."""

RECOMMENDED: Final = {
    "spark.python.udf.pipelined.queueDepth": "4",
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "5",
    "spark.shuffle.streaming.readerMaxMemory": str(1 << 20),
    "spark.shuffle.streaming.writerMaxMemory": str(1 << 20),
    "spark.shuffle.streaming.networkBufferSize": str(1 << 18),
    "spark.ui.showConsoleProgress": "false",
    # A subtask is the unit of parallelism: pools of threads in each would only fight for the same cores.
    "spark.executorEnv.POLARS_MAX_THREADS": "1",
    "spark.executorEnv.OPENBLAS_NUM_THREADS": "1",
}
"""These bound the bytes in flight and the threads of a worker."""

ON_CLUSTERS: Final = {
    "spark.network.timeout": "20s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "2s",
}
"""A frozen executor is seen after 24 s instead of 130. In local mode there is none, only a busy machine to be patient with."""

HOW_TO_MAKE_A_SESSION: Final = "SparkSession.builder.config(conf=cw.spark_conf(...)).getOrCreate()"

_WHY = {
    "spark.sql.adaptive.enabled": "adaptive execution would re-plan the running stages",
    "spark.task.maxFailures": "Spark must not repeat a task by itself: a repeated subtask would be a second one",
    "spark.speculation": "a speculative copy of a subtask would process its records twice",
    "spark.dynamicAllocation.enabled": "executors must not go away while a job runs on them",
    "spark.python.udf.pipelined.enabled": "the Python worker must read and write at the same time",
    "spark.python.unix.domain.socket.enabled": "rows between JVM and Python travel over it",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "a row of the exchange must be handed over at once",
    "spark.sql.execution.pandas.udf.buffer.size": "small rows (barriers) must not wait in a buffer",
    "spark.python.daemon.module": "workers must start with their libraries loaded, or a restart takes seconds longer",
}


def spark_conf(master: str | None = None, slots: int | None = None, **conf: str | bool | float) -> SparkConf:
    """The settings a session needs. ``slots`` sizes a local master; ``spark_executor_cores=2`` is ``spark.executor.cores``.

    ``SparkSession.builder.config(conf=cw.spark_conf("spark://host:7077"))`` makes a session for a cluster.
    """
    _check(master, slots)
    if master is not None and slots is not None:
        raise ConfigError(f"slots={slots!r} sizes a local master and cannot stand beside master={master!r}.")
    _use_this_python()
    result = SparkConf()
    chosen = master or f"local[{slots or DEFAULT_SLOTS}]"
    result.setMaster(chosen)
    result.setAppName("cutwater")
    frozen = {} if tasks_of(chosen) is Tasks.IN_THE_DRIVER else ON_CLUSTERS
    for key, value in {**frozen, **RECOMMENDED, **REQUIRED}.items():
        result.set(key, value)
    for name, own in conf.items():
        key = _key(name, own)
        result.set(key, _in_sparks_words(key, own))
    return result


def _check(master: object, slots: object) -> None:
    if slots is not None and (isinstance(slots, bool) or not isinstance(slots, int) or slots < 1):
        raise ConfigError(f"slots={slots!r}: a whole number of at least 1 is needed.")
    if master is not None:
        checked_master(master)


def _key(name: str, value: object) -> str:
    """A misspelt argument must not become a setting that nobody reads."""
    key = name if name.startswith("spark.") else name.replace("_", ".")
    if not key.startswith("spark."):
        raise ConfigError(
            f"{name}={value!r}{did_you_mean(name, ('master', 'slots'))}: a setting of Spark's begins with spark. "
            f'Write spark_{name.replace(".", "_")}={value!r} or **{{"spark.{key}": {value!r}}}.'
        )
    if key == "spark.":
        raise ConfigError(f"{name!r}={value!r}: the name of a setting is missing behind {name}")
    return key


def _in_sparks_words(key: str, value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str() | int():
            return str(value)
        case float() if math.isfinite(value):
            return str(value)
    raise ConfigError(f"{key}={value!r}: a text, a number, True or False is needed; leave it out to keep Spark's own.")


def _use_this_python() -> None:
    """Workers must run this interpreter: the system's has none of our libraries."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def driver_addresses(spark: SparkSession) -> tuple[str, str]:
    """Where the driver listens for its workers, and where they find it: as Spark itself does."""
    if tasks_of(spark.sparkContext.master) is not Tasks.ON_A_CLUSTER:
        return "127.0.0.1", "127.0.0.1"
    conf = spark.sparkContext.getConf()
    host = conf.get("spark.driver.host") or "127.0.0.1"
    return conf.get("spark.driver.bindAddress") or host, host


def wants_protected_network(spark: SparkSession) -> bool:
    """Whether the user asked Spark to authenticate or encrypt what travels between its processes."""
    conf = spark.sparkContext.getConf()
    asked = ("spark.authenticate", "spark.network.crypto.enabled", "spark.ssl.rpc.enabled")
    return any(_means(conf.get(key), "true") for key in asked)


@takes_no_others
def check_session(spark: SparkSession) -> list[str]:
    """What keeps jobs from running on this session: one sentence each, with the setting that would do. Empty: nothing."""
    if not isinstance(spark, SparkSession):
        raise ConfigError(f"spark={spark!r} is no SparkSession: pass {HOW_TO_MAKE_A_SESSION}.")
    problems = _wrong_version(spark.version)
    conf, master = spark.sparkContext.getConf(), spark.sparkContext.master
    for key, wanted in REQUIRED.items():
        found = spark.conf.get(key, None) if key.startswith("spark.sql.") else conf.get(key)
        if found is None and key in ("spark.speculation", "spark.dynamicAllocation.enabled"):
            continue
        if key == "spark.task.maxFailures" and found is None and tasks_of(master) is Tasks.IN_THE_DRIVER:
            continue
        if not _means(found, wanted):
            problems.append(f"{key} is {found or 'not set'}, and must be {wanted}: {_WHY[key]}.")
    if repeats_tasks(master):
        why = _WHY["spark.task.maxFailures"]
        problems.append(f"The master is {master}, and must be without the number of tries: {why}.")
    return problems


def _wrong_version(found: str) -> list[str]:
    """Empty: it is one that Cutwater runs on."""
    if found.startswith(SUPPORTED_SPARK):
        return []
    return [f"Spark {found} is running; Cutwater needs Spark 4.3 (pip install pyspark==4.3.0)."]


def _means(found: str | None, wanted: str) -> bool:
    """As Spark reads it: booleans in any case, blanks around a value do not count."""
    told = (found or "").strip()
    return told == wanted or (wanted in ("true", "false") and told.lower() == wanted)
