from collections.abc import Callable

from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.checkpoint.sequence import claim_next, clean_up, highest_number


class Overtaken(MemoryStorage):
    """Runs something between a caller's look at the markers and its claim: the schedule of a race, made certain."""

    def __init__(self) -> None:
        super().__init__()
        self.before_create: Callable[[], None] | None = None

    def create(self, name: str, content: bytes) -> bool:
        if self.before_create is not None:
            happens, self.before_create = self.before_create, None
            happens()
        return super().create(name, content)


def claim(storage: MemoryStorage) -> int:
    number = claim_next(storage, "ids/", lambda number: f"ids/{number}", b"")
    clean_up(storage, "ids/", number)
    return number


def test_numbers_count_up_from_one_and_old_markers_go() -> None:
    storage = MemoryStorage()
    assert [claim(storage) for _ in range(100)] == list(range(1, 101))
    assert len(list(storage.list("ids/"))) <= 32
    assert highest_number(storage, "ids/") == 100


def test_a_number_whose_marker_was_cleaned_away_meanwhile_is_not_given_out_again() -> None:
    storage = Overtaken()
    given = [claim(storage)]
    storage.before_create = lambda: given.extend(claim(storage) for _ in range(50))
    late = claim(storage)  # it looked when 2 was next
    assert "ids/2" not in list(storage.list("ids/"))
    assert late not in given
    assert late == 52


def test_whoever_loses_the_race_for_a_number_gets_the_next() -> None:
    storage = Overtaken()
    given: list[int] = []
    storage.before_create = lambda: given.append(claim(storage))
    assert (claim(storage), given) == (2, [1])


def test_a_sequence_may_begin_higher() -> None:
    assert claim_next(MemoryStorage(), "ids/", lambda number: f"ids/{number}", b"", at_least=7) == 7
