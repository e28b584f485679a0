"""Files that several checkpoints reference: none goes while anybody needs it, and none stays for ever."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutwater.checkpoint.bases import AcknowledgedBases
from cutwater.checkpoint.checksum import checksum_of
from cutwater.checkpoint.damage import FallBack, RefuseRestore, RestoreLatest, RestoreOutcome
from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.checkpoint.publication import Published
from cutwater.checkpoint.retention import choose_leftover_files, choose_unneeded_files
from cutwater.checkpoint.snapshot import StoredOperator, SubtaskSnapshot
from cutwater.checkpoint.start import Resume, StartFresh
from cutwater.checkpoint.storage import CheckpointStorage
from cutwater.checkpoint.verification import open_checkpoint, verify
from cutwater.errors import DamagedCheckpoint, StorageError
from cutwater.flow.ids import Attempt, CheckpointId, SubtaskId
from cutwater.state.stored import Form, StoredFile, StoredTable
from tests.unit.checkpoint.checkpoints import completed

ONE, OTHER = SubtaskId("counts", 0), SubtaskId("counts", 1)


def ids(files: dict[int, str]) -> dict[CheckpointId, set[str]]:
    return {CheckpointId(id): set(names) for id, names in files.items()}


# --- what is decided ------------------------------------------------------------------------------------------------------


def test_files_of_a_retired_checkpoint_go_unless_a_kept_one_references_them() -> None:
    assert choose_unneeded_files(ids({1: "ab", 2: "bc"}), {"c"}, None) == {"a", "b"}


def test_files_of_a_retired_checkpoint_stay_while_a_subtask_may_build_on_it() -> None:
    retired = ids({1: "ab", 2: "bc"})
    assert choose_unneeded_files(retired, {"d"}, CheckpointId(1)) == set()
    assert choose_unneeded_files(retired, {"d"}, CheckpointId(2)) == {"a"}
    assert choose_unneeded_files(retired, {"d"}, CheckpointId(3)) == {"a", "b", "c"}


def test_leftovers_are_what_nobody_references_up_to_the_highest_id_of_the_attempts_before() -> None:
    written = {"a": CheckpointId(1), "b": CheckpointId(2), "c": CheckpointId(3), "strange": None}
    assert choose_leftover_files(written, {"a"}, CheckpointId(2)) == ("b",)


def test_a_subtask_that_has_not_heard_of_a_checkpoint_holds_the_one_before() -> None:
    bases = AcknowledgedBases([ONE, OTHER], CheckpointId(4))
    assert bases.oldest == 4
    bases.acknowledged(ONE, CheckpointId(6), CheckpointId(5))
    assert bases.oldest == 4
    bases.acknowledged(OTHER, CheckpointId(6), CheckpointId(5))
    assert bases.oldest == 5


def test_an_older_part_of_a_pending_checkpoint_holds_its_base_until_that_ends() -> None:
    bases = AcknowledgedBases([ONE], None)
    bases.acknowledged(ONE, CheckpointId(3), CheckpointId(1))
    bases.acknowledged(ONE, CheckpointId(4), CheckpointId(2))  # it heard of 2 meanwhile
    assert bases.oldest == 1
    bases.ended(CheckpointId(3))
    assert bases.oldest == 2


@given(st.data())
def test_whatever_is_heard_when_every_checkpoint_finds_its_files(data: st.DataObject) -> None:
    """A model of two subtasks: each builds on the last checkpoint that it has heard of, the driver keeps one or two."""
    retain = data.draw(st.integers(1, 2))
    bases = AcknowledgedBases([ONE, OTHER], None)
    heard: dict[SubtaskId, CheckpointId | None] = {ONE: None, OTHER: None}
    stored: dict[CheckpointId, dict[SubtaskId, set[str]]] = {}
    there: set[str] = set()
    done: list[CheckpointId] = []
    retired: dict[CheckpointId, set[str]] = {}
    for number in range(1, 12):
        id = CheckpointId(number)
        part: dict[SubtaskId, set[str]] = {}
        for subtask in (ONE, OTHER):
            told = [each for each in done if each >= (heard[subtask] or 0)]
            if told:
                heard[subtask] = data.draw(st.sampled_from([each for each in (heard[subtask], *told) if each]))
            base = heard[subtask]
            chain = stored[base][subtask] if base is not None and data.draw(st.booleans()) else set()
            part[subtask] = {*list(chain)[-3:], f"{number}-{subtask.index}"}
            there.add(f"{number}-{subtask.index}")
            bases.acknowledged(subtask, id, base)
            assert part[subtask] <= there, "it references a file that was deleted"
        bases.ended(id)
        if data.draw(st.booleans()):  # else it failed
            stored[id] = part
            done.append(id)
            for old in done[:-retain]:
                retired.setdefault(old, set().union(*stored[old].values()))
            kept = set().union(*(files for each in done[-retain:] for files in stored[each].values()))
            there -= choose_unneeded_files(retired, kept, bases.oldest)
            assert kept <= there


# --- in the storage -------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["file", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointStorage:
    return FileStorage(str(tmp_path)) if request.param == "file" else MemoryStorage()


def started(storage: CheckpointStorage, *, again: bool = False) -> JobStore:
    store = JobStore(storage, "job")
    store.acquire_attempt(None if again else StartFresh("a test"))
    store.delete_leftovers()
    return store


def write_shared(store: JobStore, id: CheckpointId, attempt: int | None = None) -> StoredFile:
    record = store.record()
    assert record is not None
    files = store.layout.files_of(ONE, Attempt(attempt if attempt is not None else record.attempt))
    name, content = files.sharable(id, "counts", "n"), f"changes of {id}".encode()
    store.storage.put(name, content)
    return StoredFile(name, len(content), checksum_of(content), shared=True)


def publish(store: JobStore, files: Sequence[StoredFile], id: CheckpointId) -> None:
    record = store.record()
    assert record is not None
    table = StoredTable("n", tuple(files), 1, 0, 5, Form.CHANGES)
    snapshot = SubtaskSnapshot("counts", 0, False, (StoredOperator("counts", None, (table,)),))
    checkpoint = completed(id, incarnation=record.incarnation, attempt=record.attempt, snapshots=(snapshot,))
    assert isinstance(store.publish(checkpoint), Published)


def take(store: JobStore, base: Sequence[StoredFile] = ()) -> tuple[CheckpointId, list[StoredFile]]:
    """A checkpoint that references the files of another one and adds its own."""
    id = store.reserve_id()
    files = [*base, write_shared(store, id)]
    publish(store, files, id)
    return id, files


def shared(storage: CheckpointStorage) -> list[int]:
    """The checkpoints whose shared files are there."""
    return sorted(int(name.split("/")[2].split("+")[0]) for name in storage.list("job/shared/"))


def find(store: JobStore) -> RestoreOutcome:
    return store.find_restorable(all_sinks_idempotent=False, on_damaged="fail")


def test_a_file_stays_as_long_as_one_retained_checkpoint_references_it(storage: CheckpointStorage) -> None:
    store = started(storage)
    first, files = take(store)
    second, more = take(store, files)
    third, _ = take(store, more)
    store.delete_checkpoints([first])
    assert shared(storage) == [1, 2, 3]
    fourth, _ = take(store)  # a new base
    store.delete_checkpoints([second, third])
    assert shared(storage) == [fourth]


def test_a_failed_checkpoint_between_two_good_ones_leaves_nothing_and_takes_nothing_along(
    storage: CheckpointStorage,
) -> None:
    store = started(storage)
    _, files = take(store)
    failed = store.reserve_id()
    write_shared(store, failed)
    store.delete_checkpoints([failed], oldest_base=CheckpointId(1))
    third, _ = take(store, files)
    assert shared(storage) == [1, third]
    assert isinstance(find(started(storage, again=True)), RestoreLatest)


def test_a_checkpoint_that_was_deleted_before_takes_nothing_along_when_it_is_deleted_again(
    storage: CheckpointStorage,
) -> None:
    store = started(storage)
    first, files = take(store)
    second, _ = take(store, files)
    for _ in range(3):
        store.delete_checkpoints([first])
        assert shared(storage) == [first, second]
        verify(storage, store.completed()[-1])


def test_a_checkpoint_that_is_deleted_again_leaves_what_waits_for_a_subtask(storage: CheckpointStorage) -> None:
    store = started(storage)
    first, files = take(store)
    second, more = take(store, files)
    third, _ = take(store)
    store.delete_checkpoints([first], oldest_base=third)
    store.delete_checkpoints([second], oldest_base=second)
    store.delete_checkpoints([first], oldest_base=second)
    fourth, _ = take(store, more)  # its subtask had not heard of the third
    verify(storage, store.completed()[-1])
    assert shared(storage) == [first, second, third, fourth]


def test_what_was_set_aside_and_deleted_is_set_aside_no_longer(tmp_path: Path) -> None:
    """Else it would be deleted again and again, whoever builds on it."""
    store = started(FileStorage(str(tmp_path)))
    first, files = take(store)
    second, more = take(store, files)
    third, _ = take(store, more)
    path = str(tmp_path / "job" / f"chk-{second}")
    later = JobStore(FileStorage(str(tmp_path)), "job")
    later.acquire_attempt(Resume(second, path))
    later.delete_leftovers()
    assert later.set_aside == {first, third}
    fourth, _ = take(later)
    later.delete_checkpoints([first, third], oldest_base=fourth)
    assert later.set_aside == frozenset()
    verify(*open_checkpoint(path))
    later.delete_checkpoints([first, third, fourth])
    verify(*open_checkpoint(path))


def test_files_wait_for_a_subtask_that_may_still_build_on_them(storage: CheckpointStorage) -> None:
    store = started(storage)
    first, files = take(store)
    second, _ = take(store)
    store.delete_checkpoints([first], oldest_base=first)
    third, _ = take(store, files)  # its subtask had not heard of the second
    store.delete_checkpoints([second], oldest_base=third)
    assert shared(storage) == [first, third]
    fourth, _ = take(store)
    store.delete_checkpoints([third], oldest_base=fourth)
    assert shared(storage) == [fourth]


def test_a_new_attempt_finds_what_a_driver_left_that_died_after_it_deleted_the_metadata(
    storage: CheckpointStorage,
) -> None:
    store = started(storage)
    first, _ = take(store)
    second, files = take(store)
    store.delete_checkpoints([first], oldest_base=first)  # and dies before anybody acknowledges a newer base
    store = started(storage, again=True)
    assert shared(storage) == [second]
    third, _ = take(store, files)
    assert shared(storage) == [second, third]


class DyingStorage(FileStorage):
    """The driver dies at one of its deletions."""

    deletions_left = 0

    def delete(self, names: Sequence[str]) -> None:
        if DyingStorage.deletions_left == 0:
            raise StorageError("the driver died")
        DyingStorage.deletions_left -= 1
        super().delete(names)


@pytest.mark.parametrize("step", range(4))
def test_a_driver_that_dies_anywhere_while_it_deletes_leaves_intact_checkpoints(tmp_path: Path, step: int) -> None:
    storage = DyingStorage(str(tmp_path))
    DyingStorage.deletions_left = 100
    store = started(storage)
    first, files = take(store)
    second, _ = take(store, files[-1:])
    third, _ = take(store)
    DyingStorage.deletions_left = step
    try:
        store.delete_checkpoints([first, second])
    except StorageError:
        assert step < 5
    DyingStorage.deletions_left = 100
    again = started(storage, again=True)
    for checkpoint in again.completed():
        verify(storage, checkpoint)
    assert again.completed()[-1].id == third
    again.delete_checkpoints([each.id for each in again.completed()[:-1]])
    assert shared(storage) == [third]


def test_files_of_an_upload_that_never_completed_are_left_to_the_next_attempt(storage: CheckpointStorage) -> None:
    store = started(storage)
    first, _ = take(store)
    write_shared(store, store.reserve_id())
    started(storage, again=True)
    assert shared(storage) == [first]


def test_a_zombie_of_an_old_attempt_writes_under_other_names_and_is_cleaned_up_after(
    storage: CheckpointStorage,
) -> None:
    store = started(storage)
    first, _ = take(store)
    late = store.reserve_id()
    store = started(storage, again=True)
    second, files = take(store)
    zombie = write_shared(store, late, attempt=1)
    assert zombie.file not in [file.file for file in files]
    verify(storage, store.completed()[-1])
    assert shared(storage) == [first, late, second]
    started(storage, again=True)
    assert shared(storage) == [first, second]


def test_nothing_shared_is_deleted_while_a_checkpoint_cannot_be_read(storage: CheckpointStorage) -> None:
    store = started(storage)
    first, files = take(store)
    second, _ = take(store, files)
    third, _ = take(store)
    storage.put(f"job/chk-{second}/metadata.json", b"unreadable")
    again = started(storage, again=True)
    again.delete_checkpoints([first])
    assert shared(storage) == [first, second, third]
    again.delete_checkpoints([second])
    started(storage, again=True)
    assert shared(storage) == [third]


def test_a_damaged_shared_file_damages_every_checkpoint_that_references_it(storage: CheckpointStorage) -> None:
    store = started(storage)
    oldest, _ = take(store)
    _, files = take(store)
    _, more = take(store, files)
    newest, _ = take(store, more)
    storage.put(files[0].file, b"changed")
    found = find(started(storage, again=True))
    assert isinstance(found, FallBack)
    assert found.to.id == oldest
    for id in (2, 3, newest):
        assert f"checkpoint {id}: {files[0].file}" in found.warning
    store = started(storage, again=True)
    store.commit_began(newest)
    refused = find(store)
    assert isinstance(refused, RefuseRestore)


def test_a_checkpoint_is_opened_with_its_shared_files_wherever_its_job_folder_is(tmp_path: Path) -> None:
    store = started(FileStorage(str(tmp_path / "storage")))
    _, files = take(store)
    second, _ = take(store, files)
    (tmp_path / "storage" / "job").rename(tmp_path / "moved")
    place, checkpoint = open_checkpoint(str(tmp_path / "moved" / f"chk-{second}"))
    verify(place, checkpoint)
    assert [file.file.split("+")[0] for file in checkpoint.files()] == ["shared/1", "shared/2"]


def test_a_checkpoint_without_its_shared_files_says_what_to_copy(tmp_path: Path) -> None:
    store = started(FileStorage(str(tmp_path / "storage")))
    first, _ = take(store)
    (tmp_path / "alone").mkdir()
    (tmp_path / "storage" / "job" / f"chk-{first}").rename(tmp_path / "alone" / "chk-1")
    place, checkpoint = open_checkpoint(str(tmp_path / "alone" / "chk-1"))
    with pytest.raises(DamagedCheckpoint, match=r"is missing.*copy the whole folder of the job, or take a savepoint"):
        verify(place, checkpoint)
