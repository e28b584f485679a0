"""A sink hears of all its output in order, one call at a time, and of what failed again."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from cutwater.checkpoint.completed import CommittedOutput
from cutwater.connectors.sink import Json, TwoPhaseCommitSink
from cutwater.flow.ids import CheckpointId
from cutwater.job.output import VisibleOutput
from cutwater.job.sink_notices import SinkNotices


class Listening(TwoPhaseCommitSink):
    def __init__(self) -> None:
        self.heard: list[tuple[int, list[Json]]] = []
        self.failing = 0

    def begin(self, name: str) -> Any: ...

    def write(self, txn: Any, batch: pa.RecordBatch) -> None: ...

    def prepare(self, txn: Any) -> Json | None: ...

    def commit(self, committable: Json) -> None: ...

    def abort(self, committable: Json) -> None: ...

    def committed_everywhere(self, checkpoint_id: int, committables: Sequence[Json]) -> None:
        if self.failing:
            self.failing -= 1
            raise OSError("full")
        self.heard.append((checkpoint_id, list(committables)))


class Later:
    """Work waits until ``run``."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.waiting.append((work, done))

    def run(self) -> None:
        while self.waiting:
            work, done = self.waiting.pop(0)
            try:
                result = work()
            except Exception as error:
                result = error
            done(result)


class Stage:
    def __init__(self) -> None:
        self.one, self.two, self.io = Listening(), Listening(), Later()
        self.log: list[str] = []
        self.settled: list[str | None] = []
        self.notices = SinkNotices({"one": self.one, "two": self.two}, self.io, self.log.append)


def visible(checkpoint: int, uid: str) -> VisibleOutput:
    id = CheckpointId(checkpoint)
    return VisibleOutput(id, uid, (CommittedOutput(uid, id, f"{uid}-{checkpoint}"),))


def test_what_failed_is_heard_before_what_came_later_and_other_sinks_do_not_wait_for_it() -> None:
    stage = Stage()
    stage.one.failing = 1
    stage.notices.tell([visible(1, "one"), visible(1, "two")])
    stage.io.run()
    assert [each.value for each in stage.notices.unheard()] == ["one-1"]
    assert stage.two.heard == [(1, ["two-1"])]
    stage.notices.tell([visible(2, "one")])
    stage.notices.tell([visible(3, "one")])
    assert len(stage.io.waiting) == 1
    stage.io.run()
    assert stage.one.heard == [(1, ["one-1"]), (2, ["one-2"]), (3, ["one-3"])]
    assert list(stage.notices.unheard()) == []


def test_settling_waits_for_calls_under_way_and_tries_what_failed_once_more() -> None:
    stage = Stage()
    stage.one.failing = 1
    stage.notices.tell([visible(1, "one")])
    stage.notices.settle(stage.settled.append)
    assert stage.settled == []
    stage.io.run()
    assert stage.settled == [None]
    assert stage.one.heard == [(1, ["one-1"])]


def test_settling_tells_what_cannot_be_told_in_the_end() -> None:
    stage = Stage()
    stage.one.failing = 2
    stage.notices.tell([visible(1, "one")])
    stage.notices.settle(stage.settled.append)
    stage.io.run()
    assert stage.settled == ["sink 'one': checkpoint 1 is committed, but committed_everywhere failed: OSError: full"]


def test_with_nothing_to_tell_it_is_settled_at_once() -> None:
    stage = Stage()
    stage.notices.settle(stage.settled.append)
    assert stage.settled == [None]
