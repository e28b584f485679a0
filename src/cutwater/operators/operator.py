"""The contract between a subtask and the operators of its chain."""

import sys
from abc import ABC
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from cutwater.flow.ids import CheckpointId
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.flow.watermarks import Milliseconds
from cutwater.operators.steps import Steps
from cutwater.operators.turn import Turn
from cutwater.state.backend import StateBackend
from cutwater.state.frozen import FrozenTable
from cutwater.state.stored import StoredState

Json = Any

ALL_INPUT = ""
"""In the place of a split, where there are none."""


class Collector(Protocol):
    """Where an operator puts its results."""

    def emit(self, batch: pa.RecordBatch) -> None: ...

    def emit_side(self, tag: str, batch: pa.RecordBatch) -> None: ...

    def advance(self, watermark: Milliseconds) -> None:
        """No record older than ``watermark`` follows."""

    def rest(self) -> None:
        """Nothing comes for now, and nobody shall wait for it."""


class RestoredOperator(StoredState, Protocol):
    """What the restored checkpoint holds for one operator, already narrowed to this subtask's key groups."""

    @property
    def inline(self) -> Sequence[Json]:
        """The inline parts of the old subtasks that fall to this one (all of them at equal parallelism: one)."""

    def tables(self) -> Sequence[str]: ...

    def batches(self, table: str) -> Iterator[pa.RecordBatch]: ...


class DriverPort(Protocol):
    """What an operator may hand to the driver: rows of ``collect`` and lines of ``print``. Callable from any thread."""

    def collected(self, uid: str, checkpoint: CheckpointId, writer: int, rows: bytes) -> None:
        """An Arrow IPC stream of rows that ``checkpoint`` made visible, of the subtask that wrote them; repeated after a
        failure, kept once."""

    def printed(self, lines: Sequence[str]) -> None: ...


@dataclass(frozen=True, slots=True)
class ResumedState:
    """What is restored is, whole and nothing else, what ``checkpoint`` holds of this operator and subtask: what is stored
    next may reference its files."""

    checkpoint: CheckpointId
    state: StoredState


@dataclass(slots=True)
class OperatorContext:
    """Where an operator runs and what it starts from."""

    job: str
    uid: str
    name: str
    subtask: int
    parallelism: int
    max_parallelism: int
    attempt: int
    incarnation: str
    key_groups: KeyGroupRange
    backend: StateBackend
    now: Callable[[], Milliseconds]
    driver: DriverPort
    behind_source: bool = False
    """In the chain of a source: ``on_splits`` tells what is read."""
    checkpointed: bool = True
    restored: RestoredOperator | None = None
    resumed: ResumedState | None = None
    visible_up_to: CheckpointId | None = None
    """See ``SinkContext``."""
    counters: dict[str, int] = field(default_factory=dict)
    steps: Steps = field(default_factory=Steps)
    turn: Turn = field(default_factory=Turn)
    """Of the head of a chain that reads channels: it may leave rows at the end of a batch."""


@dataclass(frozen=True, slots=True)
class OperatorSnapshot:
    """What the synchronous part froze.

    ``inline`` is small JSON kept in the checkpoint's metadata; a callable is evaluated on the snapshot thread, before the
    acknowledgement (a sink prepares its transaction there). ``tables`` are written to files on the snapshot thread.
    """

    inline: Json | Callable[[], Json] = None
    tables: Sequence[FrozenTable] = ()


class Operator(ABC):
    """One step of a chain. Until ``open`` it holds settings only and is pickled to the workers.

    All methods but those said otherwise run on the subtask's loop, one at a time. ``process`` gets batches with the input
    schema of ``port`` and emits batches with the output schema. State that must survive a crash is what ``snapshot`` returns.
    """

    input_ports: int = 1

    may_be_cut: bool = True
    """Asked between steps of ``on_watermark`` and ``on_processing_time``: whether ``snapshot`` would tell what is done from what
    is still to be done, so that ``resuming`` does the rest behind a restore."""

    begins_time: bool = False
    """Whether it makes watermarks of its own, so that event time begins here."""

    told_as: str = ""
    """The uid that messages name, known when it is opened: of a part of what the user wrote, that of the whole."""

    sides_read: frozenset[str] = frozenset()
    """Of a part of what the user wrote: the side outputs of the whole that are read. Known when the job is planned."""

    split: str = ALL_INPUT
    """Behind a source, in its chain: the split that the records being processed are of."""

    @property
    def rows_at_once(self) -> int:
        """No more shall come into its chain in one batch. Known when it is opened."""
        return sys.maxsize

    @property
    def by_clock(self) -> bool:
        """Whether what comes out depends on when records came, so that it differs when they are read again."""
        return False

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        """In the driver, when the pipeline is written: raise SchemaError if the inputs do not fit."""
        return inputs[0]

    def side_schemas(self) -> Mapping[str, pa.Schema]:
        return {}

    def ports_of_side(self, tag: str) -> Sequence[int]:
        """Where the records of a side output come from: it keeps the time of the first of these whose time column it has."""
        return range(self.input_ports)

    def open(self, ctx: OperatorContext) -> None:  # noqa: B027 (optional hook)
        ...

    def on_start(self) -> None:  # noqa: B027 (optional hook)
        """Not in the chain of a source: all subtasks are open, so that others send from now on. What is replayed may have come
        before."""

    def process(self, batch: pa.RecordBatch, port: int, out: Collector) -> None:
        raise NotImplementedError(f"{type(self).__name__} takes no input")

    def on_watermark(self, watermark: Milliseconds, out: Collector) -> Iterator[None]:
        """Do all that becomes due by it, in steps of a few milliseconds, then pass it on."""
        out.advance(watermark)
        yield from ()

    def on_idle(self, out: Collector) -> None:
        """No input delivers for now: pass that on."""
        out.rest()

    def on_splits(self, open_splits: Collection[str], out: Collector) -> None:  # noqa: B027 (optional hook)
        """Behind a source, in its chain: the splits that records may come from, whenever they change."""

    def on_asked(self, splits: Collection[str], out: Collector, *, in_vain: bool) -> None:  # noqa: B027 (optional hook)
        """If it ``begins_time``: these splits, or ``ALL_INPUT``, were asked for records. None came, or those that did were just
        processed."""

    def next_timer(self) -> Milliseconds | None:
        """When ``on_processing_time`` wants to be called next, if at all."""
        return None

    def on_processing_time(self, now: Milliseconds, out: Collector) -> Iterator[None]:
        """All that is due by the clock, in steps of a few milliseconds."""
        yield from ()

    def resuming(self, out: Collector) -> Iterator[None]:
        """Behind a restore, before any input, in steps: the rest of what was due already when the snapshot was taken."""
        yield from ()

    def before_barrier(self, out: Collector) -> None:  # noqa: B027 (optional hook)
        """Emit whatever is held back (a combine buffer), so that the snapshot need not hold it."""

    def end_of_input(self, out: Collector, *, drain: bool) -> Iterator[None]:
        """All channels ended, after the last ``process``; in steps. Called once, but for a restore from between two of them."""
        yield from ()

    def snapshot(self, checkpoint: CheckpointId) -> OperatorSnapshot | None:
        """The synchronous part: freeze, do not copy or write. None: no state."""
        return None

    def checkpoint_completed(self, checkpoint: CheckpointId) -> None:  # noqa: B027 (optional hook)
        """On the commit thread: everything up to ``checkpoint`` may be made visible. Blocks until it is."""

    def checkpoint_ended(self, checkpoint: CheckpointId, *, completed: bool) -> None:  # noqa: B027 (optional hook)
        """On the loop, some time after ``snapshot``: the checkpoint completed, or was aborted. Completed ones come in
        ascending order; those below one that came are not told any more."""

    def close(self) -> None:  # noqa: B027 (optional hook)
        """Called once, also after a failure."""
