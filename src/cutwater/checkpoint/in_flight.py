"""Where rows that an unaligned checkpoint overtook go when it is restored (rule 36). Pure.

At equal parallelism nothing moves. Else keyed records go to the new owner of their key group, rows of other channels move as
they are, and what was on its way to everybody is taken from one old subtask, as broadcast state is.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
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
    vertex: str
    """That it leads to."""
    parallelism: int
    """Of that."""
    senders: int

    @property
    def exchange(self) -> Exchange:
        return Exchange(self.edge.exchange)


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


@dataclass(frozen=True, slots=True)
class _StoredEdge:
    """One edge of one old subtask, whose rows are in its ``table``."""

    edge: InFlightEdge
    stored: int
    index: int
    """Of the subtask."""
    receivers: int
    senders: int
    table: StoredTable
    way: EdgeShape | None
    """The same edge in the program that restores."""


def plan_in_flight(
    checkpoint: CompletedCheckpoint,
    edges: Sequence[EdgeShape],
    max_parallelism: int,
    *,
    allow_non_restored_state: bool,
) -> dict[SubtaskId, list[InFlightRestore]]:
    """What each subtask replays before it takes new input. Raises RestoreError for rows that have no way into the program."""
    plan: dict[SubtaskId, list[InFlightRestore]] = {}
    for old in _stored_edges(checkpoint, edges):
        shape = old.way
        if shape is None:
            if not allow_non_restored_state:
                raise _no_such_edge(checkpoint, old.edge.name, edges)
            continue
        _check_schema(checkpoint, old.edge, shape)
        _check_exchange(checkpoint, old.edge, shape)
        stays = old.receivers == shape.parallelism and not _is_keyed_anew(old.edge, shape)
        same_senders = stays and old.senders == shape.senders
        narrowed = not stays and shape.exchange is Exchange.KEY_GROUP
        restore = InFlightRestore(old.table, old.stored, shape.number, same_senders, narrowed)
        for index in (old.index,) if stays else _new_receivers(old, shape, max_parallelism):
            plan.setdefault(SubtaskId(shape.vertex, index), []).append(restore)
    return plan


def rows_without_way(checkpoint: CompletedCheckpoint, edges: Sequence[EdgeShape]) -> list[str]:
    """What ``allow_non_restored_state`` drops, by the way it was on."""
    return sorted({str(old.edge.name) for old in _stored_edges(checkpoint, edges) if old.way is None})


def check_receivers_run(
    checkpoint: CompletedCheckpoint, plan: Mapping[SubtaskId, Sequence[InFlightRestore]], ended: Collection[SubtaskId]
) -> None:
    """Raises RestoreError if rows go to a subtask that had ``ended``. With another key, at the same parallelism, it may own
    records that were on their way to one that still ran. It cannot just go on: to its operators time has come to its end, and
    all of them might be late."""
    late = sorted(map(str, plan.keys() & ended))
    if late:
        raise RestoreError(
            f"Checkpoint {checkpoint.id} of job {checkpoint.job!r} holds rows that were on their way, and in this program they go "
            f"by another key, to subtasks that had processed all their input: {', '.join(late)}. {_OLD_PROGRAM}"
        )


def _stored_edges(checkpoint: CompletedCheckpoint, edges: Sequence[EdgeShape]) -> Iterator[_StoredEdge]:
    """Those on which rows came. Two edges between the same ends, as of ``s.union(s.rebalance())``, are told apart by their
    order."""
    ways: dict[EdgeName, list[EdgeShape]] = {}
    for shape in edges:
        ways.setdefault(shape.edge.name, []).append(shape)
    parallelism = {uid: vertex.parallelism for vertex in checkpoint.graph for uid in vertex.uids}
    for record in checkpoint.subtasks:
        rows = record.snapshot.in_flight
        if rows is None:
            continue
        names = [edge.name for edge in rows.edges]
        for stored, (edge, count) in enumerate(zip(rows.edges, rows.rows, strict=True)):
            if not count:
                continue
            alike, before = ways.get(edge.name, []), names[:stored].count(edge.name)
            yield _StoredEdge(
                edge,
                stored,
                record.snapshot.index,
                parallelism[edge.name.target],
                parallelism[edge.name.source],
                rows.table,
                alike[before] if before < len(alike) else None,
            )


def _is_keyed_anew(stored: InFlightEdge, shape: EdgeShape) -> bool:
    """Whether records belong to other subtasks now, though there may be as many: by a key, or by another one."""
    return shape.exchange is Exchange.KEY_GROUP and (stored.exchange, stored.key) != (
        shape.edge.exchange,
        shape.edge.key,
    )


def _new_receivers(old: _StoredEdge, shape: EdgeShape, max_parallelism: int) -> Sequence[int]:
    """Who goes on with the rows, where they cannot stay with the subtask of the same number."""
    everybody = range(shape.parallelism)
    match shape.exchange:
        case Exchange.BROADCAST:
            # The old subtask that broadcast state is taken from too: exactly these are the rows that it had not applied.
            return everybody if old.index == 0 else ()
        case Exchange.KEY_GROUP if _is_keyed_anew(old.edge, shape):
            return everybody
        case Exchange.KEY_GROUP:
            owned = key_group_range(old.index, old.receivers, max_parallelism)
            ranges = [key_group_range(each, shape.parallelism, max_parallelism) for each in everybody]
            return [each for each, own in enumerate(ranges) if own.first <= owned.last and own.last >= owned.first]
        case _:
            return (old.index % shape.parallelism,)


def _check_exchange(checkpoint: CompletedCheckpoint, stored: InFlightEdge, shape: EdgeShape) -> None:
    """Copies for everybody cannot become records of one, nor the reverse."""
    if Exchange.BROADCAST.value in (stored.exchange, shape.edge.exchange) and stored.exchange != shape.edge.exchange:
        raise RestoreError(
            f"Checkpoint {checkpoint.id} of job {checkpoint.job!r} holds rows that were on their way ({stored.name}) by "
            f"{stored.exchange}, and in this program they go by {shape.edge.exchange}: some would be lost or processed several "
            f"times. {_OLD_PROGRAM}"
        )


_OLD_PROGRAM = "Restore it with the old program, and let it take an aligned checkpoint: that holds no such rows."


def _check_schema(checkpoint: CompletedCheckpoint, stored: InFlightEdge, shape: EdgeShape) -> None:
    if stored.schema != shape.edge.schema:
        raise RestoreError(
            f"Checkpoint {checkpoint.id} of job {checkpoint.job!r} holds rows that were on their way ({stored.name}) as\n"
            f"{stored.schema}\nand this program sends there\n{shape.edge.schema}\n{_OLD_PROGRAM}"
        )


def _no_such_edge(checkpoint: CompletedCheckpoint, missing: EdgeName, known: Sequence[EdgeShape]) -> RestoreError:
    ways = ", ".join(str(shape.edge.name) for shape in known)
    return RestoreError(
        f"Checkpoint {checkpoint.id} of job {checkpoint.job!r} holds rows that were on their way ({missing}), and this program "
        f"has no such way, or not as often. It has: {ways or 'none'}.\nKeep the uids at both ends, and their "
        f"parallelism if one runs inside the other's subtasks now; or drop the rows with allow_non_restored_state=True."
    )
