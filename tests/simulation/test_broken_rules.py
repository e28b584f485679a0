"""Each rule, broken on purpose, is caught by the very property that the real code passes.

A variant that no schedule catches would mean that nothing guards its rule. The schedules are fixed, so nothing here depends
on luck; the one that catches a variant is run again without it and must pass. Rule 18 is about the barrier machines alone:
its variants are in tests/unit/barrier, rules 11 and 12's bounds in test_flow_control.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from cutwater.barrier.alignment import WaitingForFirstBarrier
from cutwater.checkpoint.notification import Announce, CompletionNotices
from cutwater.checkpoint.pending import PendingCheckpoint
from cutwater.flow.envelope import Row, RowKind
from cutwater.operators.combine import Combine
from cutwater.operators.transactions import Transactions
from cutwater.subtask import source_subtask
from cutwater.subtask.cut_mark import CutMark
from cutwater.subtask.intake import Intake
from cutwater.subtask.mailbox import Mailbox
from cutwater.subtask.operator_subtask import OperatorSubtask
from cutwater.subtask.source_input import SourceBatch, SourceInput
from cutwater.subtask.source_subtask import SourceSubtask
from cutwater.testing.actors import RelayActor
from tests.simulation.variants import Patch, Variant, check_that_it_is_caught
from tests.simulation.world import run_and_judge

MOST_SEEDS = 300


def _r9_a_trigger_is_obeyed_again(patch: Patch) -> None:
    def put_trigger(self: Mailbox, trigger: Any) -> None:
        self._triggers.append(trigger)

    patch.setattr(Mailbox, "put_trigger", put_trigger)


def _r9_an_abort_releases_nothing(patch: Patch) -> None:
    patch.setattr(Intake, "abort", lambda self, checkpoint: None)


def _r12_held_rows_count_against_the_inbox(patch: Patch) -> None:
    real = Intake.offer

    def offer(self: Intake, row: Row) -> bool:
        if row.kind is RowKind.DATA and self.inbox_bytes + self.held_bytes >= self._limits.inbox_bytes:
            return False
        return real(self, row)

    patch.setattr(Intake, "offer", offer)


def _r12_resume_is_forgotten(patch: Patch) -> None:
    real = Intake.__init__

    def init(self: Intake, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)
        self._stopped._resume = lambda channel: None

    patch.setattr(Intake, "__init__", init)


def _r13_the_end_of_a_held_channel_is_not_held(patch: Patch) -> None:
    real = Intake.offer

    def offer(self: Intake, row: Row) -> bool:
        if row.kind is not RowKind.END:
            return real(self, row)
        self._check_sequence(row)
        self._take_in(row)
        return True

    patch.setattr(Intake, "offer", offer)


def _r13_barriers_of_a_held_channel_are_not_held(patch: Patch) -> None:
    real = Intake.offer

    def offer(self: Intake, row: Row) -> bool:
        if row.kind is not RowKind.BARRIER:
            return real(self, row)
        self._check_sequence(row)
        self._take_in(row)
        return True

    patch.setattr(Intake, "offer", offer)


def _r15_a_slice_spans_the_cut(patch: Patch) -> None:
    real = Intake.take

    def take(self: Intake) -> Any:
        inbox = self._inbox._items
        if len(inbox) > 1 and isinstance(inbox[0], CutMark) and isinstance(inbox[1], Row):
            inbox[0], inbox[1] = inbox[1], inbox[0]
        return real(self)

    patch.setattr(Intake, "take", take)


class _Prefetching(SourceInput):
    """Reads one batch ahead, and takes the reader's position for its own."""

    _ahead: SourceBatch | None = None

    @property
    def exhausted(self) -> bool:
        return self._ahead is None and super().exhausted

    def next(self, max_rows: int, timeout: timedelta) -> SourceBatch | None:
        ready = self._ahead if self._ahead is not None else super().next(max_rows, timeout)
        self._ahead = super().next(max_rows, timeout)
        return ready


def _r16_a_position_is_behind_what_was_prefetched(patch: Patch) -> None:
    patch.setattr(source_subtask, "SourceInput", _Prefetching)


def _r20_an_ended_subtask_acknowledges_nothing(patch: Patch) -> None:
    patch.setattr(OperatorSubtask, "_on_trigger", lambda self, trigger: iter(()))


def _r20_an_ended_channel_still_counts(patch: Patch) -> None:
    patch.setattr(WaitingForFirstBarrier, "channel_ended", lambda self, channel: (self, ()))


def _r20_the_end_counts_when_it_is_received(patch: Patch) -> None:
    real = Intake._take_in

    def take_in(self: Intake, row: Row) -> None:
        real(self, row)
        if row.kind is RowKind.END:
            self._inbox._items.remove(row)
            self._inbox._items.appendleft(row)

    patch.setattr(Intake, "_take_in", take_in)


def _r20_a_finished_subtask_keeps_its_end_to_itself(patch: Patch) -> None:
    real = SourceSubtask._end

    def end(self: SourceSubtask, *, drain: bool) -> Any:
        rows = list(real(self, drain=drain))
        return iter(() if self._state.finished else rows)

    patch.setattr(SourceSubtask, "_end", end)


def _r22_a_relay_mixes_up_the_order(patch: Patch) -> None:
    real = RelayActor.step

    def step(self: RelayActor) -> None:
        for rows in self._exchange.inlet(self._level, self._partition).queues.values():
            rows.rotate(1)
        real(self)

    patch.setattr(RelayActor, "step", step)


def _r22_a_relay_keeps_barriers_to_itself(patch: Patch) -> None:
    real = RelayActor.step

    def step(self: RelayActor) -> None:
        real(self)
        if self._outgoing is not None and self._outgoing.kind is RowKind.BARRIER:
            self._outgoing = None

    patch.setattr(RelayActor, "step", step)


def _r24_a_combiner_forgets_what_it_holds_at_a_barrier(patch: Patch) -> None:
    patch.setattr(Combine, "before_barrier", lambda self, out: None)
    patch.setattr(Combine, "snapshot", lambda self, checkpoint: None)


def _r26_only_sinks_are_waited_for(patch: Patch) -> None:
    patch.setattr(
        PendingCheckpoint,
        "missing",
        property(lambda self: tuple(subtask for subtask in sorted(self._missing) if subtask.vertex == "by-j")),
    )


def _r41_only_the_notified_checkpoint_is_committed(patch: Patch) -> None:
    real = Transactions.commit

    def commit(self: Transactions, checkpoint: Any) -> None:
        pending = self._pending
        self._pending = [entry for entry in pending if entry.checkpoint == checkpoint]
        committed = list(self._pending)
        real(self, checkpoint)
        self._pending = [entry for entry in pending if entry not in committed]

    patch.setattr(Transactions, "commit", commit)


def _r41_a_snapshot_lists_only_its_own_transaction(patch: Patch) -> None:
    real = Transactions.prepare

    def prepare(self: Transactions, checkpoint: Any) -> Any:
        listed = real(self, checkpoint)["committables"]
        return {"committables": [entry for entry in listed if entry["checkpoint"] == checkpoint]}

    patch.setattr(Transactions, "prepare", prepare)


def _r42_the_next_notice_does_not_wait_for_the_commits(patch: Patch) -> None:
    def completed(self: CompletionNotices, checkpoint: Any) -> Any:
        self._newest = self._announced = checkpoint
        self._uncommitted = set(self._committing)
        return [Announce(checkpoint)]

    patch.setattr(CompletionNotices, "completed", completed)


LONG = {"rows": 16, "timeout": "10s", "hesitant": True}
VARIANTS: Sequence[Variant] = (
    Variant("r9", _r9_a_trigger_is_obeyed_again, "pipeline", LONG),
    Variant("r9", _r9_an_abort_releases_nothing, "two sources", {}),
    Variant("r12", _r12_held_rows_count_against_the_inbox, "two sources", {"timeout": "10s", "crashes": 0}),
    Variant("r12", _r12_resume_is_forgotten, "two sources", {"timeout": "10s", "crashes": 0, "rows": 10}),
    Variant("r13", _r13_the_end_of_a_held_channel_is_not_held, "two sources", {"timeout": "10s"}),
    Variant("r13", _r13_barriers_of_a_held_channel_are_not_held, "two sources", {"max_concurrent": 2, **LONG}),
    Variant("r15", _r15_a_slice_spans_the_cut, "keyed", LONG),
    Variant("r16", _r16_a_position_is_behind_what_was_prefetched, "keyed", LONG),
    Variant("r20", _r20_an_ended_subtask_acknowledges_nothing, "keyed", {}),
    Variant("r20", _r20_an_ended_channel_still_counts, "two sources", {"hesitant": True}),
    Variant("r20", _r20_the_end_counts_when_it_is_received, "keyed", {"parallelism": 1}),
    Variant("r20", _r20_a_finished_subtask_keeps_its_end_to_itself, "keyed", {"crashes": 9}),
    Variant("r22", _r22_a_relay_mixes_up_the_order, "relay", {}),
    Variant("r22", _r22_a_relay_keeps_barriers_to_itself, "relay", {}),
    Variant("r24", _r24_a_combiner_forgets_what_it_holds_at_a_barrier, "aggregate", LONG),
    Variant("r26", _r26_only_sinks_are_waited_for, "two keyed steps", {"timeout": "10s", "crashes": 4}),
    Variant("r41", _r41_only_the_notified_checkpoint_is_committed, "two phase", {}),
    Variant(
        "r41", _r41_a_snapshot_lists_only_its_own_transaction, "two phase", {"crashes": 9, "declines": 0.3, **LONG}
    ),
    Variant(
        "r42",
        _r42_the_next_notice_does_not_wait_for_the_commits,
        "two phase",
        {"crashes": 0, "triggers": 0.3, "max_concurrent": 2, **LONG},
    ),
)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_broken_rule_is_caught(variant: Variant, monkeypatch: Patch) -> None:
    check_that_it_is_caught(variant, monkeypatch, run_and_judge, MOST_SEEDS)
