"""How a job starts: over, from one of its own checkpoints, or from a path. Pure; ``JobStore.facts`` gathers the facts."""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeVar

from cutwater.checkpoint.attempts import Base
from cutwater.checkpoint.completed import CompletedCheckpoint
from cutwater.checkpoint.damage import LOWERED, OnDamaged
from cutwater.flow.ids import CheckpointId


class RunEnd(StrEnum):
    """How a run ended, as far as the driver lived to write it down."""

    FINISHED = "finished"
    """By itself: all input was processed and all output committed."""
    STOPPED = "stopped"
    CANCELED = "canceled"
    DELETED = "deleted"
    """Canceled with ``on_cancel="delete"``: written before the checkpoints are deleted."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CommitBegun:
    """Output up to this checkpoint may be visible. ``path``: where it stands if it is a savepoint that stopped the job."""

    checkpoint: CheckpointId
    path: str | None = None


@dataclass(frozen=True, slots=True)
class StartFacts:
    """``completed`` and ``damaged`` are those of the current incarnation, ascending. ``requested`` stands at the path that
    ``restore`` names."""

    job: str
    url: str
    incarnation: str | None = None
    lost_its_record: bool = False
    """The job ran there, but what its attempts wrote down is gone."""
    completed_any: bool = False
    """Checkpoints were completed in the current incarnation, whether or not one is left."""
    completed: tuple[CheckpointId, ...] = ()
    damaged: tuple[CheckpointId, ...] = ()
    end: RunEnd | None = None
    commit: CommitBegun | None = None
    """Of the current incarnation; where the job lost its record, of that of ``requested``."""
    base: Base | None = None
    has_reservations: bool = False
    ran_at_most_once: bool = False
    at_most_once: bool = False
    """The mode that the last run had, and the one that is to start."""
    requested: CompletedCheckpoint | None = None
    request_problem: str | None = None
    all_sinks_idempotent: bool = False
    on_damaged: OnDamaged = "fail"


@dataclass(frozen=True, slots=True)
class StartFresh:
    """From the beginning, in a new incarnation; the old one's checkpoints are archived. With ``goes_on`` in the same one, because
    it has completed nothing: should its output show otherwise, then the sinks that find it know whose it is."""

    reason: str
    goes_on: bool = False


@dataclass(frozen=True, slots=True)
class Resume:
    """``path`` None: the job's own latest checkpoint, which ``JobStore.find_restorable`` verifies and knows the place of.
    Else the user named it, so the job's own checkpoints become void; without ``new_incarnation`` it was one of them, and
    ``committed`` is what may be visible up to there."""

    checkpoint: CheckpointId
    path: str | None = None
    new_incarnation: bool = False
    committed: CheckpointId | None = None
    warning: str | None = field(default=None, compare=False)
    claim: bool = False


@dataclass(frozen=True, slots=True)
class ContinueReserved:
    """At most once: the same incarnation goes on behind the positions that were reserved; there is no checkpoint."""


@dataclass(frozen=True, slots=True)
class RefuseStart:
    reason: str


Start = StartFresh | Resume | ContinueReserved | RefuseStart
S = TypeVar("S", bound=Start | None)


def choose_start(restore: str, facts: StartFacts) -> Start:
    """``restore`` as the user wrote it: ``"auto"``, ``"latest"``, ``"fresh"`` or the path of a checkpoint's folder."""
    match restore:
        case "fresh":
            return StartFresh("restore='fresh'")
        case "auto":
            return _in_the_same_mode(_start_automatically(facts), facts)
        case "latest":
            return _in_the_same_mode(_resume_latest(facts), facts) or _refuse_without_latest(facts)
        case path:
            return _start_from_path(path, facts)


def _refuse_without_latest(facts: StartFacts) -> RefuseStart:
    """With what can be done instead: also to start over may be refused."""
    match _start_automatically(facts):
        case RefuseStart(reason):
            return RefuseStart(f"restore='latest': {reason}")
        case _:
            return RefuseStart(
                f"restore='latest': job {facts.job!r} has no completed checkpoint in {facts.url}. "
                f"Use restore='auto' to start over when there is none, or restore=<path>."
            )


def _in_the_same_mode(start: S, facts: StartFacts) -> S | RefuseStart:
    """What one mode keeps is not what the other goes on from: sources would begin again, and read everything twice."""
    if facts.at_most_once == facts.ran_at_most_once or not isinstance(start, Resume | ContinueReserved):
        return start
    kept = (
        "in mode='at_most_once', which keeps no state, and is to go on with state"
        if facts.ran_at_most_once
        else "with state, and is to go on in mode='at_most_once', which restores none"
    )
    return RefuseStart(
        f"The last run of job {facts.job!r} in {facts.url} was {kept}: rows would be read again. "
        f"Use the mode it had, or start over with restore='fresh'."
    )


def _start_automatically(facts: StartFacts) -> Start:
    if facts.lost_its_record:
        return RefuseStart(
            f"{facts.url} holds checkpoints of job {facts.job!r}, but the record of its attempts (attempts/) is gone: starting "
            f"over would write all output again. Bring it back from a copy, restore a checkpoint with restore=<path>, or accept "
            f"that with restore='fresh'."
        )
    if facts.incarnation is None:
        return StartFresh(f"job {facts.job!r} never ran in {facts.url}")
    if facts.end is RunEnd.FINISHED:
        return StartFresh("the last run finished by itself")
    if facts.end is RunEnd.DELETED:
        return StartFresh("the last run was canceled and its checkpoints deleted")
    if (resume := _resume_latest(facts)) is not None:
        return resume
    if facts.has_reservations:
        return ContinueReserved()
    if facts.commit is not None:
        return RefuseStart(
            f"Output of checkpoint {facts.commit.checkpoint} of job {facts.job!r} may be visible, but no checkpoint is left in "
            f"{facts.url}: starting over would write it again. Restore a savepoint with restore=<path>, or accept that with "
            f"restore='fresh'."
        )
    if facts.completed_any:
        return RefuseStart(
            f"Job {facts.job!r} has completed checkpoints in {facts.url}, and none is left: starting over would write its output "
            f"again. Bring them back from a copy, restore a savepoint with restore=<path>, or accept that with restore='fresh'."
        )
    return StartFresh("the last run completed no checkpoint", goes_on=True)


def _resume_latest(facts: StartFacts) -> Resume | None:
    """Also when the latest is damaged: whether an older one may take its place is decided after it was verified."""
    latest = max(facts.completed + facts.damaged, default=None)
    stopped = facts.commit
    if stopped is not None and stopped.path is not None and (latest is None or stopped.checkpoint > latest):
        return Resume(stopped.checkpoint)
    if latest is not None:
        return Resume(latest)
    return None if facts.base is None else Resume(facts.base.after)


def _start_from_path(path: str, facts: StartFacts) -> Start:
    wanted = facts.requested
    if wanted is None:
        return RefuseStart(facts.request_problem or f"restore={path!r}: there is no checkpoint.")
    is_own = wanted.job == facts.job and wanted.incarnation == facts.incarnation
    commit = facts.commit if is_own or facts.lost_its_record else None
    resume = Resume(
        wanted.id, path, new_incarnation=not is_own, committed=_visible_after(wanted, commit) if is_own else None
    )
    if commit is None or commit.checkpoint <= wanted.id or facts.all_sinks_idempotent:
        return resume if is_own else replace(resume, warning=_of_another_run(path, wanted))
    twice = f"output of checkpoints {wanted.id + 1} to {commit.checkpoint} may be written twice"
    if facts.on_damaged == "fallback":
        return replace(resume, warning=f"on_damaged='fallback': {twice}, {LOWERED}.")
    return RefuseStart(
        f"restore={path!r} goes back to checkpoint {wanted.id}, but checkpoint {commit.checkpoint} may have been committed: "
        f"{twice}. Restore a newer one, or set on_damaged='fallback' to accept duplicates."
    )


def _of_another_run(path: str, wanted: CompletedCheckpoint) -> str:
    return (
        f"restore={path!r} is checkpoint {wanted.id} of another run of job {wanted.job!r}: what that run wrote behind it is "
        f"written again, also to folders and tables that have it."
    )


def _visible_after(restored: CompletedCheckpoint, commit: CommitBegun | None) -> CheckpointId | None:
    """The highest checkpoint up to ``restored`` whose output may be visible: restoring commits what it lists."""
    if restored.has_committables() or (commit is not None and commit.checkpoint > restored.id):
        return restored.id
    return None if commit is None else commit.checkpoint
