"""The memory backend's settings."""

import pytest

from cutwater.errors import ConfigError
from cutwater.state.memory import Memory


def test_incremental_snapshots_are_refused_instead_of_taken_in_full() -> None:
    with pytest.raises(ConfigError, match="incremental=True"):
        Memory(incremental=True)


def test_a_flag_must_be_a_flag() -> None:
    with pytest.raises(ConfigError, match="asynchronous"):
        Memory(asynchronous="no")  # type: ignore[arg-type]
