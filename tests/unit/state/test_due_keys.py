"""Keys that wait for their time: each once, the soonest first, and little that is stale beside them."""

from random import Random
from sys import getsizeof

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutwater.state import due_keys
from cutwater.state.due_keys import DueKeys
from cutwater.state.parted_dict import DICTS

TTL = 5
LONG = 100_000
STEPS = st.lists(
    st.tuples(st.sampled_from(["note", "restored", "remove", "due", "wait"]), st.integers(0, 12), st.integers(0, 15)),
    max_size=60,
)


def held(queue: DueKeys) -> int:
    return len(queue._sooner) + len(queue._later)


@given(STEPS)
def test_what_is_due_is_what_a_plain_dict_says(steps: list[tuple[str, int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(due_keys, "TIDY_EVERY", 2)
        patch.setattr(due_keys, "TIDIED", 4)
        queue, model, now = DueKeys(15), dict[int, int](), 0
        for step, key, number in steps:
            match step:
                case "note":
                    queue.note(key, now + TTL)
                    model.setdefault(key, now + TTL)
                case "restored":
                    queue.note_restored(key, number)
                    model.setdefault(key, number)
                case "remove":
                    queue.remove(key)
                    model.pop(key, None)
                case "wait":
                    now += number
                case "due":
                    found = queue.due(now, 1 + number)
                    due = [each for each, time in model.items() if time <= now]
                    assert len(set(found)) == len(found) == min(1 + number, len(due))
                    assert set(found) <= set(due)
                    for each in found[: key % 4]:
                        queue.remove(each)
                        del model[each]
            assert (len(queue), key in queue.of_slot[key]) == (len(model), key in model)


def test_those_that_were_restored_come_in_order_between_the_others() -> None:
    queue = DueKeys(LONG)
    for number in range(0, 100, 2):
        queue.note(f"noted {number}", number)
    restored = list(range(1, 100, 2))
    Random(1).shuffle(restored)
    for number in restored:
        queue.note_restored(f"restored {number}", number)
    found = queue.due(89, 1000)
    assert [int(key.split()[1]) for key in found] == list(range(90))


@pytest.mark.parametrize("stays", [0, 1000])
def test_keys_that_come_and_go_leave_little_behind(stays: int) -> None:
    queue = DueKeys(LONG)
    for number in range(stays):
        queue.note(("stays", number), number)
    most = 0
    for number in range(10_000):
        key = "hot" if number % 2 else number
        queue.note(key, stays + number)
        queue.remove(key)
        most = max(most, held(queue))
    assert most <= 4 * (stays + due_keys.TIDY_EVERY)
    assert queue.due(stays, 2 * stays) == [("stays", number) for number in range(stays)]


def test_keys_that_go_long_after_they_came_leave_little_behind() -> None:
    queue, there, most = DueKeys(LONG), 500, 0
    for number in range(20_000):
        queue.note(number, number)
        if number % 100:  # some of them are forgotten
            queue.remove(number - there)
        most = max(most, held(queue) / len(queue))
    assert most <= 4


def test_it_does_not_grow_at_once() -> None:
    queue = DueKeys(LONG)
    for number in range(20_000):
        queue.note(number, number)
    for number in range(20_000, 40_000):
        queue.note_restored(number, number)
    sizes = [getsizeof(part) for part in queue._entries.dicts]
    assert len(sizes) == DICTS and max(sizes) < 4 * sum(sizes) / DICTS


@pytest.mark.parametrize("restored", [False, True])
def test_a_time_of_a_clock_that_was_ahead_keeps_nobody_waiting(restored: bool) -> None:
    queue = DueKeys(TTL)
    for number in range(3):
        (queue.note_restored if restored else queue.note)(f"ahead {number}", LONG + number)
    looked_at = []
    for now in range(60):
        queue.note(now, now + TTL)
        for key in queue.due(now, 10):
            queue.remove(key)
            looked_at.append((now, key))
            if isinstance(key, str):
                queue.note(key, LONG)  # it is not over yet
    others = [(now, key) for now, key in looked_at if isinstance(key, int)]
    assert others == [(number + TTL, number) for number in range(60 - TTL)]
    times = [now for now, key in looked_at if key == "ahead 1"]
    assert len(times) > 3 and max(np.diff([0, *times])) <= 2 * TTL, "what it holds beside may be over"
    assert len(queue) == TTL + 3
