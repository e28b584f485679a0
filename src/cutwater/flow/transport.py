"""How a subtask sees the exchange. Two implementations: Spark's (``spark/transport.py``) and the in-process one (``testing``).

A transport feeds every row that arrives, in channel order, to ``RowReceiver.offer`` (again and again while it is refused:
that is the back pressure), and pulls the subtask's steps: it carries an ``Emit`` to its targets, blocking or suspending the
subtask while they are full, and lets a subtask that said ``Wait`` rest until something happens.
"""

from dataclasses import dataclass
from typing import Protocol

from cutwater.flow.envelope import Row


class RowReceiver(Protocol):
    def offer(self, row: Row) -> bool:
        """Take the row in; False: no room now, offer the same row again later."""


@dataclass(frozen=True, slots=True)
class Emit:
    """Rows for the next level. ``urgent``: they, and all rows before them, must arrive without waiting for later ones."""

    rows: tuple[Row, ...]
    urgent: bool


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do until a row or message comes, or ``seconds`` have passed."""

    seconds: float | None


Step = Emit | Wait
