"""Which checkpoint to restore when the latest may be damaged: never silently past output that may be visible."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cutwater.flow.ids import CheckpointId

OnDamaged = Literal["fail", "fallback"]

LOWERED = "so that this run guarantees at least once instead of exactly once"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A checkpoint that could be restored. ``problem`` says what is damaged; None: every file matched its checksum.

    ``path``: where it stands if it is not in the job's own folder; ``id`` then says only how new it is among the others.
    ``taken``: the id under which the job's own folder has what stood at ``path``.
    """

    id: CheckpointId
    problem: str | None = None
    path: str | None = None
    taken: CheckpointId | None = None

    def __str__(self) -> str:
        return f"checkpoint {self.id}" if self.path is None else self.path


@dataclass(frozen=True, slots=True)
class NothingToRestore:
    """No checkpoint was ever completed and nothing was committed: start from the beginning."""


@dataclass(frozen=True, slots=True)
class RestoreLatest:
    to: Candidate


@dataclass(frozen=True, slots=True)
class FallBack:
    to: Candidate
    warning: str
    """For the job's log. Also says so if the output between is then guaranteed at least once only."""


@dataclass(frozen=True, slots=True)
class RefuseRestore:
    report: str


RestoreOutcome = NothingToRestore | RestoreLatest | FallBack | RefuseRestore


def choose_after_damage(
    candidates: Sequence[Candidate],
    committed: CheckpointId | None,
    *,
    completed_before: bool = False,
    all_sinks_idempotent: bool,
    on_damaged: OnDamaged,
) -> RestoreOutcome:
    """``committed``: the highest checkpoint whose commit may have begun; everything up to it may be visible outside.

    A checkpoint that was committed and is missing altogether counts as a damaged one. ``completed_before``: earlier attempts
    have completed some, whether or not any is among the candidates.
    """
    newest_first = sorted(candidates, key=lambda each: each.id, reverse=True)
    intact = next((each for each in newest_first if each.problem is None), None)
    skipped = [each for each in newest_first if intact is None or each.id > intact.id]
    problems = [f"{each}: {each.problem}" for each in skipped]
    crossed = committed if committed is not None and (intact is None or committed > intact.id) else None
    if crossed is not None and crossed not in [each.id for each in skipped]:
        problems.insert(0, f"checkpoint {crossed}: it is missing, and its output may be visible")
    if completed_before and not candidates and not problems:
        problems.append("the job has completed checkpoints, and none is left")
    damage = "".join(f"\n  {problem}" for problem in problems)
    if intact is None:
        if not problems:
            return NothingToRestore()
        return RefuseRestore(f"No intact checkpoint to restore:{damage}\nRestore a savepoint, or use restore='fresh'.")
    if not problems:
        return RestoreLatest(intact)
    if crossed is None:
        return FallBack(intact, f"Falls back to {intact}; no newer output was committed.{damage}")
    if all_sinks_idempotent:
        return FallBack(intact, f"Falls back to {intact}; all sinks are idempotent.{damage}")
    twice = f"output of checkpoints {intact.id + 1} to {crossed}"
    if on_damaged == "fallback":
        accepted = f"on_damaged='fallback': {twice} may be written twice, {LOWERED}"
        return FallBack(intact, f"Falls back to {intact} because of {accepted}.{damage}")
    return RefuseRestore(
        f"Restoring {intact}, the latest intact one, would write {twice} twice, because checkpoint {crossed} may have been "
        f"committed.{damage}\n"
        f"Repair the damaged files, or set on_damaged='fallback' to accept duplicates, or use restore='fresh'."
    )
