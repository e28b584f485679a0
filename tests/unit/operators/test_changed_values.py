"""Keys that changed since a window was told early."""

import pytest

from cutwater.operators.early_results import ChangedValues
from cutwater.state import parted_dict


@pytest.mark.parametrize("most_in_one", [10, 1 << 16])
def test_each_key_that_changed_is_there_once_in_the_order_of_the_first_time(
    most_in_one: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parted_dict, "MOST_IN_ONE", most_in_one)
    changed = ChangedValues()
    changed.add(range(20, 0, -1))
    changed.add([5, 30, None, 30, 7])
    changed.add(range(25))
    assert list(changed) == [*range(20, 0, -1), 30, None, 0, *range(21, 25)]
    assert list(ChangedValues()) == []


def test_no_dict_has_all_of_many_keys() -> None:
    changed = ChangedValues()
    for start in range(0, 200_000, 10_000):
        changed.add(range(start, start + 10_000))
    assert isinstance(changed._known, parted_dict.PartedDict)
    assert max(map(len, changed._known.dicts)) < 20_000
