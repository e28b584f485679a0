from dataclasses import replace

import pytest

from cutwater.checkpoint.attempts import Base
from cutwater.checkpoint.start import (
    CommitBegun,
    ContinueReserved,
    RefuseStart,
    Resume,
    RunEnd,
    StartFacts,
    StartFresh,
    choose_start,
)
from cutwater.flow.ids import CheckpointId
from tests.unit.checkpoint.checkpoints import completed

ONE, TWO, THREE = CheckpointId(1), CheckpointId(2), CheckpointId(3)
CRASHED = StartFacts(job="job", url="file:/c", incarnation="i-1", completed=(ONE, TWO))


def test_fresh_is_fresh_whatever_is_there() -> None:
    assert isinstance(choose_start("fresh", CRASHED), StartFresh)
    assert isinstance(choose_start("fresh", replace(CRASHED, commit=CommitBegun(THREE))), StartFresh)


def test_auto_takes_the_latest_even_if_its_metadata_is_damaged() -> None:
    assert choose_start("auto", replace(CRASHED, damaged=(THREE,))) == Resume(THREE)


def test_auto_prefers_an_own_checkpoint_to_the_path_the_job_once_restored() -> None:
    base = Base("/sp", ONE)
    assert choose_start("auto", replace(CRASHED, base=base)) == Resume(TWO)
    assert choose_start("auto", replace(CRASHED, base=base, completed=())) == Resume(ONE)


def test_latest_resumes_also_after_a_run_that_finished() -> None:
    assert choose_start("latest", replace(CRASHED, end=RunEnd.FINISHED)) == Resume(TWO)


def test_latest_without_a_checkpoint_says_where_it_looked_and_what_to_do() -> None:
    refused = choose_start("latest", replace(CRASHED, completed=()))
    assert isinstance(refused, RefuseStart)
    assert "'job'" in refused.reason
    assert "file:/c" in refused.reason
    assert "restore='auto'" in refused.reason


def test_a_savepoint_that_stopped_the_job_outranks_older_checkpoints_only() -> None:
    assert choose_start("auto", replace(CRASHED, commit=CommitBegun(THREE, "/sp"))) == Resume(THREE)
    assert choose_start("auto", replace(CRASHED, commit=CommitBegun(ONE, "/sp"))) == Resume(TWO)


@pytest.mark.parametrize(
    ("facts", "refused"),
    [
        ({}, True),
        ({"all_sinks_idempotent": True}, False),
        ({"on_damaged": "fallback"}, False),
    ],
)
def test_an_older_path_of_the_same_incarnation_is_guarded_by_the_commits(
    facts: dict[str, object], refused: bool
) -> None:
    wanted = completed(1, incarnation="i-1")
    known = replace(CRASHED, requested=wanted, commit=CommitBegun(TWO), **facts)  # type: ignore[arg-type]
    decision = choose_start("/c/job/chk-1", known)
    assert isinstance(decision, RefuseStart) == refused
    if isinstance(decision, Resume):
        assert decision.path == "/c/job/chk-1"
        assert not decision.new_incarnation
        assert (decision.warning is not None) == ("on_damaged" in facts)


def test_a_path_of_another_incarnation_is_free_and_makes_a_new_one() -> None:
    foreign = completed(1, incarnation="i-0")
    decision = choose_start("/x", replace(CRASHED, requested=foreign, commit=CommitBegun(TWO)))
    assert decision == Resume(ONE, "/x", new_incarnation=True)


def test_a_path_of_another_run_says_that_its_output_is_written_again() -> None:
    decision = choose_start("/x", replace(CRASHED, requested=completed(ONE, incarnation="i-0")))
    assert isinstance(decision, Resume)
    assert decision.warning is not None
    assert "written again" in decision.warning


def test_where_the_record_is_lost_the_commits_still_guard_an_older_path() -> None:
    lost = StartFacts(job="job", url="file:/c", lost_its_record=True, requested=completed(ONE, incarnation="i-1"))
    behind = replace(lost, commit=CommitBegun(THREE))
    assert isinstance(choose_start("/x", behind), RefuseStart)
    for allowed in (lost, replace(lost, commit=CommitBegun(ONE)), replace(behind, on_damaged="fallback")):
        assert choose_start("/x", allowed) == Resume(ONE, "/x", new_incarnation=True)


def test_going_back_remembers_what_stays_committed_so_that_nobody_goes_behind_it_later() -> None:
    wanted = completed(2, incarnation="i-1")
    beyond = choose_start(
        "/c/job/chk-2", replace(CRASHED, requested=wanted, commit=CommitBegun(THREE), on_damaged="fallback")
    )
    assert isinstance(beyond, Resume)
    assert beyond.committed == TWO
    before = choose_start("/c/job/chk-2", replace(CRASHED, requested=wanted, commit=CommitBegun(ONE)))
    assert isinstance(before, Resume)
    assert before.committed == ONE
    nothing = choose_start("/c/job/chk-2", replace(CRASHED, requested=wanted))
    assert isinstance(nothing, Resume)
    assert nothing.committed is None


@pytest.mark.parametrize("restore", ["auto", "latest"])
@pytest.mark.parametrize("at_most_once", [True, False])
def test_a_job_does_not_go_on_in_a_mode_that_would_read_its_rows_again(restore: str, *, at_most_once: bool) -> None:
    other = replace(CRASHED, ran_at_most_once=not at_most_once, at_most_once=at_most_once)
    refused = choose_start(restore, other)
    assert isinstance(refused, RefuseStart)
    assert "mode='at_most_once'" in refused.reason and "restore='fresh'" in refused.reason
    assert isinstance(choose_start("fresh", other), StartFresh)
    assert choose_start(restore, replace(other, ran_at_most_once=at_most_once)) == Resume(TWO)


def test_reservations_alone_are_no_start_for_a_job_with_state() -> None:
    reserved = replace(CRASHED, completed=(), has_reservations=True, ran_at_most_once=True)
    assert isinstance(choose_start("auto", reserved), RefuseStart)
    assert choose_start("auto", replace(reserved, at_most_once=True)) == ContinueReserved()


@pytest.mark.parametrize(
    "facts",
    [
        {"incarnation": None, "lost_its_record": True},
        {"commit": CommitBegun(TWO)},
        {"completed_any": True},
    ],
)
def test_latest_does_not_advise_to_start_over_where_that_is_refused(facts: dict[str, object]) -> None:
    gone = replace(CRASHED, completed=(), **facts)  # type: ignore[arg-type]
    automatic, latest = choose_start("auto", gone), choose_start("latest", gone)
    assert isinstance(automatic, RefuseStart) and isinstance(latest, RefuseStart)
    assert latest.reason == f"restore='latest': {automatic.reason}"
    assert "restore='auto'" not in latest.reason and "restore='fresh'" in latest.reason


@pytest.mark.parametrize("end", [RunEnd.FINISHED, RunEnd.DELETED])
def test_a_run_that_left_no_checkpoint_on_purpose_starts_over(end: RunEnd) -> None:
    assert isinstance(choose_start("auto", replace(CRASHED, completed=(), completed_any=True, end=end)), StartFresh)
