"""The keys that a heap would give next."""

from heapq import heapify, heappop
from random import Random

from cutwater.operators.soonest import soonest_keys


def test_keys_come_in_the_order_of_the_heap_which_stays_as_it_is() -> None:
    random = Random(1)
    for size in range(60):
        heap = [(random.randrange(20), number, object()) for number in range(size)]
        heapify(heap)
        before = list(heap)
        for until, most in ((-1, 5), (10, 5), (10, 100), (20, 7)):
            found = soonest_keys(heap, until, most)
            assert heap == before
            rest = list(before)
            order = [heappop(rest) for _ in before]
            assert found == [key for time, _, key in order if time <= until][:most]
