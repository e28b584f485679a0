"""The RocksDB backend's settings."""

from pathlib import Path
from typing import Any

import pytest

import cutwater as cw
from cutwater.errors import StorageError
from cutwater.flow.key_groups import KeyGroupRange, key_group_range


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"incremental": 1}, "incremental=1.*True or False"),
        ({"asynchronous": "no"}, "asynchronous='no'.*True or False"),
        ({"cache": "much"}, "cache='much' is not a byte size"),
        ({"cache": "9" * 400 + "MB"}, "is not a byte size"),
        ({"write_buffer": 0}, "write_buffer=0"),
        ({"block_cache": None}, "block_cache=None"),
        ({"write_buffer": 2**70}, "write_buffer=1180591620717411303424.*at most 1024 TB"),
        ({"local_directories": ["/a\0b"]}, "absolute paths"),
        ({"compression": "gzip"}, "compression='gzip'.*'none', 'snappy', 'lz4', 'zstd'"),
        ({"local_directories": "/disk"}, "local_directories='/disk'.*list of absolute paths"),
        ({"local_directories": ["disk"]}, "absolute paths"),
        ({"local_directories": []}, "absolute paths"),
    ],
)
def test_a_wrong_setting_is_refused_at_the_call(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(cw.ConfigError, match=says):
        cw.RocksDB(**settings)


def test_an_environment_takes_it() -> None:
    backend = cw.RocksDB(cache="1MB", compression="zstd", local_directories=["/a", "/b"])
    assert cw.Environment(checkpointing=None, state_backend=backend).state_backend == backend


def test_a_place_where_no_folder_can_be_made_is_named() -> None:
    with pytest.raises(StorageError, match=r"/proc/1/cutwater-rocksdb-\d+: no folder.*local_directories"):
        cw.RocksDB(local_directories=["/proc/1"]).open("uid", KeyGroupRange(0, 127), 128)


@pytest.mark.parametrize("disks", [2, 3, 4])
@pytest.mark.parametrize("parallelism", [4, 12, 16])
def test_subtasks_spread_over_local_directories(tmp_path: Path, disks: int, parallelism: int) -> None:
    directories = [tmp_path / str(disk) for disk in range(disks)]
    for directory in directories:
        directory.mkdir()
    backend = cw.RocksDB(local_directories=directories)
    stores = [backend.open("uid", key_group_range(index, parallelism, 128), 128) for index in range(parallelism)]
    used = [sum(path.is_dir() for path in directory.glob("*/*")) for directory in directories]
    assert sum(used) == parallelism
    assert max(used) - min(used) <= 1
    for store in stores:
        store.close()
