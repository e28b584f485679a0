"""One object that a program gives to two operators is one for each of them, also where they share a chain."""

import threading
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import cutwater as cw
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.testing import CHECKPOINT, FAIL, run, script
from cutwater.testing.clock import ManualClock
from cutwater.testing.simulation import Simulation


class Numbering(cw.Process):
    """Numbers the rows that it sees."""

    last = cw.ListOperatorState("long")

    def open(self, ctx: Any) -> None:
        if not len(self.last):
            self.last.append(0)

    def process(self, row: Any, ctx: Any) -> Any:
        number = self.last[0] + 1
        self.last.clear()
        self.last.append(number)
        yield (number,)


@pytest.mark.parametrize("behind", [True, False], ids=["behind each other", "beside each other"])
def test_a_function_that_is_used_twice_in_a_chain_has_its_state_twice(*, behind: bool) -> None:
    numbering = Numbering()

    def pipeline(env: cw.Environment) -> None:
        rows = env.read(cw.from_rows([], "n long"), uid="in")
        first = rows.process(numbering, "n long").uid("first")
        second = (first if behind else rows).process(numbering, "n long").uid("second")
        first.collect("first")
        second.collect("second")

    found = run(pipeline, {"in": script([5, 5], CHECKPOINT, 5, FAIL, 5)})
    assert {name: [row.n for row in rows] for name, rows in found.items()} == {
        "first": [1, 2, 3, 4],
        "second": [1, 2, 3, 4],
    }


class Dispatching(cw.KeyedProcess):
    """Its methods stand in a table of its own."""

    total = cw.ValueState("long")

    def __init__(self) -> None:
        self.seen = 0
        self.note = self._seen_one_more
        self.handlers = {"add": self._add, "take": partial(self._add, sign=-1)}

    def _seen_one_more(self) -> None:
        self.seen += 1

    def _add(self, row: Any, sign: int = 1) -> None:
        self.total.value = (self.total.value or 0) + sign * row.n

    def process(self, row: Any, ctx: Any) -> Any:
        self.note()
        self.handlers[row.op](row)
        yield row.k, self.total.value, self.seen


@pytest.mark.parametrize("given", [Dispatching, Dispatching()], ids=["class", "instance"])
def test_a_function_may_hold_methods_of_its_own_however_often_it_is_used(given: Any) -> None:
    schema = "k string, total long, seen long"

    def pipeline(env: cw.Environment) -> None:
        rows = env.read(cw.from_rows([], "k string, op string, n long"), uid="in").key_by("k")
        rows.process(given, schema).uid("first").collect("first")
        rows.process(given, schema).uid("second").collect("second")

    found = run(pipeline, {"in": [("a", "add", 5), ("a", "take", 2)]})
    assert {name: [tuple(row) for row in rows] for name, rows in found.items()} == {
        "first": [("a", 5, 1), ("a", 3, 2)],
        "second": [("a", 5, 1), ("a", 3, 2)],
    }


def test_a_function_that_cannot_be_copied_for_a_second_operator_is_refused_with_what_to_do() -> None:
    numbering = Numbering()
    numbering.lock = threading.Lock()  # type: ignore[attr-defined]
    rows = cw.Environment(parallelism=1, checkpointing=None).read(cw.from_rows([], "n long"), uid="in")
    rows.process(numbering, "n long")
    with pytest.raises(
        cw.ConfigError, match=r"process: this Numbering is given to two .*lock.* Give each of them a Numbering"
    ):
        rows.process(numbering, "n long")


def test_a_sink_that_is_written_to_twice_in_a_chain_commits_for_both(tmp_path: Path) -> None:
    """With records of their own: what the second is told of its columns is nothing to the first."""
    env = cw.Environment(parallelism=1, checkpointing=cw.Checkpointing("1 day", storage="memory"))
    numbers = env.read(cw.sequence(100), uid="numbers")
    sink = cw.parquet_sink(tmp_path / "out")
    numbers.filter("value < 50").write(sink, uid="low")
    numbers.filter("value >= 50").with_columns(high=pl.lit("yes")).write(sink, uid="high")
    simulation = Simulation(env.define("job", 1), JobStore(MemoryStorage(1 << 20), "job"), ManualClock())
    while not simulation.finished:
        if not simulation.step():
            assert simulation.advance_to_next_timer()
    frames = [pl.read_parquet(path) for path in (tmp_path / "out").glob("*.parquet")]
    assert sorted(value for frame in frames for value in frame["value"]) == list(range(100))
    assert sorted(frame.width for frame in frames) == [1, 2]
