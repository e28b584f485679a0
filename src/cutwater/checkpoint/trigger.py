"""When a checkpoint may start: one pure decision over a description of the moment (rules 1, 3, 4, 7, 20)."""

from dataclasses import dataclass
from enum import Enum


class Occasion(Enum):
    """Why a checkpoint starts."""

    SAVEPOINT = "savepoint requested"
    FINAL = "all input ended"
    MANUAL = "checkpoint requested"
    PERIODIC = "interval passed"


@dataclass(frozen=True, slots=True)
class Moment:
    """All that the decision depends on. Times are seconds on the clock of ``now``."""

    now: float
    processing: bool
    """Every subtask reported running and may process."""
    stopping: bool
    """A stop-with-savepoint is under way: sources stand still behind its barrier."""
    reserving: bool
    pending: int
    max_concurrent: int
    unaligned_pending: bool
    savepoint_waiting: bool
    manual_waiting: bool
    all_input_ended: bool
    final_pending: bool
    final_completed: bool
    retry_final_at: float
    periodic_at: float
    min_pause: float
    last_ended_at: float | None


@dataclass(frozen=True, slots=True)
class Start:
    occasion: Occasion


@dataclass(frozen=True, slots=True)
class Delay:
    """Nothing before this time, unless an event changes the moment."""

    until: float


@dataclass(frozen=True, slots=True)
class Hold:
    """Only an event can change this."""

    reason: str


Decision = Start | Delay | Hold


def decide_trigger(moment: Moment) -> Decision:
    """Savepoints first, then the final checkpoint, then manual triggers, then the periodic one.

    The minimum pause delays periodic checkpoints only. Periodic ones never queue: one that could not start when it was due
    starts once, as soon as it can.
    """
    if not moment.processing:
        return Hold("not every subtask is running")
    if moment.stopping:
        return Hold("the job is stopping with a savepoint")
    if moment.final_completed:
        return Hold("the final checkpoint has completed")
    if moment.reserving:
        return Hold("an id is being reserved")
    if moment.pending >= moment.max_concurrent:
        return Hold(f"{moment.pending} of at most {moment.max_concurrent} checkpoints are pending")
    if moment.savepoint_waiting:
        if moment.unaligned_pending:
            return Hold("a savepoint never runs beside an unaligned checkpoint")
        return Start(Occasion.SAVEPOINT)
    if moment.all_input_ended:
        if moment.final_pending:
            return Hold("the final checkpoint is pending")
        return _at(moment.retry_final_at, moment.now, Occasion.FINAL)
    if moment.manual_waiting:
        return Start(Occasion.MANUAL)
    due = moment.periodic_at
    if moment.last_ended_at is not None:
        due = max(due, moment.last_ended_at + moment.min_pause)
    return _at(due, moment.now, Occasion.PERIODIC)


def _at(due: float, now: float, occasion: Occasion) -> Start | Delay:
    return Start(occasion) if now >= due else Delay(due)
