"""New splits are dealt out once each, however slow, late or repetitive the source is that finds them."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import cutwater as cw
from cutwater.control.messages import AssignSplits
from cutwater.errors import DataError, JobFailed
from cutwater.flow.ids import SubtaskId
from cutwater.job.deployment import Deployment, deploy_fresh
from cutwater.job.discovery import DISCOVERY_SECONDS, Discovery
from cutwater.subtask.ended_splits import EndedSplits

DEADLINE_SECONDS = 10.0
LATER = 2 * DISCOVERY_SECONDS


class Listed(cw.Source):
    """Finds ``names``, all of them each time, when it is let."""

    schema = "value string"

    def __init__(self, *names: Any) -> None:
        self.names: list[Any] = list(names)
        self.asked: list[list[Any]] = []
        self.running = 0
        self.most_running = 0
        self.may_go = threading.Event()
        self.may_go.set()
        self.error: BaseException | None = None

    def splits(self) -> list[Any]:
        return []

    def discover(self, known: Sequence[Any]) -> list[Any]:
        self.asked.append(list(known))
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self.may_go.wait(DEADLINE_SECONDS)
        self.running -= 1
        if self.error is not None:
            raise self.error
        return self.names

    def open(self, split: Any, position: Any, ctx: Any) -> Any:
        raise AssertionError("nothing is read here")


class Attempt:
    """Two subtasks for each source, and a clock of its own."""

    def __init__(self, deployment: Deployment | None = None, **sources: cw.Source) -> None:
        self.sent: list[tuple[SubtaskId, Any]] = []
        self.log: list[str] = []
        self.deployment = deployment or Deployment()
        self.discovery = Discovery(
            sources,
            dict.fromkeys(sources, 2),
            self.deployment,
            send=self._note,
            log=self.log.append,
        )
        self.now = 0.0

    def _note(self, subtask: SubtaskId, message: Any) -> None:
        assert isinstance(message, AssignSplits) and message.uid == subtask.vertex
        self.sent.extend((subtask, entry["split"]) for entry in message.splits)

    def tick(self, after: float = 0.0) -> None:
        self.now += after
        self.discovery.tick(self.now)

    def until(self, condition: Callable[[], bool]) -> None:
        """Ticks without time passing."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, "it did not come to it"
            self.tick()
            time.sleep(0.001)


def test_found_splits_go_to_the_subtasks_in_turn_and_are_known_from_then_on() -> None:
    source = Listed("a", "b", "c")
    attempt = Attempt(files=source)
    attempt.until(lambda: len(attempt.sent) == 3)
    assert attempt.sent == [
        (SubtaskId("files", 0), "a"),
        (SubtaskId("files", 0), "c"),
        (SubtaskId("files", 1), "b"),
    ]
    assert attempt.deployment.splits[SubtaskId("files", 1)] == [{"split": "b", "position": None}]
    attempt.tick(LATER)
    attempt.until(lambda: len(source.asked) == 2)
    assert source.asked == [[], ["a", "b", "c"]]


def test_a_look_that_takes_long_is_not_doubled_and_its_finds_are_dealt_out_once() -> None:
    source = Listed("a")
    source.may_go.clear()
    attempt = Attempt(files=source)
    for _ in range(10):
        attempt.tick(LATER)
    assert attempt.sent == []
    source.may_go.set()
    attempt.until(lambda: len(attempt.sent) == 1)
    attempt.tick(LATER)
    attempt.until(lambda: len(source.asked) == 2)
    attempt.until(lambda: source.running == 0)
    attempt.tick(LATER)
    assert (source.most_running, attempt.sent) == (1, [(SubtaskId("files", 0), "a")])


def test_a_slow_source_keeps_no_other_waiting() -> None:
    slow, quick = Listed("never"), Listed("a")
    slow.may_go.clear()
    attempt = Attempt(slow=slow, quick=quick)
    attempt.until(lambda: len(attempt.sent) == 1)
    assert attempt.sent == [(SubtaskId("quick", 0), "a")]
    slow.may_go.set()


def test_splits_of_the_restored_checkpoint_are_not_found_anew_even_if_they_were_tuples_once() -> None:
    source = Listed(("a", 1), ("b", 2), {"y": 1, "x": 2})
    restored = [{"split": ["a", 1], "position": 7}, {"split": {"x": 2, "y": 1}, "position": 7}]
    attempt = Attempt(Deployment(splits={SubtaskId("files", 1): restored}), files=source)
    attempt.until(lambda: len(attempt.sent) == 1)
    assert source.asked == [[["a", 1], {"x": 2, "y": 1}]]
    assert attempt.sent == [(SubtaskId("files", 0), ["b", 2])]


def test_splits_that_ended_before_the_restored_checkpoint_are_not_found_anew() -> None:
    ended = EndedSplits()
    for name in range(200):
        ended.add({"split": f"f{name}", "position": 7, "ended": True})
    restored = ended.frozen()()
    assert len(restored) == 1
    source = Listed(*(f"f{name}" for name in range(201)))
    attempt = Attempt(Deployment(splits={SubtaskId("files", 1): restored}), files=source)
    attempt.until(lambda: len(attempt.sent) == 1)
    assert sorted(source.asked[0]) == sorted(f"f{name}" for name in range(200))
    assert attempt.sent == [(SubtaskId("files", 0), "f200")]


@pytest.mark.parametrize("error", [OSError("no route to the catalogue"), SystemExit(3)])
def test_a_look_that_fails_is_logged_with_source_and_line_and_repeated(error: BaseException) -> None:
    source = Listed("a")
    source.error = error
    attempt = Attempt(files=source)
    attempt.until(lambda: len(attempt.log) == 1)
    for part in ("files", "test_discovery.py:", "looking for new splits failed", type(error).__name__, str(error)):
        assert part in attempt.log[0]
    source.error = None
    attempt.tick(LATER)
    attempt.until(lambda: len(attempt.sent) == 1)


def test_a_found_split_that_cannot_be_stored_is_logged() -> None:
    attempt = Attempt(files=Listed({1, 2}))
    attempt.until(lambda: len(attempt.log) == 1)
    assert "files" in attempt.log[0] and "{1, 2} is no split: it is not JSON" in attempt.log[0]


def test_a_bounded_source_is_not_asked() -> None:
    source = Listed("a")
    source.bounded = False
    bounded = Listed("b")
    bounded.bounded = True
    attempt = Attempt(files=source, table=bounded)
    attempt.until(lambda: len(attempt.sent) == 1)
    assert (len(source.asked), bounded.asked) == (1, [])


def deployed(source: cw.Source) -> Deployment:
    env = cw.Environment(parallelism=1)
    env.read(source, uid="orders").collect("out")
    return deploy_fresh(env.define("job", 1))


def test_splits_that_raise_name_the_source_and_the_line() -> None:
    class Down(Listed):
        def splits(self) -> list[Any]:
            raise OSError("the database is down")

    with pytest.raises(JobFailed, match=r"source 'orders', splits: OSError: the database is down at test_discovery.py"):
        deployed(Down())


def test_splits_that_cannot_be_stored_are_refused_and_tuples_are_dealt_out_as_they_come_back() -> None:
    class Typed(Listed):
        def splits(self) -> list[Any]:
            return self.names

    with pytest.raises(DataError, match=r"source 'orders', splits: <object object at .*> is no split: it is not JSON"):
        deployed(Typed(object()))
    assert deployed(Typed(("a", 1))).splits == {SubtaskId("orders", 0): [{"split": ["a", 1], "position": None}]}
