"""A rule taken away on purpose, and the search for a schedule that notices."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.world import Setting

Patch = pytest.MonkeyPatch


@dataclass(frozen=True, slots=True)
class Variant:
    """``break_it`` takes the rule away; ``settings`` say where to look for the damage."""

    rule: str
    break_it: Callable[[Patch], None]
    topology: str
    settings: dict[str, Any]
    kind: type[Setting] = Setting
    first_seed: int = 0
    """Where a schedule is known to notice it: those before need not be tried each time."""

    def setting(self, seed: int) -> Setting:
        return self.kind(self.topology, seed, **self.settings)

    def __str__(self) -> str:
        return self.break_it.__name__.removeprefix("_")


def check_that_it_is_caught(
    variant: Variant, monkeypatch: Patch, judge: Callable[[Setting], object], most_seeds: int
) -> None:
    """``judge`` raises at a setting where the rule is missing, and does not at the same one where it is kept."""
    with monkeypatch.context() as patch:
        variant.break_it(patch)
        seeds = range(variant.first_seed, variant.first_seed + most_seeds)
        caught = next((seed for seed in seeds if _fails(variant.setting(seed), judge)), None)
    assert caught is not None, f"no schedule among {most_seeds} noticed that {variant.rule} is broken"
    judge(variant.setting(caught))


def _require_fault_of_the_product(failure: BaseException) -> None:
    """A variant that stumbles over its own code breaks no rule."""
    cause: BaseException | None = failure
    while cause is not None:
        if isinstance(cause, TypeError | AttributeError | NameError):
            where = traceback.extract_tb(cause.__traceback__)[-1]
            assert "tests" not in Path(where.filename).parts, f"{where.filename}:{where.lineno}: {cause}"
        cause = cause.__cause__ or cause.__context__


def _fails(setting: Setting, judge: Callable[[Setting], object]) -> bool:
    try:
        judge(setting)
    except Exception as failure:
        _require_fault_of_the_product(failure)
        print(f"seed {setting.seed}: {type(failure).__name__}: {str(failure)[:300]}")
        return True
    return False
