"""When Python's garbage collector comes: often, as long as it is soon done."""

import subprocess
import sys

import pytest

from cutwater.subtask.garbage import AFFORDABLE_SECONDS, DEAR, OLD_EVERY, YOUNG_RECORDS, CalledByTheLoop

SLICE = 1000


class Collector:
    """What ``gc.collect`` would be: takes so long for each generation."""

    def __init__(self, young: float, old: float) -> None:
        self.seconds = {0: young, 2: old}
        self.now = 0.0
        self.asked: list[int] = []

    def collect(self, generation: int) -> None:
        self.asked.append(generation)
        self.now += self.seconds[generation]


def asked_of(collector: Collector, collections: int) -> tuple[list[int], float]:
    """And how many seconds the loop was told of."""
    garbage = CalledByTheLoop(collector.collect, lambda: collector.now)
    took = 0.0
    while len(collector.asked) < collections:
        took += garbage.processed(SLICE)
    return collector.asked, took


def test_young_objects_are_gone_through_after_so_many_records_and_all_now_and_then() -> None:
    asked, took = asked_of(Collector(young=0.001, old=0.9 * AFFORDABLE_SECONDS), 3 * OLD_EVERY)
    assert asked == [*[0] * (OLD_EVERY - 1), 2] * 3
    assert took == pytest.approx(3 * (OLD_EVERY - 1) * 0.001 + 3 * 0.9 * AFFORDABLE_SECONDS)


@pytest.mark.parametrize(("times", "looks"), [(1.1, 2), (DEAR, 1)])
def test_all_are_not_gone_through_any_more_once_that_took_very_long_or_long_twice_in_a_row(
    times: float, looks: int
) -> None:
    asked, _ = asked_of(Collector(young=2 * AFFORDABLE_SECONDS, old=times * AFFORDABLE_SECONDS), 5 * OLD_EVERY)
    assert asked == [*[*[0] * (OLD_EVERY - 1), 2] * looks, *[0] * (5 - looks) * OLD_EVERY]


def test_all_are_still_gone_through_when_that_took_long_now_and_then() -> None:
    """Else objects in cycles that live for a while would never be let go of, as the machine was busy for a moment."""
    collector = Collector(young=0.001, old=1.1 * AFFORDABLE_SECONDS)
    garbage = CalledByTheLoop(collector.collect, lambda: collector.now)
    while len(collector.asked) < 6 * OLD_EVERY:
        garbage.processed(SLICE)
        collector.seconds[2] = (0.5 if collector.asked.count(2) % 2 else 1.1) * AFFORDABLE_SECONDS
    assert collector.asked.count(2) == 6


def test_little_was_processed_and_nothing_is_gone_through() -> None:
    collector = Collector(1, 1)
    garbage = CalledByTheLoop(collector.collect, lambda: collector.now)
    assert sum(garbage.processed(1) for _ in range(YOUNG_RECORDS - 1)) == 0
    assert collector.asked == []
    assert garbage.processed(1) == 1


REPLACED = """
import gc
from cutwater.subtask.garbage import CalledByTheLoop

largest = 0
def note(phase, info):
    global largest
    if phase == "start":
        largest = max(largest, len(gc.get_objects(generation=0)))

garbage = CalledByTheLoop()
state = {key: [key] for key in range(300_000)}
garbage.begin()
gc.callbacks.append(note)
held = []
for turn in range(3):
    for start in range(0, 300_000, 1000):
        for key in range(start, start + 1000):
            if turn == 1:
                held.append(state[key])  # as a snapshot does
            state[key] = [key]
        garbage.processed(1000)
print(largest)
"""


def test_values_that_are_replaced_are_not_gone_through_all_at_once() -> None:
    """A process of its own: what it does is for all of it."""
    largest = int(subprocess.check_output([sys.executable, "-c", REPLACED], text=True))
    assert 1000 < largest < 2 * YOUNG_RECORDS


CYCLES = """
import gc
from cutwater.subtask.garbage import CalledByTheLoop

class Node:
    alive = 0
    def __init__(self):
        Node.alive += 1
        self.itself = self
    def __del__(self):
        Node.alive -= 1

garbage = CalledByTheLoop(seconds=float)  # on a busy machine one may take too long, and no more would come
garbage.begin()
recent = []
most = 0
for number in range(1_000_000):
    recent.append(Node())
    if len(recent) == 5000:
        recent.clear()
    if number % 1000 == 0:
        garbage.processed(1000)
        most = max(most, Node.alive)
print(most)
"""


def test_objects_in_cycles_are_let_go_of() -> None:
    most = int(subprocess.check_output([sys.executable, "-c", CYCLES], text=True))
    assert most < 100_000


OTHERS = """
import gc
import weakref
from cutwater.subtask.garbage import CalledByTheLoop

class Node:
    pass

before = gc.get_threshold()
garbage = CalledByTheLoop()
node = Node()
node.itself = node
gone = weakref.ref(node)
garbage.begin()
assert gc.get_threshold() != before
garbage.end()
garbage.end()
del node
gc.collect()
print(gc.get_threshold() == before, gone() is None)
"""


def test_a_process_that_serves_others_afterwards_collects_as_before() -> None:
    assert subprocess.check_output([sys.executable, "-c", OTHERS], text=True).split() == ["True", "True"]
