"""Settings as users write them and as Spark reads them. The sessions here are made of nothing but their settings."""

from typing import Any

import pytest
from pyspark import SparkConf
from pyspark.sql import SparkSession

from cutwater.errors import ConfigError
from cutwater.spark.settings import ON_CLUSTERS, check_session, spark_conf, wants_protected_network


class Context:
    def __init__(self, conf: SparkConf) -> None:
        self._conf = conf
        self.master = conf.get("spark.master")

    def getConf(self) -> SparkConf:
        return self._conf


class Session(SparkSession):
    version: Any = "4.3.0"
    sparkContext: Any = None  # noqa: N815 (Spark's own name)
    conf: Any = None

    def __init__(self, conf: SparkConf) -> None:
        self.sparkContext = Context(conf)
        self.conf = conf


def session(**settings: Any) -> SparkSession:
    return Session(spark_conf(**settings))


def test_a_boolean_becomes_sparks_word() -> None:
    conf = spark_conf(spark_sql_adaptive_enabled=False, spark_authenticate=True, **{"spark.executor.cores": 2})
    assert conf.get("spark.sql.adaptive.enabled") == "false"
    assert conf.get("spark.authenticate") == "true"
    assert conf.get("spark.executor.cores") == "2"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nope", """nope=1: a setting of Spark's begins with spark. Write spark_nope=1 or **{"spark.nope": 1}."""),
        ("slot", """slot=1 (did you mean 'slots'?): a setting of Spark's begins with spark."""),
        ("sql.adaptive.enabled", """Write spark_sql_adaptive_enabled=1 or **{"spark.sql.adaptive.enabled": 1}."""),
        ("executor_memoryOverhead", "Write spark_executor_memoryOverhead=1 or"),
        ("spark.", "'spark.'=1: the name of a setting is missing behind spark."),
    ],
)
def test_a_setting_that_is_not_sparks_is_refused_with_the_right_spelling(name: str, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        spark_conf(**{name: 1})
    assert told in str(refused.value)


@pytest.mark.parametrize("value", [None, [], {}, len, object(), b"4", float("nan")])
def test_a_value_that_spark_could_not_read_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        spark_conf(**{"spark.x": value})
    assert str(refused.value).startswith(f"spark.x={value!r}: a text, a number, True or False is needed")


@pytest.mark.parametrize("wrong", [None, "local[2]", 3, SparkSession, SparkConf(loadDefaults=False)])
def test_only_a_session_can_be_checked(wrong: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        check_session(wrong)
    assert str(refused.value).startswith(f"spark={wrong!r} is no SparkSession: pass SparkSession.builder.config(")


@pytest.mark.parametrize("told", [False, "false", "False", "FALSE", " false "])
def test_a_boolean_setting_counts_however_it_is_written(told: str | bool) -> None:
    assert check_session(session(spark_sql_adaptive_enabled=told)) == []


def test_a_setting_that_means_something_else_is_told() -> None:
    (problem,) = check_session(session(spark_sql_adaptive_enabled=True))
    assert problem.startswith("spark.sql.adaptive.enabled is true, and must be false")
    (problem,) = check_session(session(**{"spark.python.daemon.module": "Cutwater.Spark.Daemon"}))
    assert "must be cutwater.spark.daemon" in problem


@pytest.mark.parametrize(("told", "protected"), [("true", True), ("True", True), (True, True), ("false", False)])
def test_the_network_is_protected_however_the_wish_is_written(told: str | bool, *, protected: bool) -> None:
    assert wants_protected_network(session(spark_authenticate=told)) is protected


def test_a_master_that_tries_a_task_again_is_refused() -> None:
    assert check_session(session(master="local[4,1]")) == []
    (problem,) = check_session(session(master="local[4,3]"))
    assert "local[4,3]" in problem
    assert "must not repeat a task" in problem


@pytest.mark.parametrize(
    ("master", "cluster"),
    [("local", False), ("local[2]", False), ("local-cluster[1,2,1024]", True), ("spark://one:7077", True)],
)
def test_only_clusters_are_watched_for_frozen_executors(master: str, *, cluster: bool) -> None:
    conf = spark_conf(master)
    assert all(conf.contains(key) is cluster for key in ON_CLUSTERS)


@pytest.mark.parametrize("found", ["4.2.9", "4.30.0", "5.0.0", "3.5.1"])
def test_another_version_of_spark_is_a_problem_that_names_both(found: str) -> None:
    wrong = session(slots=4)
    wrong.version = found  # type: ignore[misc]
    [problem] = check_session(wrong)
    assert found in problem
    assert "4.3" in problem
    assert check_session(session(slots=4)) == []
