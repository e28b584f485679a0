"""Where rows that an unaligned checkpoint overtook go when it is restored (rule 36). Pure.

At equal parallelism nothing moves. Else keyed records go to the new owner of their key group, rows of other channels move as
they are, and what was on its way to everybody is taken from one old subtask, as broadcast state is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cutwater.checkpoint.completed import CompletedCheckpoint
from cutwater.checkpoint.snapshot import EdgeName, InFlightEdge
from cutwater.errors import RestoreError
from cutwater.flow.ids import SubtaskId
from cutwater.flow.key_groups import key_group_range
from cutwater.graph.logical import Exchange
from cutwater.state.stored import StoredTable, stored_table_from_json

Json = Any


@dataclass(frozen=True, slots=True)
class EdgeShape:
    """An edge of the program that restores. ``number``: its place in the plan."""

    edge: InFlightEdge
    number: int
    exchange: Exchange
    vertex: str
    """That it leads to."""
    parallelism: int
    """Of that."""
    senders: int


@dataclass(frozen=True, slots=True)
class InFlightRestore:
    """Rows of ``table`` that came on its edge ``stored`` are replayed on edge ``number`` of the plan.

    ``same_senders``: in the channels that they came in. ``narrowed``: only records of the subtask's own key groups.
    """

    table: StoredTable
    stored: int
    number: int
    same_senders: bool
    narrowed: bool

    def to_json(self) -> Json:
        return asdict(self)


def in_flight_restore_from_json(value: Json) -> InFlightRestore:
    return InFlightRestore(**{**value, "table": stored_table_from_json(value["table"])})


def plan_in_flight(
    checkpoint: CompletedCheckpoint,
    edges: Sequence[EdgeShape],
    max_parallelism: int,
    *,
    allow_non_restored_state: bool,
) -> dict[SubtaskId, list[InFlightRestore]]:
    """What each subtask replays before it takes new input. Raises RestoreError for rows that have no way into the program."""
    by_name = {shape.edge.name: shape for shape in reversed(edges)}
    parallelism = {vertex.vertex: vertex.parallelism for vertex in checkpoint.graph}
    senders = {uid: vertex.parallelism for vertex in checkpoint.graph for uid in vertex.uids}
    plan: dict[SubtaskId, list[InFlightRestore]] = {}
    for record in checkpoint.subtasks:
        rows = record.snapshot.in_flight
        for stored, edge in enumerate(() if rows is None else rows.edges):
            assert rows is not None
            shape = by_name.get(edge.name)
            if shape is None:
                if not allow_non_restored_state:
                    raise _no_such_edge(checkpoint, edge.name, by_name)
                continue
            _check_schema(checkpoint, edge, shape)
            old = parallelism[record.snapshot.vertex]
            same_senders = old == shape.parallelism and senders[edge.name.source] == shape.senders
            narrowed = old != shape.parallelism and shape.exchange is Exchange.KEY_GROUP
            for index in _receivers(shape, record.snapshot.index, old, max_parallelism):
                restore = InFlightRestore(rows.table, stored, shape.number, same_senders, narrowed)
                plan.setdefault(SubtaskId(shape.vertex, index), []).append(restore)
    return plan


def _receivers(shape: EdgeShape, index: int, old: int, max_parallelism: int) -> Sequence[int]:
    """Who goes on with rows that were on their way to subtask ``index`` of ``old``."""
    if old == shape.parallelism:
        return (index,)
    match shape.exchange:
        case Exchange.BROADCAST:
            return range(shape.parallelism) if index == 0 else ()
        case Exchange.KEY_GROUP:
            owned = key_group_range(index, old, max_parallelism)
            ranges = [key_group_range(each, shape.parallelism, max_parallelism) for each in range(shape.parallelism)]
            return [each for each, own in enumerate(ranges) if own.first <= owned.last and own.last >= owned.first]
        case _:
            return (index % shape.parallelism,)


def _check_schema(checkpoint: CompletedCheckpoint, stored: InFlightEdge, shape: EdgeShape) -> None:
    if stored.schema != shape.edge.schema:
        raise RestoreError(
            f"Checkpoint {checkpoint.id} of job {checkpoint.job!r} holds rows that were on their way ({stored.name}) as\n"
            f"{stored.schema}\nand this program sends there\n{shape.edge.schema}\n"
            f"Restore it with the old program, and let it take an aligned checkpoint: that holds no such rows."
        )


def _no_such_edge(
    checkpoint: CompletedCheckpoint, missing: EdgeName, known: Mapping[EdgeName, EdgeShape]
) -> RestoreError:
    return RestoreError(
        f"Checkpoint {checkpoint.id} of job {checkpoint.job!r} holds rows that were on their way ({missing}), and this program "
        f"has no such way. It has: {', '.join(map(str, known)) or 'none'}.\nKeep the uids at both ends, and their "
        f"parallelism if one runs inside the other's subtasks now; or drop the rows with allow_non_restored_state=True."
    )
