"""Byte sizes as users write them: ``"5MB"``, ``"64 MiB"``, or a number of bytes. As in Spark, units are powers of 1024."""

import re

from cutwater.errors import ConfigError

ByteSize = str | int

_BYTES_PER_UNIT = {
    "b": 1, "byte": 1, "bytes": 1,
    "kb": 2**10, "mb": 2**20, "gb": 2**30, "tb": 2**40,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_SPELLING = re.compile(r"\s*(\d{1,18}(?:\.\d{1,18})?)\s*([a-z]+)\s*", re.IGNORECASE)


def parse_byte_size(argument: str, value: object) -> int:
    """The number of bytes that ``value`` means, at least 1; ``argument`` is named in the error."""
    match value:
        case bool():
            raise _refusal(argument, value)
        case int():
            size = value
        case str():
            found = _SPELLING.fullmatch(value)
            if found is None or found[2].lower() not in _BYTES_PER_UNIT:
                raise _refusal(argument, value)
            size = int(float(found[1]) * _BYTES_PER_UNIT[found[2].lower()])
        case _:
            raise _refusal(argument, value)
    if size < 1:
        raise ConfigError(f"{argument}={value!r}: the size must be at least one byte.")
    return size


def _refusal(argument: str, value: object) -> ConfigError:
    return ConfigError(
        f"{argument}={value!r} is not a byte size. Write for example '5MB', '64 MiB', '1GB', or a whole number of bytes."
    )
