"""The long tests share the session of the short ones."""

from tests.spark.conftest import shared_session, spark

__all__ = ["shared_session", "spark"]
