"""One Spark session for all tests of a run: starting one costs more than most tests."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cutwater.spark.session import local_session

ROOT = Path(__file__).resolve().parents[2]

# Functions and classes of test modules reach the workers by name: the workers must find the modules too.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Our own local session, as a user without one gets it."""
    session = local_session(slots_needed=1)
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def shared_session(spark: SparkSession) -> None:
    """Every test here runs on the shared session, named or not: ``cw.Environment()`` finds it as the active one."""
