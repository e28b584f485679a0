"""``--set key=value``: settings of the Spark session, and of the checkpoints."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from cutwater.config import Checkpointing
from cutwater.errors import ConfigError

DEFAULT_CHECKPOINTING = Checkpointing()
_CHECKPOINT_SETTINGS = tuple(each.name for each in fields(Checkpointing))


@dataclass(frozen=True, slots=True)
class Settings:
    spark: dict[str, str] = field(default_factory=dict)
    checkpointing: dict[str, Any] = field(default_factory=dict)

    def over(self, checkpointing: Checkpointing | None) -> Checkpointing | None:
        """What was said on the command line counts; the rest stays as the program says."""
        if not self.checkpointing:
            return checkpointing
        return replace(checkpointing or DEFAULT_CHECKPOINTING, **self.checkpointing)


def parse(pairs: Sequence[str], storage: str | None) -> Settings:
    spark: dict[str, str] = {}
    checkpointing: dict[str, Any] = {} if storage is None else {"storage": storage}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals):
            raise ConfigError(f"--set {pair}: write --set key=value.")
        if key.startswith("spark."):
            spark[key] = value
        elif key in _CHECKPOINT_SETTINGS:
            checkpointing[key] = _typed(value)
        else:
            raise ConfigError(
                f"--set {pair}: {key!r} is no setting. Allowed are spark.* and those of cw.Checkpointing: "
                f"{', '.join(_CHECKPOINT_SETTINGS)}."
            )
    return Settings(spark, checkpointing)


def _typed(value: str) -> Any:
    match value.lower():
        case "true" | "false":
            return value.lower() == "true"
        case "none":
            return None
        case _:
            return int(value) if re.fullmatch(r"-?\d+", value) else value
