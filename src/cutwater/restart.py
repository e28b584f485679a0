"""Whether and when a failed job starts again: settings as users write them, and one pure decision on each."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from cutwater.arguments import takes_no_others
from cutwater.duration import Duration, parse_duration
from cutwater.errors import ConfigError


@dataclass(frozen=True, slots=True)
class AttemptFailure:
    """One attempt that failed, in seconds of the clock of ``now``. ``started_at`` is None if it never came to run.

    Waiting for free slots is no failure and never stands in a history.
    """

    started_at: float | None
    failed_at: float


@dataclass(frozen=True, slots=True)
class RestartAfter:
    delay: timedelta


@dataclass(frozen=True, slots=True)
class GiveUp:
    reason: str


RestartDecision = RestartAfter | GiveUp


class RestartStrategy(Protocol):
    @property
    def longest_delay(self) -> timedelta: ...

    def next_restart(
        self, history: Sequence[AttemptFailure], now: float, random: Callable[[], float]
    ) -> RestartDecision:
        """``history`` holds every failure of this run, oldest first, the one to decide on last. ``random`` gives [0, 1)."""


def is_strategy(value: object) -> bool:
    return hasattr(value, "next_restart") and hasattr(value, "longest_delay")


@dataclass(frozen=True, slots=True)
class FixedDelay:
    attempts: int
    delay: timedelta

    @property
    def longest_delay(self) -> timedelta:
        return self.delay

    def next_restart(
        self, history: Sequence[AttemptFailure], now: float, random: Callable[[], float]
    ) -> RestartDecision:
        if len(history) > self.attempts:
            return GiveUp(f"{len(history)} failures, and fixed_delay allows {_times(self.attempts, 'restart')}")
        return RestartAfter(self.delay)


@dataclass(frozen=True, slots=True)
class ExponentialDelay:
    """The delay grows with each failure and starts over after an attempt that ran for ``reset_after``. Never gives up."""

    initial: timedelta
    max: timedelta
    multiplier: float
    jitter: float
    reset_after: timedelta

    @property
    def longest_delay(self) -> timedelta:
        return self.max

    def next_restart(
        self, history: Sequence[AttemptFailure], now: float, random: Callable[[], float]
    ) -> RestartDecision:
        in_a_row = 0
        for failure in reversed(history):
            in_a_row += 1
            if (
                failure.started_at is not None
                and failure.failed_at - failure.started_at >= self.reset_after.total_seconds()
            ):
                break
        initial, longest = self.initial.total_seconds(), self.max.total_seconds()
        # Compared as logarithms: multiplier ** failures overflows in a job that fails for a night.
        steps = max(0, in_a_row - 1)
        if self.multiplier > 1 and steps * math.log(self.multiplier) >= math.log(longest / initial):
            delay = longest
        else:
            delay = initial * self.multiplier**steps
        spread = delay * self.jitter * (2 * random() - 1)
        return RestartAfter(timedelta(seconds=min(longest, delay + spread)))


@dataclass(frozen=True, slots=True)
class FailureRate:
    max_failures: int
    per: timedelta
    delay: timedelta

    @property
    def longest_delay(self) -> timedelta:
        return self.delay

    def next_restart(
        self, history: Sequence[AttemptFailure], now: float, random: Callable[[], float]
    ) -> RestartDecision:
        recent = sum(1 for failure in history if now - failure.failed_at < self.per.total_seconds())
        if recent > self.max_failures:
            return GiveUp(f"{recent} failures within {self.per}, and failure_rate allows {self.max_failures}")
        return RestartAfter(self.delay)


@dataclass(frozen=True, slots=True)
class NoRestart:
    @property
    def longest_delay(self) -> timedelta:
        """Whoever starts the job again does so when he sees that it failed: nobody knows when."""
        return timedelta(0)

    def next_restart(
        self, history: Sequence[AttemptFailure], now: float, random: Callable[[], float]
    ) -> RestartDecision:
        return GiveUp("restarting is switched off (no_restart)")


@takes_no_others
def fixed_delay(attempts: int = 3, delay: Duration = "1s") -> FixedDelay:
    """At most ``attempts`` restarts in the whole run, each after ``delay``."""
    if not _is_whole(attempts) or attempts < 1:
        raise ConfigError(
            f"attempts={attempts!r}: allowed is a whole number, at least 1. To never restart, write cw.no_restart()."
        )
    return FixedDelay(attempts, parse_duration("delay", delay, allow_zero=True))


@takes_no_others
def exponential_delay(
    initial: Duration = "1s",
    max: Duration = "1 min",
    multiplier: float = 2.0,
    jitter: float = 0.1,
    reset_after: Duration = "10 min",
) -> ExponentialDelay:
    """``initial``, then ``multiplier`` times as long each time, up to ``max``; each spread by ``jitter`` of itself."""
    first, longest = parse_duration("initial", initial), parse_duration("max", max)
    if longest < first:
        raise ConfigError(f"max={max!r}: must not be shorter than initial={initial!r}.")
    if not _is_number(multiplier) or multiplier < 1:
        raise ConfigError(f"multiplier={multiplier!r}: allowed is a number, at least 1.")
    if not _is_number(jitter) or not 0 <= jitter <= 1:
        raise ConfigError(f"jitter={jitter!r}: allowed is a number from 0 to 1 (the part of the delay it varies by).")
    return ExponentialDelay(
        first, longest, float(multiplier), float(jitter), parse_duration("reset_after", reset_after)
    )


@takes_no_others
def failure_rate(max_failures: int = 3, per: Duration = "5 min", delay: Duration = "1s") -> FailureRate:
    """Restart after ``delay``, unless more than ``max_failures`` fell within the last ``per``."""
    if not _is_whole(max_failures) or max_failures < 1:
        raise ConfigError(
            f"max_failures={max_failures!r}: allowed is a whole number, at least 1. To never restart, write cw.no_restart()."
        )
    return FailureRate(max_failures, parse_duration("per", per), parse_duration("delay", delay, allow_zero=True))


@takes_no_others
def no_restart() -> NoRestart:
    """The first failure ends the job."""
    return NoRestart()


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _times(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
