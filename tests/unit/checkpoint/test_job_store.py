import errno
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cutwater.checkpoint.attachments import attachments_of, put_away
from cutwater.checkpoint.checksum import checksum_of
from cutwater.checkpoint.completed import CompletedCheckpoint, StateOwner, encode_metadata
from cutwater.checkpoint.damage import FallBack, NothingToRestore, OnDamaged, RefuseRestore, RestoreLatest
from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.layout import JobLayout
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.checkpoint.publication import CertainlyNotStored, Published, UnknownWhetherStored
from cutwater.checkpoint.reservations import ReservedSource
from cutwater.checkpoint.snapshot import StoredOperator, SubtaskSnapshot
from cutwater.checkpoint.start import ContinueReserved, RefuseStart, Resume, RunEnd, StartFresh, choose_start
from cutwater.checkpoint.statistics import CheckpointKind
from cutwater.checkpoint.storage import CheckpointStorage
from cutwater.errors import DamagedCheckpoint, RestoreError, StorageError, StorageInUse, TakenOver, UncertainWrite
from cutwater.flow.ids import CheckpointId
from cutwater.state.stored import StoredFile, StoredTable
from tests.unit.checkpoint.checkpoints import completed, publish_next, with_one_table
from tests.unit.checkpoint.crashing import fail_with, fork


@pytest.fixture(params=["file", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointStorage:
    return FileStorage(str(tmp_path / "root")) if request.param == "file" else MemoryStorage()


@pytest.fixture
def files(tmp_path: Path) -> FileStorage:
    return FileStorage(str(tmp_path / "root"))


def running(storage: CheckpointStorage) -> JobStore:
    store = JobStore(storage, "job")
    store.acquire_attempt()
    return store


def start(storage: CheckpointStorage, restore: str = "auto", *, at_most_once: bool = False) -> object:
    store = JobStore(storage, "job")
    facts = store.facts(restore, all_sinks_idempotent=False, on_damaged="fail", at_most_once=at_most_once)
    return choose_start(restore, facts)


def publish_late(zombie: JobStore) -> CheckpointId:
    """As by a driver that had just looked whether the job is still its own, and was then suspended for a while."""
    record = zombie.record()
    assert record is not None
    id = JobStore(zombie.storage, "job").reserve_id()
    written = with_one_table(zombie.storage, f"job/chk-{id}", id, record.incarnation, record.attempt)
    zombie.storage.create(f"{written.folder}/metadata.json", encode_metadata(written))
    return id


def find(store: JobStore) -> object:
    return store.find_restorable(all_sinks_idempotent=False, on_damaged="fail")


# --- attempts and incarnations ----------------------------------------------------------------------------------------


def test_a_new_attempt_goes_on_in_the_incarnation_and_accepts_what_is_complete(storage: CheckpointStorage) -> None:
    first = running(storage)
    publish_next(first)
    second = JobStore(storage, "job").acquire_attempt()
    assert second.attempt == 2
    assert second.accepted == (1,)
    own = first.record()
    assert own is not None
    assert second.incarnation == own.incarnation


def test_what_an_older_attempt_publishes_later_is_void(storage: CheckpointStorage) -> None:
    zombie = running(storage)
    publish_next(zombie)
    successor = running(storage)
    with pytest.raises(TakenOver, match="Attempt 2 of another driver"):
        publish_next(zombie)
    publish_late(zombie)
    own, _ = publish_next(successor)
    assert [each.id for each in successor.completed()] == [1, own]
    assert [each.id for each in JobStore(storage, "job").completed()] == [1, own]
    assert JobStore(storage, "job").acquire_attempt().accepted == (1, own)


class Interrupted(MemoryStorage):
    """Lets something happen right after a name was created: the schedule of a race, made certain."""

    def __init__(self) -> None:
        super().__init__()
        self.after: dict[str, Callable[[], None]] = {}

    def create(self, name: str, content: bytes) -> bool:
        created = super().create(name, content)
        if name in self.after:
            self.after.pop(name)()
        return created


def test_a_checkpoint_published_while_the_next_attempt_is_acquired_is_accepted_or_known_to_be_void() -> None:
    storage = Interrupted()
    old = running(storage)
    refusals: list[object] = []

    def publish() -> None:
        with pytest.raises(TakenOver) as refused:
            publish_next(old)
        refusals.append(refused)

    storage.after["job/attempts/00000002.json"] = publish
    record = JobStore(storage, "job").acquire_attempt()
    assert len(refusals) == 1  # announced to nobody
    assert record.accepted == ()


def test_an_attempt_that_takes_over_between_publication_and_announcement_stops_the_announcement() -> None:
    storage = Interrupted()
    old = running(storage)
    records: list[object] = []
    storage.after["job/chk-1/metadata.json"] = lambda: records.append(JobStore(storage, "job").acquire_attempt())
    with pytest.raises(TakenOver):
        publish_next(old)
    assert records[0].accepted == (1,)  # type: ignore[attr-defined]


def test_a_fresh_start_archives_the_old_checkpoints_but_keeps_their_files(storage: CheckpointStorage) -> None:
    store = running(storage)
    publish_next(store)
    fresh = JobStore(storage, "job")
    record = fresh.acquire_attempt(StartFresh("asked"))
    old = store.record()
    assert old is not None
    assert record.incarnation != old.incarnation
    assert fresh.completed() == ()
    assert fresh.delete_leftovers() == ()
    assert storage.size("job/chk-1/metadata.json") > 0
    assert publish_next(fresh)[0] == 2
    assert [each.id for each in fresh.completed()] == [2]


def test_old_attempts_are_cleaned_away_and_their_numbers_never_come_back(storage: CheckpointStorage) -> None:
    for _ in range(30):
        running(storage)
    assert len(list(storage.list("job/attempts/"))) <= 48
    assert JobStore(storage, "job").acquire_attempt().attempt == 31


def test_a_memory_storage_is_locked_within_the_process() -> None:
    storage = MemoryStorage()
    lock = JobStore(storage, "job").lock()
    with pytest.raises(StorageInUse, match="already runs in this process"):
        JobStore(storage, "job").lock()
    JobStore(storage, "other").lock().release()
    lock.release()
    JobStore(storage, "job").lock().release()


# --- publication ------------------------------------------------------------------------------------------------------


def test_publishing_the_same_checkpoint_again_is_harmless(storage: CheckpointStorage) -> None:
    store = running(storage)
    record = store.record()
    assert record is not None
    checkpoint = with_one_table(storage, "job/chk-1", 1, record.incarnation, 1)
    assert isinstance(store.publish(checkpoint), Published)
    assert isinstance(store.publish(checkpoint), Published)
    other = store.publish(completed(1, incarnation=record.incarnation))
    assert isinstance(other, UnknownWhetherStored)
    assert len(store.completed()[0].subtasks) == 1


class Failing(MemoryStorage):
    def __init__(self, error: StorageError) -> None:
        super().__init__()
        self.error: StorageError | None = error
        self.stores = False

    def create(self, name: str, content: bytes) -> bool:
        if self.error is None or not name.endswith("metadata.json"):
            return super().create(name, content)
        if self.stores:
            super().create(name, content)
        raise self.error


def test_a_certain_failure_is_told_from_an_unknown_one() -> None:
    assert isinstance(publish_next(running(Failing(StorageError("full"))))[1], CertainlyNotStored)
    assert isinstance(publish_next(running(Failing(UncertainWrite("lost"))))[1], UnknownWhetherStored)


def test_a_checkpoint_of_unknown_fate_that_was_stored_counts_at_the_next_start() -> None:
    storage = Failing(UncertainWrite("lost"))
    storage.stores = True
    publish_next(running(storage))
    storage.error = None
    assert JobStore(storage, "job").acquire_attempt().accepted == (1,)


def test_a_savepoint_is_published_in_its_own_storage_and_not_used_for_recovery(
    files: FileStorage, tmp_path: Path
) -> None:
    store = running(files)
    record = store.record()
    assert record is not None
    place = FileStorage(str(tmp_path / "savepoint"))
    savepoint = with_one_table(place, "", 1, record.incarnation, 1, kind=CheckpointKind.SAVEPOINT)
    assert store.publish(savepoint, place) == Published(place.url)
    assert store.completed() == ()
    assert store.survey().damaged == ()


# --- how a job starts -------------------------------------------------------------------------------------------------


def test_a_job_whose_attempts_are_gone_does_not_start_over_unless_told_to(storage: CheckpointStorage) -> None:
    store = running(storage)
    publish_next(store)
    storage.delete(list(storage.list(store.layout.attempts)))
    for restore in ("auto", "latest"):
        refused = start(storage, restore)
        assert isinstance(refused, RefuseStart)
        assert "attempts/" in refused.reason
        assert "restore='auto'" not in refused.reason, "that is refused too"
    assert isinstance(start(storage, "fresh"), StartFresh)


def test_a_checkpoint_does_not_count_if_the_mark_of_its_attempt_was_deleted(storage: CheckpointStorage) -> None:
    store = running(storage)
    storage.delete(list(storage.list(store.layout.folder)))
    outcome = store.publish(completed(1))
    assert isinstance(outcome, UnknownWhetherStored)
    assert "is gone from" in outcome.reason


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"workers": 3}', b'{"workers": [{"host": "here"}]}'])
def test_a_list_of_workers_that_cannot_be_read_is_named(storage: CheckpointStorage, content: bytes) -> None:
    store = running(storage)
    storage.put(store.layout.workers, content)
    with pytest.raises(DamagedCheckpoint, match=r"workers\.json in .* then delete that file"):
        JobStore(storage, "job").noted_workers(lambda each: each["pid"])


def test_a_job_that_never_ran_starts_fresh_and_cannot_start_from_its_latest(storage: CheckpointStorage) -> None:
    assert isinstance(start(storage), StartFresh)
    assert isinstance(start(storage, "latest"), RefuseStart)


def test_a_crashed_run_is_resumed_and_a_finished_one_is_not(storage: CheckpointStorage) -> None:
    store = running(storage)
    publish_next(store)
    publish_next(store)
    assert start(storage) == Resume(CheckpointId(2))
    store.mark_ended(RunEnd.FINISHED)
    assert isinstance(start(storage), StartFresh)
    assert start(storage, "latest") == Resume(CheckpointId(2))


@pytest.mark.parametrize("end", [RunEnd.CANCELED, RunEnd.FAILED, RunEnd.STOPPED])
def test_a_run_that_did_not_end_by_itself_is_resumed(storage: CheckpointStorage, end: RunEnd) -> None:
    store = running(storage)
    publish_next(store)
    store.mark_ended(end)
    assert start(storage) == Resume(CheckpointId(1))


def test_a_run_that_completed_no_checkpoint_is_begun_again_under_its_own_name(storage: CheckpointStorage) -> None:
    """Else sinks would not know its output for theirs, should it have some: an old copy of the storage may have been put back."""
    store = running(storage)
    incarnation = store.record()
    decision = start(storage)
    assert decision == StartFresh("the last run completed no checkpoint", goes_on=True)
    again = JobStore(storage, "job").acquire_attempt(decision)
    assert incarnation is not None
    assert again.incarnation == incarnation.incarnation
    assert again.attempt > incarnation.attempt


def test_how_an_earlier_run_ended_says_nothing_about_the_last_one(storage: CheckpointStorage) -> None:
    store = running(storage)
    publish_next(store)
    store.mark_ended(RunEnd.FINISHED)
    running(storage)
    assert start(storage) == Resume(CheckpointId(1))


def test_a_canceled_run_whose_checkpoints_were_deleted_starts_fresh(storage: CheckpointStorage) -> None:
    store = running(storage)
    id, _ = publish_next(store)
    store.commit_began(id)
    store.mark_ended(RunEnd.DELETED)
    assert isinstance(start(storage), StartFresh)  # also when the driver died before it deleted them
    store.delete_checkpoints([id])
    assert isinstance(start(storage), StartFresh)


def test_a_job_whose_committed_checkpoints_vanished_does_not_start_over_by_itself(storage: CheckpointStorage) -> None:
    store = running(storage)
    id, _ = publish_next(store)
    store.commit_began(id)
    store.delete_checkpoints([id])
    refused = start(storage)
    assert isinstance(refused, RefuseStart)
    assert "checkpoint 1" in refused.reason
    assert isinstance(start(storage, "fresh"), StartFresh)


def reserving(*splits: int, kind: str = "sequence", begun: bool = False) -> dict[str, ReservedSource]:
    owner = StateOwner(kind, f"{kind}(100)")
    return {"src": ReservedSource(owner, tuple({"split": split, "position": None} for split in splits), begun)}


def entries(*positions: tuple[int, int | None]) -> list[object]:
    return [{"split": split, "position": position} for split, position in positions]


def latest(storage: CheckpointStorage) -> list[object]:
    return sorted(JobStore(storage, "job").reservations.latest()["src"].positions, key=lambda each: each["split"])


def test_a_job_with_reserved_positions_goes_on_behind_them(storage: CheckpointStorage) -> None:
    store = running(storage)
    store.reservations.begin(reserving(0))
    assert isinstance(start(storage, at_most_once=True), StartFresh), "nothing was read yet"
    store.reservations.store("src", 0, 1, [{"split": 0, "position": 10}])
    assert start(storage, at_most_once=True) == ContinueReserved()
    assert isinstance(start(storage), RefuseStart), "another mode would read it again"
    store.mark_ended(RunEnd.FINISHED)
    assert isinstance(start(storage, at_most_once=True), StartFresh)


def test_a_path_of_another_job_makes_a_new_incarnation_which_restarts_from_the_path(
    files: FileStorage, tmp_path: Path
) -> None:
    place = FileStorage(str(tmp_path / "elsewhere"))
    other = JobStore(place, "other")
    record = other.acquire_attempt()
    other.publish(with_one_table(place, "other/chk-900", 900, record.incarnation, 1, job="other"))
    path = f"{place.root}/other/chk-900"
    mine = running(files)
    publish_next(mine)
    decision = start(files, path)
    assert decision == Resume(CheckpointId(900), path, new_incarnation=True)
    store = JobStore(files, "job")
    store.acquire_attempt(decision)
    assert store.completed() == ()
    for again in (store, running(files)):  # the first attempt, and one after a crash before any checkpoint
        found = find(again)
        assert isinstance(found, RestoreLatest)
        opened_in, checkpoint = again.open(found.to)
        assert (checkpoint.id, checkpoint.job) == (900, "other")
        assert opened_in.read(next(checkpoint.files()).file) == b"state of 900"
    assert isinstance(start(files), Resume)
    last = running(files)
    id, _ = publish_next(last)
    assert id == 2
    found = find(running(files))
    assert isinstance(found, RestoreLatest)
    assert (found.to.id, found.to.path) == (2, None)


def test_going_back_to_an_own_older_checkpoint_voids_the_newer_ones(files: FileStorage) -> None:
    store = running(files)
    for _ in range(3):
        publish_next(store)
    path = f"{files.root}/job/chk-1"
    decision = start(files, path)
    assert decision == Resume(CheckpointId(1), path)
    again = JobStore(files, "job")
    record = again.acquire_attempt(decision)
    before = store.record()
    assert before is not None
    assert record.incarnation == before.incarnation
    found = find(again)
    assert isinstance(found, RestoreLatest)
    assert again.open(found.to)[1].id == 1
    assert [publish_next(again)[0], *(each.id for each in again.completed())] == [4, 4]


def test_going_back_past_committed_output_is_refused_and_once_accepted_not_asked_again(files: FileStorage) -> None:
    store = running(files)
    for _ in range(2):
        publish_next(store)
    store.commit_began(CheckpointId(2))
    path = f"{files.root}/job/chk-1"
    refused = start(files, path)
    assert isinstance(refused, RefuseStart)
    assert "checkpoint 2 may have been committed" in refused.reason
    decision = choose_start(path, store.facts(path, all_sinks_idempotent=False, on_damaged="fallback"))
    assert isinstance(decision, Resume)
    again = JobStore(files, "job")
    again.acquire_attempt(decision)
    assert isinstance(find(again), RestoreLatest)
    assert isinstance(find(running(files)), RestoreLatest)


def test_a_path_without_a_checkpoint_is_refused_by_name(files: FileStorage, tmp_path: Path) -> None:
    refused = start(files, str(tmp_path / "nothing"))
    assert isinstance(refused, RefuseStart)
    assert "nothing" in refused.reason
    assert "no completed checkpoint" in refused.reason


def test_a_job_stopped_with_a_savepoint_resumes_from_it_even_if_the_driver_died_then(
    files: FileStorage, tmp_path: Path
) -> None:
    store = running(files)
    record = store.record()
    assert record is not None
    publish_next(store)
    id = store.reserve_id()
    place = FileStorage(str(tmp_path / "sp"))
    store.publish(with_one_table(place, "", id, record.incarnation, 1, kind=CheckpointKind.SAVEPOINT), place)
    store.commit_began(id, place.root)
    assert start(files) == Resume(id)
    again = running(files)
    found = find(again)
    assert isinstance(found, RestoreLatest)
    assert again.open(found.to)[1].id == id
    newer, _ = publish_next(again)
    assert start(files) == Resume(newer)


# --- damage -----------------------------------------------------------------------------------------------------------


def damage(storage: CheckpointStorage, checkpoint: int, file: str) -> None:
    name = next(name for name in storage.list(f"job/chk-{checkpoint}/") if name.endswith(file))
    content = bytearray(storage.read(name))
    content[len(content) // 2] ^= 1
    storage.put(name, bytes(content))


@pytest.mark.parametrize("file", [".arrow", "metadata.json"])
def test_a_damaged_latest_checkpoint_is_passed_over_only_if_nothing_of_it_was_committed(
    storage: CheckpointStorage, file: str
) -> None:
    store = running(storage)
    publish_next(store)
    publish_next(store)
    damage(storage, 2, file)
    again = running(storage)
    found = find(again)
    assert isinstance(found, FallBack)
    assert found.to.id == 1
    assert "checkpoint 2" in found.warning
    assert "at least once" not in found.warning
    again.commit_began(CheckpointId(2))
    refused = find(again)
    assert isinstance(refused, RefuseRestore)
    assert "damaged: " in refused.report
    accepted = again.find_restorable(all_sinks_idempotent=False, on_damaged="fallback")
    assert isinstance(accepted, FallBack)
    assert "at least once" in accepted.warning


def test_a_missing_file_is_damage_too(storage: CheckpointStorage) -> None:
    store = running(storage)
    publish_next(store)
    storage.delete([name for name in storage.list("job/chk-1/") if name.endswith(".arrow")])
    refused = find(store)
    assert isinstance(refused, RefuseRestore)
    assert "is missing" in refused.report


def test_a_job_that_completed_nothing_has_nothing_to_restore(storage: CheckpointStorage) -> None:
    assert find(running(storage)) == NothingToRestore()


def test_damaged_metadata_of_an_archived_checkpoint_does_not_matter(storage: CheckpointStorage) -> None:
    publish_next(running(storage))
    damage(storage, 1, "metadata.json")
    fresh = JobStore(storage, "job")
    fresh.acquire_attempt(StartFresh("asked"))
    assert find(fresh) == NothingToRestore()


# --- deleting ---------------------------------------------------------------------------------------------------------


def test_leftovers_of_aborted_checkpoints_go_and_those_being_written_stay(storage: CheckpointStorage) -> None:
    store = running(storage)
    publish_next(store)
    storage.put(f"{store.layout.checkpoint_folder(store.reserve_id())}/half.arrow", b"")
    again = running(storage)
    storage.put(f"{again.layout.checkpoint_folder(again.reserve_id())}/half.arrow", b"")
    assert again.delete_leftovers() == (2,)
    assert [again.layout.checkpoint_of(name) for name in storage.list("job/chk-")] == [1, 1, 3]


# --- output and positions ---------------------------------------------------------------------------------------------


def test_collected_rows_are_kept_once_and_in_order(storage: CheckpointStorage) -> None:
    store = running(storage)
    for checkpoint, index in ((10, 1), (2, 0), (10, 0), (2, 0), (10, 1)):
        store.collected.append("out", CheckpointId(checkpoint), index, f"{checkpoint}/{index}".encode())
    store.collected.append("out2", CheckpointId(1), 0, b"other")
    assert running(storage).collected.read("out") == [b"2/0", b"10/0", b"10/1"]
    fresh = JobStore(storage, "job")
    fresh.acquire_attempt(StartFresh("asked"))
    assert fresh.collected.read("out") == []


def test_other_rows_under_the_name_of_collected_ones_are_refused_not_lost(storage: CheckpointStorage) -> None:
    store = running(storage)
    store.collected.append("out", CheckpointId(1), 0, b"one")
    with pytest.raises(StorageError, match="'out', subtask 0, checkpoint 1"):
        store.collected.append("out", CheckpointId(1), 0, b"two")
    assert store.collected.read("out") == [b"one"]


def test_a_damaged_record_of_an_attempt_is_named(storage: CheckpointStorage) -> None:
    running(storage)
    storage.put("job/attempts/00000001.start.json", b'{"attempt": 1')
    with pytest.raises(DamagedCheckpoint, match=r"job/attempts/00000001\.start\.json in .* is damaged"):
        JobStore(storage, "job").acquire_attempt()


def test_a_record_of_an_attempt_that_says_less_than_this_version_needs_is_named(storage: CheckpointStorage) -> None:
    running(storage)
    name = "job/attempts/00000001.start.json"
    record = json.loads(storage.read(name))
    del record["abandoned"]
    storage.put(name, json.dumps(record).encode())
    with pytest.raises(DamagedCheckpoint, match=r"00000001\.start\.json in .* is damaged .*'abandoned'"):
        JobStore(storage, "job").record()


def test_the_latest_reservation_of_every_split_counts(storage: CheckpointStorage) -> None:
    first = running(storage)
    first.reservations.begin(reserving(0, 1, 2, 3))
    first.reservations.store("src", 0, 1, entries((0, 100), (2, 5)))
    first.reservations.store("src", 1, 7, entries((1, 50)))
    assert latest(storage) == entries((0, 100), (1, 50), (2, 5), (3, None)), "split 3 is known, and nobody read of it"
    first.reservations.store("src", 0, 2, entries((0, 110), (2, 6)))
    assert latest(storage) == entries((0, 110), (1, 50), (2, 6), (3, None))


def test_what_an_attempt_begins_with_takes_the_place_of_all_that_was_reserved_before(
    storage: CheckpointStorage,
) -> None:
    first = running(storage)
    first.reservations.begin(reserving(0, 1))
    first.reservations.store("src", 0, 9, entries((0, 100), (1, 50)))
    second = running(storage)
    second.reservations.begin(reserving(7, kind="text_files"))
    assert JobStore(storage, "job").reservations.latest() == {}, "nothing of what it reads now was read"
    second.reservations.store("src", 1, 1, entries((7, 3)))
    assert latest(storage) == entries((7, 3))
    third = running(storage)
    third.reservations.begin(reserving(7, kind="text_files", begun=True))
    assert latest(storage) == entries((7, None))
    assert JobStore(storage, "job").reservations.latest()["src"].owner.kind == "text_files"


def test_reserved_positions_of_sources_that_nobody_knows_are_refused(storage: CheckpointStorage) -> None:
    running(storage).reservations.store("src", 0, 1, entries((0, 100)))
    with pytest.raises(
        DamagedCheckpoint, match=r"job/sources/.* is empty, but positions are reserved.*restore='fresh'"
    ):
        JobStore(storage, "job").reservations.latest()


def test_commit_markers_are_few_and_only_the_highest_counts(storage: CheckpointStorage) -> None:
    store = running(storage)
    assert store.commit_begun() is None
    for id in range(1, 61):
        store.commit_began(CheckpointId(id))
    begun = store.commit_begun()
    assert begun is not None
    assert begun.checkpoint == 60
    assert len(list(storage.list("job/commits/"))) <= 32


def test_tables_that_came_as_attachments_are_put_away_and_found_again() -> None:
    storage = MemoryStorage()
    contents = [b"table one", b"table two"]

    def snapshot(folder: str) -> SubtaskSnapshot:
        files = [StoredFile(f"{folder}/s{i}", len(c), checksum_of(c)) for i, c in enumerate(contents)]
        tables = tuple(StoredTable(f"s{i}", (file,), 1, 0, 1) for i, file in enumerate(files))
        return SubtaskSnapshot("v", 0, False, (StoredOperator("u", None, tables),))

    first = snapshot("job/shared")
    put_away(storage, first, contents[::-1])
    assert [storage.read(file.file) for file in first.files()] == contents
    kept = first.operators[0].tables
    assert attachments_of(storage, [*kept, kept[0]]) == tuple(contents)
    put_away(storage, first, ())  # referenced again by the next checkpoint
    with pytest.raises(StorageError, match=r"job/chk-2/s1 of v\[0\] came without"):
        put_away(storage, snapshot("job/chk-2"), contents[:1])


# --- what restoring makes visible, and what a path does to the job's own checkpoints ----------------------------------


def publish_with_output(store: JobStore) -> CheckpointId:
    record = store.record()
    assert record is not None
    id = store.reserve_id()
    inline = {"committables": [{"checkpoint": int(id), "value": {"file": f"part-{id}"}}]}
    snapshot = SubtaskSnapshot("out", 0, False, (StoredOperator("out", inline, ()),))
    folder = store.layout.checkpoint_folder(id)
    checkpoint = completed(
        id, incarnation=record.incarnation, attempt=record.attempt, folder=folder, snapshots=(snapshot,)
    )
    assert isinstance(store.publish(checkpoint), Published)
    return id


def test_output_that_a_restore_commits_is_never_fallen_behind(storage: CheckpointStorage) -> None:
    store = running(storage)
    publish_next(store)
    second = publish_with_output(store)  # and the driver dies before anybody hears of it
    again = running(storage)
    found = find(again)
    assert isinstance(found, RestoreLatest)
    again.begin_restore(found.to)
    damage(storage, second, "metadata.json")
    assert isinstance(find(running(storage)), RefuseRestore)


def test_output_that_a_restored_path_commits_is_never_gone_behind(files: FileStorage) -> None:
    store = running(files)
    publish_next(store)
    publish_with_output(store)
    publish_next(store)
    JobStore(files, "job").acquire_attempt(start(files, f"{files.root}/job/chk-2"))  # type: ignore[arg-type]
    assert isinstance(start(files, f"{files.root}/job/chk-2"), Resume)
    refused = start(files, f"{files.root}/job/chk-1")
    assert isinstance(refused, RefuseStart)
    assert "checkpoint 2 may have been committed" in refused.reason


def restoring_checkpoint_900_of_another_job(files: FileStorage, tmp_path: Path) -> JobStore:
    place = FileStorage(str(tmp_path / "elsewhere"))
    other = JobStore(place, "other")
    record = other.acquire_attempt()
    other.publish(with_one_table(place, "other/chk-900", 900, record.incarnation, 1, job="other"))
    store = JobStore(files, "job")
    store.acquire_attempt(start(files, f"{place.root}/other/chk-900"))  # type: ignore[arg-type]
    return store


def test_the_path_that_a_job_once_restored_is_not_gone_back_to_past_a_committed_checkpoint_that_is_lost(
    files: FileStorage, tmp_path: Path
) -> None:
    store = restoring_checkpoint_900_of_another_job(files, tmp_path)
    own, _ = publish_next(store)
    store.commit_began(own)
    store.delete_checkpoints([own])
    assert start(files) == Resume(CheckpointId(0))  # no path: what may be restored is looked for, and refused
    refused = find(running(files))
    assert isinstance(refused, RefuseRestore)
    assert f"checkpoint {own}: it is missing, and its output may be visible" in refused.report


def test_a_damaged_path_is_refused_before_the_own_checkpoints_are_given_up_for_it(files: FileStorage) -> None:
    store = running(files)
    for _ in range(2):
        publish_next(store)
    damage(files, 1, ".arrow")
    refused = start(files, f"{files.root}/job/chk-1")
    assert isinstance(refused, RefuseStart)
    assert "checksum" in refused.reason
    assert start(files) == Resume(CheckpointId(2))


def test_a_path_that_does_not_fit_the_program_is_refused_before_the_own_checkpoints_are_given_up_for_it(
    files: FileStorage,
) -> None:
    store = running(files)
    publish_next(store)
    path = f"{files.root}/job/chk-1"

    def misfit(checkpoint: CompletedCheckpoint) -> None:
        raise RestoreError(f"checkpoint {checkpoint.id} holds state that this program has no operator for")

    facts = store.facts(path, all_sinks_idempotent=False, on_damaged="fail", check_fit=misfit)
    refused = choose_start(path, facts)
    assert isinstance(refused, RefuseStart)
    assert "no operator for" in refused.reason


def test_a_relative_path_is_found_again_from_another_folder(
    files: FileStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = running(files)
    publish_next(store)
    monkeypatch.chdir(tmp_path)
    JobStore(files, "job").acquire_attempt(start(files, "root/job/chk-1"))  # type: ignore[arg-type]
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert isinstance(find(running(files)), RestoreLatest)


# --- a storage that fails while the job restarts ----------------------------------------------------------------------


def test_a_restart_on_an_empty_folder_where_the_jobs_own_stood_is_refused_until_it_is_back(
    files: FileStorage, tmp_path: Path
) -> None:
    store = running(files)
    publish_next(store)
    (tmp_path / "root").rename(tmp_path / "away")  # a mount that is gone leaves an empty folder
    (tmp_path / "root").mkdir()
    with pytest.raises(StorageError, match="record of attempt 1 of job 'job', which this driver wrote, is gone"):
        store.acquire_attempt()
    assert not any((tmp_path / "root").iterdir())
    (tmp_path / "root").rmdir()
    (tmp_path / "away").rename(tmp_path / "root")
    assert store.acquire_attempt().accepted == (1,)


def test_an_attempt_whose_record_could_not_be_written_is_acquired_again(files: FileStorage, tmp_path: Path) -> None:
    store = running(files)
    publish_next(store)
    attempts = tmp_path / "root" / "job" / "attempts"
    attempts.rename(tmp_path / "away")
    attempts.write_text("in the way")
    with pytest.raises(StorageError, match="cannot be listed: Not a directory"):
        store.acquire_attempt()
    attempts.unlink()
    (tmp_path / "away").rename(attempts)
    assert store.acquire_attempt().accepted == (1,)


def test_a_full_disk_does_not_keep_the_lock_from_its_holder(files: FileStorage) -> None:
    def lock(say: Callable[[object], None]) -> None:
        fail_with("pwrite", errno.ENOSPC)
        with JobStore(files, "job").lock():
            with pytest.raises(StorageInUse):
                JobStore(files, "job").lock()
            say("held")

    assert fork(lock).wait() == (0, ["held"])


# --- what retention does not count ------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", [".arrow", "metadata.json"])
def test_a_damaged_checkpoint_is_set_aside_once_it_was_passed_over(storage: CheckpointStorage, file: str) -> None:
    store = running(storage)
    for _ in range(3):
        publish_next(store)
    damage(storage, 3, file)
    again = running(storage)
    assert isinstance(find(again), FallBack)
    assert again.set_aside == {3}
    record = again.record()
    assert record is not None
    assert record.accepted == (1, 2, 3)


def test_checkpoints_that_a_restored_path_made_void_are_set_aside_but_for_the_restored_one(files: FileStorage) -> None:
    store = running(files)
    for _ in range(3):
        publish_next(store)
    path = f"{files.root}/job/chk-2"
    again = JobStore(files, "job")
    again.acquire_attempt(start(files, path))  # type: ignore[arg-type]
    assert again.set_aside == {1, 3}
    own, _ = publish_next(again)
    later = running(files)
    assert later.set_aside == {1, 3}
    record = later.record()
    assert record is not None
    assert record.accepted == (own,)


@pytest.mark.parametrize("way", ["{root}/job/../job/chk-2/", "{root}/job/chk-2/metadata.json", "{link}/job/chk-2"])
def test_the_restored_path_is_known_however_it_is_written(files: FileStorage, tmp_path: Path, way: str) -> None:
    store = running(files)
    for _ in range(2):
        publish_next(store)
    (tmp_path / "link").symlink_to(files.root)
    again = JobStore(files, "job")
    path = way.format(root=files.root, link=tmp_path / "link")
    again.acquire_attempt(start(files, path))  # type: ignore[arg-type]
    assert again.set_aside == {1}


def test_archived_checkpoints_are_not_set_aside(files: FileStorage, tmp_path: Path) -> None:
    publish_next(running(files))
    fresh = JobStore(files, "job")
    fresh.acquire_attempt(StartFresh("asked"))
    assert fresh.set_aside == set()
    place = FileStorage(str(tmp_path / "elsewhere"))
    other = JobStore(place, "other")
    record = other.acquire_attempt()
    other.publish(with_one_table(place, "other/chk-900", 900, record.incarnation, 1, job="other"))
    publish_next(fresh)
    foreign = JobStore(files, "job")
    foreign.acquire_attempt(start(files, f"{place.root}/other/chk-900"))  # type: ignore[arg-type]
    assert foreign.set_aside == set()


def test_what_a_fenced_attempt_published_late_is_set_aside_at_the_next_start(storage: CheckpointStorage) -> None:
    zombie = running(storage)
    publish_next(zombie)
    running(storage)
    late = publish_late(zombie)
    assert running(storage).set_aside == {late}


def test_earlier_incarnations_are_remembered_with_what_checkpoints_still_list(storage: CheckpointStorage) -> None:
    store = running(storage)
    first = store.record()
    assert first is not None
    assert store.abandoned() == ()
    publish_next(store)
    publish_with_output(store)
    for _ in range(2):
        JobStore(storage, "job").acquire_attempt(StartFresh("asked"))
    again = running(storage)
    abandoned = again.abandoned()
    assert abandoned[0].id == first.incarnation
    assert len({each.id for each in abandoned}) == 2
    assert [output.value for output in abandoned[0].listed] == [{"file": "part-2"}]
    damage(storage, 1, "metadata.json")
    assert running(storage).abandoned() == ()


def test_only_the_last_incarnations_are_remembered(storage: CheckpointStorage) -> None:
    for _ in range(120):
        JobStore(storage, "job").acquire_attempt(StartFresh("asked"))
    assert len(running(storage).abandoned()) == 100


# --- what may be visible, for sinks to compare ------------------------------------------------------------------------


def restored_up_to(store: JobStore, on_damaged: OnDamaged = "fail") -> tuple[int, int]:
    """The id of what an attempt of this store restores, and what its sinks hear may be visible."""
    found = store.find_restorable(all_sinks_idempotent=False, on_damaged=on_damaged)
    assert isinstance(found, RestoreLatest | FallBack)
    checkpoint = store.begin_restore(found.to).checkpoint
    return checkpoint.id, store.visible_up_to(checkpoint)


def test_sinks_hear_of_the_last_commit_that_began_or_of_the_restored_checkpoint_if_that_is_later(
    storage: CheckpointStorage,
) -> None:
    store = running(storage)
    assert store.visible_up_to() == 0
    store.commit_began(publish_with_output(store))
    publish_next(store)
    assert restored_up_to(running(storage)) == (2, 2)
    storage.delete(list(storage.list(store.layout.commits)))
    assert restored_up_to(running(storage)) == (2, 2)


def test_output_that_the_user_chose_to_write_again_is_still_known_to_be_visible(files: FileStorage) -> None:
    """By a damaged checkpoint that is passed over, and by a path; also when nothing has to be accepted any more."""
    store = running(files)
    for _ in range(3):
        store.commit_began(publish_with_output(store))
    damage(files, CheckpointId(3), "metadata.json")
    assert restored_up_to(running(files), on_damaged="fallback") == (2, 3)
    path = f"{files.root}/job/chk-1"
    decision = choose_start(path, store.facts(path, all_sinks_idempotent=False, on_damaged="fallback"))
    assert isinstance(decision, Resume) and decision.warning
    gone_back = JobStore(files, "job")
    gone_back.acquire_attempt(decision)
    assert restored_up_to(gone_back) == (1, 3)
    assert restored_up_to(running(files)) == (1, 3)


def test_output_of_a_restored_path_is_known_to_be_visible_when_the_user_goes_back_behind_it(
    files: FileStorage, tmp_path: Path
) -> None:
    store = running(files)
    store.commit_began(publish_with_output(store))
    publish_with_output(store)  # and nobody is told
    newer, older = f"{files.root}/job/chk-2", f"{files.root}/job/chk-1"
    restoring = JobStore(files, "job")
    restoring.acquire_attempt(start(files, newer))  # type: ignore[arg-type]
    assert restored_up_to(restoring) == (2, 2)
    decision = choose_start(older, restoring.facts(older, all_sinks_idempotent=False, on_damaged="fallback"))
    gone_back = JobStore(files, "job")
    gone_back.acquire_attempt(decision)  # type: ignore[arg-type]
    assert restored_up_to(gone_back) == (1, 2)


def test_the_id_of_a_path_of_another_job_says_nothing_about_what_is_visible_here(
    files: FileStorage, tmp_path: Path
) -> None:
    store = restoring_checkpoint_900_of_another_job(files, tmp_path)
    assert restored_up_to(store) == (900, 0)


# --- all checkpoints gone ---------------------------------------------------------------------------------------------


def delete_checkpoints_and_commits(storage: CheckpointStorage) -> None:
    names = [*storage.list("job/chk-"), *storage.list("job/commits/")]
    assert names
    storage.delete(names)


def test_a_job_all_of_whose_checkpoints_are_gone_does_not_start_over_unless_told_to(storage: CheckpointStorage) -> None:
    publish_next(running(storage))
    delete_checkpoints_and_commits(storage)
    for restore in ("auto", "latest"):
        refused = start(storage, restore)
        assert isinstance(refused, RefuseStart)
        assert "has completed checkpoints" in refused.reason and "none is left" in refused.reason
        assert "restore='auto'" not in refused.reason
    assert isinstance(start(storage, "fresh"), StartFresh)
    JobStore(storage, "job").acquire_attempt(StartFresh("asked for"))
    assert isinstance(start(storage), StartFresh), "the new incarnation has completed none"


def test_that_checkpoints_were_completed_is_handed_on_from_attempt_to_attempt(storage: CheckpointStorage) -> None:
    publish_next(running(storage))
    running(storage)
    delete_checkpoints_and_commits(storage)
    again = running(storage)
    assert isinstance(again.find_restorable(all_sinks_idempotent=True, on_damaged="fallback"), RefuseRestore)
    assert isinstance(start(storage), RefuseStart)


def test_a_run_that_reserved_ids_and_completed_nothing_starts_over(storage: CheckpointStorage) -> None:
    for _ in range(2):
        store = running(storage)
        store.reserve_id()
        assert isinstance(start(storage), StartFresh)
        assert find(store) == NothingToRestore()


def test_a_note_of_completion_that_cannot_be_written_now_is_written_with_the_next_checkpoint(
    files: FileStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, refused = FileStorage.create, ["job/attempts/00000001.completed.json"]

    def once_full(storage: FileStorage, name: str, content: bytes) -> bool:
        if name in refused:
            refused.remove(name)
            raise StorageError("disk full")
        return create(storage, name, content)

    monkeypatch.setattr(FileStorage, "create", once_full)
    store = running(files)
    for _ in range(2):
        assert isinstance(publish_next(store)[1], Published)
    assert refused == []
    delete_checkpoints_and_commits(files)
    assert isinstance(start(files), RefuseStart)


def test_notes_of_completion_are_cleaned_away_with_their_attempts(storage: CheckpointStorage) -> None:
    for _ in range(40):
        publish_next(running(storage))
    attempts = JobLayout("job").attempts
    assert len([name for name in storage.list(attempts) if name.endswith(".completed.json")]) < 40
