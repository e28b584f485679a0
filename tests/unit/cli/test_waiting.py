"""What a job waits for is told soon, and not too often."""

import threading

import pytest

from cutwater.cli import waiting
from cutwater.cli.waiting import FIRST_LINE_AFTER, NEXT_LINE_AFTER, Waiting, told_if_long
from cutwater.testing.clock import ManualClock


class Scene:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.lines: list[str] = []
        self.waiting = Waiting(self.lines.append, self.clock.monotonic)

    def after(self, seconds: float, detail: str) -> list[str]:
        self.clock.advance(seconds)
        self.waiting.look("running", detail)
        return self.lines


def test_a_short_wait_is_not_worth_a_line() -> None:
    scene = Scene()
    scene.after(0, "5 of 5 workers")
    scene.after(FIRST_LINE_AFTER / 2, "2 of 5 workers")
    assert scene.after(FIRST_LINE_AFTER, "") == []
    assert scene.after(0, "5 of 5 workers") == [], "another wait begins anew"


def test_a_long_wait_is_told_soon_and_then_now_and_then() -> None:
    scene = Scene()
    scene.after(0, "5 of 5 workers")
    assert scene.after(FIRST_LINE_AFTER, "5 of 5 workers\nmore") == ["running, 5 of 5 workers"]
    scene.after(1, "4 of 5 workers")
    assert len(scene.after(1, "3 of 5 workers")) == 1
    assert scene.after(NEXT_LINE_AFTER, "2 of 5 workers")[1:] == ["running, 2 of 5 workers"]
    assert len(scene.after(NEXT_LINE_AFTER, "2 of 5 workers")) == 2, "nothing new"


def test_what_takes_long_and_says_nothing_is_told_about(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    with told_if_long(lines.append, "starting"):
        pass
    assert lines == []
    monkeypatch.setattr(waiting, "FIRST_LINE_AFTER", 0.0)
    told = threading.Event()

    def say(line: str) -> None:
        lines.append(line)
        told.set()

    with told_if_long(say, "starting"):
        assert told.wait(10)
    assert lines == ["starting"]
