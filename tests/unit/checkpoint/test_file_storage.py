import errno
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cutwater.checkpoint import file_storage
from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.checkpoint.storage import CheckpointStorage
from cutwater.errors import StorageError, UncertainWrite
from tests.small_disk import small_disk
from tests.unit.checkpoint.crashing import crash_everywhere, fail_with, fork

Say = Callable[[object], None]


@pytest.fixture
def files(tmp_path: Path) -> FileStorage:
    return FileStorage(str(tmp_path / "root"))


@pytest.fixture(params=["file", "memory"])
def storage(request: pytest.FixtureRequest, files: FileStorage) -> CheckpointStorage:
    return files if request.param == "file" else MemoryStorage()


def everything_under(root: str) -> list[str]:
    return [os.path.join(parent, file) for parent, _, names in os.walk(root) for file in names]


# --- what every storage does ------------------------------------------------------------------------------------------


def test_create_never_overwrites(storage: CheckpointStorage) -> None:
    assert storage.create("job/a", b"first")
    assert not storage.create("job/a", b"second")
    assert storage.read("job/a") == b"first"


def test_put_replaces(storage: CheckpointStorage) -> None:
    storage.put("job/a", b"first")
    storage.put("job/a", b"second")
    assert storage.read("job/a") == b"second"


def test_a_stream_appears_only_when_its_context_ends_well(storage: CheckpointStorage) -> None:
    with storage.open_write("job/a") as file:
        file.write(b"one")
        assert list(storage.list()) == []
        file.write(b"two")
    assert storage.read("job/a") == b"onetwo"
    with pytest.raises(ZeroDivisionError), storage.open_write("job/b") as file:
        file.write(b"x")
        raise ZeroDivisionError
    assert list(storage.list()) == ["job/a"]


def test_a_range_is_read(storage: CheckpointStorage) -> None:
    storage.put("a", b"0123456789")
    assert (storage.read("a", 3, 4), storage.read("a", 8), storage.size("a")) == (b"3456", b"89", 10)


def test_what_is_missing_is_said_to_be_missing(storage: CheckpointStorage) -> None:
    with pytest.raises(FileNotFoundError):
        storage.read("job/a")
    with pytest.raises(FileNotFoundError):
        storage.size("job/a")


def test_listing_takes_any_prefix_and_is_sorted(storage: CheckpointStorage) -> None:
    for name in ("job/chk-2/b", "job/chk-10/a", "job/chk-2/a", "job/ids/3", "job-2/chk-2/a", "top"):
        storage.put(name, b"")
    assert list(storage.list("job/chk-2/")) == ["job/chk-2/a", "job/chk-2/b"]
    assert list(storage.list("job/chk-")) == ["job/chk-10/a", "job/chk-2/a", "job/chk-2/b"]
    assert list(storage.list("job/chk-2/a")) == ["job/chk-2/a"]
    assert list(storage.list("to")) == ["top"]
    assert len(list(storage.list())) == 6
    assert list(storage.list("nothing/here")) == []


def test_deleting_what_is_missing_is_no_error(storage: CheckpointStorage) -> None:
    storage.put("job/a", b"")
    storage.delete(["job/a", "job/b", "other/c"])
    assert list(storage.list()) == []


# --- files ------------------------------------------------------------------------------------------------------------


def test_folders_that_became_empty_go_and_the_root_stays(files: FileStorage) -> None:
    files.put("job/chk-1/a", b"")
    files.put("job/lock", b"")
    files.delete(["job/chk-1/a"])
    assert sorted(os.listdir(os.path.join(files.root, "job"))) == ["lock"]
    files.delete(["job/lock"])
    assert os.listdir(files.root) == []


@pytest.mark.parametrize("name", ["../a", "a/../../b", "/a", "a//b", "", ".", "a/.tmp-1", "a\0b"])
def test_names_that_could_leave_the_folder_are_refused(files: FileStorage, name: str) -> None:
    with pytest.raises(StorageError, match="not a name"):
        files.put(name, b"")


def test_a_worker_gets_the_same_storage_by_pickle(files: FileStorage) -> None:
    assert pickle.loads(pickle.dumps(files)) == files  # noqa: S301 (our own bytes)


def test_of_all_racing_creators_exactly_one_wins(files: FileStorage) -> None:
    for round in range(5):

        def race(say: Say, name: str = f"job/{round}") -> None:
            say(files.create(name, str(os.getpid()).encode()))

        children = [fork(race) for _ in range(6)]
        outcomes = {child.pid: child.wait()[1] for child in children}
        winners = [pid for pid, said in outcomes.items() if said == ["True"]]
        assert len(winners) == 1
        assert sum(said == ["False"] for said in outcomes.values()) == 5
        assert files.read(f"job/{round}") == str(winners[0]).encode()


def test_who_loses_a_race_makes_the_folders_durable_that_the_winner_may_not_have_synced(
    files: FileStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert files.create("job/new/file", b"the winner's")
    synced: list[str] = []
    monkeypatch.setattr(file_storage, "_sync_folder", synced.append)
    assert not files.create("job/new/file", b"the loser's")
    assert synced == [f"{files.root}/job/new", f"{files.root}/job", files.root]


CONTENT = b"0123456789" * 20


def test_a_crash_at_any_step_of_create_leaves_nothing_or_all(files: FileStorage) -> None:
    def act(say: Say) -> None:
        files.create("job/new/file", CONTENT)
        say("created")

    absent = present = 0
    for said in crash_everywhere(act):
        names = list(files.list())
        assert names in ([], ["job/new/file"])
        if names:
            present += 1
            assert files.read("job/new/file") == CONTENT
        else:
            absent += 1
            assert said == []
        shutil.rmtree(files.root, ignore_errors=True)
    assert absent > 3
    assert present > 1


def test_a_crash_at_any_step_of_put_leaves_the_old_or_the_new(files: FileStorage) -> None:
    files.put("job/file", b"old")
    seen = set()

    def act(say: Say) -> None:
        files.put("job/file", CONTENT)
        say("done")

    for said in crash_everywhere(act):
        content = files.read("job/file")
        assert content in (b"old", CONTENT)
        assert content == CONTENT or said == []
        seen.add(content)
        files.put("job/file", b"old")
    assert seen == {b"old", CONTENT}


def test_a_crash_at_any_step_of_a_stream_leaves_nothing_or_all(files: FileStorage) -> None:
    def act(say: Say) -> None:
        with files.open_write("job/file") as file:
            for _ in range(3):
                file.write(CONTENT)
                file.flush()
                os.fsync(file.fileno())

    for _ in crash_everywhere(act):
        names = list(files.list())
        assert names in ([], ["job/file"])
        assert not names or files.read("job/file") == CONTENT * 3
        shutil.rmtree(files.root, ignore_errors=True)


def test_the_owner_sweeps_what_crashed_writers_left(files: FileStorage) -> None:
    files.put("job/chk-1/file", b"")
    for _ in crash_everywhere(lambda say: files.put("job/chk-1/file", CONTENT)):
        pass
    assert len(everything_under(files.root)) > 2
    files.sweep("other/")
    assert len(everything_under(files.root)) > 2
    files.sweep("job/")
    assert everything_under(files.root) == [os.path.join(files.root, "job/chk-1/file")]


@pytest.mark.parametrize(("step", "at"), [("write", 0), ("fsync", 0), ("link", 0)])
def test_a_full_disk_is_named_and_nothing_is_left(files: FileStorage, step: str, at: int) -> None:
    files.put("job/other", b"")

    def act(say: Say) -> None:
        fail_with(step, errno.ENOSPC, at)
        with pytest.raises(StorageError) as caught:
            files.create("job/file", CONTENT)
        say(f"{type(caught.value).__name__}: {caught.value}")

    code, said = fork(act).wait()
    assert code == 0
    assert said[0].startswith(f"StorageError: {files.root}/job/file was not stored: No space left on device")
    assert "free space" in said[0]
    assert everything_under(files.root) == [os.path.join(files.root, "job/other")]


def test_a_really_full_disk_stops_every_kind_of_write_and_keeps_no_rest(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "256k") as disk:
        files = FileStorage(str(disk / "root"))

        def write_in_pieces() -> None:
            with files.open_write("job/a") as file:
                for _ in range(64):
                    file.write(bytes(1 << 14))

        for write in (
            lambda: files.create("job/a", bytes(1 << 20)),
            lambda: files.put("job/a", bytes(1 << 20)),
            write_in_pieces,
        ):
            with pytest.raises(
                StorageError, match=r"job/a was not stored: No space left on device\. The disk is full"
            ) as full:
                write()
            assert not isinstance(full.value, UncertainWrite)
            assert everything_under(files.root) == []


def test_a_failure_after_the_link_is_reported_as_uncertain(files: FileStorage) -> None:
    files.put("job/other", b"")

    def act(say: Say) -> None:
        fail_with("fsync", errno.EIO, at=1)  # the first syncs the file, the second its folder
        with pytest.raises(UncertainWrite, match="may or may not be stored"):
            files.create("job/file", CONTENT)

    assert fork(act).wait()[0] == 0
    assert files.read("job/file") == CONTENT


def test_a_link_that_fails_for_an_unknown_reason_is_uncertain(files: FileStorage) -> None:
    def act(say: Say) -> None:
        fail_with("link", errno.EIO)
        with pytest.raises(UncertainWrite):
            files.create("job/file", CONTENT)

    assert fork(act).wait()[0] == 0


def test_a_file_in_the_way_of_a_folder_is_an_error_with_advice(files: FileStorage) -> None:
    files.put("job", b"")
    with pytest.raises(StorageError, match="stands in the way"):
        files.put("job/file", b"")


# --- memory -----------------------------------------------------------------------------------------------------------


def test_memory_storage_cannot_be_sent_to_a_worker() -> None:
    with pytest.raises(TypeError, match="lives in the driver"):
        pickle.dumps(MemoryStorage())
