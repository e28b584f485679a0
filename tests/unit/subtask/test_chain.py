"""The chain of a subtask's operators: who is blamed, and what is closed."""

from typing import Any

import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.connectors.sink import PlainSink
from cutwater.operators.operator import Operator, OperatorContext
from cutwater.subtask.chain import Chain, OperatorFailure, failures_of

NOTED: list[str] = []


class Noting(Operator):
    """Passes rows on; breaks at ``open`` or at ``close`` if it is told to."""

    def __init__(self, name: str, *breaks: str) -> None:
        self.name, self.breaks = name, breaks

    def output_schema(self, inputs: Any) -> pa.Schema:
        return inputs[0]

    def open(self, ctx: OperatorContext) -> None:
        self._note("open")

    def process(self, batch: pa.RecordBatch, port: int, out: Any) -> None:
        self._note("process")
        out.emit(batch)

    def close(self) -> None:
        self._note("close")

    def _note(self, what: str) -> None:
        NOTED.append(f"{what} {self.name}")
        if what in self.breaks:
            raise OSError(f"{self.name} does not {what}")


class Nowhere(PlainSink):
    def write(self, batch: pa.RecordBatch) -> None:
        """Not called here."""


def chain_of(*operators: Noting) -> Chain:
    env = cw.Environment(parallelism=1)
    stream = env.read(cw.sequence(1), uid="numbers")
    for operator in operators:
        stream = stream.map(lambda row: row, "value long").uid(operator.name)
    stream.write(Nowhere(), uid="out")
    bodies = {operator.name: operator for operator in (*operators, Noting("out"))}
    for draft in env.drafts:
        draft.body = bodies.get(draft.uid or "", draft.body)
    NOTED.clear()
    return Chain(env.define("job", 1).plan.vertices[0], ())


def open_(chain: Chain) -> None:
    chain.open(lambda uid, name: None)  # type: ignore[arg-type, return-value]  # nothing here looks at it


def test_exit_in_an_operator_is_a_failure_of_that_operator_but_an_interrupt_is_not() -> None:
    with pytest.raises(OperatorFailure) as failure, failures_of("out"), failures_of("numbers"):
        raise SystemExit(3)
    assert failure.value.uid == "numbers"
    assert isinstance(failure.value.__cause__, SystemExit)
    with pytest.raises(KeyboardInterrupt), failures_of("numbers"):
        raise KeyboardInterrupt


def test_only_what_was_asked_to_open_is_closed() -> None:
    chain = chain_of(Noting("a"), Noting("b", "open"), Noting("c"))
    chain.close()
    assert NOTED == []
    with pytest.raises(OperatorFailure, match="b does not open"):
        open_(chain)
    chain.close()
    assert NOTED == ["open a", "open b", "close a", "close b"]


def test_a_close_that_fails_is_blamed_on_its_operator_and_keeps_no_other_open() -> None:
    chain = chain_of(Noting("a"), Noting("b", "close"), Noting("c"))
    open_(chain)
    with pytest.raises(OperatorFailure, match="b does not close") as failure:
        chain.close()
    assert failure.value.uid == "b"
    assert NOTED[4:] == ["close a", "close b", "close c", "close out"]
    chain.close()
    assert NOTED[8:] == [], "once"
