"""Key groups: the unit in which keyed state is owned, stored and moved."""

from dataclasses import dataclass

from cutwater.errors import ConfigError

MIN_DEFAULT_MAX_PARALLELISM = 128
MAX_MAX_PARALLELISM = 32768


@dataclass(frozen=True, slots=True)
class KeyGroupRange:
    """First and last key group that a subtask owns, both included."""

    first: int
    last: int

    def __contains__(self, group: int) -> bool:
        return self.first <= group <= self.last

    def __len__(self) -> int:
        return self.last - self.first + 1


def default_max_parallelism(parallelism: int) -> int:
    """Next power of two of 1.5 times the parallelism, between 128 and 32768. Fixed for a job's whole life."""
    _check_positive("parallelism", parallelism)
    wanted = (3 * parallelism + 1) // 2
    power = 1 << (wanted - 1).bit_length()
    return min(max(power, MIN_DEFAULT_MAX_PARALLELISM), MAX_MAX_PARALLELISM)


def key_group_range(subtask: int, parallelism: int, max_parallelism: int) -> KeyGroupRange:
    """The groups that ``subtask`` owns: [ceil(i*maxP/p), ceil((i+1)*maxP/p) - 1]."""
    check_parallelism(parallelism, max_parallelism)
    if not 0 <= subtask < parallelism:
        raise ConfigError(f"subtask={subtask}: must be from 0 to {parallelism - 1} at parallelism {parallelism}.")
    first = -(-subtask * max_parallelism // parallelism)
    after = -(-(subtask + 1) * max_parallelism // parallelism)
    return KeyGroupRange(first, after - 1)


def subtask_of_group(group: int, parallelism: int, max_parallelism: int) -> int:
    """The subtask that owns ``group``: the inverse of ``key_group_range``."""
    return group * parallelism // max_parallelism


def likely_owner(groups: KeyGroupRange, max_parallelism: int) -> int:
    """The subtask that owns just these, at the parallelism that makes ranges of about their size."""
    size = len(groups)
    likely = range(max(1, max_parallelism // (size + 1)), max_parallelism // max(1, size - 1) + 1)
    for parallelism in sorted(likely, key=lambda each: abs(each * size - max_parallelism)):
        subtask = subtask_of_group(groups.first, parallelism, max_parallelism)
        if key_group_range(subtask, parallelism, max_parallelism) == groups:
            return subtask
    return 0


def check_parallelism(parallelism: int, max_parallelism: int) -> None:
    """Refuse a pair under which some subtask would own no key group."""
    _check_positive("parallelism", parallelism)
    _check_positive("max_parallelism", max_parallelism)
    if max_parallelism > MAX_MAX_PARALLELISM:
        raise ConfigError(f"max_parallelism={max_parallelism}: at most {MAX_MAX_PARALLELISM} is allowed.")
    if parallelism > max_parallelism:
        raise ConfigError(
            f"parallelism={parallelism} is higher than max_parallelism={max_parallelism}: some subtasks would own no keys. "
            f"Lower the parallelism, or start fresh with a higher max_parallelism."
        )


def _check_positive(argument: str, value: int) -> None:
    if value < 1:
        raise ConfigError(f"{argument}={value}: must be 1 or more.")
