"""From a completed checkpoint to what each subtask of the program that restores it begins with. Pure.

State is matched by operator uid, never by vertex: chains may be cut differently. What an operator keeps ``inline`` is a dict
with optional keys, and each says how it moves when the parallelism changes:

    splits           [{"split", "position"}]  dealt out anew, one after the other
    committables     list                     those of old subtask i go to subtask i % parallelism
    list_state       [{"state", "value"}]     those of each state dealt out anew, one after the other
    union_state      list                     everything to everybody
    broadcast_state  anything                 that of old subtask 0 to everybody: rows that it had not applied follow
                                              (``in_flight``)
    watermarks       list                     everything to everybody, or nothing if a subtask knew of no time yet
    split_watermarks list                     everything to everybody
    rested           list                     everything to everybody
    widths           list                     everything to everybody
    told             [[first, last, time]]    by key groups, with those of subtasks that were further than the slowest
    due              list                     dropped: time comes there again
    own              anything                 belongs to the subtask itself: kept at equal parallelism, else dropped

At equal parallelism nothing moves but ``union_state``: what a function declares so is for everybody after every restore.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cutwater.checkpoint.completed import CompletedCheckpoint, VertexShape
from cutwater.checkpoint.fit import (
    DUE,
    WATERMARKS,
    WIDTHS,
    DeclaredStates,
    StoredUid,
    check_all_is_restored,
    check_max_parallelism,
    state_of_others,
    stored_by_uid,
)
from cutwater.errors import RestoreError
from cutwater.flow.ids import SubtaskId
from cutwater.flow.key_groups import KeyGroupRange, key_group_range
from cutwater.state.stored import StoredTable, stored_table_from_json

Json = Any

_UNION = "union_state"
_WATERMARKS = "watermarks"
_TO_EVERYBODY = (_UNION, WIDTHS, *(key for key in WATERMARKS if key != DUE))
_KEYS = frozenset(("splits", "committables", "list_state", "broadcast_state", "own", DUE, *_TO_EVERYBODY))


@dataclass(frozen=True, slots=True)
class OperatorRestore:
    """``inline`` holds at most one part: the old subtask's own, or what was dealt out to this one. ``whole``: nothing moved,
    so that ``tables`` are all of the old subtask's and nobody else's."""

    uid: str
    inline: tuple[Json, ...]
    tables: tuple[StoredTable, ...]
    whole: bool


@dataclass(frozen=True, slots=True)
class SubtaskRestore:
    """``tables`` of its operators overlap ``key_groups`` but may hold more: ``RestoredTables`` narrows them."""

    vertex: str
    index: int
    finished: bool
    key_groups: KeyGroupRange
    operators: tuple[OperatorRestore, ...]

    def tables(self) -> Iterable[StoredTable]:
        return (table for operator in self.operators for table in operator.tables)

    def to_json(self) -> Json:
        return asdict(self)


def subtask_restore_from_json(value: Json) -> SubtaskRestore:
    operators = (
        OperatorRestore(
            each["uid"], tuple(each["inline"]), tuple(map(stored_table_from_json, each["tables"])), each["whole"]
        )
        for each in value["operators"]
    )
    key_groups = KeyGroupRange(value["key_groups"]["first"], value["key_groups"]["last"])
    return SubtaskRestore(value["vertex"], value["index"], value["finished"], key_groups, tuple(operators))


def plan_restore(
    checkpoint: CompletedCheckpoint,
    vertices: Sequence[VertexShape],
    max_parallelism: int,
    declared: Mapping[str, DeclaredStates],
    *,
    allow_non_restored_state: bool = False,
) -> dict[SubtaskId, SubtaskRestore]:
    """What every subtask of ``vertices`` restores. Raises RestoreError if the state does not fit the program (rule 37).

    ``declared``: by uid, where it is the user who names the states.
    """
    check_max_parallelism(checkpoint, max_parallelism)
    if not allow_non_restored_state:
        check_all_is_restored(checkpoint, vertices, declared)
    replaced = state_of_others(checkpoint, vertices)
    stored = {
        uid: found.only(declared[uid]) if uid in declared else found
        for uid, found in stored_by_uid(checkpoint).items()
        if uid not in replaced
    }
    plan: dict[SubtaskId, SubtaskRestore] = {}
    for shape in vertices:
        dealt = {uid: _deal(checkpoint, stored[uid], shape, max_parallelism) for uid in shape.uids if uid in stored}
        for index in range(shape.parallelism):
            plan[SubtaskId(shape.vertex, index)] = SubtaskRestore(
                shape.vertex,
                index,
                not replaced.keys() & set(shape.uids) and _is_finished(checkpoint, shape, index),
                key_group_range(index, shape.parallelism, max_parallelism),
                tuple(parts[index] for parts in dealt.values()),
            )
    return plan


def _deal(
    checkpoint: CompletedCheckpoint, stored: StoredUid, shape: VertexShape, max_parallelism: int
) -> list[OperatorRestore]:
    """One operator's state over the subtasks of its new vertex."""
    whole = stored.parallelism == shape.parallelism
    if whole:
        by_index = dict(stored.parts)
        inlines = _kept_inline(stored)
        tables = [by_index[index].tables if index in by_index else () for index in range(shape.parallelism)]
    else:
        inlines = _deal_inline(checkpoint, stored, shape.parallelism)
        tables = _deal_tables(checkpoint, stored, shape.parallelism, max_parallelism)
    return [OperatorRestore(stored.uid, *each, whole) for each in zip(inlines, tables, strict=True)]


def _kept_inline(stored: StoredUid) -> list[tuple[Json, ...]]:
    """At equal parallelism."""
    kept = dict(stored.inlines())
    if any(isinstance(inline, Mapping) and _UNION in inline for inline in kept.values()):
        union = _in_order(stored.inlines(), _UNION)
        kept = {index: {**kept.get(index, {}), _UNION: union} for index in range(stored.parallelism)}
    return [(kept[index],) if index in kept else () for index in range(stored.parallelism)]


def _deal_tables(
    checkpoint: CompletedCheckpoint, stored: StoredUid, parallelism: int, max_parallelism: int
) -> list[tuple[StoredTable, ...]]:
    tables = [table for _, part in stored.parts for table in part.tables if table.rows > 0]
    for table in tables:
        if table.first_key_group > table.last_key_group:
            raise RestoreError(
                f"State {table.state!r} of uid {stored.uid!r} has no key groups, so checkpoint {checkpoint.id} (parallelism "
                f"{stored.parallelism}) cannot be restored at parallelism {parallelism}. Use parallelism {stored.parallelism}."
            )
    ranges = (key_group_range(index, parallelism, max_parallelism) for index in range(parallelism))
    return [
        tuple(table for table in tables if table.first_key_group <= own.last and table.last_key_group >= own.first)
        for own in ranges
    ]


def _deal_inline(checkpoint: CompletedCheckpoint, stored: StoredUid, parallelism: int) -> list[tuple[Json, ...]]:
    inlines = stored.inlines()
    if not inlines:
        return [()] * parallelism
    for index, inline in inlines:
        unknown = set(inline) - _KEYS if isinstance(inline, Mapping) else {type(inline).__name__}
        if unknown:
            raise RestoreError(
                f"Inline state of uid {stored.uid!r}, subtask {index}, in checkpoint {checkpoint.id} holds {sorted(unknown)}, "
                f"which nobody can move from parallelism {stored.parallelism} to {parallelism}. "
                f"Use parallelism {stored.parallelism}."
            )
    present = {key for _, inline in inlines for key in inline}
    new: list[dict[str, Json]] = [{} for _ in range(parallelism)]
    if "splits" in present:
        splits = _in_order(inlines, "splits")
        _check_each_split_once(checkpoint, stored.uid, splits)
        for index, own in enumerate(new):
            own["splits"] = splits[index::parallelism]
    if "list_state" in present:
        # Each for itself: else, of two states with as many elements, all of one might go here and all of the other there.
        by_state: dict[str, list[Json]] = {}
        for entry in _in_order(inlines, "list_state"):
            by_state.setdefault(entry["state"], []).append(entry)
        for index, own in enumerate(new):
            own["list_state"] = [entry for entries in by_state.values() for entry in entries[index::parallelism]]
    if "committables" in present:
        for index, own in enumerate(new):
            fallen = [(old, inline) for old, inline in inlines if old % parallelism == index]
            own["committables"] = _in_order(fallen, "committables")
    for key in present.intersection(_TO_EVERYBODY):
        for own in new:
            own[key] = _in_order(inlines, key)
    if _WATERMARKS in present:
        ahead = _ahead(stored, checkpoint.max_parallelism)
        for index, own in enumerate(new):
            groups = key_group_range(index, parallelism, checkpoint.max_parallelism)
            own["told"] = [entry for entry in ahead if entry[0] <= groups.last and entry[1] >= groups.first]
            if not _all_know_time(stored):
                own[_WATERMARKS] = []
    if (first := dict(inlines).get(0)) is not None and "broadcast_state" in first:
        for own in new:
            own["broadcast_state"] = first["broadcast_state"]
    return [(own,) for own in new]


def _all_know_time(stored: StoredUid) -> bool:
    """The slowest of the old subtasks counts. One that knew of no time is the slowest: rows that an unaligned checkpoint
    overtook on their way to it may be older than the time of all others, and none of them is late."""
    return sum(bool(inline.get(_WATERMARKS)) for _, inline in stored.inlines()) == stored.parallelism


def _ahead(stored: StoredUid, max_parallelism: int) -> list[Json]:
    """For the key groups of old subtasks that were further than the slowest: how far."""
    times = {index: max(inline[_WATERMARKS]) for index, inline in stored.inlines() if inline.get(_WATERMARKS)}
    slowest = min(times.values()) if _all_know_time(stored) else None
    ahead = _in_order(stored.inlines(), "told")
    for index, time in times.items():
        if time != slowest:
            groups = key_group_range(index, stored.parallelism, max_parallelism)
            ahead.append([groups.first, groups.last, time])
    return ahead


def _in_order(inlines: Sequence[tuple[int, Json]], key: str) -> list[Json]:
    return [entry for _, inline in inlines for entry in inline.get(key) or ()]


def _check_each_split_once(checkpoint: CompletedCheckpoint, uid: str, splits: Sequence[Json]) -> None:
    times = Counter(json.dumps(entry["split"], sort_keys=True) for entry in splits)
    twice = sorted(name for name, count in times.items() if count > 1)
    if twice:
        raise RestoreError(f"Source {uid!r} in checkpoint {checkpoint.id} holds splits twice: {', '.join(twice)}.")


def _is_finished(checkpoint: CompletedCheckpoint, shape: VertexShape, index: int) -> bool:
    """Whether all old subtasks that this one continues had processed all their input.

    At another parallelism a subtask continues all of them, so one that still ran keeps all of them running.
    """
    old = {each.vertex: each.parallelism for each in checkpoint.graph if set(each.uids) & set(shape.uids)}
    continued = [
        record.snapshot.finished
        for record in checkpoint.subtasks
        if record.snapshot.vertex in old
        and (record.snapshot.index == index or old[record.snapshot.vertex] != shape.parallelism)
    ]
    return bool(continued) and all(continued)
