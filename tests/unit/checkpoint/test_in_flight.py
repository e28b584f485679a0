"""Where overtaken rows go on a restore (rules 36, 37)."""

from dataclasses import replace

import pytest

from cutwater.checkpoint.completed import CompletedCheckpoint, StateOwner, VertexShape
from cutwater.checkpoint.in_flight import (
    EdgeShape,
    InFlightRestore,
    in_flight_restore_from_json,
    plan_in_flight,
)
from cutwater.checkpoint.snapshot import EdgeName, InFlightEdge, StoredInFlight, SubtaskSnapshot
from cutwater.errors import RestoreError
from cutwater.graph.logical import Exchange
from cutwater.state.stored import StoredFile, StoredTable
from tests.unit.checkpoint.checkpoints import completed

EDGE = InFlightEdge(EdgeName("src", None, "v", 0), "k: int64")
GROUPS = 128


def table(index: int) -> StoredTable:
    return StoredTable("in-flight", (StoredFile(f"chk-1/v+{index}", 10, "ab" * 32),), 1, 0, -1)


def checkpoint(receivers: int) -> CompletedCheckpoint:
    snapshots = tuple(
        SubtaskSnapshot("v", index, False, (), StoredInFlight((EDGE,), table(index))) for index in range(receivers)
    )
    owner = (StateOwner("x", "x"),)
    graph = (VertexShape("src", ("src",), 2, owner), VertexShape("v", ("v",), receivers, owner))
    return replace(completed(1, snapshots=snapshots), graph=graph)


def shape(exchange: Exchange, parallelism: int, senders: int = 2) -> EdgeShape:
    return EdgeShape(EDGE, 4, exchange, "v", parallelism, senders)


def planned(old: int, new: EdgeShape) -> dict[int, list[InFlightRestore]]:
    plan = plan_in_flight(checkpoint(old), [new], GROUPS, allow_non_restored_state=False)
    return {subtask.index: parts for subtask, parts in plan.items()}


def whose(parts: list[InFlightRestore]) -> list[str]:
    return [part.table.files[0].file for part in parts]


def test_at_equal_parallelism_rows_go_on_in_their_old_channels() -> None:
    for exchange in Exchange:
        plan = planned(2, shape(exchange, 2))
        assert {index: whose(parts) for index, parts in plan.items()} == {0: ["chk-1/v+0"], 1: ["chk-1/v+1"]}
        assert all(part.same_senders and not part.narrowed for parts in plan.values() for part in parts)


def test_when_only_the_senders_are_others_rows_stay_where_they_are_and_tell_no_time() -> None:
    [part] = planned(2, shape(Exchange.REBALANCE, 2, senders=3))[1]
    assert part == InFlightRestore(table(1), 0, 4, same_senders=False, narrowed=False)


def test_keyed_rows_go_to_every_subtask_that_owns_some_of_their_key_groups() -> None:
    plan = planned(2, shape(Exchange.KEY_GROUP, 3))
    assert {index: whose(parts) for index, parts in plan.items()} == {
        0: ["chk-1/v+0"],
        1: ["chk-1/v+0", "chk-1/v+1"],
        2: ["chk-1/v+1"],
    }
    assert all(part.narrowed for parts in plan.values() for part in parts)


@pytest.mark.parametrize("exchange", [Exchange.FORWARD, Exchange.REBALANCE])
def test_other_channels_move_whole(exchange: Exchange) -> None:
    plan = planned(3, shape(exchange, 2))
    assert {index: whose(parts) for index, parts in plan.items()} == {0: ["chk-1/v+0", "chk-1/v+2"], 1: ["chk-1/v+1"]}


def test_what_was_on_its_way_to_everybody_is_taken_from_one_old_subtask() -> None:
    plan = planned(2, shape(Exchange.BROADCAST, 3))
    assert {index: whose(parts) for index, parts in plan.items()} == {key: ["chk-1/v+0"] for key in range(3)}


def test_rows_without_a_way_into_the_program_are_refused_or_dropped_on_purpose() -> None:
    other = replace(EDGE, name=replace(EDGE.name, source="new"))
    edges = [replace(shape(Exchange.FORWARD, 2), edge=other)]
    with pytest.raises(RestoreError, match=r"on their way \(src -> v\).*has no such way\. It has: new -> v"):
        plan_in_flight(checkpoint(2), edges, GROUPS, allow_non_restored_state=False)
    assert plan_in_flight(checkpoint(2), edges, GROUPS, allow_non_restored_state=True) == {}


def test_rows_of_another_schema_are_refused_with_both() -> None:
    edges = [replace(shape(Exchange.FORWARD, 2), edge=replace(EDGE, schema="k: string"))]
    with pytest.raises(RestoreError, match=r"(?s)src -> v.*k: int64.*k: string.*aligned checkpoint"):
        plan_in_flight(checkpoint(2), edges, GROUPS, allow_non_restored_state=True)


def test_a_part_survives_json() -> None:
    part = planned(2, shape(Exchange.KEY_GROUP, 3))[0][0]
    assert in_flight_restore_from_json(part.to_json()) == part
