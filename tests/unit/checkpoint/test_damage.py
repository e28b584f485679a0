import itertools

from cutwater.checkpoint.damage import (
    Candidate,
    FallBack,
    NothingToRestore,
    RefuseRestore,
    RestoreLatest,
    choose_after_damage,
)
from cutwater.flow.ids import CheckpointId

INTACT = [Candidate(CheckpointId(id)) for id in (1, 2, 3)]
DAMAGED_LATEST = [*INTACT[:2], Candidate(CheckpointId(3), "x.arrow has checksum aa, written was bb")]


def decide(
    candidates: list[Candidate], committed: int | None, *, idempotent: bool = False, fallback: bool = False
) -> object:
    return choose_after_damage(
        candidates,
        None if committed is None else CheckpointId(committed),
        all_sinks_idempotent=idempotent,
        on_damaged="fallback" if fallback else "fail",
    )


def test_an_intact_latest_is_restored() -> None:
    assert decide(INTACT, 3) == RestoreLatest(INTACT[2])
    assert decide(INTACT, None) == RestoreLatest(INTACT[2])


def test_nothing_completed_and_nothing_committed_starts_from_the_beginning() -> None:
    assert decide([], None) == NothingToRestore()
    assert isinstance(decide([], 3), RefuseRestore)


def test_a_damaged_latest_that_nobody_committed_is_passed_over_with_a_warning() -> None:
    outcome = decide(DAMAGED_LATEST, 2)
    assert isinstance(outcome, FallBack)
    assert outcome.to.id == 2
    assert "checksum aa, written was bb" in outcome.warning
    assert "at least once" not in outcome.warning


def test_a_damaged_latest_that_was_committed_is_refused_with_a_report() -> None:
    outcome = decide(DAMAGED_LATEST, 3)
    assert isinstance(outcome, RefuseRestore)
    assert "checkpoint 3 may have been committed" in outcome.report
    assert "checksum aa, written was bb" in outcome.report
    assert "on_damaged='fallback'" in outcome.report


def test_idempotent_sinks_may_write_again() -> None:
    outcome = decide(DAMAGED_LATEST, 3, idempotent=True)
    assert isinstance(outcome, FallBack)
    assert "at least once" not in outcome.warning


def test_the_user_may_accept_duplicates_and_the_guarantee_is_lowered() -> None:
    outcome = decide(DAMAGED_LATEST, 3, fallback=True)
    assert isinstance(outcome, FallBack)
    assert "checkpoints 3 to 3 may be written twice" in outcome.warning
    assert "guarantees at least once instead of exactly once" in outcome.warning


def test_a_committed_checkpoint_that_is_missing_counts_as_damaged() -> None:
    outcome = decide(INTACT, 4)
    assert isinstance(outcome, RefuseRestore)
    assert "checkpoint 4: it is missing" in outcome.report


def test_all_damaged_is_refused_whatever_the_user_accepts() -> None:
    broken = [Candidate(each.id, "broken") for each in INTACT]
    assert isinstance(decide(broken, None, idempotent=True, fallback=True), RefuseRestore)


def test_no_combination_goes_back_past_a_commit_without_leave() -> None:
    """Exhaustive over three checkpoints, each intact, damaged or gone, and every commit."""
    states = itertools.product(("intact", "damaged", "gone"), repeat=3)
    for health, committed in itertools.product(states, (None, 1, 2, 3)):
        candidates = [
            Candidate(CheckpointId(id), None if state == "intact" else state)
            for id, state in enumerate(health, 1)
            if state != "gone"
        ]
        match decide(candidates, committed):
            case RestoreLatest(to) | FallBack(to):
                assert to.problem is None
                assert committed is None or to.id >= committed
                assert all(each.problem is not None for each in candidates if each.id > to.id)
            case NothingToRestore():
                assert not candidates
                assert committed is None
            case RefuseRestore():
                assert committed is not None or all(each.problem for each in candidates)


def test_checkpoints_that_are_all_gone_are_no_reason_to_start_from_the_beginning() -> None:
    refused = choose_after_damage([], None, completed_before=True, all_sinks_idempotent=True, on_damaged="fallback")
    assert isinstance(refused, RefuseRestore)
    assert "has completed checkpoints, and none is left" in refused.report
    kept = choose_after_damage(INTACT, None, completed_before=True, all_sinks_idempotent=False, on_damaged="fail")
    assert kept == RestoreLatest(INTACT[2])
