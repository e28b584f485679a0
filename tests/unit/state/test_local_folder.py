"""Folders on the worker's disk where several users work: none is kept from its own by what another one made."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import cutwater as cw
from cutwater.errors import StorageError
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state.local_folder import LocalFolder
from tests.rights import without_the_rights_of_root


@pytest.fixture
def everybodys() -> Iterator[Path]:
    """A folder like /tmp: pytest's own are for their owner only."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o1777)
        yield Path(folder)


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
