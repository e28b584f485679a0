"""The memory backend's settings."""

import pytest

from cutwater.errors import ConfigError
from cutwater.state.memory import Memory


def test_a_flag_must_be_a_flag() -> None:
    with pytest.raises(ConfigError, match="asynchronous"):
        Memory(asynchronous="no")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="incremental"):
        Memory(incremental=1)  # type: ignore[arg-type]
