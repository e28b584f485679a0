"""Folders on the worker's disk where several users work: none is kept from its own by what another one made."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import cutwater as cw
from cutwater.control.task_client import LOST_EXIT_CODE
from cutwater.errors import StorageError
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state.local_folder import LocalFolder
from tests.local_state import rocksdb_folder
from tests.rights import without_the_rights_of_root
from tests.spark.workers import wait_until


@pytest.fixture
def everybodys() -> Iterator[Path]:
    """A folder like /tmp: pytest's own are for their owner only."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o1777)
        yield Path(folder)


ENDS = """if True:
    import sys
    import pyarrow as pa
    import cutwater as cw
    from cutwater.control.task_client import exit_process
    from cutwater.flow.key_groups import KeyGroupRange

    stores = [cw.RocksDB(local_directories=[sys.argv[1]]).open(uid, KeyGroupRange(0, 127), 128) for uid in "ab"]
    for store in stores:
        store.rows("n", pa.schema([pa.field("k", pa.int64())]), pa.int64()).put(1, 1)
    stores.pop().close()
    exit_process("the attempt is aborted")
"""


def test_a_process_that_has_to_end_at_once_leaves_nothing(tmp_path: Path) -> None:
    parent = rocksdb_folder(tmp_path)
    neighbour = LocalFolder(str(parent))
    ended = subprocess.run([sys.executable, "-c", ENDS, str(tmp_path)], check=False)
    assert ended.returncode == LOST_EXIT_CODE
    own = {Path(neighbour.path), Path(f"{neighbour.path}.lock")}
    wait_until(lambda: set(parent.iterdir()) == own, "what it left is removed")
    neighbour.close()


CANNOT_REMOVE = ENDS.replace("import sys\n", "import os, sys\n").replace(
    "exit_process(", "os.posix_spawn = None\n    exit_process("
)


def test_a_process_that_has_to_end_at_once_ends_whatever_becomes_of_its_folders(tmp_path: Path) -> None:
    """It could harm its successor."""
    ended = subprocess.run([sys.executable, "-c", CANNOT_REMOVE, str(tmp_path)], check=False, stderr=subprocess.DEVNULL)
    assert ended.returncode == LOST_EXIT_CODE


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_two_users_have_state_in_rocksdb_below_the_same_folder(
    everybodys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(everybodys))
    first = cw.RocksDB().open("uid", KeyGroupRange(0, 127), 128)
    with without_the_rights_of_root():
        second = cw.RocksDB().open("uid", KeyGroupRange(0, 127), 128)
        assert len(list(everybodys.iterdir())) == 2
        second.close()
    first.close()


def test_the_lock_of_somebody_else_is_left_alone(everybodys: Path) -> None:
    lock, state = everybodys / "other.lock", everybodys / "other"
    lock.touch(0o000)
    state.mkdir()
    with without_the_rights_of_root():
        folder = LocalFolder(str(everybodys))
        assert Path(folder.path).is_dir()
        folder.close()
    assert set(everybodys.iterdir()) == {lock, state}


def test_a_folder_that_cannot_be_written_is_named_with_what_to_do(everybodys: Path) -> None:
    everybodys.chmod(0o555)
    advice = r"Permission denied.*local_directories=\[\.\.\.\]\), or set TMPDIR"
    with without_the_rights_of_root(), pytest.raises(StorageError, match=f"{everybodys}: no folder.*{advice}"):
        LocalFolder(str(everybodys))
    everybodys.chmod(0o700)
