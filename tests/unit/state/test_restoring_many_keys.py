"""How long it takes is printed, and decided about with more keys in the long tests."""

from pathlib import Path

import pytest

import cutwater as cw
from tests.restoring import (
    Aggregates,
    ExpiringMaps,
    ExpiringStates,
    Kept,
    Panes,
    RowStates,
    Sessions,
    TimedStates,
    WindowContents,
    took,
)


@pytest.mark.parametrize(
    ("backend", "kind"),
    [
        (cw.Memory(), Aggregates),
        (cw.Memory(incremental=True), RowStates),
        (cw.RocksDB(), Aggregates),
        (cw.Memory(), Panes),
        (cw.Memory(incremental=True), Panes),
        (cw.RocksDB(), Panes),
    ],
    ids=[
        "aggregates in memory",
        "rows in memory",
        "aggregates in RocksDB",
        "a pane in memory",
        "a pane in increments",
        "a pane in RocksDB",
    ],
)
def test_a_million_keys_are_there_again(tmp_path: Path, backend: cw.StateBackend, kind: type[Kept]) -> None:
    took(backend, kind, 1_000_000, tmp_path)


@pytest.mark.parametrize("backend", [cw.Memory(), cw.RocksDB(incremental=True)], ids=["memory", "RocksDB"])
@pytest.mark.parametrize("kind", [ExpiringStates, ExpiringMaps, TimedStates, Sessions, WindowContents])
def test_keys_that_wait_for_their_time_are_there_again(
    tmp_path: Path, backend: cw.StateBackend, kind: type[Kept]
) -> None:
    took(backend, kind, 30_000, tmp_path)
