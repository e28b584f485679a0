"""Attempts: who may publish, and which checkpoints of its predecessors count."""

import json
from dataclasses import asdict, dataclass

from cutwater.flow.ids import Attempt, CheckpointId


@dataclass(frozen=True, slots=True)
class Base:
    """What the user restored by path: older than all checkpoints of its own that the job has taken since.

    ``path`` is absolute: the next driver may run in another folder. ``after``: the highest id of the job when it was
    restored. What was committed up to there, the user chose to repeat; but not what was visible where it went back to:
    ``committed`` is the highest checkpoint of the same incarnation whose output is not repeated. ``claimed``: the job takes
    its files over, and deletes it when it has enough of its own. ``taken``: the id under which it has, so that the job can be
    restored from them whatever becomes of ``path``.
    """

    path: str
    after: CheckpointId
    committed: CheckpointId | None = None
    claimed: bool = False
    taken: CheckpointId | None = None


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """What an attempt starts from. Written after the attempt's number fenced the older ones, before anything runs; and once
    more, also before that, when the attempt has taken over the files of its base.

    ``accepted``: the completed checkpoints of this incarnation that were there; whatever an older attempt publishes
    later is void. ``highest_id``: every id above it belongs to this attempt. ``base`` is handed on until
    the incarnation ends or the user restores another path. ``abandoned``: the incarnations before this one, the last ones
    only: what they left staged is looked for at every start. ``completed_before``: earlier attempts of this incarnation have
    completed checkpoints, so that not to find one does not mean that there was none.
    """

    attempt: Attempt
    incarnation: str
    accepted: tuple[CheckpointId, ...]
    highest_id: CheckpointId
    base: Base | None = None
    abandoned: tuple[str, ...] = ()
    completed_before: bool = False

    def counts(self, checkpoint: CheckpointId, published_by: Attempt, incarnation: str) -> bool:
        """Whether a published checkpoint may be restored as one of this job's own."""
        if incarnation != self.incarnation:
            return False
        return published_by >= self.attempt or checkpoint in self.accepted

    def may_be_ours(self, checkpoint: CheckpointId) -> bool:
        """The same for a checkpoint whose metadata cannot be read."""
        return checkpoint in self.accepted or checkpoint > self.highest_id


def encode_attempt(record: AttemptRecord) -> bytes:
    return json.dumps(asdict(record)).encode()


def decode_attempt(content: bytes) -> AttemptRecord:
    value = json.loads(content)
    accepted = tuple(CheckpointId(each) for each in value["accepted"])
    base = None if value["base"] is None else Base(**value["base"])
    highest = CheckpointId(value["highest_id"])
    abandoned = tuple(value["abandoned"])
    completed_before = bool(value.get("completed_before", accepted))
    return AttemptRecord(
        Attempt(value["attempt"]), value["incarnation"], accepted, highest, base, abandoned, completed_before
    )
