"""An unaligned cut of which a paused subtask has not heard: those that wait for it have paused it, and must not wait for ever."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cutwater.checkpoint.events import ManualTriggerRequested, RequestId
from cutwater.control.messages import PauseChannel, ToSubtask, TriggerCheckpoint
from cutwater.flow.ids import CheckpointId, SubtaskId
from cutwater.subtask.operator_subtask import STAND_STILL_SECONDS, OperatorSubtask
from cutwater.testing.simulation import Action
from tests.simulation.world import Setting, World, run_to_the_end

SOURCE, SENDER, WAITS = (SubtaskId(vertex, 0) for vertex in ("a", "by-k", "by-j"))
FIRST, SECOND = CheckpointId(1), CheckpointId(2)
SETTING = Setting("two keyed steps", 1, parallelism=1, unaligned=True, crashes=0, timeout="1h", interval="1h", lost=1.0)


class Jammed(World):
    """The call for the second checkpoint is the only one that is lost, and only on its way to the subtask in the middle."""

    def _is_lost(self, subtask: SubtaskId, message: ToSubtask) -> bool:
        is_it = subtask == SENDER and isinstance(message, TriggerCheckpoint) and message.checkpoint == SECOND
        return is_it and super()._is_lost(subtask, message)

    def operator(self, subtask: SubtaskId) -> OperatorSubtask:
        running = self.subtasks[subtask]
        assert isinstance(running, OperatorSubtask)
        return running

    def let(self, allowed: Callable[[Action], bool]) -> None:
        """All that can happen and is ``allowed`` happens until nothing is left of it: messages first, so that nobody goes on
        though paused, then cuts from the last subtask on, so that gates close soon."""
        order = ("to driver", "to subtask", str(WAITS), str(SENDER))
        while possible := [action for action in self.actions() if allowed(action)]:
            ranks = [next((n for n, name in enumerate(order) if name in (a.kind, a.actor)), 9) for a in possible]
            self.perform(possible[ranks.index(min(ranks))])

    def trigger(self, request: int) -> None:
        self.driver.handle(ManualTriggerRequested(RequestId(request)))

    def only_cuts(self, action: Action) -> bool:
        """The last subtask does nothing else, and nobody tells the source to pause: the pipes are full again behind a cut."""
        match action.kind, action.actor:
            case "loop", name if name == str(WAITS):
                return self.operator(WAITS).intake.due_cut is not None
            case "to subtask", name if name == str(SOURCE):
                return not isinstance(self._to_subtask[SOURCE][0], PauseChannel)
            case _:
                return True


@pytest.fixture(params=[60, 12], ids=["a barrier is behind the jam", "the end of input is behind the jam"])
def jammed(request: pytest.FixtureRequest) -> Jammed:
    """At rest: the last subtask has cut for the second checkpoint and stands still; it waits for the barrier of its sender,
    which it paused behind the first one, and which has a full inbox before whatever would tell it to cut."""
    world = Jammed(replace(SETTING, rows=request.param))
    world.let(world.only_cuts)
    world.trigger(1)
    world.let(world.only_cuts)
    assert [info.id for info in world.ended] == [FIRST]
    assert world.subtasks[SENDER].mailbox.paused, "the last inbox is not full, and nobody would have to wait"
    world.trigger(2)
    world.let(world.only_cuts)
    world.let(lambda action: True)
    assert world.pending == [SECOND]
    assert world.operator(WAITS)._awaits == SECOND
    assert world.operator(SENDER).intake.due_cut is None
    assert world.subtasks[SOURCE]._ended == (request.param == 12)
    return world


def _completed(world: World) -> list[Any]:
    return [(info.id, info.status.value) for info in world.ended]


def test_without_the_call_the_checkpoint_waits_no_longer_than_its_reader_stands_still(jammed: Jammed) -> None:
    before = jammed.time.monotonic()
    jammed.check_rest()
    while jammed.pending:
        assert jammed.advance_to_next_timer()
        jammed.run_until_idle()
    assert _completed(jammed)[:2] == [(FIRST, "completed"), (SECOND, "completed")]
    assert jammed.time.monotonic() - before <= STAND_STILL_SECONDS + 0.001
    run_to_the_end(jammed).judge()


def test_when_the_call_comes_again_nothing_else_is_waited_for(jammed: Jammed) -> None:
    before = jammed.time.monotonic()
    jammed.tell(SENDER, TriggerCheckpoint(SECOND, jammed.time.wall(), unaligned=True))
    jammed.run_until_idle()
    assert _completed(jammed)[:2] == [(FIRST, "completed"), (SECOND, "completed")]
    assert jammed.time.monotonic() == before, "a paused subtask cuts at once"
    run_to_the_end(jammed).judge()


def test_nobody_is_said_to_go_on_soon_where_no_call_was_lost(jammed: Jammed) -> None:
    """The simulation excuses a rest for this reason only."""
    jammed.missed.clear()
    with pytest.raises(AssertionError, match="wait for what cannot happen"):
        jammed.check_rest()
