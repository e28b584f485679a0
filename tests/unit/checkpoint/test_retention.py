from hypothesis import given
from hypothesis import strategies as st

from cutwater.checkpoint.retention import choose_deleted_on_cancel, choose_leftovers, choose_subsumed
from cutwater.checkpoint.statistics import CheckpointKind
from cutwater.flow.ids import CheckpointId
from tests.unit.checkpoint.checkpoints import completed

SAVEPOINT = CheckpointKind.SAVEPOINT


def test_the_oldest_go_first_and_as_many_stay_as_asked() -> None:
    assert choose_subsumed([completed(id) for id in (4, 1, 3, 2)], retain=2) == (1, 2)
    assert choose_subsumed([completed(1)], retain=2) == ()


def test_the_latest_stays_even_if_none_is_asked_for() -> None:
    assert choose_subsumed([completed(1), completed(2)], retain=0) == (1,)


def test_savepoints_are_never_deleted_and_take_no_place() -> None:
    there = [completed(1, kind=SAVEPOINT), completed(2), completed(3, kind=SAVEPOINT), completed(4)]
    assert choose_subsumed(there, retain=1) == (2,)
    assert choose_deleted_on_cancel(there) == (2, 4)


def test_what_may_or_may_not_be_stored_is_never_deleted() -> None:
    there = [completed(id) for id in (1, 2, 3)]
    assert choose_subsumed(there, retain=1, unknown={CheckpointId(1)}) == (2,)


@given(st.sets(st.integers(1, 40)), st.integers(1, 5))
def test_retention_keeps_exactly_the_newest(ids: set[int], retain: int) -> None:
    deleted = choose_subsumed([completed(id) for id in ids], retain)
    kept = sorted(ids - set(deleted))
    assert kept == sorted(ids)[-retain:]
    assert list(deleted) == sorted(deleted)


def test_files_without_metadata_go_only_if_no_living_attempt_writes_them() -> None:
    on_disk = [CheckpointId(id) for id in (1, 2, 3, 4)]
    assert choose_leftovers(on_disk, [CheckpointId(1)], CheckpointId(3)) == (2, 3)
