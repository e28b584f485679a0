"""What the driver says to a subtask. The control thread notes it down or acts at once; it never does the loop's work."""

from abc import ABC, abstractmethod

from cutwater.control.messages import (
    AbortCheckpoint,
    AssignSplits,
    CheckpointCompleted,
    CutNow,
    Finish,
    PauseChannel,
    ReservationStored,
    ResumeChannel,
    StartProcessing,
    StopSources,
    ToSubtask,
    TriggerCheckpoint,
)
from cutwater.flow.ids import CheckpointId
from cutwater.subtask.mailbox import Mailbox
from cutwater.subtask.setup import Background


class HearsDriver(ABC):
    """The part of a subtask that belongs to the control thread. ``mailbox`` is where the loop finds what was said."""

    def __init__(self, background: Background) -> None:
        self.mailbox = Mailbox()
        self._background = background

    def on_message(self, message: ToSubtask) -> None:
        match message:
            case StartProcessing():
                self._begin()
            case TriggerCheckpoint():
                self._triggered(message)
            case CutNow():
                self._out_of_time(message)
            case AbortCheckpoint(checkpoint, _):
                self.mailbox.drop_trigger(checkpoint)
                self._abort(checkpoint)
                # Last: the loop lets go of what is there when it hears of it, and nothing may come after that.
                self.mailbox.put_fate(checkpoint, completed=False)
            case CheckpointCompleted(checkpoint):
                self.mailbox.put_fate(checkpoint, completed=True)
                self._background.commit(lambda: self._complete(checkpoint))
            case PauseChannel(channel):
                self.mailbox.set_paused(channel, paused=True)
            case ResumeChannel(channel):
                self.mailbox.set_paused(channel, paused=False)
            case AssignSplits():
                self.mailbox.put_splits(message)
            case StopSources():
                self.mailbox.put_stop(message)
            case ReservationStored(number):
                self.mailbox.set_stored_reservation(number)
            case Finish():
                self.mailbox.set_flag(finished=True)
            case _:
                pass

    def _begin(self) -> None:
        """Every subtask is open."""
        self.mailbox.set_flag(started=True)

    def _triggered(self, trigger: TriggerCheckpoint) -> None:
        self.mailbox.put_trigger(trigger)

    def _out_of_time(self, cut: CutNow) -> None:
        self.mailbox.cut_now(cut.checkpoint)

    @abstractmethod
    def _abort(self, checkpoint: CheckpointId) -> None: ...

    @abstractmethod
    def _complete(self, checkpoint: CheckpointId) -> None:
        """On the commit thread."""
