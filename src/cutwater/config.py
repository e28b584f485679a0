"""How a job takes its checkpoints: validated once, when the user writes it, and only read afterwards."""

import re
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TypeVar

from cutwater.arguments import takes_no_others
from cutwater.byte_size import ByteSize, parse_byte_size
from cutwater.checkpoint.storage_url import folder_of
from cutwater.duration import Duration, parse_duration
from cutwater.errors import ConfigError


class CheckpointMode(StrEnum):
    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"


class OnCancel(StrEnum):
    """What becomes of the checkpoints when the job is canceled."""

    RETAIN = "retain"
    DELETE = "delete"


class OnDamaged(StrEnum):
    """Whether a restore may go past a damaged checkpoint whose output may be committed."""

    FAIL = "fail"
    FALLBACK = "fallback"


@dataclass(frozen=True, slots=True)
class MemoryStorageSetting:
    """Checkpoints that live and die with the driver. A state of one subtask over ``max_state`` bytes is declined."""

    max_state: int


@takes_no_others
def memory_storage(max_state: ByteSize = "5MB") -> MemoryStorageSetting:
    """``storage="memory"`` with a limit of its own: what one subtask may store of one state."""
    return MemoryStorageSetting(parse_byte_size("max_state", max_state))


Storage = str | MemoryStorageSetting

_STORAGE_URL = re.compile(r"file:.+|(?:hdfs|s3|gs|az)://.+")
_Choice = TypeVar("_Choice", bound=StrEnum)


@takes_no_others
@dataclass(frozen=True, slots=True, init=False)
class Checkpointing:
    """Every setting, valid and in one form: durations are ``timedelta``, choices are enums, ``"memory"`` is its setting.

    ``min_pause`` counts from the end of one periodic checkpoint to the start of the next and makes ``max_concurrent`` 1,
    whatever was asked for. A zero ``min_pause`` is none; a zero ``aligned_timeout`` is an unaligned cut at once.
    ``max_in_flight`` is the most that an unaligned checkpoint stores of rows that it overtook on their way to one subtask.
    ``stop_the_world`` is the naive algorithm (pause the sources, drain, copy, resume), there to be compared with.
    """

    interval: timedelta
    storage: Storage
    mode: CheckpointMode
    min_pause: timedelta | None
    timeout: timedelta
    max_concurrent: int
    tolerable_failures: int
    unaligned: bool
    aligned_timeout: timedelta | None
    max_in_flight: int
    retain: int
    on_cancel: OnCancel
    on_damaged: OnDamaged
    stop_the_world: bool

    def __init__(
        self,
        interval: Duration = "10s",
        *,
        storage: Storage = "file:checkpoints",
        mode: str = "exactly_once",
        min_pause: Duration | None = None,
        timeout: Duration = "10 min",
        max_concurrent: int = 1,
        tolerable_failures: int = 3,
        unaligned: bool = False,
        aligned_timeout: Duration | None = None,
        max_in_flight: ByteSize = "256MB",
        retain: int = 2,
        on_cancel: str = "retain",
        on_damaged: str = "fail",
        stop_the_world: bool = False,
    ) -> None:
        chosen_mode = _choice("mode", mode, CheckpointMode)
        pause = _optional_duration("min_pause", min_pause)
        concurrent = _whole_number("max_concurrent", max_concurrent, at_least=1)
        if pause is not None:
            concurrent = 1
        for name, flag in (("unaligned", unaligned), ("stop_the_world", stop_the_world)):
            check_flag(name, flag)
        _refuse_impossible_cuts(chosen_mode, concurrent, unaligned=unaligned, aligned_timeout=aligned_timeout)
        whole, aligned = parse_duration("timeout", timeout), _optional_duration("aligned_timeout", aligned_timeout)
        if aligned is not None and aligned >= whole:
            raise ConfigError(
                f"aligned_timeout={aligned_timeout!r} with timeout={timeout!r}: a checkpoint would have failed before its cut "
                "becomes unaligned; aligned_timeout must be the shorter one."
            )
        if unaligned and stop_the_world:
            raise ConfigError(
                "stop_the_world=True with unaligned=True: sources that stand still until all is drained leave nothing to "
                "overtake; one of the two is allowed."
            )
        values: dict[str, object] = {
            "interval": parse_duration("interval", interval),
            "storage": _storage(storage),
            "mode": chosen_mode,
            "min_pause": pause,
            "timeout": whole,
            "max_concurrent": concurrent,
            "tolerable_failures": _whole_number("tolerable_failures", tolerable_failures, at_least=0),
            "unaligned": unaligned,
            "aligned_timeout": aligned,
            "max_in_flight": parse_byte_size("max_in_flight", max_in_flight),
            "retain": _whole_number("retain", retain, at_least=1),
            "on_cancel": _choice("on_cancel", on_cancel, OnCancel),
            "on_damaged": _choice("on_damaged", on_damaged, OnDamaged),
            "stop_the_world": stop_the_world,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)


def check_flag(argument: str, value: object) -> None:
    """``"no"`` is true to Python; to whoever wrote it, it is not."""
    if not isinstance(value, bool):
        raise ConfigError(f"{argument}={value!r}: allowed are True and False.")


def _refuse_impossible_cuts(mode: CheckpointMode, concurrent: int, *, unaligned: bool, aligned_timeout: object) -> None:
    if aligned_timeout is not None and not unaligned:
        raise ConfigError(
            f"aligned_timeout={aligned_timeout!r} needs unaligned=True: when the timeout has passed, the cut is unaligned."
        )
    if unaligned and concurrent > 1:
        raise ConfigError(
            f"max_concurrent={concurrent} with unaligned=True: unaligned checkpoints run one at a time, only "
            "max_concurrent=1 is allowed."
        )
    if unaligned and mode is not CheckpointMode.EXACTLY_ONCE:
        raise ConfigError(
            f"unaligned=True with mode={mode.value!r}: an unaligned cut is exactly once by its nature, only "
            "mode='exactly_once' is allowed."
        )


def _storage(value: object) -> Storage:
    match value:
        case MemoryStorageSetting():
            return value
        case str("memory"):
            return memory_storage()
        case str() if _STORAGE_URL.fullmatch(value):
            if value[:5].lower() == "file:":
                folder_of(value)  # raises ConfigError if it names none
            return value
    hint = f" Did you mean 'file:{value}'?" if isinstance(value, str) and value and ":" not in value else ""
    raise ConfigError(
        f"storage={value!r}: allowed are 'memory', cw.memory_storage(...), 'file:...', 'hdfs://...', 's3://...', "
        f"'gs://...' and 'az://...'.{hint}"
    )


def _optional_duration(argument: str, value: Duration | None) -> timedelta | None:
    """Zero and None mean the same here."""
    if value is None:
        return None
    return parse_duration(argument, value, allow_zero=True) or None


def _whole_number(argument: str, value: object, *, at_least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise ConfigError(f"{argument}={value!r}: allowed is a whole number, at least {at_least}.")
    return value


def _choice(argument: str, value: object, choices: type[_Choice]) -> _Choice:
    # What is no text may compare in its own way: an expression of Polars is neither equal nor unequal to anything.
    for choice in choices:
        if isinstance(value, str) and value == choice:
            return choice
    allowed = ", ".join(repr(choice.value) for choice in choices)
    raise ConfigError(f"{argument}={value!r}: allowed are {allowed}.")
