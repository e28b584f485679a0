"""The splits of one source subtask: read in turn, with positions that mean what was returned (rule 16)."""

from datetime import timedelta
from typing import Any

import pyarrow as pa

import cutwater as cw
from cutwater.connectors.source import END, EndOfSplit, SourceContext
from cutwater.flow.ids import CheckpointId
from cutwater.subtask.source_input import SourceInput

PATIENCE = timedelta(milliseconds=10)
CONTEXT = SourceContext("job", "numbers", 0, 1, 1)


class Counting(cw.Source):
    """Each split is the number of records it has."""

    schema = "value long"

    def __init__(self) -> None:
        self.readers: list[CountingReader] = []

    def splits(self) -> list[int]:
        return [2, 3]

    def open(self, split: int, position: int | None, ctx: SourceContext) -> "CountingReader":
        self.readers.append(CountingReader(split, position or 0))
        return self.readers[-1]


class CountingReader(cw.SplitReader):
    def __init__(self, size: int, at: int) -> None:
        self.size, self.at = size, at
        self.completed: list[tuple[int, Any]] = []
        self.patience: list[timedelta] = []
        self.closed = 0

    def next_batch(self, max_rows: int, timeout: timedelta) -> pa.RecordBatch | EndOfSplit | None:
        self.patience.append(timeout)
        if self.at == self.size:
            return END
        self.at += 1
        return pa.record_batch({"value": pa.array([self.size * 100 + self.at - 1], pa.int64())})

    def position(self) -> int:
        return self.at

    def checkpoint_completed(self, checkpoint_id: int, position: Any) -> None:
        self.completed.append((checkpoint_id, position))

    def close(self) -> None:
        self.closed += 1


def values(source_input: SourceInput, most: int = 100) -> list[int]:
    found = []
    while most and (batch := source_input.next(10, PATIENCE)) is not None:
        assert batch.main is not None
        found.extend(batch.main.column("value").to_pylist())
        most -= 1
    return found


def fresh(*splits: int) -> list[dict[str, Any]]:
    return [{"split": split, "position": None} for split in splits]


def test_splits_are_read_in_turn_until_all_have_ended() -> None:
    source = Counting()
    source_input = SourceInput(source, CONTEXT, fresh(2, 3))
    assert values(source_input) == [200, 300, 201, 301, 302]
    assert source_input.exhausted
    assert [reader.closed for reader in source.readers] == [1, 1]


def test_positions_mean_what_was_returned_and_a_restart_goes_on_behind_them() -> None:
    source_input = SourceInput(Counting(), CONTEXT, fresh(2, 3))
    assert values(source_input, most=3) == [200, 300, 201]
    positions = source_input.positions()
    assert positions == [
        {"split": 2, "position": 2, "ended": False},
        {"split": 3, "position": 1, "ended": False},
    ]
    assert values(SourceInput(Counting(), CONTEXT, positions)) == [301, 302]


def test_an_ended_split_stays_in_the_positions_and_is_not_opened_again() -> None:
    source_input = SourceInput(Counting(), CONTEXT, fresh(2))
    assert values(source_input) == [200, 201]
    positions = source_input.positions()
    assert positions == [{"split": 2, "position": 2, "ended": True}]
    source = Counting()
    restored = SourceInput(source, CONTEXT, positions)
    assert restored.exhausted and values(restored) == [] and source.readers == []


def test_a_split_that_is_known_is_not_added_twice() -> None:
    source_input = SourceInput(Counting(), CONTEXT, fresh(2))
    source_input.add(fresh(2, 1))
    assert sorted(values(source_input)) == [100, 200, 201]


def test_a_reader_may_wait_only_when_it_keeps_no_other_waiting() -> None:
    source = Counting()
    source_input = SourceInput(source, CONTEXT, fresh(1, 2))
    values(source_input)
    assert source.readers[0].patience == [timedelta(0), timedelta(0)]
    assert source.readers[1].patience[-1] == PATIENCE


def test_a_completed_checkpoint_tells_readers_the_position_it_holds() -> None:
    source = Counting()
    source_input = SourceInput(source, CONTEXT, fresh(3))
    values(source_input, most=1)
    source_input.positions()
    source_input.remember(CheckpointId(4))
    values(source_input, most=1)
    source_input.positions()
    source_input.remember(CheckpointId(5))
    source_input.checkpoint_completed(CheckpointId(4))
    source_input.checkpoint_completed(CheckpointId(4))
    source_input.checkpoint_completed(CheckpointId(9))
    assert source.readers[0].completed == [(4, 1)]
