"""Where overtaken rows go on a restore (rules 36, 37)."""

from collections.abc import Sequence
from dataclasses import asdict, replace

import pytest

from cutwater.checkpoint.completed import CompletedCheckpoint, StateOwner, VertexShape
from cutwater.checkpoint.in_flight import (
    EdgeShape,
    InFlightRestore,
    in_flight_restore_from_json,
    plan_in_flight,
    rows_without_way,
)
from cutwater.checkpoint.snapshot import EdgeName, InFlightEdge, StoredInFlight, SubtaskSnapshot, in_flight_from_json
from cutwater.errors import RestoreError
from cutwater.graph.logical import Exchange
from cutwater.state.stored import StoredFile, StoredTable
from tests.unit.checkpoint.checkpoints import completed

EDGE = InFlightEdge(EdgeName("src", None, "v", 0), "k: int64", "rebalance")
GROUPS = 128


def table(index: int) -> StoredTable:
    return StoredTable("in-flight", (StoredFile(f"chk-1/v+{index}", 10, "ab" * 32),), 1, 0, -1)


def by(exchange: Exchange, *key: str) -> InFlightEdge:
    return replace(EDGE, exchange=exchange.value, key=key)


def checkpoint(receivers: int, *edges: InFlightEdge, rows: Sequence[int] = ()) -> CompletedCheckpoint:
    """``rows``: how many came on each edge. Else one on each."""
    edges = edges or (EDGE,)
    counts = tuple(rows or [1] * len(edges))
    snapshots = tuple(
        SubtaskSnapshot("v", index, False, (), StoredInFlight(edges, counts, table(index)))
        for index in range(receivers)
    )
    owner = (StateOwner("x", "x"),)
    graph = (VertexShape("src", ("src",), 2, owner), VertexShape("v", ("v",), receivers, owner))
    return replace(completed(1, snapshots=snapshots), graph=graph)


def shape(edge: InFlightEdge, parallelism: int, senders: int = 2, number: int = 4) -> EdgeShape:
    return EdgeShape(edge, number, "v", parallelism, senders)


def planned(old: int, new: EdgeShape, stored: InFlightEdge | None = None) -> dict[int, list[InFlightRestore]]:
    plan = plan_in_flight(checkpoint(old, stored or new.edge), [new], GROUPS, allow_non_restored_state=False)
    return {subtask.index: parts for subtask, parts in plan.items()}


def whose(parts: list[InFlightRestore]) -> list[str]:
    return [part.table.files[0].file for part in parts]


def test_at_equal_parallelism_rows_go_on_in_their_old_channels() -> None:
    for exchange in Exchange:
        plan = planned(2, shape(by(exchange), 2))
        assert {index: whose(parts) for index, parts in plan.items()} == {0: ["chk-1/v+0"], 1: ["chk-1/v+1"]}
        assert all(part.same_senders and not part.narrowed for parts in plan.values() for part in parts)


def test_when_only_the_senders_are_others_rows_stay_where_they_are_and_tell_no_time() -> None:
    [part] = planned(2, shape(EDGE, 2, senders=3))[1]
    assert part == InFlightRestore(table(1), 0, 4, same_senders=False, narrowed=False)


def test_keyed_rows_go_to_every_subtask_that_owns_some_of_their_key_groups() -> None:
    plan = planned(2, shape(by(Exchange.KEY_GROUP, "k"), 3))
    assert {index: whose(parts) for index, parts in plan.items()} == {
        0: ["chk-1/v+0"],
        1: ["chk-1/v+0", "chk-1/v+1"],
        2: ["chk-1/v+1"],
    }
    assert all(part.narrowed for parts in plan.values() for part in parts)


@pytest.mark.parametrize("exchange", [Exchange.FORWARD, Exchange.REBALANCE])
def test_other_channels_move_whole(exchange: Exchange) -> None:
    plan = planned(3, shape(by(exchange), 2))
    assert {index: whose(parts) for index, parts in plan.items()} == {0: ["chk-1/v+0", "chk-1/v+2"], 1: ["chk-1/v+1"]}


def test_what_was_on_its_way_to_everybody_is_taken_from_one_old_subtask() -> None:
    plan = planned(2, shape(by(Exchange.BROADCAST), 3))
    assert {index: whose(parts) for index, parts in plan.items()} == {key: ["chk-1/v+0"] for key in range(3)}


def test_rows_without_a_way_into_the_program_are_refused_or_dropped_on_purpose() -> None:
    other = replace(EDGE, name=replace(EDGE.name, source="new"))
    edges = [shape(other, 2)]
    with pytest.raises(RestoreError, match=r"on their way \(src -> v\).*has no such way, .* It has: new -> v"):
        plan_in_flight(checkpoint(2), edges, GROUPS, allow_non_restored_state=False)
    assert plan_in_flight(checkpoint(2), edges, GROUPS, allow_non_restored_state=True) == {}
    assert rows_without_way(checkpoint(2), edges) == ["src -> v"]
    assert rows_without_way(checkpoint(2), [shape(EDGE, 3)]) == []


def test_a_way_on_which_nothing_was_may_go_or_change() -> None:
    gone, other_schema = (replace(EDGE, name=replace(EDGE.name, source=source)) for source in ("gone", "narrow"))
    stored = checkpoint(2, gone, EDGE, other_schema, rows=(0, 3, 0))
    edges = [shape(EDGE, 2), shape(replace(other_schema, schema="k: string"), 2, number=5)]
    plan = plan_in_flight(stored, edges, GROUPS, allow_non_restored_state=False)
    assert {subtask.index: parts for subtask, parts in plan.items()} == {
        index: [InFlightRestore(table(index), 1, 4, same_senders=True, narrowed=False)] for index in range(2)
    }
    assert rows_without_way(stored, edges) == []


def test_where_rows_were_not_counted_any_way_may_have_had_some() -> None:
    stored = StoredInFlight((EDGE, EDGE), (3, 1), table(0))
    value = asdict(stored)
    assert in_flight_from_json(value) == stored
    del value["rows"]
    assert in_flight_from_json(value).rows == (1, 1)


def test_two_edges_between_the_same_ends_are_told_apart_by_their_order() -> None:
    """``s.union(s.broadcast())``: what one of them carried must not go the other's way."""
    both = (by(Exchange.FORWARD), by(Exchange.BROADCAST))
    edges = [shape(edge, 3, number=number) for edge, number in zip(both, (6, 7), strict=True)]
    plan = plan_in_flight(checkpoint(2, *both), edges, GROUPS, allow_non_restored_state=False)
    got = {at.index: [(part.stored, part.number, *whose([part])) for part in parts] for at, parts in plan.items()}
    everybody = (1, 7, "chk-1/v+0")
    assert got == {0: [(0, 6, "chk-1/v+0"), everybody], 1: [everybody, (0, 6, "chk-1/v+1")], 2: [everybody]}


def test_an_edge_that_the_program_has_less_often_is_missing() -> None:
    with pytest.raises(RestoreError, match="not as often"):
        plan_in_flight(checkpoint(2, EDGE, EDGE), [shape(EDGE, 2)], GROUPS, allow_non_restored_state=False)


@pytest.mark.parametrize("before", [by(Exchange.FORWARD), by(Exchange.KEY_GROUP, "j")], ids=["no key", "another key"])
def test_rows_of_an_edge_that_has_another_key_now_go_to_the_owners_of_their_keys(before: InFlightEdge) -> None:
    """At equal parallelism too: the subtask of the same number may own none of them."""
    plan = planned(2, shape(by(Exchange.KEY_GROUP, "k"), 2), before)
    assert {index: whose(parts) for index, parts in plan.items()} == {key: ["chk-1/v+0", "chk-1/v+1"] for key in (0, 1)}
    assert all(part.narrowed and not part.same_senders for parts in plan.values() for part in parts)


def test_rows_of_an_edge_that_has_no_key_any_more_move_whole() -> None:
    plan = planned(2, shape(EDGE, 2), by(Exchange.KEY_GROUP, "k"))
    assert {index: whose(parts) for index, parts in plan.items()} == {0: ["chk-1/v+0"], 1: ["chk-1/v+1"]}
    assert not any(part.narrowed for parts in plan.values() for part in parts)


@pytest.mark.parametrize(("before", "now"), [("rebalance", "broadcast"), ("broadcast", "key group")])
def test_copies_for_everybody_do_not_become_records_of_one_nor_the_reverse(before: str, now: str) -> None:
    old, new = (replace(EDGE, exchange=each) for each in (before, now))
    for allowed in (False, True):
        with pytest.raises(RestoreError, match=rf"src -> v.*by {before}.*by {now}.*aligned checkpoint"):
            plan_in_flight(checkpoint(2, old), [shape(new, 2)], GROUPS, allow_non_restored_state=allowed)


def test_rows_of_another_schema_are_refused_with_both() -> None:
    edges = [shape(replace(EDGE, schema="k: string"), 2)]
    with pytest.raises(RestoreError, match=r"(?s)src -> v.*k: int64.*k: string.*aligned checkpoint"):
        plan_in_flight(checkpoint(2), edges, GROUPS, allow_non_restored_state=True)


def test_a_part_survives_json() -> None:
    part = planned(2, shape(by(Exchange.KEY_GROUP, "k"), 3))[0][0]
    assert in_flight_restore_from_json(part.to_json()) == part
