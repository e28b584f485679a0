"""Settings as users write them and as Spark reads them. The sessions here are made of nothing but their settings."""

from typing import Any, cast

import pytest
from pyspark import SparkConf
from pyspark.sql import SparkSession

from cutwater.spark.settings import ON_CLUSTERS, check_session, spark_conf, wants_protected_network


class Context:
    def __init__(self, conf: SparkConf) -> None:
        self._conf = conf
        self.master = conf.get("spark.master")

    def getConf(self) -> SparkConf:
        return self._conf


class Session:
    version = "4.3.0"

    def __init__(self, conf: SparkConf) -> None:
        self.sparkContext = Context(conf)
        self.conf = conf


def session(**settings: Any) -> SparkSession:
    return cast(SparkSession, Session(spark_conf(**settings)))


def test_a_boolean_becomes_sparks_word() -> None:
    conf = spark_conf(sql_adaptive_enabled=False, authenticate=True, executor_cores=2)
    assert conf.get("spark.sql.adaptive.enabled") == "false"
    assert conf.get("spark.authenticate") == "true"
    assert conf.get("spark.executor.cores") == "2"


@pytest.mark.parametrize("told", [False, "false", "False", "FALSE", " false "])
def test_a_boolean_setting_counts_however_it_is_written(told: str | bool) -> None:
    assert check_session(session(sql_adaptive_enabled=told)) == []


def test_a_setting_that_means_something_else_is_told() -> None:
    (problem,) = check_session(session(sql_adaptive_enabled=True))
    assert problem.startswith("spark.sql.adaptive.enabled is true, and must be false")
    (problem,) = check_session(session(**{"spark.python.daemon.module": "Cutwater.Spark.Daemon"}))
    assert "must be cutwater.spark.daemon" in problem


@pytest.mark.parametrize(("told", "protected"), [("true", True), ("True", True), (True, True), ("false", False)])
def test_the_network_is_protected_however_the_wish_is_written(told: str | bool, *, protected: bool) -> None:
    assert wants_protected_network(session(authenticate=told)) is protected


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
