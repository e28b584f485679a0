"""What a source is: splits that can be read in parallel, each with a position that can be stored."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa

from cutwater.errors import CutwaterError

Json = Any
"""A value that survives ``json.loads(json.dumps(value))`` unchanged."""


class EndOfSplit:
    """The type of ``cw.END``: the split has no more records and never will."""

    _instance: "EndOfSplit | None" = None

    def __new__(cls) -> "EndOfSplit":
        cls._instance = cls._instance or super().__new__(cls)
        return cls._instance

    def __repr__(self) -> str:
        return "cw.END"


END: Final = EndOfSplit()


class SourceUnavailable(CutwaterError):
    """The outside system that a reader needs refused or is gone: names it and what to do."""


@dataclass(frozen=True, slots=True)
class SourceContext:
    """Where a reader runs."""

    job: str
    uid: str
    subtask: int
    parallelism: int
    attempt: int


class SplitReader(ABC):
    """Reads one split, on the subtask's own thread."""

    @abstractmethod
    def next_batch(self, max_rows: int, timeout: timedelta) -> pa.RecordBatch | EndOfSplit | None:
        """Up to ``max_rows`` records; None when nothing came within ``timeout``; END after the last.

        None says that this split was looked at and had nothing: with ``idle_after``, others may then go on without it. A
        reader that shares a client with others, or has it fetch in the background, says so of its own split alone.

        Columns must be those of the source's ``schema``; they are put in its order and cast where no value changes.
        """

    @abstractmethod
    def position(self) -> Json:
        """After the last batch *returned*, never after what was prefetched. Stored in checkpoints."""

    def checkpoint_completed(self, checkpoint_id: int, position: Json) -> None:  # noqa: B027 (optional hook)
        """Nothing before ``position`` is asked for again: acknowledge it here, where the outside system wants that.

        Called on the subtask's own thread, behind END too: the final checkpoint of a job covers what was read last. May be
        skipped or repeated.
        """

    def side_batches(self) -> "dict[str, pa.RecordBatch]":
        """Records for side outputs that belong to the last batch returned; taken once, then empty.

        A batch without rows may be returned just for the sake of these.
        """
        return {}

    def close(self) -> None:  # noqa: B027 (optional hook)
        """Called once: behind END, as soon as the checkpoint that covers it completed (at once if this reader does not ask
        for ``checkpoint_completed``), or at the end of the subtask, also after a failure in it. Not when the process is
        killed, as it is when the attempt ends because another subtask failed or the job is canceled."""


class Source(ABC):
    """Describes a source; pickled to the workers, so it holds settings, not connections."""

    schema: Any
    """Of the records: Spark DDL, ``StructType`` or ``pyarrow.Schema``."""
    replayable: bool = True
    """Whether ``open`` with an earlier position yields the same records again."""
    bounded: bool = True
    """Whether every split ends and ``discover`` finds no more, so that a job on it finishes.

    A class that overrides ``discover`` is not bounded unless it says so itself.
    """
    splits_end: bool | None = None
    """Whether every split ends though there may be more for ever, as with files of a watched folder. None: as ``bounded`` says.

    Of splits that end a subtask reads some at a time, and the next when one of them has. Others are all read from the start.
    """
    side_schemas: "dict[str, Any]" = {}  # noqa: RUF012 (a class-level default, never mutated)
    """Schemas of side outputs that readers produce, e.g. ``malformed``."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        says_so = any("bounded" in vars(base) for base in cls.__mro__ if base is not Source)
        if cls.discover is not Source.discover and not says_so:
            cls.bounded = False

    @abstractmethod
    def splits(self) -> Sequence[Json]:
        """What can be read in parallel; called once in the driver when the job first starts."""

    def splits_for(self, parallelism: int) -> Sequence[Json]:
        """What the driver calls instead of ``splits`` when the number of subtasks is known; a rescale keeps the splits."""
        return self.splits()

    def discover(self, known: Sequence[Json]) -> Sequence[Json]:
        """Splits that appeared since ``known``; called in the driver from time to time if not ``bounded``.

        On a thread of its own, one call at a time: it may take as long as it must, and delays nothing but new splits. What
        is known already may be among the result. A call that raises is logged and repeated. When the job restarts while a
        call runs, the next one does not wait for it.
        """
        return ()

    @abstractmethod
    def open(self, split: Json, position: Json | None, ctx: SourceContext) -> SplitReader:
        """A reader that begins behind ``position``; None at the first start."""

    def describe(self) -> str:
        """One short phrase for plans and messages."""
        return type(self).__name__
