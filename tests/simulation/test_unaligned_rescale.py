"""Unaligned checkpoints restored at another parallelism, through failures of every kind (rules 19, 20, 23, 36).

Nothing is lost, doubled or out of order, no record becomes late, and no window is told early or twice.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import cutwater as cw
from cutwater.checkpoint import in_flight, restore
from cutwater.errors import RestoreError
from cutwater.flow.envelope import Row
from cutwater.graph.logical import Exchange
from cutwater.operators.told_before import ToldBefore
from cutwater.subtask.in_flight import Replay
from cutwater.subtask.limits import FlowLimits
from tests.simulation.journeys import MORE, Journey, travel
from tests.simulation.variants import Patch

PATHS = ((1, 2), (3, 5), (5, 3), (2, 5, 1), (1, 1, 1), (2, 2), (5, 5))
USUAL = ("two keyed steps", "union", "rebalance", *MORE)
MOVABLE = ("pipeline", "keyed", "relay", "side output", "aggregate", "latest", *USUAL)
ROOMY = FlowLimits(
    inbox_bytes=1200, hold_bytes=600, hold_memory_bytes=300, payload_bytes=300, linger_seconds=0.0, max_slice_rows=2
)


def journey(topology: str, seed: int, path: tuple[int, ...], **settings: Any) -> Journey:
    """Few records, so that the last stages still have some to read; a timeout of alignment every second time."""
    given: dict[str, Any] = {
        "splits": 4,
        "rows": 12,
        "unaligned": True,
        "aligned_timeout": ("1ms", None)[seed % 2],
        "preempted": True,
        "hesitant": seed % 3 == 0,
        "crashes": 1,
        "troubles": 2,
        "declines": 0.05,
        "timeout": "10s",
        "limits": ROOMY,
        **settings,
    }
    return Journey(topology, seed, path=path, **given)


@pytest.mark.parametrize(
    ("topology", "path"), [(each, PATHS[number % 3]) for number, each in enumerate(USUAL)], ids=str
)
def test_nothing_is_lost_or_double_or_out_of_order_on_the_way_through_failures_and_parallelisms(
    topology: str, path: tuple[int, ...]
) -> None:
    """All topologies on all paths: ``make soak``."""
    for seed in range(2):
        travel(journey(topology, seed, path, rows=8))


@pytest.mark.parametrize("path", PATHS[:3], ids=str)
def test_what_the_order_of_records_decides_stays_right_at_another_parallelism(path: tuple[int, ...]) -> None:
    for seed in range(6):
        travel(journey("latest", seed, path, late_open=True))


def test_the_journeys_reach_what_they_are_meant_to_reach() -> None:
    """Stages begin with rows in flight, and user code fails in every place."""
    replays: Counter[tuple[int, int]] = Counter()
    failed: Counter[str] = Counter()
    for seed in range(3):
        for path in PATHS[:3]:
            for world in travel(journey("keyed", seed, path, rows=8)):
                replays[path] += world.replays
                failed += world.failed
    assert all(replays[path] > 1 for path in PATHS[:3]), replays
    assert set(failed) == {"processing", "snapshot", "restore"}, failed


@pytest.mark.parametrize("incremental", [False, True])
def test_state_on_disk_goes_the_same_ways(incremental: bool) -> None:
    for seed, (topology, path) in enumerate((("keyed", (3, 5)), ("rules", (2, 3)), ("windows", (3, 2)))):
        travel(journey(topology, seed, path, rows=6, backend=cw.RocksDB(incremental=incremental, cache=1)))


def test_windows_are_not_told_before_rows_in_flight_where_some_subtasks_were_further() -> None:
    for seed in (2, 3):
        travel(journey("windows", seed, (5, 3)))


def test_rows_between_steps_that_run_in_one_subtask_now_are_refused_with_the_way_they_were_on() -> None:
    """Parallelism 1 everywhere makes the steps one chain: there is no channel any more that rows could be replayed in."""
    with pytest.raises(RestoreError, match=r"on their way \(count -> ") as refused:
        for seed in range(20):
            travel(journey("narrowing", seed, (3, 1)))
    assert "allow_non_restored_state=True" in str(refused.value)


# --- broken on purpose ------------------------------------------------------------------------------------------------

_new_receivers = in_flight._new_receivers


def _copies_come_from_every_old_subtask(patch: Patch) -> None:
    def receivers(old: Any, shape: Any, groups: int) -> Any:
        everybody = shape.exchange is Exchange.BROADCAST
        return range(shape.parallelism) if everybody else _new_receivers(old, shape, groups)

    patch.setattr(in_flight, "_new_receivers", receivers)


def _copies_come_from_another_subtask_than_the_state(patch: Patch) -> None:
    def receivers(old: Any, shape: Any, groups: int) -> Any:
        if shape.exchange is Exchange.BROADCAST:
            old = replace(old, index=0 if old.index == old.receivers - 1 else 1)
        return _new_receivers(old, shape, groups)

    patch.setattr(in_flight, "_new_receivers", receivers)


def _copies_stay_with_the_subtask_of_the_same_number(patch: Patch) -> None:
    def receivers(old: Any, shape: Any, groups: int) -> Any:
        same = shape.exchange is Exchange.BROADCAST
        return (old.index % shape.parallelism,) if same else _new_receivers(old, shape, groups)

    patch.setattr(in_flight, "_new_receivers", receivers)


def _keyed_rows_are_not_narrowed(patch: Patch) -> None:
    patch.setattr(Replay, "_own", lambda self, row, own, groups: iter((row,)))


def _keyed_rows_go_to_one_new_owner_only(patch: Patch) -> None:
    def receivers(old: Any, shape: Any, groups: int) -> Any:
        found = _new_receivers(old, shape, groups)
        return found[:1] if shape.exchange is Exchange.KEY_GROUP else found

    patch.setattr(in_flight, "_new_receivers", receivers)


def _keyed_rows_stay_with_the_subtask_of_the_same_number(patch: Patch) -> None:
    patch.setattr(in_flight, "_new_receivers", lambda old, shape, groups: (old.index % shape.parallelism,))
    patch.setattr(Replay, "_own", lambda self, row, own, groups: iter((row,)))


def _channels_of_subtasks_that_are_no_more_are_dropped(patch: Patch) -> None:
    def receivers(old: Any, shape: Any, groups: int) -> Any:
        return [each for each in _new_receivers(old, shape, groups) if old.index < shape.parallelism]

    patch.setattr(in_flight, "_new_receivers", receivers)


def _the_order_is_reversed(patch: Patch) -> None:
    real = Replay.rows

    def rows(self: Replay, *args: Any) -> Iterator[Row]:
        return iter(list(real(self, *args))[::-1])

    patch.setattr(Replay, "rows", rows)


def _a_subtask_that_knew_of_no_time_does_not_count(patch: Patch) -> None:
    patch.setattr(restore, "_all_know_time", lambda stored: True)


def _what_faster_subtasks_had_told_is_forgotten(patch: Patch) -> None:
    patch.setattr(ToldBefore, "any_of", lambda self, end, early: False)


def _replayed_rows_tell_the_time_of_their_old_senders(patch: Patch) -> None:
    """At another parallelism too, in the channels of whoever has the number now."""
    real = Replay.rows

    def rows(self: Replay, batches: Any, *args: Any) -> Iterator[Row]:
        for batch in batches:
            for at in range(batch.num_rows):
                for row in real(self, [batch.slice(at, 1)], *args):
                    row.mark = batch.column(2)[at].as_py()
                    yield row

    patch.setattr(Replay, "rows", rows)


VARIANTS = (
    (_copies_come_from_every_old_subtask, "rules", (3, 5)),
    (_copies_come_from_another_subtask_than_the_state, "rules", (3, 5)),
    (_copies_stay_with_the_subtask_of_the_same_number, "rules", (1, 2)),
    (_keyed_rows_are_not_narrowed, "keyed", (3, 5)),
    (_keyed_rows_go_to_one_new_owner_only, "keyed", (1, 2)),
    (_keyed_rows_stay_with_the_subtask_of_the_same_number, "keyed", (3, 5)),
    (_channels_of_subtasks_that_are_no_more_are_dropped, "rebalance", (5, 3)),
    (_the_order_is_reversed, "keyed", (5, 3)),
    (_a_subtask_that_knew_of_no_time_does_not_count, "sliding", (3, 5)),
    (_what_faster_subtasks_had_told_is_forgotten, "sliding", (3, 5)),
    (_replayed_rows_tell_the_time_of_their_old_senders, "timers", (3, 1)),
)
MOST_SEEDS = 60


@pytest.mark.parametrize(("break_it", "topology", "path"), VARIANTS, ids=lambda each: getattr(each, "__name__", ""))
def test_a_broken_rule_is_caught(break_it: Any, topology: str, path: tuple[int, ...], monkeypatch: Patch) -> None:
    rows = 12 if topology == "sliding" else 8
    with monkeypatch.context() as patch:
        break_it(patch)
        caught = next((seed for seed in range(MOST_SEEDS) if _fails(journey(topology, seed, path, rows=rows))), None)
    assert caught is not None, f"no journey among {MOST_SEEDS} noticed"
    travel(journey(topology, caught, path, rows=rows))


def _fails(taken: Journey) -> bool:
    try:
        travel(taken)
    except Exception as failure:
        print(f"seed {taken.seed}: {type(failure).__name__}: {str(failure)[:300]}")
        return True
    return False
