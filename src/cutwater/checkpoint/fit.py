"""Whether a program can take over what a checkpoint holds (rule 37). Pure.

State that has no place in the program is refused with its uid, its name and both sides, or left out if the user allows that.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from cutwater.checkpoint.completed import CompletedCheckpoint, StateOwner, VertexShape
from cutwater.checkpoint.snapshot import StoredOperator
from cutwater.errors import RestoreError

Json = Any

DUE = "due"
"""Time had come so far, but what it made due was not all done."""
WATERMARKS = ("watermarks", "split_watermarks", "rested", "told", DUE)
"""How far time had come: kept so that a restore is as if nothing had happened, but nothing that anybody would miss."""
WIDTHS = "widths"
"""How long the buckets are in which rows stand: of no use without those."""

_OPERATOR_STATES = {
    "list_state": "ListOperatorState",
    "union_state": "UnionOperatorState",
    "broadcast_state": "BroadcastState",
}
"""The inline keys of what functions declare for their subtasks, and what they call it."""


class SubtaskState(NamedTuple):
    """A state that a function declares for its subtask and not for keys. ``kind``: the inline key that it is stored under."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.name} ({_OPERATOR_STATES[self.kind]})"


@dataclass(frozen=True, slots=True)
class StoredUid:
    """All parts of one operator, by old subtask index. ``parts`` misses subtasks that had no state."""

    uid: str
    parallelism: int
    parts: tuple[tuple[int, StoredOperator], ...]

    def inlines(self) -> list[tuple[int, Json]]:
        return [(index, part.inline) for index, part in self.parts if part.inline is not None]

    def states(self) -> list[str]:
        """What would be lost, as an error names it."""
        keys: set[str] = set()
        for _, inline in self.inlines():
            if isinstance(inline, Mapping):
                keys.update(key for key, value in inline.items() if value and key not in (*WATERMARKS, WIDTHS))
            else:
                keys.add("inline")
        return sorted({*self.tables(), *keys})

    def tables(self) -> list[str]:
        """The states that are kept by key, unless they are empty."""
        return sorted({table.state for _, part in self.parts for table in part.tables if table.rows > 0})

    def operator_states(self) -> list[SubtaskState]:
        """Those that functions declare for their subtasks, unless they are empty."""
        return sorted(
            {
                state
                for _, inline in self.inlines()
                for kind in _OPERATOR_STATES
                for state in _operator_states(kind, inline)
            }
        )

    def only(self, declared: "DeclaredStates") -> "StoredUid":
        """Without states that are not ``declared``."""
        return replace(self, parts=tuple((index, _only(part, declared)) for index, part in self.parts))


def _operator_states(kind: str, inline: Json) -> Iterator[SubtaskState]:
    match inline.get(kind) if isinstance(inline, Mapping) else None:
        case Mapping() as by_name:
            yield from (SubtaskState(kind, name) for name, entries in by_name.items() if entries)
        case list() as entries:
            yield from (SubtaskState(kind, entry["state"]) for entry in entries)


def _only(part: StoredOperator, declared: "DeclaredStates") -> StoredOperator:
    tables = tuple(table for table in part.tables if table.state in declared.names | declared.given)
    inline = part.inline
    if isinstance(inline, Mapping):
        inline = {
            key: _only_entries(key, value, declared) if key in _OPERATOR_STATES else value
            for key, value in inline.items()
        }
    return replace(part, tables=tables, inline=inline)


def _only_entries(kind: str, value: Json, declared: "DeclaredStates") -> Json:
    if isinstance(value, Mapping):
        return {name: entries for name, entries in value.items() if SubtaskState(kind, name) in declared.of_subtasks}
    return [entry for entry in value if SubtaskState(kind, entry["state"]) in declared.of_subtasks]


def stored_by_uid(checkpoint: CompletedCheckpoint) -> dict[str, StoredUid]:
    parallelism: dict[str, int] = {}
    parts: dict[str, list[tuple[int, StoredOperator]]] = {}
    vertex_of: dict[str, str] = {}
    for record in checkpoint.subtasks:
        snapshot = record.snapshot
        parallelism[snapshot.vertex] = parallelism.get(snapshot.vertex, 0) + 1
        for operator in snapshot.operators:
            vertex_of[operator.uid] = snapshot.vertex
            parts.setdefault(operator.uid, []).append((snapshot.index, operator))
    return {
        uid: StoredUid(uid, parallelism[vertex_of[uid]], tuple(sorted(found, key=lambda each: each[0])))
        for uid, found in parts.items()
    }


@dataclass(frozen=True, slots=True)
class ReplacedOwner:
    """``states`` that were kept under a uid by something that is of another kind than what has the uid now."""

    states: tuple[str, ...]
    before: StateOwner
    now: StateOwner

    def __str__(self) -> str:
        return f"{', '.join(self.states)} of {self.before.description}; now it is {self.now.description}"


def state_of_others(checkpoint: CompletedCheckpoint, vertices: Sequence[VertexShape]) -> dict[str, ReplacedOwner]:
    """By uid: the state that ``plan_restore`` refuses to hand over, or leaves out with ``allow_non_restored_state``."""
    before, now = owners_by_uid(checkpoint.graph), owners_by_uid(vertices)
    carried = {each.uid for each in checkpoint.carried}
    replaced: dict[str, ReplacedOwner] = {}
    for uid, stored in stored_by_uid(checkpoint).items():
        states = sorted({*stored.states(), *(["committables"] if uid in carried else [])})
        if states and uid in before and uid in now and before[uid].kind != now[uid].kind:
            replaced[uid] = ReplacedOwner(tuple(states), before[uid], now[uid])
    return replaced


@dataclass(frozen=True, slots=True)
class DeclaredStates:
    """The states that ``function`` of the program declares by name: it can read no others."""

    function: str
    names: frozenset[str]
    of_subtasks: frozenset[SubtaskState] = frozenset()
    given: frozenset[str] = frozenset()
    """Tables that its operator keeps for it, under names of its own."""

    def __str__(self) -> str:
        declared = [*sorted(self.names), *map(str, sorted(self.of_subtasks))]
        return f"{self.function} declares {', '.join(declared) or 'no state'}"


def undeclared_states(
    checkpoint: CompletedCheckpoint, vertices: Sequence[VertexShape], declared: Mapping[str, DeclaredStates]
) -> dict[str, str]:
    """By uid: the stored states that its function does not declare, and those that it does."""
    replaced = state_of_others(checkpoint, vertices)
    undeclared: dict[str, str] = {}
    for uid, stored in stored_by_uid(checkpoint).items():
        if uid in declared and uid not in replaced:
            own = declared[uid]
            unknown = [name for name in stored.tables() if name not in own.names | own.given]
            unknown += [str(state) for state in stored.operator_states() if state not in own.of_subtasks]
            if unknown:
                undeclared[uid] = f"{', '.join(unknown)}; {declared[uid]}"
    return undeclared


def states_without_operator(checkpoint: CompletedCheckpoint, vertices: Sequence[VertexShape]) -> dict[str, str]:
    """By uid that the program does not have."""
    known = {uid for shape in vertices for uid in shape.uids}
    return {
        uid: ", ".join(stored.states())
        for uid, stored in stored_by_uid(checkpoint).items()
        if uid not in known and stored.states()
    }


def non_restored_state(
    checkpoint: CompletedCheckpoint, vertices: Sequence[VertexShape], declared: Mapping[str, DeclaredStates]
) -> dict[str, str]:
    """By uid: all that ``allow_non_restored_state`` leaves out."""
    return {
        **states_without_operator(checkpoint, vertices),
        **{uid: str(each) for uid, each in state_of_others(checkpoint, vertices).items()},
        **undeclared_states(checkpoint, vertices, declared),
    }


def owners_by_uid(vertices: Iterable[VertexShape]) -> dict[str, StateOwner]:
    return {uid: owner for shape in vertices for uid, owner in zip(shape.uids, shape.owners, strict=True)}


def check_max_parallelism(checkpoint: CompletedCheckpoint, max_parallelism: int) -> None:
    if checkpoint.max_parallelism != max_parallelism:
        raise RestoreError(
            f"Checkpoint {checkpoint.id} of job {checkpoint.job!r} has max_parallelism={checkpoint.max_parallelism}, this "
            f"program has max_parallelism={max_parallelism}: keys would belong to other key groups. "
            f"Set max_parallelism={checkpoint.max_parallelism}."
        )


def check_all_is_restored(
    checkpoint: CompletedCheckpoint, vertices: Sequence[VertexShape], declared: Mapping[str, DeclaredStates]
) -> None:
    """Each way in which state can be without a place has its own remedy, besides ``allow_non_restored_state``."""
    held = f"Checkpoint {checkpoint.id} of job {checkpoint.job!r} holds state"
    _refuse_without_operator(held, states_without_operator(checkpoint, vertices), vertices)
    _refuse_replaced(held, state_of_others(checkpoint, vertices))
    _refuse(
        f"{held} that this program does not declare",
        undeclared_states(checkpoint, vertices, declared),
        "Declare it under its old name (timers come with a method on_timer)",
    )


def replaced_sources(reserved: Mapping[str, StateOwner], vertices: Sequence[VertexShape]) -> dict[str, ReplacedOwner]:
    """At most once: by uid, what reserved positions and has become something else."""
    now = owners_by_uid(vertices)
    return {
        uid: ReplacedOwner(("splits",), before, now[uid])
        for uid, before in reserved.items()
        if uid in now and before.kind != now[uid].kind
    }


def sources_without_operator(reserved: Mapping[str, StateOwner], vertices: Sequence[VertexShape]) -> dict[str, str]:
    """At most once: by uid, what reserved positions and is not in the program."""
    known = owners_by_uid(vertices)
    return {uid: f"splits of {before.description}" for uid, before in reserved.items() if uid not in known}


def check_all_reserved_goes_on(job: str, reserved: Mapping[str, StateOwner], vertices: Sequence[VertexShape]) -> None:
    """At most once: what was read must not be read again because its positions have no place."""
    held = f"Job {job!r} holds reserved positions (mode='at_most_once')"
    _refuse_without_operator(held, sources_without_operator(reserved, vertices), vertices)
    _refuse_replaced(held, replaced_sources(reserved, vertices))


def _refuse_without_operator(held: str, states: Mapping[str, object], vertices: Sequence[VertexShape]) -> None:
    known = sorted(uid for shape in vertices for uid in shape.uids)
    _refuse(
        f"{held} that this program has no operator for",
        states,
        f"This program has: {', '.join(known)}.\nGive the operator its old uid",
    )


def _refuse_replaced(held: str, states: Mapping[str, object]) -> None:
    _refuse(
        f"{held} that this program gives to something else",
        states,
        "Give what is new a uid of its own and keep the old one while its state is needed (committables are output that may "
        "not be visible yet)",
    )


def _refuse(held: str, states: Mapping[str, object], remedy: str) -> None:
    if states:
        raise RestoreError(
            f"{held}:"
            + "".join(f"\n  uid {uid!r}: {each}" for uid, each in states.items())
            + f"\n{remedy}, or drop that state with allow_non_restored_state=True."
        )
