"""Which checkpoint to restore when the latest may be damaged: never silently past output that may be visible."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cutwater.flow.ids import CheckpointId

OnDamaged = Literal["fail", "fallback"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A checkpoint that could be restored. ``problem`` says what is damaged; None: every file matched its checksum.

    ``path``: where it stands if it is not in the job's own folder; ``id`` then says only how new it is among the others.
    """

    id: CheckpointId
    problem: str | None = None
    path: str | None = None

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
    """``lowers_guarantee``: output between may be written twice; the stated guarantee is at least once from here on."""

    to: Candidate
    warning: str
    lowers_guarantee: bool


@dataclass(frozen=True, slots=True)
class RefuseRestore:
    report: str


RestoreOutcome = NothingToRestore | RestoreLatest | FallBack | RefuseRestore


def choose_after_damage(
    candidates: Sequence[Candidate],
    committed: CheckpointId | None,
    *,
    all_sinks_idempotent: bool,
    on_damaged: OnDamaged,
) -> RestoreOutcome:
    """``committed``: the highest checkpoint whose commit may have begun; everything up to it may be visible outside.

    A checkpoint that was committed and is missing altogether counts as a damaged one.
    """
    newest_first = sorted(candidates, key=lambda each: each.id, reverse=True)
    intact = next((each for each in newest_first if each.problem is None), None)
    skipped = [each for each in newest_first if intact is None or each.id > intact.id]
    problems = [f"{each}: {each.problem}" for each in skipped]
    crossed = committed if committed is not None and (intact is None or committed > intact.id) else None
    if crossed is not None and crossed not in [each.id for each in skipped]:
        problems.insert(0, f"checkpoint {crossed}: it is missing, and its output may be visible")
    damage = "".join(f"\n  {problem}" for problem in problems)
    if intact is None:
        if not problems:
            return NothingToRestore()
        return RefuseRestore(f"No intact checkpoint to restore:{damage}\nRestore a savepoint, or use restore='fresh'.")
    if not problems:
        return RestoreLatest(intact)
    if crossed is None:
        return FallBack(
            intact, f"Falls back to {intact}; no newer output was committed.{damage}", lowers_guarantee=False
        )
    if all_sinks_idempotent:
        return FallBack(intact, f"Falls back to {intact}; all sinks are idempotent.{damage}", lowers_guarantee=False)
    twice = f"output of checkpoints {intact.id + 1} to {crossed}"
    if on_damaged == "fallback":
        warning = f"Falls back to {intact} because of on_damaged='fallback': {twice} may be written twice.{damage}"
        return FallBack(intact, warning, lowers_guarantee=True)
    return RefuseRestore(
        f"Restoring {intact}, the latest intact one, would write {twice} twice, because checkpoint {crossed} may have been "
        f"committed.{damage}\n"
        f"Repair the damaged files, or set on_damaged='fallback' to accept duplicates, or use restore='fresh'."
    )
