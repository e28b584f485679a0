"""The splits of one source subtask: read in turn, with positions that mean what was returned (rule 16)."""

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.connectors.source import END, EndOfSplit, SourceContext
from cutwater.flow.ids import CheckpointId
from cutwater.subtask.source_input import MOST_OPEN_SPLITS, NOT_YET_OPENED, SourceInput

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
    source_input.close()
    source_input.close()
    assert [reader.closed for reader in source.readers] == [1, 1]


class NowAndThen(Counting):
    """Splits below ten have nothing, ever."""

    def open(self, split: int, position: int | None, ctx: SourceContext) -> "CountingReader":
        return super().open(split, position, ctx) if split >= 10 else Nothing(split, 0)


class Nothing(CountingReader):
    def next_batch(self, max_rows: int, timeout: timedelta) -> None:
        return None


def test_splits_that_are_asked_in_vain_are_told_also_beside_one_that_always_has_records() -> None:
    source_input = SourceInput(NowAndThen(), CONTEXT, fresh(1, 12, 2))
    asked = []
    for _ in range(3):
        assert values(source_input, 1)
        asked.append(source_input.in_vain)
    assert asked == [["1"], ["2", "1"], ["2", "1"]]


def test_a_split_that_gave_or_ended_was_not_asked_in_vain() -> None:
    source_input = SourceInput(NowAndThen(), CONTEXT, fresh(10, 1))
    assert len(values(source_input)) == 10
    assert source_input.in_vain == ["1"], "the other one has ended"


class Endless(NowAndThen):
    bounded = False


def test_all_splits_that_do_not_end_are_read_however_many_there_are() -> None:
    """One that waited for another to end would wait for ever."""
    source = Endless()
    source_input = SourceInput(source, CONTEXT, fresh(*range(10), *range(12, 42)))
    assert {value // 100 for value in values(source_input, 60)} == set(range(12, 42))
    assert source_input.open_splits() == tuple(map(str, (*range(10), *range(12, 42))))


class Watched(Endless):
    splits_end = True


def test_of_splits_that_end_only_some_are_open() -> None:
    source_input = SourceInput(Watched(), CONTEXT, fresh(*range(12, 42)))
    values(source_input, 1)
    *open_splits, others = source_input.open_splits()
    assert (len(open_splits), others) == (MOST_OPEN_SPLITS, NOT_YET_OPENED)


def test_splits_that_wait_to_be_opened_are_told_of_as_one_as_long_as_there_are_some() -> None:
    """However many: what is told is told again with each split that ends."""
    source_input = SourceInput(Counting(), CONTEXT, fresh(*range(2, 2 + MOST_OPEN_SPLITS)))
    values(source_input, 1)
    told = source_input.turnover
    assert NOT_YET_OPENED not in source_input.open_splits()
    source_input.add(fresh(50, 60))
    assert source_input.turnover > told
    assert source_input.open_splits()[MOST_OPEN_SPLITS:] == (NOT_YET_OPENED,)
    values(source_input, 1000)
    assert source_input.open_splits() == ()


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


def cut(source_input: SourceInput, checkpoint: int) -> None:
    source_input.positions()
    source_input.remember(CheckpointId(checkpoint))


def test_a_reader_behind_its_end_hears_of_the_checkpoint_that_covers_it_and_is_closed_then() -> None:
    source = Counting()
    source_input = SourceInput(source, CONTEXT, fresh(2))
    values(source_input, most=1)
    cut(source_input, 1)
    assert values(source_input) == [201]
    cut(source_input, 2)
    (reader,) = source.readers
    source_input.checkpoint_completed(CheckpointId(1))
    assert (reader.completed, reader.closed) == ([(1, 1)], 0)
    source_input.checkpoint_completed(CheckpointId(2))
    assert (reader.completed, reader.closed) == ([(1, 1), (2, 2)], 1)
    source_input.close()
    assert reader.closed == 1


def test_without_checkpoints_a_reader_is_closed_at_its_end() -> None:
    source = Counting()
    source_input = SourceInput(source, CONTEXT, fresh(2), checkpointed=False)
    values(source_input)
    assert [reader.closed for reader in source.readers] == [1]


class Deaf(CountingReader):
    """Does not ask to hear of checkpoints."""

    checkpoint_completed = cw.SplitReader.checkpoint_completed


def test_a_reader_that_does_not_ask_for_checkpoints_is_closed_at_its_end() -> None:
    source = Counting()
    reader = Deaf(2, 0)
    source.open = lambda split, position, ctx: reader  # type: ignore[method-assign]
    values(SourceInput(source, CONTEXT, fresh(2)))
    assert reader.closed == 1


def test_every_reader_is_closed_even_if_one_of_them_raises() -> None:
    class Breaking(CountingReader):
        def close(self) -> None:
            super().close()
            raise OSError("the connection is gone")

    source = Counting()
    readers = [Breaking(2, 0), Breaking(3, 0)]
    source.open = lambda split, position, ctx: readers[split - 2]  # type: ignore[method-assign]
    source_input = SourceInput(source, CONTEXT, fresh(2, 3))
    values(source_input, most=2)
    with pytest.raises(OSError, match="the connection is gone"):
        source_input.close()
    assert [reader.closed for reader in readers] == [1, 1]


def test_a_source_that_discovers_is_unbounded_unless_it_says_otherwise() -> None:
    class Finds(Counting):
        def discover(self, known: Any) -> list[int]:
            return []

    class FindsMore(Finds):
        """Inherits what the other found out."""

    class FindsAtTheStart(Finds):
        bounded = True

    class OfTheKind(FindsAtTheStart):
        def discover(self, known: Any) -> list[int]:
            return []

    assert [kind.bounded for kind in (Counting, Finds, FindsMore, FindsAtTheStart, OfTheKind)] == [
        True, False, False, True, True,
    ]  # fmt: skip
    source_input = SourceInput(Finds(), CONTEXT, fresh(2))
    values(source_input)
    assert not source_input.exhausted


class OddlyPlaced(CountingReader):
    """A position that a checkpoint cannot give back as it is."""

    def __init__(self, place: Any) -> None:
        super().__init__(1, 0)
        self.place = place

    def position(self) -> Any:
        return self.place


@pytest.mark.parametrize("place", [b"offset", {1: 2}, {"at": timedelta(seconds=1)}, {3}, float("nan")])
@pytest.mark.parametrize("batches", [1, 2], ids=["while it is read", "when it has ended"])
def test_a_position_that_is_not_json_names_the_source_and_the_position(place: Any, batches: int) -> None:
    class Odd(Counting):
        def open(self, split: int, position: Any, ctx: SourceContext) -> CountingReader:
            return OddlyPlaced(place)

    source_input = SourceInput(Odd(), CONTEXT, [{"split": 1, "position": None}])
    with pytest.raises(cw.DataError, match=r"source 'numbers', split 1: position\(\) returned .*, which is not JSON"):
        for _ in range(batches):
            source_input.next(10, PATIENCE)
            source_input.positions()


def test_a_tuple_is_a_position_and_is_stored_as_a_list() -> None:
    class Pairs(Counting):
        def open(self, split: int, position: Any, ctx: SourceContext) -> CountingReader:
            return OddlyPlaced((4, {"part": (1, 2)}))

    source_input = SourceInput(Pairs(), CONTEXT, [{"split": 1, "position": None}])
    source_input.next(10, PATIENCE)
    assert source_input.positions() == [{"split": 1, "position": [4, {"part": [1, 2]}], "ended": False}]


class ByName(cw.Source):
    schema = "value long"
    sizes: dict[str, int] = {"north": 3}  # noqa: RUF012 (never changed)

    def splits(self) -> list[str]:
        return list(self.sizes)

    def open(self, split: str, position: int | None, ctx: SourceContext) -> CountingReader:
        return CountingReader(self.sizes[split], position or 0)


def test_a_stored_split_that_the_source_no_longer_has_is_named_with_what_to_do() -> None:
    stored = SourceInput(ByName(), CONTEXT, [{"split": "south", "position": 2}])
    with pytest.raises(cw.UserCodeError) as caught:
        stored.next(10, PATIENCE)
    assert str(caught.value).startswith(
        "source 'numbers', open of split 'south', which was stored with position 2 (if the source has other splits now, start "
        "over with restore='fresh', or give it another uid and allow_non_restored_state=True): "
        "KeyError: 'south' at test_source_input.py:"
    )


def test_a_split_that_was_just_found_is_not_said_to_be_an_old_one() -> None:
    found = SourceInput(ByName(), CONTEXT, [{"split": "south", "position": None}])
    with pytest.raises(KeyError):
        found.next(10, PATIENCE)
