"""A store with tables of every kind in it, one or several of each, and what the contract of backends looks for in them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cutwater.state.backend import KeyedStateStore
from cutwater.testing.contract_tables import KINDS, Joins, Kind


@dataclass(frozen=True, slots=True)
class Numbered:
    """``number``: among those of its kind."""

    kind: Kind
    number: int

    @property
    def name(self) -> str:
        return f"{self.kind.name.replace(' ', '_')}_{self.number}"

    @property
    def frozen_as(self) -> Sequence[str]:
        return [f"{self.name}.left", f"{self.name}.right"] if isinstance(self.kind, Joins) else [self.name]

    def open(self, store: KeyedStateStore) -> Any:
        return self.kind.open(store, self.name)

    def write(self, table: Any, steps: Iterable[int]) -> None:
        for step in steps:
            self.kind.write(table, step)

    def content_of(self, steps: Iterable[int]) -> Any:
        """That a table must have which they were written to."""
        model = self.kind.of_memory()
        self.write(model, steps)
        return self.kind.content(model)


def numbered(count: int) -> Sequence[Numbered]:
    """So many of each kind."""
    return [Numbered(kind, number) for number in range(count) for kind in KINDS]
