"""The intake: arrival order is processing order, with back pressure, held queues and PAUSE (rules 9, 11 to 13, 18, 20)."""

import threading
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from cutwater.barrier.alignment import WaitingForFirstBarrier
from cutwater.barrier.tracking import BarrierTracking
from cutwater.barrier.unaligned import Aligning
from cutwater.errors import ControlError
from cutwater.flow.envelope import Row, RowKind, barrier_row, end_row
from cutwater.flow.ids import ChannelId, CheckpointId
from cutwater.subtask.cut_mark import Alignment, CutMark
from cutwater.subtask.intake import Intake, IntakeEvents
from cutwater.subtask.limits import FlowLimits
from cutwater.subtask.recording import Recording
from cutwater.testing.clock import ManualClock

A, B = ChannelId(0), ChannelId(1)
LIMITS = FlowLimits(inbox_bytes=20, hold_bytes=20, hold_memory_bytes=8)


@dataclass
class Bench:
    """An intake of two channels, what it told others, and the numbers of the rows that senders gave out."""

    aligned: bool = True
    limits: FlowLimits = LIMITS
    folder: str | None = None
    told: list[tuple[str, int]] = field(default_factory=list)
    recorded: list[Recording] = field(default_factory=list)
    clock: ManualClock = field(default_factory=ManualClock)
    seq: dict[ChannelId, int] = field(default_factory=lambda: {A: 0, B: 0})
    reasons: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        live = frozenset({A, B})
        self.intake = Intake(
            [A, B],
            Aligning(WaitingForFirstBarrier(live)) if self.aligned else BarrierTracking(live),
            self.limits,
            threading.Condition(),
            self.clock,
            IntakeEvents(
                pause=lambda channel: self.told.append(("pause", channel)),
                resume=lambda channel: self.told.append(("resume", channel)),
                abandon=self._abandon,
                recorded=self.recorded.append,
                dropped=lambda checkpoint: self.told.append(("dropped", checkpoint)),
            ),
            self.folder,
        )

    def _abandon(self, checkpoint: CheckpointId, reason: str) -> None:
        self.told.append(("abandon", checkpoint))
        self.reasons.append(reason)

    def _number(self, channel: ChannelId) -> int:
        self.seq[channel] += 1
        return self.seq[channel] - 1

    def data(self, channel: ChannelId, content: str) -> bool:
        number = self.seq[channel]
        payload = pa.py_buffer(content.encode())
        accepted = self.intake.offer(Row(0, channel, RowKind.DATA, number, 0, payload))
        self.seq[channel] += accepted
        return accepted

    def barrier(self, channel: ChannelId, checkpoint: int) -> None:
        assert self.intake.offer(barrier_row(0, channel, self._number(channel), CheckpointId(checkpoint), 5.0))

    def end(self, channel: ChannelId) -> None:
        assert self.intake.offer(end_row(0, channel, self._number(channel), drain=True))

    def taken(self) -> list[str]:
        """Everything in the inbox, in a short spelling."""
        told = []
        while (item := self.intake.take()) is not None:
            match item:
                case CutMark(checkpoint):
                    told.append(f"cut {checkpoint}")
                case Row(kind=RowKind.DATA):
                    told.append(item.read().to_pybytes().decode())
                case Row(kind=kind, channel=channel):
                    told.append(f"{kind.name} {'AB'[channel]}")
        return told


def test_rows_are_taken_in_the_order_of_their_arrival() -> None:
    bench = Bench()
    bench.data(A, "a0")
    bench.data(B, "b0")
    bench.data(A, "a1")
    assert bench.taken() == ["a0", "b0", "a1"]


def test_a_full_inbox_refuses_data_until_the_loop_has_made_room() -> None:
    bench = Bench()
    assert bench.data(A, "x" * 20)
    assert not bench.data(B, "more")
    assert bench.intake.inbox_bytes == 20
    assert bench.taken() == ["x" * 20]
    assert bench.data(B, "more")
    assert bench.taken() == ["more"]


def test_the_inbox_of_a_slow_subtask_is_full_early() -> None:
    """What would wait longer helps nobody, and barriers would stand behind it."""
    bench = Bench(limits=FlowLimits(inbox_bytes=1000, inbox_seconds=0.1, least_inbox_bytes=20))
    for _ in range(30):
        assert bench.data(A, "x" * 100)
        assert bench.taken() == ["x" * 100]
        bench.clock.advance(1.0)
    assert bench.intake._inbox.room == 20
    assert bench.data(A, "x" * 20)
    assert not bench.data(A, "more")
    assert bench.taken() == ["x" * 20]
    for _ in range(5000):
        assert bench.data(A, "x" * 100)
        bench.taken()
        bench.clock.advance(0.002)
    assert bench.intake._inbox.room == 1000, "it is fast again"


def test_barriers_and_ends_pass_a_full_inbox() -> None:
    bench = Bench()
    bench.data(A, "x" * 20)
    bench.barrier(A, 1)
    bench.barrier(B, 1)
    bench.end(B)
    assert bench.taken() == ["x" * 20, "cut 1", "END B"]


def test_held_rows_do_not_count_against_the_inbox_so_that_the_missing_barrier_can_arrive() -> None:
    bench = Bench()
    bench.barrier(A, 1)
    for _ in range(10):
        assert bench.data(A, "held held")
    assert bench.intake.inbox_bytes == 0
    assert bench.intake.held_bytes == 90
    assert bench.data(B, "b before")
    bench.barrier(B, 1)
    assert bench.taken() == ["b before", "cut 1", *["held held"] * 10]


def test_everything_of_a_held_channel_waits_and_end_counts_in_its_turn() -> None:
    bench = Bench()
    bench.barrier(A, 1)
    bench.data(A, "a1")
    bench.end(A)
    assert bench.taken() == []
    bench.data(B, "b1")
    bench.barrier(B, 1)
    assert bench.taken() == ["b1", "cut 1", "a1", "END A"]
    bench.barrier(B, 2)
    assert bench.taken() == ["cut 2"], "only B is left to wait for"


def test_a_released_channel_that_brings_the_next_barrier_is_held_again() -> None:
    bench = Bench()
    bench.barrier(A, 1)
    bench.data(A, "a1")
    bench.barrier(A, 2)
    bench.data(A, "a2")
    bench.barrier(B, 1)
    bench.data(B, "b1")
    assert bench.taken() == ["cut 1", "a1", "b1"]
    bench.barrier(B, 2)
    assert bench.taken() == ["cut 2", "a2"]


def test_two_cuts_may_follow_at_once_from_what_was_held() -> None:
    bench = Bench()
    bench.barrier(A, 1)
    bench.barrier(A, 2)
    bench.data(A, "a2")
    bench.barrier(B, 1)
    bench.barrier(B, 2)
    assert bench.taken() == ["cut 1", "cut 2", "a2"]


def test_an_abort_releases_at_once_and_late_barriers_of_it_are_nothing() -> None:
    bench = Bench()
    bench.barrier(A, 1)
    bench.data(A, "a1")
    bench.intake.abort(CheckpointId(1))
    assert bench.taken() == ["a1"]
    bench.barrier(B, 1)
    bench.data(B, "b1")
    assert bench.taken() == ["b1"]


def test_a_newer_barrier_abandons_the_older_alignment() -> None:
    bench = Bench()
    bench.barrier(A, 1)
    bench.data(A, "a1")
    bench.barrier(B, 2)
    assert bench.told == [("abandon", 1)]
    assert bench.taken() == ["a1"]
    bench.barrier(A, 2)
    assert bench.taken() == ["cut 2"]


def test_a_channel_that_holds_too_much_pauses_its_sender_once_and_resumes_it_when_released() -> None:
    bench = Bench()
    bench.barrier(A, 1)
    bench.data(A, "x" * 20)
    assert bench.told == []
    bench.data(A, "y")
    bench.data(A, "z")
    assert bench.told == [("pause", A)]
    bench.barrier(B, 1)
    assert bench.told == [("pause", A), ("resume", A)]


def test_a_channel_held_again_with_too_much_is_paused_again() -> None:
    bench = Bench()
    bench.barrier(A, 1)
    bench.barrier(A, 2)
    bench.data(A, "x" * 30)
    bench.barrier(B, 1)
    assert bench.told == [("pause", A), ("resume", A), ("pause", A)]
    assert bench.intake.held_bytes >= 30


def test_an_abort_resumes_a_paused_sender() -> None:
    bench = Bench()
    bench.barrier(A, 1)
    bench.data(A, "x" * 30)
    bench.intake.abort(CheckpointId(1))
    assert bench.told == [("pause", A), ("resume", A)]


def test_a_disk_that_takes_no_held_rows_costs_the_checkpoint_and_not_the_job(tmp_path: Path) -> None:
    bench = Bench(folder=str(tmp_path / "gone"))
    bench.barrier(A, 1)
    bench.data(A, "fits")
    assert bench.told == []
    bench.data(A, "x" * 9)
    assert bench.told == [("abandon", 1)]
    assert "No such file" in bench.reasons[0]
    bench.data(A, "y" * 20)
    assert not bench.data(A, "more"), "it is in the inbox, which is full"
    bench.barrier(B, 1)
    assert bench.taken() == ["fits", "x" * 9, "y" * 20]
    bench.barrier(B, 2)
    bench.barrier(A, 2)
    assert bench.taken() == ["cut 2"]


def test_a_disk_that_takes_no_held_rows_lets_a_paused_sender_go_on(tmp_path: Path) -> None:
    bench = Bench(limits=FlowLimits(inbox_bytes=20, hold_bytes=20, hold_memory_bytes=30), folder=str(tmp_path / "gone"))
    bench.barrier(A, 1)
    bench.data(A, "x" * 30)
    bench.data(A, "y")
    assert bench.told == [("pause", A), ("abandon", 1), ("resume", A)]


def test_rows_that_no_disk_takes_stay_in_order_though_the_next_barrier_is_among_them(tmp_path: Path) -> None:
    bench = Bench(folder=str(tmp_path / "gone"))
    bench.barrier(A, 1)
    bench.data(A, "a0")
    bench.barrier(A, 2)
    bench.data(A, "a1")
    bench.data(A, "x" * 9)
    assert bench.told == [("abandon", 1), ("abandon", 2)]
    bench.barrier(B, 1)
    bench.barrier(B, 2)
    assert bench.taken() == ["a0", "a1", "x" * 9]
    assert bench.intake.held_bytes == 0


def test_at_least_once_holds_nothing() -> None:
    bench = Bench(aligned=False)
    bench.barrier(A, 1)
    bench.data(A, "a1")
    bench.data(B, "b0")
    bench.barrier(B, 1)
    assert bench.taken() == ["a1", "b0", "cut 1"]


def test_a_cut_tells_when_its_first_barrier_came_and_how_long_the_alignment_took() -> None:
    bench = Bench()
    arrival = bench.clock.wall()
    bench.barrier(A, 1)
    bench.clock.advance(3.0)
    bench.barrier(B, 1)
    assert bench.intake.take() == CutMark(CheckpointId(1), 5.0, arrival, Alignment(seconds=3.0))


@pytest.mark.parametrize(("seq", "word"), [(1, "lost"), (-1, "repeated")])
def test_a_gap_or_a_repeat_on_the_exchange_fails_loudly(seq: int, word: str) -> None:
    bench = Bench()
    bench.data(A, "a0")
    with pytest.raises(ControlError, match=word):
        bench.intake.offer(Row(0, A, RowKind.DATA, 1 + seq, 0, pa.py_buffer(b"")))


def test_a_row_of_a_channel_that_does_not_lead_here_fails_loudly() -> None:
    with pytest.raises(ControlError, match="channel 7"):
        Bench().intake.offer(Row(0, ChannelId(7), RowKind.DATA, 0, 0, pa.py_buffer(b"")))


def test_a_refused_row_keeps_its_number() -> None:
    bench = Bench()
    bench.data(A, "x" * 20)
    assert not bench.data(A, "later")
    assert bench.taken() == ["x" * 20]
    assert bench.data(A, "later")


def along(bench: Bench, channels: set[ChannelId], most_bytes: int) -> list[str]:
    return [row.read().to_pybytes().decode() for row in bench.intake.take_along(frozenset(channels), most_bytes)]


def test_rows_taken_along_end_at_a_cut_at_an_end_and_at_another_channel() -> None:
    bench = Bench(limits=FlowLimits(inbox_bytes=1000))
    for content in ("a0", "a1"):
        bench.data(A, content)
    bench.data(B, "b0")
    bench.barrier(A, 1)
    bench.barrier(B, 1)
    bench.data(A, "a2")
    bench.end(A)
    bench.data(B, "b1")
    assert along(bench, {A}, 100) == ["a0", "a1"]
    assert along(bench, {A, B}, 100) == ["b0"]
    assert along(bench, {A, B}, 100) == [], "the cut mark stands at the front"
    assert isinstance(bench.intake.take(), CutMark)
    assert along(bench, {A, B}, 100) == ["a2"]
    assert bench.taken() == ["END A", "b1"]
    assert bench.intake.inbox_bytes == 0


def test_rows_taken_along_are_bounded() -> None:
    bench = Bench(limits=FlowLimits(inbox_bytes=1000))
    for number in range(5):
        bench.data(A, f"{number}" * 10)
    assert along(bench, {A}, 25) == ["0" * 10, "1" * 10, "2" * 10]
    assert bench.intake.inbox_bytes == 20
