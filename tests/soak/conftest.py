"""The long tests share the session of the short ones, and all that is in this folder is one of them."""

from pathlib import Path

import pytest

from tests.spark.conftest import shared_session, spark

__all__ = ["shared_session", "spark"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """No file can forget to say so: ``make soak`` would leave it out without a word."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.soak)
