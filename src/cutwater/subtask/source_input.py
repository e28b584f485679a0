"""The splits that one source subtask reads, and where it stands in each."""

import json
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa

from cutwater.connectors.source import EndOfSplit, Source, SourceContext, SplitReader
from cutwater.errors import DataError
from cutwater.flow.ids import CheckpointId
from cutwater.operators.polars_arrow import fitted_table
from cutwater.operators.user_code import user_error
from cutwater.rows import shortened
from cutwater.schema import arrow_schema
from cutwater.subtask.ended_splits import EndedSplits, unpacked

Json = Any

MOST_OPEN_SPLITS = 16

NOT_YET_OPENED = "not yet opened"
"""Stands for all splits that wait to be opened. No split goes by such a name: theirs are JSON."""


@dataclass(eq=False, slots=True)
class _Split:
    split: Json
    position: Json
    name: str = ""
    """Tells splits apart."""
    ended: bool = False
    reader: SplitReader | None = None
    """Outlives the end of the split when it wants to hear of the checkpoint that covers the end."""

    def entry(self) -> Json:
        return {"split": self.split, "position": self.position, "ended": self.ended}


@dataclass(frozen=True, slots=True)
class _Reached:
    """Where a reader stood when a checkpoint was cut."""

    split: _Split
    position: Json
    ended: bool


@dataclass(frozen=True, slots=True)
class SourceBatch:
    split: str
    main: pa.RecordBatch | None
    side: dict[str, pa.RecordBatch]


class SourceInput:
    """Read on the subtask's loop; every split is asked in turn, so that none starves the others."""

    def __init__(
        self, source: Source, ctx: SourceContext, splits: Sequence[Json], *, checkpointed: bool = True
    ) -> None:
        """``checkpointed``: whether checkpoints complete, so that readers hear of them."""
        self._source = source
        self._ctx = ctx
        self._checkpointed = checkpointed
        self._schema = arrow_schema(source.schema)
        self._side_schemas = {tag: arrow_schema(schema) for tag, schema in source.side_schemas.items()}
        self._known: set[str] = set()
        self._waiting: deque[_Split] = deque()
        """Not yet opened: thousands of files do not mean thousands of open readers."""
        splits_end = source.bounded if source.splits_end is None else source.splits_end
        self._most_open = MOST_OPEN_SPLITS if splits_end else sys.maxsize
        self._live: list[_Split] = []
        self._untold: list[_Split] = []
        """Ended, and the reader waits to hear of the checkpoint that covers the end."""
        self._ended = EndedSplits()
        self._turn = 0
        self.turnover = 0
        """How often ``open_splits`` changed."""
        self.in_vain: list[str] = []
        """The splits that had nothing when ``next`` last asked them. It does not ask all if one has something."""
        self._reached_at: dict[CheckpointId, list[_Reached]] = {}
        self.add(splits)

    def add(self, splits: Sequence[Json]) -> None:
        """Entries of a checkpoint, or ``{"split": ..., "position": None}`` for a new split."""
        for entry in unpacked(splits):
            if (key := _key(entry["split"])) in self._known:
                continue
            self._known.add(key)
            if entry.get("ended"):
                self._ended.add(entry)
            else:
                self._waiting.append(_Split(entry["split"], entry.get("position"), key))
                self.turnover += 1

    @property
    def exhausted(self) -> bool:
        return self._source.bounded and not self._live and not self._waiting

    def open_splits(self) -> tuple[str, ...]:
        """Those that records may come from. Of those that wait to be opened nobody knows how old their records are: event time
        waits for them, too."""
        names = tuple(split.name for split in self._live)
        return (*names, NOT_YET_OPENED) if self._waiting else names

    @property
    def has_open_readers(self) -> bool:
        """Behind the end of input: whether some wait to hear of the checkpoint that covers it."""
        return any(split.reader is not None for split in self._opened())

    def next(self, max_rows: int, timeout: timedelta) -> SourceBatch | None:
        """The next batch of any split; None when nothing came. Waits at most about ``timeout``.

        The next call goes on behind the split that gave it: one that always has records keeps no other from being asked.
        """
        while self._waiting and len(self._live) < self._most_open:
            self._live.append(self._waiting.popleft())
            self.turnover += 1
        live = tuple(self._live)
        patience = timeout if len(live) == 1 else timedelta(0)
        self.in_vain = []
        for _ in range(len(live)):
            split = live[self._turn % len(live)]
            self._turn += 1
            reader = self._reader(split)
            taken: Any = reader.next_batch(max_rows, patience)
            side = {
                tag: self._fitted(batch, self._side_schemas.get(tag), f"side_batches()[{tag!r}]")
                for tag, batch in reader.side_batches().items()
                if batch.num_rows
            }
            if isinstance(taken, EndOfSplit):
                self._end(split, reader)
                taken = None
            if taken is not None:
                taken = self._fitted(taken, self._schema, "next_batch")
            if side or (taken is not None and taken.num_rows):
                return SourceBatch(split.name, taken, side)
            if not split.ended:
                self.in_vain.append(split.name)
        return None

    def _end(self, split: _Split, reader: SplitReader) -> None:
        split.position = self._position(split, reader)
        split.ended = True
        self._live.remove(split)
        self.turnover += 1
        hears = type(reader).checkpoint_completed is not SplitReader.checkpoint_completed
        if hears and self._checkpointed:
            self._untold.append(split)
        else:
            # At once: thousands of files that end between two checkpoints do not mean thousands of open readers.
            self._let_go(split)

    def _let_go(self, split: _Split) -> None:
        self._ended.add(split.entry())
        self._close(split)

    def _opened(self) -> list[_Split]:
        return [*self._live, *self._untold]

    def _close(self, split: _Split) -> None:
        reader, split.reader = split.reader, None
        if reader is not None:
            reader.close()

    def _fitted(self, batch: Any, schema: pa.Schema | None, method: str) -> pa.RecordBatch:
        """What the reader gave, in the schema that the rest of the pipeline was built on: others read its bytes by it."""
        where = f"source {self._ctx.uid!r}, {method}"
        if schema is None:
            raise DataError(f"{where}: this side output has no schema; name it in the source's side_schemas")
        if isinstance(batch, pa.RecordBatch) and batch.schema.equals(schema):
            return batch
        match batch:
            case pa.RecordBatch():
                return fitted_table(pa.Table.from_batches([batch]), schema, where)
            case pa.Table():
                return fitted_table(batch, schema, where)
            case _:
                raise DataError(
                    f"{where}: returned {shortened(batch)} ({type(batch).__name__}); return a pyarrow.RecordBatch, None "
                    "(nothing within the timeout) or cw.END"
                )

    def _reader(self, split: _Split) -> SplitReader:
        if split.reader is None:
            try:
                split.reader = self._source.open(split.split, split.position, self._ctx)
            except LookupError as error:
                if split.position is None:
                    raise
                raise user_error(error, self._of_stored(split)) from error
        return split.reader

    def _of_stored(self, split: _Split) -> str:
        """A source that looks a split up and does not find it has most likely changed since."""
        return (
            f"source {self._ctx.uid!r}, open of split {shortened(split.split)}, which was stored with position "
            f"{shortened(split.position)} (if the source has other splits now, start over with restore='fresh', or give it "
            "another uid and allow_non_restored_state=True)"
        )

    def positions(self) -> list[Json]:
        """After the last batch returned, one entry for each split, ended ones included, so that none is found anew."""
        return [*self._ended.plain(), *self._open_positions()]

    def frozen_positions(self) -> Callable[[], list[Json]]:
        """The same for a checkpoint, in few bytes: taken now, and written out by whoever calls the result."""
        ended, others = self._ended.frozen(), self._open_positions()
        return lambda: [*ended(), *others]

    def _open_positions(self) -> list[Json]:
        for split in self._live:
            if split.reader is not None:
                split.position = self._position(split, split.reader)
        return [split.entry() for split in (*self._untold, *self._live, *self._waiting)]

    def _position(self, split: _Split, reader: SplitReader) -> Json:
        """As a checkpoint gives it back. Refused here, where the reader is known: a checkpoint would only fail."""
        position = reader.position()
        try:
            stored = json.loads(json.dumps(position))
        except (TypeError, ValueError):
            stored = None
        if stored != _with_lists(position):
            raise DataError(
                f"source {self._ctx.uid!r}, split {shortened(split.split)}: position() returned {shortened(position)}, "
                "which is not JSON, and positions are stored in checkpoints; return numbers, strings, lists, or dicts "
                "with strings as keys"
            )
        return stored

    def remember(self, checkpoint: CheckpointId) -> None:
        self._reached_at[checkpoint] = [
            _Reached(split, split.position, split.ended) for split in self._opened() if split.reader is not None
        ]

    def checkpoint_completed(self, checkpoint: CheckpointId) -> None:
        """Tell readers; those of splits that had ended by then have heard all they ever will."""
        for reached in self._reached_at.get(checkpoint, ()):
            if reached.split.reader is not None:
                reached.split.reader.checkpoint_completed(checkpoint, reached.position)
                if reached.ended:
                    self._untold.remove(reached.split)
                    self._let_go(reached.split)
        for older in [n for n in self._reached_at if n <= checkpoint]:
            del self._reached_at[older]

    def close(self) -> None:
        """Every reader, also when one of them raises; the first failure counts."""
        with ExitStack() as stack:
            for split in reversed(self._opened()):
                stack.callback(self._close, split)


def _key(split: Json) -> str:
    return json.dumps(split, sort_keys=True)


def _with_lists(value: Json) -> Json:
    """Tuples may stand for lists: whoever takes a position apart does not see the difference."""
    match value:
        case list() | tuple():
            return [_with_lists(each) for each in value]
        case dict():
            return {key: _with_lists(each) for key, each in value.items()}
        case _:
            return value
