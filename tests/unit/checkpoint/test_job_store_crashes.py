"""Real processes, killed with SIGKILL before every single step on the file system, and real races."""

import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from cutwater.checkpoint.damage import RestoreLatest
from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.job_store import JobStore, Restored
from cutwater.checkpoint.publication import Published
from cutwater.checkpoint.start import Resume, StartFresh
from cutwater.checkpoint.verification import verify
from cutwater.errors import StorageInUse, TakenOver
from tests.unit.checkpoint.checkpoints import publish_next
from tests.unit.checkpoint.crashing import crash_everywhere, fork

Say = Callable[[object], None]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def open_store(root: Path) -> JobStore:
    return JobStore(FileStorage(str(root)), "job")


def test_ids_never_repeat_wherever_the_driver_is_killed(root: Path) -> None:
    for _ in range(30):  # so that the next ones clean old markers away
        open_store(root).reserve_id()

    def act(say: Say) -> None:
        store = open_store(root)
        for _ in range(3):
            say(store.reserve_id())

    given: list[int] = []
    for said in crash_everywhere(act):
        given.extend(int(word) for word in said)
        assert len(list(open_store(root).storage.list("job/ids/"))) <= 34
    assert given == sorted(set(given))
    assert given[0] > 30
    assert open_store(root).reserve_id() > given[-1]


def test_ids_never_repeat_after_their_checkpoints_and_folders_are_gone(root: Path) -> None:
    store = open_store(root)
    store.acquire_attempt()
    ids = [publish_next(store)[0] for _ in range(4)]
    store.delete_checkpoints(ids)
    assert not list(store.storage.list("job/chk-"))
    assert open_store(root).reserve_id() == 5


def test_ids_never_repeat_after_somebody_cleared_the_markers_away(root: Path) -> None:
    store = open_store(root)
    store.acquire_attempt()
    for _ in range(4):
        publish_next(store)
    shutil.rmtree(root / "job" / "ids")
    assert open_store(root).reserve_id() == 5


def test_racing_drivers_never_get_the_same_id(root: Path) -> None:
    def race(say: Say) -> None:
        store = open_store(root)
        for _ in range(30):
            say(store.reserve_id())

    children = [fork(race) for _ in range(4)]
    given = [int(word) for child in children for word in child.wait()[1]]
    assert len(given) == 120
    assert len(set(given)) == 120


def test_a_driver_with_old_knowledge_does_not_take_a_number_whose_marker_was_cleaned_away(root: Path) -> None:
    old = open_store(root)
    assert old.reserve_id() == 1
    for _ in range(40):
        open_store(root).reserve_id()
    assert "job/ids/2" not in list(old.storage.list("job/ids/"))
    assert old.reserve_id() == 42


def test_half_published_metadata_is_never_seen(root: Path, tmp_path: Path) -> None:
    store = open_store(root)
    store.acquire_attempt()
    publish_next(store)
    shutil.copytree(root, tmp_path / "before")

    def act(say: Say) -> None:
        id, outcome = publish_next(store)
        assert isinstance(outcome, Published)
        say(id)

    seen = set()
    for said in crash_everywhere(act):
        after = open_store(root)
        survey = after.survey()
        assert not survey.damaged
        for checkpoint in survey.completed:
            verify(after.storage, checkpoint)
        ids = tuple(each.id for each in survey.completed)
        assert ids in ((1,), (1, 2))
        assert ids == (1, 2) or said == []
        seen.add(ids)
        shutil.rmtree(root)
        shutil.copytree(tmp_path / "before", root)
    assert seen == {(1,), (1, 2)}


def test_a_kill_while_deleting_never_leaves_a_visible_checkpoint_with_missing_files(root: Path, tmp_path: Path) -> None:
    store = open_store(root)
    store.acquire_attempt()
    ids = [publish_next(store)[0] for _ in range(3)]
    shutil.copytree(root, tmp_path / "before")
    seen = set()
    for _ in crash_everywhere(lambda say: store.delete_checkpoints(ids[:2])):
        after = open_store(root)
        for checkpoint in after.completed():
            verify(after.storage, checkpoint)
        seen.add(tuple(each.id for each in after.completed()))
        after.acquire_attempt()
        after.delete_leftovers()
        on_disk = {after.layout.checkpoint_of(name) for name in after.storage.list("job/chk-")}
        assert on_disk == {each.id for each in after.completed()}
        shutil.rmtree(root)
        shutil.copytree(tmp_path / "before", root)
    assert seen == {(1, 2, 3), (2, 3), (3,)}


def test_a_kill_while_acquiring_an_attempt_loses_neither_incarnation_nor_checkpoints(
    root: Path, tmp_path: Path
) -> None:
    store = open_store(root)
    first = store.acquire_attempt()
    publish_next(store)
    publish_next(store)
    shutil.copytree(root, tmp_path / "before")
    numbers = set()
    for _ in crash_everywhere(lambda say: say(open_store(root).acquire_attempt().attempt)):
        record = open_store(root).acquire_attempt()
        numbers.add(record.attempt)
        assert record.incarnation == first.incarnation
        assert record.accepted == (1, 2)
        found = open_store(root).find_restorable(all_sinks_idempotent=False, on_damaged="fail")
        assert isinstance(found, RestoreLatest)
        assert found.to.id == 2
        shutil.rmtree(root)
        shutil.copytree(tmp_path / "before", root)
    assert numbers == {2, 3}


def test_a_kill_while_starting_fresh_gives_the_old_incarnation_or_the_new_one_whole(root: Path, tmp_path: Path) -> None:
    store = open_store(root)
    first = store.acquire_attempt()
    publish_next(store)
    shutil.copytree(root, tmp_path / "before")
    seen = set()
    for _ in crash_everywhere(lambda say: say(open_store(root).acquire_attempt(StartFresh("asked")).attempt)):
        after = open_store(root)
        record = after.record()
        assert record is not None
        is_old = record.incarnation == first.incarnation
        assert [each.id for each in after.completed()] == ([1] if is_old else [])
        assert (root / "job" / "chk-1" / "metadata.json").exists()
        seen.add(is_old)
        shutil.rmtree(root)
        shutil.copytree(tmp_path / "before", root)
    assert seen == {True, False}


def claiming(root: Path, base: Path) -> JobStore:
    """A new job, told to claim a checkpoint of another one; it has restored nothing yet."""
    other = JobStore(FileStorage(str(base)), "other")
    other.acquire_attempt()
    id, _ = publish_next(other)
    store = open_store(root)
    path = f"{base}/other/chk-{id}"
    store.acquire_attempt(Resume(id, path, new_incarnation=True, claim=True))
    return store


def restore(store: JobStore) -> Restored:
    found = store.find_restorable(all_sinks_idempotent=False, on_damaged="fail")
    assert isinstance(found, RestoreLatest)
    restored = store.begin_restore(found.to)
    verify(restored.storage, restored.checkpoint)
    return restored


def go_on(root: Path) -> JobStore:
    """The next attempt, by another driver."""
    store = open_store(root)
    store.acquire_attempt()
    store.delete_leftovers()
    return store


def test_a_kill_while_claiming_leaves_the_base_where_it_was_or_whole_in_the_jobs_own_folder(
    root: Path, tmp_path: Path
) -> None:
    base = tmp_path / "base"
    store = claiming(root, base)
    shutil.copytree(root, tmp_path / "before")
    seen = set()
    for said in crash_everywhere(lambda say: say(restore(store).resumed)):
        after = go_on(root)
        record = after.record()
        assert record is not None and record.base is not None
        taken = record.base.taken
        shared = {str(name) for name in after.storage.list("job/shared/")}
        assert shared == (set() if taken is None else {"job/shared/1+claimed+0", "job/shared/1+metadata.json"})
        assert taken == 1 or said == []
        if taken is None:
            restore(after)
        base.rename(tmp_path / "gone")
        restore(go_on(root))
        (tmp_path / "gone").rename(base)
        seen.add(taken)
        shutil.rmtree(root)
        shutil.copytree(tmp_path / "before", root)
    assert seen == {None, 1}


def test_a_kill_while_what_was_claimed_is_given_up_leaves_the_jobs_own_and_in_time_no_more(
    root: Path, tmp_path: Path
) -> None:
    base = tmp_path / "base"
    store = claiming(root, base)
    restore(store)
    first, _ = publish_next(store)
    latest, _ = publish_next(store)
    shutil.copytree(root, tmp_path / "before")
    for _ in crash_everywhere(lambda say: store.delete_checkpoints([first])):
        after = go_on(root)
        assert restore(after).resumed == latest
        kept = [each.id for each in after.completed()]
        after.delete_checkpoints(kept[:-1])
        newest, _ = publish_next(after)
        after.delete_checkpoints([latest])
        assert not list(after.storage.list("job/shared/"))
        assert restore(go_on(root)).resumed == newest
        shutil.rmtree(root)
        shutil.copytree(tmp_path / "before", root)


def test_racing_drivers_get_distinct_attempts(root: Path) -> None:
    def race(say: Say) -> None:
        given = 0
        while given < 10:
            with suppress(TakenOver):  # by one that is faster
                say(open_store(root).acquire_attempt().attempt)
                given += 1

    children = [fork(race) for _ in range(4)]
    given = [int(word) for child in children for word in child.wait()[1]]
    assert len(given) == 40
    assert len(set(given)) == 40


def test_the_lock_is_refused_while_its_holder_lives_and_free_when_it_was_killed(root: Path) -> None:
    def hold(say: Say) -> None:
        with open_store(root).lock():
            say("held")
            signal.pause()

    holder = fork(hold)
    assert holder.read_word() == "held"
    try:
        with pytest.raises(StorageInUse, match=f"'job'.*pid {holder.pid} on host {os.uname().nodename}.*Stop that one"):
            open_store(root).lock()
        JobStore(FileStorage(str(root)), "another job").lock().release()
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        code, _ = holder.wait()
    assert code == -signal.SIGKILL
    with open_store(root).lock(), pytest.raises(StorageInUse):
        open_store(root).lock()
    open_store(root).lock().release()


def test_whoever_takes_the_lock_sweeps_what_a_killed_writer_left(root: Path) -> None:
    storage = FileStorage(str(root))
    storage.put("job/chk-1/file", b"")
    for _ in crash_everywhere(lambda say: storage.put("job/chk-1/file", b"content")):
        pass
    assert len(os.listdir(root / "job" / "chk-1")) > 1
    open_store(root).lock().release()
    assert os.listdir(root / "job" / "chk-1") == ["file"]


def test_the_next_attempt_sweeps_what_a_killed_worker_left_and_the_folder_made_for_it(root: Path) -> None:
    store = open_store(root)
    store.acquire_attempt()
    storage = FileStorage(str(root))
    for _ in crash_everywhere(lambda say: storage.put("job/chk-7/file", b"content")):
        storage.delete(["job/chk-7/file"])
    assert os.listdir(root / "job" / "chk-7")
    store.acquire_attempt()
    store.delete_leftovers()
    assert not (root / "job" / "chk-7").exists()
