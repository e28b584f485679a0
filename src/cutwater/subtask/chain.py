"""The operators of one subtask, wired to each other and to the outgoing edges."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import pyarrow as pa

from cutwater.errors import CutwaterError
from cutwater.flow.elements import Milliseconds
from cutwater.flow.ids import CheckpointId
from cutwater.graph.chaining import Vertex
from cutwater.graph.logical import NodeKind
from cutwater.operators.operator import Operator, OperatorContext, OperatorSnapshot

Send = Callable[[pa.RecordBatch], None]

_FAILURES = (Exception, SystemExit)
"""``sys.exit`` in a user's function is a failure of that function, not a way to end the job."""


class OperatorFailure(CutwaterError):
    """Something raised inside an operator: the uid says where, the cause says what."""

    def __init__(self, uid: str, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.uid = uid
        self.__cause__ = cause


@contextmanager
def failures_of(uid: str) -> Iterator[None]:
    """Failures inside are those of ``uid``, unless an operator further down already took the blame."""
    try:
        yield
    except OperatorFailure:
        raise
    except _FAILURES as error:
        raise OperatorFailure(uid, error) from error


class _Outlet:
    """The Collector of one operator: hands batches to whoever reads it."""

    def __init__(self) -> None:
        self.main: list[Send] = []
        self.side: dict[str, list[Send]] = {}

    def emit(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            for send in self.main:
                send(batch)

    def emit_side(self, tag: str, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            for send in self.side.get(tag, ()):
                send(batch)

    def add(self, tag: str | None, send: Send) -> None:
        (self.main if tag is None else self.side.setdefault(tag, [])).append(send)


class Chain:
    """Runs on the subtask's loop, except ``complete`` which runs on the commit thread."""

    def __init__(self, vertex: Vertex, sends: Iterable[tuple[str, str | None, Send]]) -> None:
        """``sends``: for each outgoing edge, the operator and side output it reads and where its batches go."""
        self._vertex = vertex
        self.records_written = 0
        self._outlets: dict[str, _Outlet] = {node.uid: _Outlet() for node in vertex.members}
        self._operators: dict[str, Operator] = {
            node.uid: node.body
            for node in vertex.members
            if node.kind is not NodeKind.SOURCE and isinstance(node.body, Operator)
        }
        for link in vertex.links:
            self._outlets[link.source].add(link.tag, self._into(link.target, link.port))
        for uid, tag, send in sends:
            self._outlets[uid].add(tag, send)
        self._opened: list[str] = []

    @property
    def uids(self) -> tuple[str, ...]:
        return tuple(self._operators)

    def _into(self, uid: str, port: int) -> Send:
        operator, outlet = self._operators[uid], self._outlets[uid]
        is_sink = any(node.uid == uid and node.kind is NodeKind.SINK for node in self._vertex.members)

        def send(batch: pa.RecordBatch) -> None:
            try:
                operator.process(batch, port, outlet)
            except OperatorFailure:
                raise
            except _FAILURES as error:
                raise OperatorFailure(uid, error) from error
            if is_sink:
                self.records_written += batch.num_rows

        return send

    def open(self, context_of: Callable[[str, str], OperatorContext]) -> None:
        for node in self._vertex.members:
            if node.uid in self._operators:
                self._opened.append(node.uid)
                with failures_of(node.uid):
                    self._operators[node.uid].open(context_of(node.uid, node.name))

    def entry(self, port: int) -> Send:
        """Where records for the head operator go in."""
        return self._into(self._vertex.head.uid, port)

    def source_outlet(self) -> _Outlet:
        """Where a source's records go in: behind the source itself."""
        return self._outlets[self._vertex.head.uid]

    def _each(self, act: Callable[[Operator, _Outlet], Any]) -> None:
        for uid, operator in self._operators.items():
            with failures_of(uid):
                act(operator, self._outlets[uid])

    def let_go(self) -> None:
        """Emit whatever operators hold back: before a barrier, and when no more input is near."""
        self._each(lambda operator, out: operator.before_barrier(out))

    def end_of_input(self, *, drain: bool) -> None:
        """In chain order, so that what one operator still emits reaches the next before that one ends."""
        self._each(lambda operator, out: operator.end_of_input(out, drain=drain))

    def snapshot(self, checkpoint: CheckpointId) -> Mapping[str, OperatorSnapshot]:
        frozen: dict[str, OperatorSnapshot] = {}
        for uid, operator in self._operators.items():
            with failures_of(uid):
                taken = operator.snapshot(checkpoint)
            if taken is not None:
                frozen[uid] = taken
        return frozen

    def next_timer(self) -> Milliseconds | None:
        due = [timer for operator in self._operators.values() if (timer := operator.next_timer()) is not None]
        return min(due, default=None)

    def on_processing_time(self, now: Milliseconds) -> None:
        self._each(lambda operator, out: operator.on_processing_time(now, out))

    def complete(self, checkpoint: CheckpointId) -> None:
        for uid, operator in self._operators.items():
            with failures_of(uid):
                operator.checkpoint_completed(checkpoint)

    def close(self) -> None:
        """Once, every operator that was asked to open, in chain order, also when one of them raises."""
        with ExitStack() as stack:
            for uid in reversed(self._opened):
                stack.callback(self._close, uid)
            self._opened = []

    def _close(self, uid: str) -> None:
        with failures_of(uid):
            self._operators[uid].close()
