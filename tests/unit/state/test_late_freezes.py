"""What is frozen late is what there was: once for all who need it, whoever comes first, and let go with the last of them."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from cutwater.state.late_freezes import LateFreezes, LateMoment


@dataclass
class Held:
    value: int
    is_released: bool = False

    def release(self) -> None:
        assert not self.is_released
        self.is_released = True


@dataclass
class Bucket:
    value: int
    freezes: list[Held] = field(default_factory=list)

    def held(self) -> Held:
        self.freezes.append(Held(self.value))
        return self.freezes[-1]


def test_a_moment_freezes_nothing_and_what_is_touched_once_for_all_who_read() -> None:
    buckets = {number: Bucket(number) for number in range(3)}
    late = LateFreezes(buckets)
    first, second = late.moment(), late.moment()
    assert not any(bucket.freezes for bucket in buckets.values())
    for _ in range(2):
        late.note(0)
        buckets[0].value += 10
    for moment in (first, second, first):
        assert {bucket: held.value for bucket, held in moment.buckets()} == {0: 0, 1: 1, 2: 2}
    assert [len(bucket.freezes) for bucket in buckets.values()] == [1, 1, 1]
    late.note(1)
    assert len(buckets[1].freezes) == 1


def test_nothing_is_frozen_when_nobody_reads() -> None:
    buckets = {0: Bucket(0)}
    late = LateFreezes(buckets)
    late.note(0)
    late.moment().release()
    late.note(0)
    assert not buckets[0].freezes


def test_what_a_later_moment_noted_stays_for_an_earlier_one_that_has_nothing_of_its_own() -> None:
    buckets = {0: Bucket(0), 1: Bucket(1)}
    late = LateFreezes(buckets)
    earlier = late.moment()
    late.note(0)
    buckets[0].value = 10
    later = late.moment()
    for bucket in (0, 1):
        late.note(bucket)
        buckets[bucket].value = 20
    later.release()
    assert [held.is_released for held in buckets[0].freezes] == [False, True]
    assert {bucket: held.value for bucket, held in earlier.buckets()} == {0: 0, 1: 1}
    earlier.release()
    assert all(held.is_released for bucket in buckets.values() for held in bucket.freezes)


@pytest.mark.parametrize("seed", range(20))
def test_moments_hold_what_there_was_and_nothing_stays_frozen_behind_the_last(seed: int) -> None:
    random = np.random.default_rng(seed)
    buckets: dict[int, Bucket] = {}
    made: list[Bucket] = []
    late = LateFreezes(buckets)
    read: list[tuple[LateMoment[Held], dict[int, int]]] = []
    for number in range(500):
        bucket = int(random.integers(8))
        match random.choice(["touch", "drop", "moment", "read", "release"], p=[0.5, 0.1, 0.15, 0.1, 0.15]):
            case "touch":
                late.note(bucket)
                if bucket not in buckets:
                    buckets[bucket] = Bucket(number)
                    made.append(buckets[bucket])
                buckets[bucket].value = number
            case "drop" if bucket in buckets:
                late.note(bucket)
                del buckets[bucket]
            case "moment":
                read.append((late.moment(), {each: content.value for each, content in buckets.items()}))
            case "read" if read:
                moment, then = read[int(random.integers(len(read)))]
                found = dict(moment.buckets())
                assert {each: held.value for each, held in found.items()} == then
                assert not any(held.is_released for held in found.values())
            case "release" if read:
                read.pop(int(random.integers(len(read))))[0].release()
    for moment, then in read:
        assert {each: held.value for each, held in moment.buckets()} == then
        moment.release()
    freezes = [held for bucket in made for held in bucket.freezes]
    assert freezes and all(held.is_released for held in freezes)
