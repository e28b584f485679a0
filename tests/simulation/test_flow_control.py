"""Bytes stay bounded (rules 11 and 12), whatever is slow; without the rules they do not.

Here control messages travel at once: how much may arrive between PAUSE asked for and PAUSE heard is a matter of the network,
not of the protocol.
"""

import errno
from collections.abc import Sequence

import pytest

from cutwater.control.messages import (
    AbortCheckpoint,
    AssignSplits,
    PauseChannel,
    ResumeChannel,
    TriggerCheckpoint,
)
from cutwater.flow.ids import CheckpointId
from cutwater.subtask.intake import Intake
from cutwater.subtask.limits import FlowLimits
from cutwater.subtask.mailbox import Mailbox
from cutwater.subtask.operator_subtask import OperatorSubtask
from cutwater.subtask.source_subtask import SourceSubtask
from cutwater.subtask.spill import _Segment
from cutwater.testing.simulation import Action
from tests.simulation.world import Setting, World, run_to_the_end
from tests.unit.subtask.test_spill import in_memory

ROW_BYTES = 500
"""More than a row of the exchange has here: two records each."""
LIMITS = FlowLimits(
    inbox_bytes=600, hold_bytes=600, hold_memory_bytes=300, payload_bytes=64, linger_seconds=0.0, max_slice_rows=2
)


class Watched(World):
    """One source is starved, and so are the loops of operators; the most bytes that any subtask ever had are noted."""

    most_inbox = 0
    most_held = 0
    paused = 0
    spilled = False

    def pick(self, actions: Sequence[Action]) -> Action:
        control = [action for action in actions if action.kind in ("to driver", "to subtask")]
        if control:
            return control[0]
        slow = {"b[0]", "b[1]", "count[0]", "count[1]"}
        weights = [0.02 if action.kind == "loop" and action.actor in slow else 1.0 for action in actions]
        return self.random.choices(actions, weights)[0]

    def step(self) -> bool:
        moved = super().step()
        for running in self.subtasks.values():
            self.paused += bool(running.mailbox.paused)
            if isinstance(running, OperatorSubtask):
                self.most_inbox = max(self.most_inbox, running.intake.inbox_bytes)
                for queue in running.intake._held.values():
                    self.most_held = max(self.most_held, queue.bytes)
                    self.spilled = self.spilled or not all(map(in_memory, queue._rows))
        return moved

    @property
    def in_flight(self) -> int:
        """On one channel: the buffer, the row in the reader's hand, and what the sender has in its hands."""
        return (self.setting.buffer_rows + 4) * ROW_BYTES

    def check_unaligned_bounds(self) -> None:
        """Twice the pipes: those that a gate let in, and those that filled until the senders heard that they must wait."""
        most = LIMITS.inbox_bytes + ROW_BYTES + 2 * 2 * self.setting.parallelism * self.in_flight
        assert self.most_inbox <= most, f"an inbox had {self.most_inbox} bytes, more than {most}"

    def check_bounds(self) -> None:
        channels = 2 * self.setting.parallelism
        held = LIMITS.hold_bytes + self.in_flight
        assert self.most_held <= held, f"a channel held {self.most_held} bytes, more than {held}"
        inbox = LIMITS.inbox_bytes + ROW_BYTES + channels * held
        assert self.most_inbox <= inbox, f"an inbox had {self.most_inbox} bytes, more than {inbox}"


def watched(seed: int, *, rows: int = 200, triggers: float = 0.01, unaligned: bool = False) -> Watched:
    setting = Setting(
        "two sources", seed, rows=rows, crashes=0, buffer_rows=1 + seed % 3, limits=LIMITS, interval="1h", timeout="1h",
        triggers=triggers, repeats=False, unaligned=unaligned,
    )  # fmt: skip
    world = Watched(setting)
    run_to_the_end(world)
    world.judge()
    return world


@pytest.mark.parametrize("seed", range(3))
def test_bytes_stay_bounded_when_one_source_and_every_operator_is_slow(seed: int) -> None:
    world = watched(seed)
    world.check_bounds()
    assert world.paused, "PAUSE was never needed: nothing was tested"
    assert world.spilled, "nothing was ever held on disk: nothing was tested"


def test_a_full_disk_costs_checkpoints_and_neither_rows_nor_their_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: object, payload: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(_Segment, "append", full)
    world = watched(0)
    world.check_bounds()
    assert world.most_held < LIMITS.hold_memory_bytes + ROW_BYTES
    reasons = [info.failure_reason for info in world.ended if info.failure_reason]
    assert reasons, "nothing was ever to be held on disk: nothing was tested"
    assert all("No space left on device" in reason for reason in reasons), reasons


def test_without_checkpoints_an_inbox_never_has_more_than_its_limit_and_one_row() -> None:
    world = watched(0, rows=60, triggers=0.0)
    assert 0 < world.most_inbox < LIMITS.inbox_bytes + ROW_BYTES


def test_rule_11_broken_an_inbox_that_refuses_nothing_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Intake.__init__

    def boundless(self: Intake, *args: object, **kwargs: object) -> None:
        real(self, *args, **kwargs)  # type: ignore[arg-type]
        self._inbox._limits = FlowLimits(inbox_bytes=1 << 40, hold_bytes=600, hold_memory_bytes=300)

    monkeypatch.setattr(Intake, "__init__", boundless)
    with pytest.raises(AssertionError, match="an inbox had"):
        watched(0).check_bounds()


def test_rule_12_broken_a_sender_that_does_not_pause_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mailbox, "set_paused", lambda self, channel, *, paused: None)
    with pytest.raises(AssertionError, match="a channel held"):
        for seed in range(6):
            watched(seed).check_bounds()


@pytest.mark.parametrize("seed", range(3))
def test_an_inbox_stays_bounded_over_many_unaligned_checkpoints(seed: int) -> None:
    """Rule 15: each moves the pipes into the inbox, which empties more slowly than checkpoints follow one another."""
    world = watched(seed, triggers=0.2, unaligned=True)
    world.check_unaligned_bounds()
    assert len(world.ended) > 20
    assert world.paused, "PAUSE was never needed: nothing was tested"


def test_rule_15_broken_senders_that_fill_the_pipes_again_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Intake, "_stem", lambda self, channels: None)
    with pytest.raises(AssertionError, match="an inbox had"):
        watched(0, triggers=0.2, unaligned=True).check_unaligned_bounds()


def test_a_source_does_not_stand_still_for_a_checkpoint_that_was_given_up_meanwhile(source: SourceSubtask) -> None:
    source.on_message(TriggerCheckpoint(CheckpointId(90), 0.0, unaligned=False, savepoint=False, stop=True))
    taken = source.mailbox.take_trigger()
    assert taken is not None
    source.on_message(AbortCheckpoint(CheckpointId(90), "timeout"))
    for _ in source._on_trigger(taken):
        pass
    assert source._stopped_behind is None, "nobody would tell it to go on"


def test_a_paused_source_rests_though_it_was_given_new_splits(source: SourceSubtask) -> None:
    channel = next(iter(source._outputs.channels))
    source.on_message(PauseChannel(channel))
    source.on_message(AssignSplits("x", ({"split": {"f": 1}, "position": None},)))
    assert not source.has_work(), "a loop that must not read would turn for nothing"
    source.on_message(ResumeChannel(channel))
    assert source.has_work()
