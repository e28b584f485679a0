"""What each subtask is told when it reports in: the state it restores and the splits it reads."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cutwater.checkpoint.attachments import attachments_of
from cutwater.checkpoint.completed import CompletedCheckpoint, StateOwner
from cutwater.checkpoint.fit import (
    check_all_reserved_goes_on,
    non_restored_state,
    owners_by_uid,
    replaced_sources,
    sources_without_operator,
    state_of_others,
)
from cutwater.checkpoint.in_flight import (
    InFlightRestore,
    check_receivers_run,
    in_flight_restore_from_json,
    plan_in_flight,
    rows_without_way,
)
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.checkpoint.reservations import Reservations, ReservedSource
from cutwater.checkpoint.restore import SubtaskRestore, plan_restore, subtask_restore_from_json
from cutwater.checkpoint.storage import CheckpointStorage
from cutwater.checkpoint.storage_url import open_storage
from cutwater.checkpoint.stored_tables import RestoredTables, attachments_by_checksum
from cutwater.connectors.source import Source
from cutwater.control.messages import Deploy
from cutwater.errors import CutwaterError, DataError, JobFailed
from cutwater.flow.ids import CheckpointId, SubtaskId
from cutwater.job.definition import JobDefinition
from cutwater.job.output import VisibleOutput, restored_output
from cutwater.operators.user_code import own_line
from cutwater.rows import shortened
from cutwater.subtask.setup import RestoredRows, Resumed, SubtaskState

Json = Any


@dataclass(slots=True)
class Deployment:
    """One attempt's answer to every Hello."""

    storage: CheckpointStorage | None = None
    restores: Mapping[SubtaskId, SubtaskRestore] = field(default_factory=dict)
    in_flight: Mapping[SubtaskId, Sequence[InFlightRestore]] = field(default_factory=dict)
    """Rows that the checkpoint overtook, by who replays them."""
    splits: dict[SubtaskId, list[Json]] = field(default_factory=dict)
    visible: Sequence[VisibleOutput] = ()
    """What sinks commit while they open."""
    notes: Sequence[str] = ()
    """What the job's log should say of it."""
    resumed: CheckpointId | None = None
    """The id of what is restored, if its files are the job's own: new checkpoints may reference them."""
    visible_up_to: CheckpointId | None = None
    """The last checkpoint whose output may be visible, as far as the storage knows: ``JobStore.visible_up_to``."""

    def message(self, subtask: SubtaskId) -> Deploy:
        restore = self.restores.get(subtask)
        told: dict[str, Json] = {
            "splits": self.splits.get(subtask, []),
            "restore": None,
            "storage": None,
            "resumed": self.resumed,
            "visible_up_to": self.visible_up_to,
            "in_flight": [],
        }
        attachments: tuple[bytes, ...] = ()
        if restore is not None and self.storage is not None:
            rows = self.in_flight.get(subtask, ())
            told["restore"] = restore.to_json()
            told["in_flight"] = [each.to_json() for each in rows]
            if isinstance(self.storage, MemoryStorage):
                attachments = attachments_of(self.storage, [*restore.tables(), *(each.table for each in rows)])
            else:
                told["storage"] = self.storage.url
        return Deploy(told, attachments)


def deploy_fresh(definition: JobDefinition) -> Deployment:
    return Deployment(splits=_deal_splits(definition, {}))


def deploy_reserved(
    definition: JobDefinition, reservations: Reservations, *, allow_non_restored_state: bool
) -> Deployment:
    """At most once: no state, and every split goes on behind what was reserved. Writes down what this attempt begins with."""
    shapes, reserved = definition.shapes(), reservations.latest()
    if not allow_non_restored_state:
        check_reserved(definition, reserved)
    before = {uid: source.owner for uid, source in reserved.items()}
    left_out = {**sources_without_operator(before, shapes), **replaced_sources(before, shapes)}
    known = {uid: source.positions for uid, source in reserved.items() if uid not in left_out}
    splits = _deal_splits(definition, known)
    now = owners_by_uid(shapes)
    reservations.begin(
        {
            uid: ReservedSource(now[uid], tuple(_positions_of(uid, splits)), begun=uid in known)
            for uid in definition.sources
        }
    )
    return Deployment(
        splits=splits,
        notes=[
            *_lost_at_most_once(known),
            *_dropped(left_out),
            *_changed_sources(definition, before, "when the job ran before", known),
        ],
    )


def _lost_at_most_once(known: Mapping[str, Sequence[Json]]) -> list[str]:
    """Nothing, before anything was read."""
    if not known:
        return []
    sources = ", ".join(f"{uid!r} (splits: {len(splits)})" for uid, splits in sorted(known.items()))
    counts_as_read = f"What was reserved to be read counts as read, by source: {sources}."
    lost = "Records of that which had not reached a sink when the last attempt ended are lost, and so is all state"
    return [f"mode='at_most_once': nothing is restored. {counts_as_read} {lost}"]


def check_reserved(definition: JobDefinition, reserved: Mapping[str, ReservedSource]) -> None:
    """Raises RestoreError if ``deploy_reserved`` would."""
    check_all_reserved_goes_on(
        definition.name, {uid: source.owner for uid, source in reserved.items()}, definition.shapes()
    )


def _positions_of(uid: str, splits: Mapping[SubtaskId, Sequence[Json]]) -> list[Json]:
    return [entry for subtask, entries in splits.items() if subtask.vertex == uid for entry in entries]


def check_fit(definition: JobDefinition, checkpoint: CompletedCheckpoint, *, allow_non_restored_state: bool) -> None:
    """Raises RestoreError if ``deploy_restored`` would: asked before anything is given up for this checkpoint."""
    _plan(definition, checkpoint, allow_non_restored_state=allow_non_restored_state)


def _plan(
    definition: JobDefinition, checkpoint: CompletedCheckpoint, *, allow_non_restored_state: bool
) -> tuple[dict[SubtaskId, SubtaskRestore], dict[SubtaskId, list[InFlightRestore]]]:
    """What every subtask restores, and what it replays."""
    most = definition.plan.max_parallelism
    restores = plan_restore(
        checkpoint,
        definition.shapes(),
        most,
        definition.declared_states(),
        allow_non_restored_state=allow_non_restored_state,
    )
    edges = definition.edge_shapes()
    in_flight = plan_in_flight(checkpoint, edges, most, allow_non_restored_state=allow_non_restored_state)
    ended = {subtask for subtask, restore in restores.items() if restore.finished}
    check_receivers_run(checkpoint, in_flight, ended)
    return restores, in_flight


def deploy_restored(
    definition: JobDefinition,
    storage: CheckpointStorage,
    checkpoint: CompletedCheckpoint,
    *,
    allow_non_restored_state: bool,
    resumed: CheckpointId | None,
) -> Deployment:
    """``resumed``: the id under which new checkpoints may build on this one, if its files are the job's own."""
    shapes, declared = definition.shapes(), definition.declared_states()
    restores, in_flight = _plan(definition, checkpoint, allow_non_restored_state=allow_non_restored_state)
    known = {
        uid: [split for part in _inline_parts(restores, uid) for split in part.get("splits", ())]
        for uid in definition.sources
    }
    new = {uid: splits for uid, splits in known.items() if not splits}
    # A source that the checkpoint does not know starts from the beginning.
    splits = _deal_splits(definition, {}, only=frozenset(new))
    for subtask, restore in restores.items():
        for operator in restore.operators:
            if operator.uid in definition.sources:
                held = [split for part in operator.inline for split in part.get("splits", ())]
                splits.setdefault(subtask, []).extend(held)
    replaced = state_of_others(checkpoint, shapes)
    visible = [output for output in restored_output(checkpoint) if output.uid not in replaced]
    dropped = _dropped(non_restored_state(checkpoint, shapes, declared))
    when = f"when checkpoint {checkpoint.id} was taken"
    changed = _changed_sources(definition, owners_by_uid(checkpoint.graph), when, known)
    unsent = [
        f"not restored: rows that were on their way ({way})"
        for way in rows_without_way(checkpoint, definition.edge_shapes())
    ]
    notes = [*dropped, *unsent, *changed]
    return Deployment(storage, restores, in_flight, splits, visible, notes, resumed)


def _dropped(left_out: Mapping[str, object]) -> list[str]:
    return [f"not restored: uid {uid!r}: {states}" for uid, states in left_out.items()]


def _changed_sources(
    definition: JobDefinition, before: Mapping[str, StateOwner], when: str, known: Mapping[str, Sequence[Json]]
) -> list[str]:
    """A source that found its splits once and for all does not look for those of its new settings."""
    now = owners_by_uid(definition.shapes())
    return [
        f"source {uid!r} was {before[uid].description} {when} and is {now[uid].description} now: it goes on where it was; "
        "what it had read to the end stays ended, and new splits are not looked for"
        for uid, source in definition.sources.items()
        if known.get(uid) and source.bounded and uid in before and before[uid].description != now[uid].description
    ]


def _inline_parts(restores: Mapping[SubtaskId, SubtaskRestore], uid: str) -> list[Json]:
    return [
        part for restore in restores.values() for operator in restore.operators if operator.uid == uid
        for part in operator.inline
    ]  # fmt: skip


def _deal_splits(
    definition: JobDefinition, known: Mapping[str, Sequence[Json]], only: frozenset[str] | None = None
) -> dict[SubtaskId, list[Json]]:
    """Each source's splits over its subtasks. A source that is ``known`` is not asked for them again: it might cut them
    differently now, and read a part of its records twice."""
    dealt: dict[SubtaskId, list[Json]] = {}
    for vertex in definition.plan.vertices:
        source = definition.sources.get(vertex.id)
        if source is None or (only is not None and vertex.id not in only):
            continue
        entries = known.get(vertex.id)
        if entries is None:
            found = _splits_of(vertex.id, source, vertex.parallelism)
            entries = [{"split": split, "position": None} for split in found]
        for number, entry in enumerate(entries):
            dealt.setdefault(SubtaskId(vertex.id, number % vertex.parallelism), []).append(entry)
    return dealt


def _splits_of(uid: str, source: Source, parallelism: int) -> list[Json]:
    try:
        return [as_stored(split) for split in source.splits_for(parallelism)]
    except DataError as error:
        raise DataError(f"source {uid!r}, splits: {error}") from None
    except CutwaterError:
        raise
    except Exception as error:
        line = own_line(error)
        at = f" at {line}" if line else ""
        raise JobFailed(f"source {uid!r}, splits: {type(error).__name__}: {error}{at}") from error


def as_stored(split: Json) -> Json:
    """As a checkpoint gives it back, where a tuple is a list: one split must not have two forms."""
    try:
        return json.loads(json.dumps(split))
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{shortened(split)} is no split: it is not JSON ({error}), and splits are stored in checkpoints"
        ) from None


def _restored_rows(
    rows: InFlightRestore,
    restore: SubtaskRestore,
    storage: CheckpointStorage | None,
    attachments: Mapping[str, bytes],
) -> RestoredRows:
    table = RestoredTables((), (rows.table,), restore.key_groups, storage=storage, attachments=attachments)
    return RestoredRows(rows, lambda: table.batches(rows.table.state))


def state_from(deploy: Deploy) -> SubtaskState:
    """In the worker: what the message tells the subtask."""
    told = deploy.restore
    if told is None:
        return SubtaskState()
    visible_up_to = None if told["visible_up_to"] is None else CheckpointId(told["visible_up_to"])
    if told["restore"] is None:
        return SubtaskState(splits=told["splits"], visible_up_to=visible_up_to)
    restore = subtask_restore_from_json(told["restore"])
    storage = open_storage(told["storage"]) if told["storage"] is not None else None
    attachments = attachments_by_checksum(deploy.attachments)
    restored = {
        operator.uid: RestoredTables(
            operator.inline,
            operator.tables,
            restore.key_groups,
            storage=storage,
            attachments=attachments,
            whole=operator.whole,
        )
        for operator in restore.operators
    }
    rows = [
        _restored_rows(in_flight_restore_from_json(each), restore, storage, attachments) for each in told["in_flight"]
    ]
    whole = {operator.uid: restored[operator.uid] for operator in restore.operators if operator.whole}
    return SubtaskState(
        finished=restore.finished,
        splits=told["splits"],
        operators=restored,
        in_flight=rows,
        resumed=None if told["resumed"] is None else Resumed(CheckpointId(told["resumed"]), whole),
        visible_up_to=visible_up_to,
    )
