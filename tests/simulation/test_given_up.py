"""What a subtask still does for a checkpoint of which it was told that it is given up."""

from collections import defaultdict
from typing import Any

import pytest

from cutwater.control.messages import AbortCheckpoint, TriggerCheckpoint
from cutwater.flow.ids import CheckpointId
from cutwater.subtask.mailbox import Mailbox
from cutwater.subtask.source_subtask import SourceSubtask
from cutwater.testing.simulation import Action
from tests.simulation.world import Setting, World, run_to_the_end

HUNG = "by-j[0]"


class HungStorage(World):
    """It answers one subtask no more."""

    def actions(self) -> list[Action]:
        return [each for each in super().actions() if not (each.kind == "snapshot" and each.actor == HUNG)]


def test_while_the_storage_hangs_only_the_newest_checkpoint_keeps_the_rows_that_it_overtook() -> None:
    world = HungStorage(
        Setting("two keyed steps", 3, unaligned=True, rows=4000, crashes=0, timeout="30ms", interval="5ms")
    )
    snapshotting = next(each for name, each in world.subtasks.items() if str(name) == HUNG)._snapshotting
    lined_up = 0
    while len(world.ended) < 20:
        before = set(snapshotting._rows_in_line)
        if not world.step():
            world.advance_to_next_timer()
        world.time.advance(0.0005)
        lined_up += len(set(snapshotting._rows_in_line) - before)
        assert len(snapshotting._rows_in_line) <= 2, "one that was given up and is not heard of yet, and the next"
    assert lined_up > 5, "hardly a checkpoint came so far: nothing was tested"


@pytest.mark.parametrize("mode", [{}, {"unaligned": True, "aligned_timeout": "15ms"}, {"mode": "at_least_once"}])
def test_nothing_is_frozen_for_a_checkpoint_that_is_known_to_be_given_up(
    mode: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nobody waits for a barrier that never comes: the job goes on to its end."""
    told: dict[Mailbox, set[CheckpointId]] = defaultdict(set)
    passed_over = 0
    abort, is_aborted, cut = Mailbox.drop_trigger, Mailbox.is_aborted, Mailbox.cut

    def aborted(self: Mailbox, checkpoint: CheckpointId) -> None:
        told[self].add(checkpoint)
        abort(self, checkpoint)

    def counted(self: Mailbox, checkpoint: CheckpointId) -> bool:
        nonlocal passed_over
        passed_over += is_aborted(self, checkpoint)
        return is_aborted(self, checkpoint)

    def cut_for(self: Mailbox, checkpoint: CheckpointId) -> None:
        assert checkpoint not in told[self], "it was known to be given up"
        cut(self, checkpoint)

    monkeypatch.setattr(Mailbox, "drop_trigger", aborted)
    monkeypatch.setattr(Mailbox, "is_aborted", counted)
    monkeypatch.setattr(Mailbox, "cut", cut_for)
    for seed in range(6):
        world = World(Setting("two keyed steps", seed, rows=20, crashes=0, timeout="20ms", interval="5ms", **mode))
        run_to_the_end(world).judge()
    assert passed_over, "no cut came behind the end of its checkpoint: nothing was tested"


def test_a_source_does_not_cut_for_a_checkpoint_that_was_given_up_since_it_took_the_trigger(
    source: SourceSubtask,
) -> None:
    source.on_message(TriggerCheckpoint(CheckpointId(90), 0.0))
    taken = source.mailbox.take_trigger()
    assert taken is not None
    source.on_message(AbortCheckpoint(CheckpointId(90), "timeout"))
    assert not list(source._on_trigger(taken)), "a barrier went out"


def test_the_loop_hears_of_the_end_when_nothing_more_of_the_checkpoint_can_come(
    source: SourceSubtask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lets go of what is there then, once: what was recorded later would stay."""
    heard_too_early: list[Any] = []
    monkeypatch.setattr(source, "_abort", lambda checkpoint: heard_too_early.extend(source.mailbox.take_fates()))
    source.on_message(AbortCheckpoint(CheckpointId(90), "timeout"))
    assert not heard_too_early
    assert source.mailbox.take_fates() == [(CheckpointId(90), False)]
