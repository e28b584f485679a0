"""Scripted input: rows, with checkpoints, failures and passing time between them."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import pyarrow as pa

from cutwater.arguments import takes_no_others
from cutwater.connectors.source import END, EndOfSplit, Source, SourceContext, SplitReader
from cutwater.duration import Duration, parse_duration
from cutwater.rows import batch_of

Json = Any


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything before it is processed, then a checkpoint is taken and completes."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """Everything before it is processed, then a checkpoint begins, and what follows is read while it is under way."""


@dataclass(frozen=True, slots=True)
class Fail:
    """Everything before it is processed, then every process dies and the job resumes from the latest checkpoint."""


@dataclass(frozen=True, slots=True)
class Advance:
    """Everything before it is processed, then the clock moves: time in which nothing came. Sources that wait are asked again, in
    vain, before anything that follows is read, so that those are idle whose ``idle_after`` has passed."""

    by: timedelta


CHECKPOINT = Checkpoint()
TRIGGER = Trigger()
FAIL = Fail()
Mark = Checkpoint | Trigger | Fail | Advance


@partial(takes_no_others, found="cw.testing.")
def ADVANCE(by: Duration) -> Advance:  # noqa: N802 (a mark in a script, like CHECKPOINT and FAIL)
    return Advance(parse_duration("by", by))


@partial(takes_no_others, found="cw.testing.")
def script(*items: Any) -> "Script":
    """``script(rows, CHECKPOINT, rows, FAIL, ADVANCE("5s"))``: lists are rows, anything else that is no mark is one row."""
    flat: list[Any] = []
    for item in items:
        flat.extend(item if isinstance(item, list) else [item])
    return Script(tuple(flat))


@dataclass(frozen=True, slots=True)
class Script:
    items: tuple[Any, ...]


class Playback:
    """One script while it runs; lives through simulated failures, so that a mark happens once."""

    _numbers = itertools.count()
    _running: "dict[int, Playback]" = {}  # noqa: RUF012 (the registry that copies of a source find their script in)

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = tuple(items)
        self.passed: set[int] = set()
        self.waits_at: int | None = None
        self.number = next(Playback._numbers)
        Playback._running[self.number] = self

    def close(self) -> None:
        del Playback._running[self.number]

    @staticmethod
    def numbered(number: int) -> "Playback":
        return Playback._running[number]

    @property
    def mark(self) -> Mark | None:
        """The mark that the source waits at, if it has come to one."""
        return None if self.waits_at is None else self.items[self.waits_at]

    def pass_mark(self) -> None:
        assert self.waits_at is not None
        self.passed.add(self.waits_at)
        self.waits_at = None


class ScriptedSource(Source):
    """Stands in for the pipeline's own source: one split, replayable, position = index in the script."""

    def __init__(self, schema: pa.Schema, playback: Playback) -> None:
        self.schema = schema
        self._number = playback.number

    def splits(self) -> Sequence[Json]:
        return [0]

    def open(self, split: Json, position: Json | None, ctx: SourceContext) -> SplitReader:
        return _ScriptReader(self.schema, Playback.numbered(self._number), position or 0, ctx.uid)

    def describe(self) -> str:
        return "script"


class _ScriptReader(SplitReader):
    def __init__(self, schema: pa.Schema, playback: Playback, position: int, uid: str) -> None:
        self._schema = schema
        self._playback = playback
        self._next = position
        self._uid = uid

    def next_batch(self, max_rows: int, timeout: timedelta) -> pa.RecordBatch | EndOfSplit | None:
        playback = self._playback
        while self._next < len(playback.items) and isinstance(playback.items[self._next], Mark):
            if self._next not in playback.passed:
                playback.waits_at = self._next
                return None
            self._next += 1
        if self._next == len(playback.items):
            return END
        rows: list[Any] = []
        while self._next < len(playback.items) and len(rows) < max_rows:
            item = playback.items[self._next]
            if isinstance(item, Mark):
                break
            rows.append(item)
            self._next += 1
        return batch_of(rows, self._schema, self._uid)

    def position(self) -> Json:
        return self._next
