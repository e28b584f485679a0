"""The coordinator under any order of events; and that the rules checked there do catch a coordinator that breaks one."""

import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutwater.checkpoint import commands as do
from cutwater.checkpoint.announcements import Announcements
from cutwater.checkpoint.coordinator import Coordinator, Life
from cutwater.checkpoint.fates import Fate
from cutwater.checkpoint.ledger import PendingLedger
from cutwater.checkpoint.pending import Phase
from cutwater.checkpoint.reserving import Reserving
from cutwater.checkpoint.roll_call import RollCall
from cutwater.config import Checkpointing
from tests.unit.checkpoint.coordinator_world import World, run_to_the_end

SETTINGS = {
    "one at a time": Checkpointing("10s", timeout="30s", tolerable_failures=1000, retain=1),
    "three at a time": Checkpointing("1s", timeout="30s", tolerable_failures=1000, max_concurrent=3, retain=1),
    "with a pause": Checkpointing("2s", timeout="30s", min_pause="5s", tolerable_failures=1000, retain=3),
    "unaligned": Checkpointing("2s", timeout="30s", tolerable_failures=1000, unaligned=True),
    "aligned for a while": Checkpointing(
        "2s", timeout="30s", tolerable_failures=2, unaligned=True, aligned_timeout="1s"
    ),
    "nothing tolerated": Checkpointing("2s", timeout="5s", tolerable_failures=0, max_concurrent=2),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_hundreds_of_long_schedules_keep_the_rules_and_the_job_finishes(name):
    for seed in range(80):
        assert not breaks_a_rule(Coordinator, name, seed), f"seed {seed}"


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(SETTINGS)), st.lists(st.integers(0, 2**16), max_size=150), st.booleans())
def test_every_order_of_events_keeps_the_rules_and_the_job_finishes_or_crashes_cleanly(name, choices, crash):
    run_to_the_end(World(SETTINGS[name]), choices, crash=crash)


class DeletesWhatMayBeStored(Coordinator):
    class Ledger(PendingLedger):
        def _fate_of(self, pending, cause):
            return Fate.DELETED


class DropsWhatIsBeingStored(Coordinator):
    class Ledger(PendingLedger):
        def _subsume_older_than(self, id, completed, now):
            for older in self.pending:
                older.phase = Phase.WAITING_FOR_ACKNOWLEDGEMENTS
            super()._subsume_older_than(id, completed, now)


class AnnouncesWhatIsBeingStored(Coordinator):
    class Ledger(PendingLedger):
        def _store(self, pending, now):
            super()._store(pending, now)
            self._do(do.NotifyCompleted(pending.id))


class AbandonsAcknowledgedCheckpoints(Coordinator):
    class Ledger(PendingLedger):
        def _subsume_older_than(self, id, completed, now):
            for older in [older for older in self.pending if older.id < completed.id]:
                del self._pending[older.id]
            super()._subsume_older_than(id, completed, now)


class AnnouncesWithoutWaitingForCommits(Coordinator):
    class Announcements(Announcements):
        def _announce(self, checkpoint):
            self._do(do.NotifyCompleted(checkpoint))


class AnnouncesSavepoints(Coordinator):
    def _completed(self, completed):
        if completed is not None and completed.pending.is_savepoint:
            self._announcements._announce(completed.pending.id)
        super()._completed(completed)


class StopsSourcesBeforeCommits(Coordinator):
    class Announcements(Announcements):
        def stopping_savepoint_completed(self, checkpoint, info):
            self._do(do.StopSources(drain=False))
            super().stopping_savepoint_completed(checkpoint, info)


class TriggersWhileSourcesStandStill(Coordinator):
    class Announcements(Announcements):
        holds_triggers = False


class FinishesWithoutAFinalCheckpoint(Coordinator):
    def _finish_if_nothing_is_left(self):
        if self._life is Life.PROCESSING and self._roll.all_input_ended:
            self._life = Life.FINISHED
            self._do(do.FinishSubtasks())


class FinishesBeforeCommits(Coordinator):
    def _finish_if_nothing_is_left(self):
        if self._life is Life.PROCESSING and self._announcements.final_completed:
            self._life = Life.FINISHED
            self._do(do.FinishSubtasks())


class LeavesEndedSubtasksOut(Coordinator):
    class Roll(RollCall):
        def to_trigger(self, *, unaligned):
            return self.subtasks if unaligned else self.sources


class SendsPendingIdsToNoEndedSubtask(Coordinator):
    class Ledger(PendingLedger):
        def input_ended(self, subtask):
            pass


class StartsAnyNumberAtOnce(Coordinator):
    def _decide(self, settings, now):
        return super()._decide(
            dataclasses.replace(settings, max_concurrent=99, unaligned=False, aligned_timeout=None), now
        )


class NeverRetriesTheFinalCheckpoint(Coordinator):
    class Reserving(Reserving):
        def pause_before_final_retry(self, settings, now):
            self.retry_final_at = float("inf")


BROKEN = [
    (DeletesWhatMayBeStored, "one at a time"),
    (DropsWhatIsBeingStored, "three at a time"),
    (AnnouncesWhatIsBeingStored, "one at a time"),
    (AbandonsAcknowledgedCheckpoints, "three at a time"),
    (AnnouncesWithoutWaitingForCommits, "one at a time"),
    (AnnouncesSavepoints, "one at a time"),
    (StopsSourcesBeforeCommits, "one at a time"),
    (TriggersWhileSourcesStandStill, "three at a time"),
    (FinishesWithoutAFinalCheckpoint, "one at a time"),
    (FinishesBeforeCommits, "one at a time"),
    (LeavesEndedSubtasksOut, "one at a time"),
    (SendsPendingIdsToNoEndedSubtask, "one at a time"),
    (StartsAnyNumberAtOnce, "unaligned"),
    (NeverRetriesTheFinalCheckpoint, "one at a time"),
]


@pytest.mark.parametrize(("broken", "name"), BROKEN, ids=lambda value: getattr(value, "__name__", value))
def test_a_coordinator_that_breaks_a_rule_is_caught(broken, name):
    assert any(breaks_a_rule(broken, name, seed) for seed in range(500)), f"{broken.__name__} passed every schedule"


def breaks_a_rule(broken, name, seed):
    chance = random.Random(seed)
    world = World(SETTINGS[name], broken)
    for part in ("Ledger", "Announcements", "Reserving", "Roll"):
        if hasattr(broken, part):
            getattr(world.coordinator, f"_{part.lower()}").__class__ = getattr(broken, part)
    try:
        run_to_the_end(world, [chance.randrange(2**16) for _ in range(120)])
    except AssertionError:
        return True
    return False
