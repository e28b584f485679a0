"""The intake around an unaligned cut: what is recorded, what waits, who is paused (rules 9, 14, 15, 17, 19)."""

from pathlib import Path

import pyarrow as pa
import pytest

from cutwater.errors import ControlError
from cutwater.flow.envelope import REPLAYED, Row, RowKind, barrier_row
from cutwater.flow.ids import ChannelId, CheckpointId
from cutwater.subtask.cut_mark import CutMark
from cutwater.subtask.limits import FlowLimits
from tests.unit.subtask.test_intake import A, B, Bench
from tests.unit.subtask.test_spill import in_memory, open_files

ONE, TWO = CheckpointId(1), CheckpointId(2)


class Cutting(Bench):
    def overtaking(self, channel: ChannelId, checkpoint: CheckpointId) -> None:
        """An unaligned barrier."""
        number = self._number(channel)
        assert self.intake.offer(barrier_row(0, channel, number, checkpoint, 5.0, unaligned=True))

    def cut(self, *rest: Row) -> None:
        """As the loop does when it looks."""
        mark = self.intake.take()
        assert isinstance(mark, CutMark)
        assert mark.unaligned
        self.intake.record(mark, rest)

    def stored(self) -> list[str]:
        [recording] = self.recorded
        return [row.read().to_pybytes().decode() for row in recording.rows]


def replayed(*parts: bytes) -> list[Row]:
    return [Row(-1, A, RowKind.DATA, REPLAYED, 0, pa.py_buffer(part)) for part in parts]


def roomy() -> Cutting:
    return Cutting(limits=FlowLimits(inbox_bytes=1000))


def test_the_channel_state_is_what_was_there_and_what_comes_before_the_barriers() -> None:
    bench = roomy()
    bench.data(A, "a0")
    bench.data(B, "b0")
    bench.intake.request_cut(ONE, 5.0)
    bench.overtaking(A, ONE)
    bench.data(A, "a1 is behind")
    bench.cut()
    bench.data(B, "b1")
    bench.data(A, "a2 is behind")
    assert bench.recorded == []
    bench.overtaking(B, ONE)
    assert bench.stored() == ["a0", "b0", "b1"]
    assert bench.taken() == ["a0", "b0", "a1 is behind", "b1", "a2 is behind"], "and all of it is processed"


def test_the_rest_of_what_the_loop_had_taken_is_recorded_first() -> None:
    bench = roomy()
    bench.data(A, "a1")
    bench.overtaking(A, ONE)
    bench.overtaking(B, ONE)
    bench.cut(Row(0, A, RowKind.DATA, 0, 0, pa.py_buffer(b"rest of a0")))
    assert bench.stored() == ["rest of a0", "a1"]


def test_rows_behind_an_older_barrier_are_in_flight_for_the_next_checkpoint() -> None:
    bench = roomy()
    for checkpoint in (ONE, TWO):
        for channel in (A, B):
            bench.overtaking(channel, checkpoint)
        bench.cut()
        if checkpoint == ONE:
            bench.data(A, "behind the first")
    assert [[bytes(row.read()) for row in each.rows] for each in bench.recorded] == [[], [b"behind the first"]]


def test_rows_that_are_replayed_stand_first_and_are_stored_again() -> None:
    bench = roomy()
    bench.intake.replay(replayed(b"overtaken"))
    bench.data(A, "a0")
    bench.intake.request_cut(ONE, 5.0)
    bench.cut()
    for channel in (A, B):
        bench.overtaking(channel, ONE)
    assert bench.stored() == ["overtaken", "a0"]
    assert bench.taken() == ["overtaken", "a0"]


def test_a_full_inbox_lets_in_whatever_stands_before_the_barriers_and_then_nothing() -> None:
    bench = Cutting()
    assert bench.data(A, "x" * 20)
    assert not bench.data(A, "refused")
    bench.intake.request_cut(ONE, 5.0)
    assert bench.data(A, "let in, before the loop has looked")
    bench.cut()
    assert bench.data(A, "let in")
    for channel in (A, B):
        bench.overtaking(channel, ONE)
    assert not bench.data(A, "refused")


def test_a_sender_that_has_cut_is_paused_until_the_inbox_is_under_its_limit() -> None:
    bench = Cutting()
    bench.data(B, "x" * 20)
    bench.intake.request_cut(ONE, 5.0)
    bench.cut()
    bench.overtaking(A, ONE)
    assert bench.told == []
    assert bench.data(A, "too early")
    assert bench.told == [("pause", A)], "B has not cut: it is waited for"
    bench.overtaking(B, ONE)
    assert bench.told == [("pause", A), ("pause", B)]
    bench.intake.take()
    assert sorted(bench.told[2:]) == [("resume", A), ("resume", B)]


def test_a_cut_that_the_loop_must_take_is_not_passed_by_rows_taken_along() -> None:
    bench = roomy()
    bench.data(A, "a0")
    bench.intake.request_cut(ONE, 5.0)
    assert bench.intake.take_along(frozenset({A}), 1000) == []


def test_past_the_timeout_held_rows_are_let_go_and_are_not_in_flight() -> None:
    bench = roomy()
    bench.data(B, "b0")
    bench.barrier(A, ONE)
    bench.data(A, "held")
    bench.intake.request_cut(ONE, 5.0)
    bench.cut()
    bench.data(B, "b1")
    bench.overtaking(B, ONE)
    assert bench.stored() == ["b0", "b1"]
    assert bench.taken() == ["b0", "held", "b1"]


def test_past_the_timeout_a_cut_mark_is_overtaken() -> None:
    bench = roomy()
    bench.data(A, "a0")
    for channel in (A, B):
        bench.barrier(channel, ONE)
    bench.data(A, "a1")
    bench.intake.request_cut(ONE, 5.0)
    bench.cut()
    assert bench.stored() == ["a0"]
    assert bench.taken() == ["a0", "a1"], "and is gone"


def test_past_the_timeout_a_cut_that_the_loop_has_begun_is_taken_once() -> None:
    """The driver's call comes while the loop freezes its state where all barriers were: nothing is left to overtake."""
    bench = roomy()
    for channel in (A, B):
        bench.barrier(channel, ONE)
    mark = bench.intake.take()
    assert isinstance(mark, CutMark)
    assert not mark.unaligned
    bench.intake.request_cut(ONE, 5.0)
    bench.intake.cut_taken(ONE)
    assert bench.intake.take() is None
    assert bench.recorded == []
    bench.intake.request_cut(TWO, 6.0)
    bench.cut()
    assert bench.intake.recording == TWO


def test_past_the_timeout_a_cut_that_the_driver_asked_for_and_the_loop_has_begun_is_taken_once() -> None:
    """All input is over: no barrier comes, and the driver triggers the cut itself."""
    bench = roomy()
    for channel in (A, B):
        bench.end(channel)
    assert bench.taken() == ["END A", "END B"]
    assert bench.intake.begin_cut(ONE)
    bench.intake.request_cut(ONE, 5.0)
    bench.intake.cut_taken(ONE)
    assert bench.intake.due_cut is None
    assert bench.recorded == []
    bench.intake.request_cut(TWO, 6.0)
    assert not bench.intake.begin_cut(TWO), "it is due"
    bench.cut()
    assert bench.stored() == []


def test_an_abort_while_the_loop_freezes_its_state_drops_the_checkpoint() -> None:
    bench = roomy()
    bench.intake.request_cut(ONE, 5.0)
    mark = bench.intake.take()
    assert isinstance(mark, CutMark)
    bench.intake.abort(ONE)
    bench.intake.record(mark, ())
    assert bench.told == [("dropped", ONE)]
    assert bench.intake.recording is None
    bench.intake.request_cut(ONE, 5.0)
    assert bench.intake.take() is None, "a late trigger is a no-op"


def test_more_rows_than_the_budget_give_the_checkpoint_up_and_close_the_gate() -> None:
    bench = Cutting(limits=FlowLimits(inbox_bytes=20, in_flight_bytes=30))
    bench.data(A, "x" * 20)
    bench.intake.request_cut(ONE, 5.0)
    bench.cut()
    bench.data(A, "x" * 20)
    assert bench.told[:2] == [("dropped", ONE), ("abandon", ONE)]
    assert not bench.data(A, "refused")
    assert bench.told[2:] == [("pause", A), ("pause", B)], (
        "what the gate let in stays, whatever became of the checkpoint"
    )


def test_a_small_recording_is_the_rows_of_the_inbox_themselves() -> None:
    bench = roomy()
    bench.data(A, "a0")
    [waiting] = bench.intake._inbox.rows()
    assert isinstance(waiting, Row)
    payload = waiting.payload
    bench.intake.request_cut(ONE, 5.0)
    bench.cut()
    for channel in (A, B):
        bench.overtaking(channel, ONE)
    [recording] = bench.recorded
    assert recording.rows == [waiting]
    assert recording.rows[0] is waiting
    assert waiting.payload is payload, "neither copied nor written"


def test_beyond_the_memory_for_it_what_is_recorded_is_on_disk_for_the_loop_and_the_snapshot_alike() -> None:
    before = open_files()
    bench = Cutting(limits=FlowLimits(inbox_bytes=1000, in_flight_memory_bytes=5))
    bench.data(A, "a0 a0")
    bench.data(B, "b0")
    bench.intake.request_cut(ONE, 5.0)
    bench.cut()
    bench.data(B, "b1")
    for channel in (A, B):
        bench.overtaking(channel, ONE)
    [recording] = bench.recorded
    assert [in_memory(row) for row in recording.rows] == [True, False, False]
    assert bench.intake.inbox_bytes == 9
    assert bench.taken() == ["a0 a0", "b0", "b1"]
    assert bench.intake.inbox_bytes == 0
    assert bench.stored() == ["a0 a0", "b0", "b1"], "after the loop has had them"
    assert open_files() == before + 1
    del recording
    bench.recorded.clear()
    assert open_files() == before, "stored, and gone"


def test_a_recording_that_is_dropped_leaves_its_rows_to_the_loop_and_then_no_disk() -> None:
    before = open_files()
    bench = Cutting(limits=FlowLimits(inbox_bytes=1000, in_flight_memory_bytes=0))
    bench.data(A, "a0")
    bench.intake.request_cut(ONE, 5.0)
    bench.cut()
    bench.intake.abort(ONE)
    assert open_files() == before + 1, "the loop still needs the row"
    assert bench.taken() == ["a0"]
    assert open_files() == before


def test_discarding_frees_the_disk_of_recorded_and_of_held_rows() -> None:
    before = open_files()
    bench = Cutting(limits=FlowLimits(inbox_bytes=1000, hold_memory_bytes=0, in_flight_memory_bytes=0))
    bench.data(A, "a0")
    bench.intake.request_cut(ONE, 5.0)
    bench.cut()
    bench.intake.discard()
    assert open_files() == before
    bench = Cutting(limits=FlowLimits(inbox_bytes=1000, hold_memory_bytes=0))
    bench.barrier(A, ONE)
    bench.data(A, "held")
    assert open_files() == before + 1
    bench.intake.discard()
    assert open_files() == before


def test_a_disk_that_takes_no_recorded_rows_costs_the_checkpoint_and_not_the_job(tmp_path: Path) -> None:
    limits = FlowLimits(inbox_bytes=1000, in_flight_memory_bytes=2)
    bench = Cutting(limits=limits, folder=str(tmp_path / "gone"))
    bench.data(A, "a0")
    bench.intake.request_cut(ONE, 5.0)
    bench.cut()
    bench.data(B, "b0")
    assert bench.told == [("dropped", ONE), ("abandon", ONE)]
    assert "No such file" in bench.reasons[0]
    assert bench.taken() == ["a0", "b0"]


def test_rows_are_not_replayed_behind_what_has_arrived() -> None:
    bench = roomy()
    bench.data(A, "new")
    with pytest.raises(ControlError, match="would overtake"):
        bench.intake.replay([])


def test_replayed_rows_beyond_the_memory_for_them_are_on_disk() -> None:
    bench = Cutting(limits=FlowLimits(inbox_bytes=1000, in_flight_memory_bytes=4))
    bench.intake.replay(replayed(b"one", b"two"))
    assert [in_memory(row) for row in bench.intake._inbox.rows()] == [True, False]
    assert bench.taken() == ["one", "two"]


def test_replayed_rows_that_no_disk_takes_stay_in_memory() -> None:
    bench = Cutting(limits=FlowLimits(inbox_bytes=1000, in_flight_memory_bytes=4), folder="/dev/null/full")
    bench.intake.replay(replayed(b"one", b"two"))
    assert [in_memory(row) for row in bench.intake._inbox.rows()] == [True, True]
    assert bench.taken() == ["one", "two"]


def test_senders_wait_while_more_was_replayed_than_the_inbox_may_have() -> None:
    bench = Cutting(limits=FlowLimits(inbox_bytes=4, least_inbox_bytes=4))
    bench.intake.begin()
    assert bench.told == []
    bench.intake.replay(replayed(b"one", b"two"))
    bench.intake.begin()
    assert bench.told == [("pause", A), ("pause", B)]
    bench.intake.take()
    assert bench.told[2:] == [("resume", A), ("resume", B)]


def test_rows_that_were_replayed_do_not_count_among_those_that_a_checkpoint_may_have() -> None:
    bench = Cutting(limits=FlowLimits(inbox_bytes=1000, in_flight_bytes=4))
    bench.intake.replay(replayed(b"one", b"two", b"three"))
    bench.data(A, "new")
    bench.overtaking(A, ONE)
    bench.overtaking(B, ONE)
    bench.cut()
    assert bench.stored() == ["one", "two", "three", "new"]
    bench.data(A, "more")
    bench.overtaking(A, TWO)
    bench.overtaking(B, TWO)
    bench.cut()
    assert bench.told == [("dropped", TWO), ("abandon", TWO)]


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_what_is_processed_from_the_trigger_until_the_last_barrier_is_counted() -> None:
    bench = roomy()
    bench.data(A, "before the trigger")
    bench.intake.take()
    bench.data(A, "12345")
    bench.data(B, "678")
    bench.intake.request_cut(ONE, 5.0)
    bench.clock.advance(0.5)
    bench.cut()
    bench.intake.take()
    bench.clock.advance(1.0)
    for channel in (A, B):
        bench.overtaking(channel, ONE)
    bench.intake.take()
    [recording] = bench.recorded
    assert recording.alignment.processed_bytes == 5
    assert recording.alignment.seconds == 1.5
    assert sum(row.size for row in recording.rows) == 8


def test_what_is_processed_while_an_alignment_waits_is_counted() -> None:
    bench = roomy()
    bench.data(B, "b0")
    bench.barrier(A, ONE)
    bench.clock.advance(0.25)
    bench.intake.take()
    bench.data(B, "b1")
    bench.barrier(B, ONE)
    bench.intake.take()
    mark = bench.intake.take()
    assert isinstance(mark, CutMark)
    assert (mark.alignment.processed_bytes, mark.alignment.seconds) == (2, 0.25)


def test_senders_that_wait_for_a_flooded_inbox_go_on_when_it_may_have_more_again() -> None:
    """The room grows with the speed of the loop: whoever it makes room for must hear of it, or would wait for ever."""
    bench = Cutting(limits=FlowLimits(inbox_bytes=10_000, inbox_seconds=0.1, least_inbox_bytes=20))
    for _ in range(30):
        bench.data(A, "x" * 100)
        bench.taken()
        bench.clock.advance(1.0)
    bench.intake.request_cut(ONE, 1.0)
    bench.cut()
    for _ in range(1000):
        bench.data(B, "y" * 100)
    for channel in (A, B):
        bench.overtaking(channel, ONE)
    assert ("pause", B) in bench.told
    while bench.intake.take() is not None and ("resume", B) not in bench.told:
        bench.clock.advance(0.001)
    assert ("resume", B) in bench.told
    assert bench.intake.inbox_bytes > 20, "it went fast, so that the room grew while rows were left"
