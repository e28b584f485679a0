from pathlib import Path

import pytest

from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.checkpoint.storage_url import open_storage
from cutwater.errors import ConfigError


def test_a_relative_folder_is_fixed_when_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_storage("file:checkpoints") == FileStorage(str(tmp_path / "checkpoints"))


@pytest.mark.parametrize("url", ["file:/data/c", "file:///data/c", "file://localhost/data/c", "FILE:/data/c/"])
def test_absolute_folders_may_be_written_in_every_usual_way(url: str) -> None:
    assert open_storage(url) == FileStorage("/data/c")


def test_a_storage_is_its_own_url() -> None:
    memory = MemoryStorage()
    assert open_storage(memory) is memory
    assert open_storage(FileStorage("/data").url) == FileStorage("/data")
    assert isinstance(open_storage("memory"), MemoryStorage)
    assert open_storage(Path("/data")) == FileStorage("/data")


@pytest.mark.parametrize("url", ["hdfs://namenode/c", "s3://bucket/c", "gs://bucket/c", "abfss://c@a/x"])
def test_what_is_not_supported_yet_is_said_so(url: str) -> None:
    with pytest.raises(ConfigError, match=r"not supported yet.*file:"):
        open_storage(url)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://host/c", "unknown scheme 'ftp'"),
        ("checkpoints", "Did you mean storage='file:checkpoints'"),
        ("file:", "names no folder"),
        ("file://host/c", "names the host 'host'"),
        (7, "not a storage"),
        (None, "not a storage"),
    ],
)
def test_a_wrong_url_is_refused_with_the_right_spelling(url: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_storage(url)
