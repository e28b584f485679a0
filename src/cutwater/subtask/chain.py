"""The operators of one subtask, wired to each other and to the outgoing edges."""

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import pyarrow as pa

from cutwater.errors import CutwaterError
from cutwater.flow.ids import CheckpointId
from cutwater.flow.watermarks import Milliseconds
from cutwater.graph.chaining import Vertex
from cutwater.graph.logical import Node, NodeKind
from cutwater.operators.operator import Operator, OperatorContext, OperatorSnapshot


class Receiver(Protocol):
    """Who reads an operator's output: the next operator of the chain, or an edge that leaves it."""

    def __call__(self, batch: pa.RecordBatch) -> None: ...

    def advance(self, watermark: Milliseconds) -> None: ...

    def rest(self) -> None:
        """No records for now, and the watermark holds nobody back."""


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
    """The Collector of one operator: hands batches to whoever reads it. Time is the same for all of its outputs."""

    def __init__(self) -> None:
        self.main: list[Receiver] = []
        self.side: dict[str, list[Receiver]] = {}

    def emit(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            for send in self.main:
                send(batch)

    def emit_side(self, tag: str, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            for send in self.side.get(tag, ()):
                send(batch)

    def advance(self, watermark: Milliseconds) -> None:
        for receiver in self._receivers():
            receiver.advance(watermark)

    def rest(self) -> None:
        for receiver in self._receivers():
            receiver.rest()

    def add(self, tag: str | None, receiver: Receiver) -> None:
        (self.main if tag is None else self.side.setdefault(tag, [])).append(receiver)

    def _receivers(self) -> list[Receiver]:
        return [*self.main, *(receiver for tagged in self.side.values() for receiver in tagged)]


class _Into:
    """The way into one operator of the chain."""

    def __init__(self, chain: "Chain", node: Node, operator: Operator, outlet: _Outlet, port: int) -> None:
        self._chain = chain
        self._uid = node.told_as
        self._is_sink = node.kind is NodeKind.SINK
        self._operator = operator
        self._outlet = outlet
        self._port = port

    def __call__(self, batch: pa.RecordBatch) -> None:
        try:
            self._operator.process(batch, self._port, self._outlet)
        except OperatorFailure:
            raise
        except _FAILURES as error:
            raise OperatorFailure(self._uid, error) from error
        if self._is_sink:
            self._chain.records_written += batch.num_rows

    def advance(self, watermark: Milliseconds) -> None:
        for _ in self.advancing(watermark):
            pass

    def advancing(self, watermark: Milliseconds) -> Iterator[None]:
        """The same in steps: what it passed on so far may leave the subtask between them."""
        with failures_of(self._uid):
            yield from self._operator.on_watermark(watermark, self._outlet)

    def rest(self) -> None:
        with failures_of(self._uid):
            self._operator.on_idle(self._outlet)


class Chain:
    """Runs on the subtask's loop, except ``complete`` which runs on the commit thread."""

    def __init__(self, vertex: Vertex, sends: Iterable[tuple[str, str | None, Receiver]]) -> None:
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

    def _into(self, uid: str, port: int) -> _Into:
        node = next(node for node in self._vertex.members if node.uid == uid)
        return _Into(self, node, self._operators[uid], self._outlets[uid], port)

    def open(self, context_of: Callable[[str, str], OperatorContext]) -> None:
        for node in self._vertex.members:
            if node.uid in self._operators:
                self._opened.append(node.uid)
                with failures_of(node.told_as):
                    self._operators[node.uid].told_as = node.told_as
                    self._operators[node.uid].open(context_of(node.uid, node.name))

    def start(self) -> None:
        """All subtasks are open."""
        self._each(lambda operator, _: operator.on_start())

    def entry(self, port: int) -> _Into:
        """Where records for the head operator go in."""
        return self._into(self._vertex.head.uid, port)

    def source_outlet(self) -> _Outlet:
        """Where a source's records go in: behind the source itself."""
        return self._outlets[self._vertex.head.uid]

    def advancing(self, watermark: Milliseconds) -> Iterator[None]:
        """The watermark of all input, in steps."""
        if self._vertex.is_source:
            self.source_outlet().advance(watermark)
        else:
            yield from self.entry(0).advancing(watermark)

    @property
    def rows_at_once(self) -> int:
        """No more shall come into it in one batch. Known when it is opened."""
        return min((operator.rows_at_once for operator in self._operators.values()), default=sys.maxsize)

    @property
    def may_be_cut(self) -> bool:
        """Between two steps of ``advancing`` and the like: whether a snapshot would be whole."""
        return all(operator.may_be_cut for operator in self._operators.values())

    def resuming(self) -> Iterator[None]:
        """Behind a restore, before any input: the rest of what was being done in steps when the snapshot was taken."""
        for uid, operator in self._operators.items():
            with failures_of(uid):
                yield from operator.resuming(self._outlets[uid])

    def rest(self) -> None:
        """No input delivers for now."""
        self.entry(0).rest()

    def reads_splits(self, open_splits: Collection[str]) -> None:
        """Behind a source: these are open now, and nothing comes from others."""
        self._each(lambda operator, out: operator.on_splits(open_splits, out))

    def reads(self, split: str) -> None:
        """Behind a source: the next records are of this split."""
        for operator in self._operators.values():
            operator.split = split

    def asked(self, splits: Collection[str], *, in_vain: bool) -> None:
        """Splits, or ``ALL_INPUT``, had nothing to give, or what they gave was just processed."""
        for uid, operator in self._operators.items():
            if operator.begins_time:
                with failures_of(uid):
                    operator.on_asked(splits, self._outlets[uid], in_vain=in_vain)

    def _each(self, act: Callable[[Operator, _Outlet], Any]) -> None:
        for uid, operator in self._operators.items():
            with failures_of(uid):
                act(operator, self._outlets[uid])

    def let_go(self) -> None:
        """Emit whatever operators hold back: before a barrier, and when no more input is near."""
        self._each(lambda operator, out: operator.before_barrier(out))

    def end_of_input(self, *, drain: bool) -> Iterator[None]:
        """In steps; in chain order, so that what one operator still emits reaches the next before that one ends."""
        for uid, operator in self._operators.items():
            with failures_of(uid):
                yield from operator.end_of_input(self._outlets[uid], drain=drain)

    def snapshot(self, checkpoint: CheckpointId) -> Mapping[str, OperatorSnapshot]:
        frozen: dict[str, OperatorSnapshot] = {}
        for uid, operator in self._operators.items():
            with failures_of(uid):
                taken = operator.snapshot(checkpoint)
            if taken is not None:
                frozen[uid] = taken
        return frozen

    def checkpoint_ended(self, checkpoint: CheckpointId, *, completed: bool) -> None:
        """What operators froze for it is stored for good, or is not needed."""
        for uid, operator in self._operators.items():
            with failures_of(uid):
                operator.checkpoint_ended(checkpoint, completed=completed)

    def next_timer(self) -> Milliseconds | None:
        due = [timer for operator in self._operators.values() if (timer := operator.next_timer()) is not None]
        return min(due, default=None)

    def on_processing_time(self, now: Milliseconds) -> Iterator[None]:
        """In steps, as a watermark is."""
        for uid, operator in self._operators.items():
            with failures_of(uid):
                yield from operator.on_processing_time(now, self._outlets[uid])

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
