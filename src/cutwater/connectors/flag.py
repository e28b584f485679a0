"""Settings that are on or off."""

from cutwater.errors import ConfigError


def checked_flag(where: str, argument: str, value: object) -> bool:
    """``"no"`` is true to Python; to whoever wrote it, it is not."""
    if not isinstance(value, bool):
        raise ConfigError(f"{where}: {argument}={value!r}; allowed are True and False")
    return value
