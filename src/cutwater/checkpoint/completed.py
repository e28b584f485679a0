"""A completed checkpoint: everything a restore has to know, and how it stands in its metadata file.

The file is JSON and carries the checksum of its own content, so that a damaged one is told from a valid one.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from cutwater.checkpoint.layout import SHARED_FOLDER
from cutwater.checkpoint.snapshot import StoredOperator, SubtaskMetrics, SubtaskSnapshot, in_flight_from_json
from cutwater.checkpoint.statistics import CheckpointKind
from cutwater.errors import DamagedCheckpoint, RestoreError
from cutwater.flow.ids import Attempt, CheckpointId
from cutwater.state.stored import Form, StoredFile, StoredTable, stored_table_from_json

Json = Any

FORMAT = 4
_ONE_FILE_A_TABLE = 2
_NOTHING_IN_FLIGHT = 3
_READABLE = (_ONE_FILE_A_TABLE, _NOTHING_IN_FLIGHT, FORMAT)


@dataclass(frozen=True, slots=True)
class StateOwner:
    """What keeps state under a uid. Only the same ``kind`` can read it; ``description`` is for messages."""

    kind: str
    description: str


@dataclass(frozen=True, slots=True)
class VertexShape:
    """One chain of operators as far as restoring is concerned. ``owners``: of the state of each uid, in their order."""

    vertex: str
    uids: tuple[str, ...]
    parallelism: int
    owners: tuple[StateOwner, ...]


@dataclass(frozen=True, slots=True)
class SubtaskRecord:
    snapshot: SubtaskSnapshot
    metrics: SubtaskMetrics


@dataclass(frozen=True, slots=True)
class CommittedOutput:
    """A committable of the sink ``uid``, prepared for ``checkpoint``."""

    uid: str
    checkpoint: CheckpointId
    value: Json


@dataclass(frozen=True, slots=True)
class CompletedCheckpoint:
    """``folder`` is its place in its storage (``""``: the storage's root); every file name is relative to the storage.

    ``triggered_at`` is in seconds since the epoch, ``duration`` in seconds from the trigger to the last acknowledgement.
    ``carried``: output that its snapshots no longer list because it is committed, and that no manifest may list yet.
    """

    job: str
    incarnation: str
    attempt: Attempt
    id: CheckpointId
    kind: CheckpointKind
    unaligned: bool
    folder: str
    triggered_at: float
    duration: float
    max_parallelism: int
    graph: tuple[VertexShape, ...]
    subtasks: tuple[SubtaskRecord, ...]
    label: str | None = None
    carried: tuple[CommittedOutput, ...] = ()

    @property
    def size(self) -> int:
        return sum(record.snapshot.size for record in self.subtasks)

    def files(self) -> Iterator[StoredFile]:
        for record in self.subtasks:
            yield from record.snapshot.files()

    def shared_files(self) -> frozenset[str]:
        """The names of the files that other checkpoints of the job may reference too."""
        return frozenset(file.file for file in self.files() if file.shared)

    def has_committables(self) -> bool:
        """Whether a sink makes output visible when this checkpoint is announced."""
        inlines = (operator.inline for record in self.subtasks for operator in record.snapshot.operators)
        return any(isinstance(inline, Mapping) and inline.get("committables") for inline in inlines)

    def output(self) -> Iterator[CommittedOutput]:
        """All that is committed when this checkpoint is announced or restored. What is not of a sink's form is left to the
        sink that restores it: it says so."""
        for record in self.subtasks:
            for operator in record.snapshot.operators:
                listed = operator.inline.get("committables") if isinstance(operator.inline, Mapping) else None
                entries = (
                    entry
                    for entry in listed or ()
                    if isinstance(entry, Mapping) and {"checkpoint", "value"} <= set(entry)
                )
                for entry in entries:
                    yield CommittedOutput(operator.uid, CheckpointId(entry["checkpoint"]), entry["value"])

    def in_folder(self, folder: str) -> "CompletedCheckpoint":
        """The same checkpoint seen from a storage in which its folder is ``folder``: its files are named anew. Shared ones
        stand beside that folder."""

        def moved(file: StoredFile) -> StoredFile:
            old, new = (_beside(self.folder), _beside(folder)) if file.shared else (_in(self.folder), _in(folder))
            return replace(file, file=new + file.file.removeprefix(old))

        return replace(self.with_files(moved), folder=folder)

    def with_files(self, other: Callable[[StoredFile], StoredFile]) -> "CompletedCheckpoint":
        """The same checkpoint with other files in the place of its own."""

        def changed(table: StoredTable) -> StoredTable:
            return replace(table, files=tuple(map(other, table.files)))

        def moved(snapshot: SubtaskSnapshot) -> SubtaskSnapshot:
            operators = tuple(replace(each, tables=tuple(map(changed, each.tables))) for each in snapshot.operators)
            rows = snapshot.in_flight
            in_flight = None if rows is None else replace(rows, table=changed(rows.table))
            return replace(snapshot, operators=operators, in_flight=in_flight)

        records = (replace(each, snapshot=moved(each.snapshot)) for each in self.subtasks)
        return replace(self, subtasks=tuple(records))


def _in(folder: str) -> str:
    return f"{folder}/" if folder else ""


def _beside(folder: str) -> str:
    return f"{_in(folder.rpartition('/')[0])}{SHARED_FOLDER}/"


def snapshot_from_json(value: Json) -> SubtaskSnapshot:
    operators = (
        StoredOperator(each["uid"], each["inline"], tuple(map(stored_table_from_json, each["tables"])))
        for each in value["operators"]
    )
    rows = value.get("in_flight")
    in_flight = None if rows is None else in_flight_from_json(rows)
    return SubtaskSnapshot(value["vertex"], value["index"], value["finished"], tuple(operators), in_flight)


def _with_files(table: Json) -> Json:
    """A table of format 2 as one of those since."""
    file = {"file": table.pop("file"), "size": table.pop("size"), "checksum": table.pop("checksum")}
    return {**table, "files": [file], "form": Form.ROWS}


def _from_format_two(value: Json) -> Json:
    for record in value["subtasks"]:
        for operator in record["snapshot"]["operators"]:
            operator["tables"] = [_with_files(table) for table in operator["tables"]]
    return value


def _shape_from_json(value: Json) -> VertexShape:
    owners = tuple(StateOwner(**each) for each in value["owners"])
    return VertexShape(value["vertex"], tuple(value["uids"]), value["parallelism"], owners)


def metrics_from_json(value: Json) -> SubtaskMetrics:
    return SubtaskMetrics(**value)


def to_json(checkpoint: CompletedCheckpoint) -> Json:
    return {"format": FORMAT, **asdict(checkpoint), "kind": checkpoint.kind.value}


def from_json(value: Json) -> CompletedCheckpoint:
    return CompletedCheckpoint(
        job=value["job"],
        incarnation=value["incarnation"],
        attempt=Attempt(value["attempt"]),
        id=CheckpointId(value["id"]),
        kind=CheckpointKind(value["kind"]),
        unaligned=value["unaligned"],
        folder=value["folder"],
        triggered_at=value["triggered_at"],
        duration=value["duration"],
        max_parallelism=value["max_parallelism"],
        graph=tuple(_shape_from_json(each) for each in value["graph"]),
        subtasks=tuple(
            SubtaskRecord(snapshot_from_json(each["snapshot"]), metrics_from_json(each["metrics"]))
            for each in value["subtasks"]
        ),
        label=value["label"],
        carried=tuple(CommittedOutput(**each) for each in value["carried"]),
    )


_BEFORE_CHECKSUM = b'{"sha256": "'
_BEFORE_CONTENT = b'", "checkpoint": '
_END = b"}\n"
_CHECKSUM_LENGTH = 64


def encode_metadata(checkpoint: CompletedCheckpoint) -> bytes:
    """The metadata file. Its checksum covers the content byte by byte, as it is written."""
    content = json.dumps(to_json(checkpoint), separators=(",", ":")).encode()
    return _BEFORE_CHECKSUM + hashlib.sha256(content).hexdigest().encode() + _BEFORE_CONTENT + content + _END


def decode_metadata(name: str, file: bytes) -> CompletedCheckpoint:
    """Raises DamagedCheckpoint, naming ``name`` and both checksums; RestoreError for a format of another version."""
    checksum_at = len(_BEFORE_CHECKSUM)
    content_at = checksum_at + _CHECKSUM_LENGTH + len(_BEFORE_CONTENT)
    whole = (
        file.startswith(_BEFORE_CHECKSUM)
        and file[checksum_at + _CHECKSUM_LENGTH : content_at] == _BEFORE_CONTENT
        and file.endswith(_END)
    )
    if not whole:
        raise DamagedCheckpoint(
            f"{name} is damaged: it is not the metadata of a checkpoint ({len(file)} bytes). "
            f"Restore another checkpoint or savepoint."
        )
    content = file[content_at : -len(_END)]
    expected = file[checksum_at : checksum_at + _CHECKSUM_LENGTH].decode("ascii", "replace")
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise DamagedCheckpoint(
            f"{name} is damaged: its content has sha256 {found}, written was {expected}. "
            f"Restore another checkpoint or savepoint."
        )
    value = json.loads(content)
    found_format = value.get("format")
    if found_format not in _READABLE:
        raise RestoreError(
            f"{name} has format {found_format}, this version of Cutwater reads formats {_READABLE[0]} to {FORMAT}. "
            f"Restore it with the version that wrote it."
        )
    try:
        return from_json(_from_format_two(value) if found_format == _ONE_FILE_A_TABLE else value)
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedCheckpoint(
            f"{name} is no metadata that Cutwater wrote: {type(error).__name__}: {error}. "
            f"Restore another checkpoint or savepoint."
        ) from error
