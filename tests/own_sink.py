"""A sink as users write them."""

from typing import Any

import cutwater as cw


class OwnSink(cw.TwoPhaseCommitSink):
    """Two-phase, with nothing outside: for what is decided about such a sink before it writes."""

    def __init__(self, transaction_timeout: Any = None) -> None:
        self.transaction_timeout = transaction_timeout

    def begin(self, name: str) -> str:
        return name

    def write(self, txn: str, batch: Any) -> None: ...

    def prepare(self, txn: str) -> str:
        return txn

    def commit(self, committable: str) -> None: ...

    def abort(self, committable: str) -> None: ...
